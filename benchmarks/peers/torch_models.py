"""The workloads' models in PyTorch and the local steps, for the peers that run on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from benchmarks.peers import workloads
from benchmarks.peers.workloads import Workload

Tensors = Sequence[torch.Tensor]


class CharacterLSTM(nn.Module):
    """An embedding, LSTM layers, and logits of the last step."""

    def __init__(self, weights: Tensors) -> None:
        super().__init__()
        embedding, kernel, recurrent, *_ = weights
        self.embedding = nn.Embedding(*embedding.shape)
        self.lstm = nn.LSTM(kernel.shape[0], recurrent.shape[0], num_layers=2, batch_first=True)
        self.dense = nn.Linear(*weights[-2].shape)
        # Keras has one bias per gate: the other of PyTorch's two stays 0.
        for bias in (self.lstm.bias_hh_l0, self.lstm.bias_hh_l1):
            nn.init.zeros_(bias).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns logits."""
        outputs, _ = self.lstm(self.embedding(x))
        return self.dense(outputs[:, -1])


def _dense_layers(weights: Tensors) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for kernel in weights[::2]:
        layers += [nn.Linear(*kernel.shape), nn.ReLU()]
    return layers[:-1]


def build_model(workload: Workload) -> nn.Module:
    """The model with the workload's weights."""
    weights = [torch.tensor(w) for w in workload.weights]
    model: nn.Module
    if workload.model == "lstm":
        model = CharacterLSTM(weights)
    elif workload.model == "cnn":
        model = nn.Sequential(
            nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), *_dense_layers(weights[4:]),
        )  # fmt: skip
        # PyTorch flattens channels first.
        weights[4] = weights[4].reshape(5, 5, 64, -1).permute(2, 0, 1, 3).reshape(weights[4].shape)
    else:
        model = nn.Sequential(*_dense_layers(weights))
    with torch.no_grad():
        for parameter, weight in zip(trainable(model), weights, strict=True):
            is_table = parameter.shape == weight.shape and workload.model == "lstm" and weight is weights[0]
            parameter.copy_(weight if is_table else _transposed(weight))
    return model


def _transposed(weight: torch.Tensor) -> torch.Tensor:
    """From Keras's layout, with outputs last, to PyTorch's, with outputs first."""
    return weight.permute(3, 2, 0, 1) if weight.dim() == 4 else weight.T if weight.dim() == 2 else weight


def trainable(model: nn.Module) -> list[torch.Tensor]:
    """The parameters that are trained, in the workload's order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def tensors(examples: tuple[np.ndarray, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's examples as PyTorch takes them: images with channels first, labels of 64 bits."""
    x, y = map(torch.tensor, examples)
    return (x.permute(0, 3, 1, 2).contiguous() if x.dim() == 4 else x), y.long()


def train(
    model: nn.Module, theta: Tensors, correction: Tensors | None, x: torch.Tensor, y: torch.Tensor, orders: np.ndarray
) -> float:
    """Takes the local steps of `workloads` from theta, a step per row of `orders`; returns their mean loss.

    Without a correction, which is -g_k, they are FedProx's.
    """
    weights = trainable(model)
    with torch.no_grad():
        for w, t in zip(weights, theta, strict=True):
            w.copy_(t)
        # What of the gradient's additions stays the same: l2 (w - theta) - g_k = l2 w - constant.
        constants = [workloads.L2 * t for t in theta]
        if correction is not None:
            constants = [c - g for c, g in zip(constants, correction, strict=True)]
    losses = 0.0
    for rows in torch.from_numpy(orders):
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for gradient, w, constant in zip(gradients, weights, constants, strict=True):
                gradient.add_(w, alpha=workloads.L2).sub_(constant)
            norm = float(torch.stack([torch.linalg.vector_norm(g) for g in gradients]).norm())
            lr = workloads.LEARNING_RATE * min(1.0, workloads.CLIP_NORM / norm)
            for gradient, w in zip(gradients, weights, strict=True):
                w.mul_(1 - workloads.LEARNING_RATE * workloads.WEIGHT_DECAY).sub_(gradient, alpha=lr)
        losses += float(loss.detach())
    return losses / len(orders)
