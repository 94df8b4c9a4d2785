"""pfl-research's FedProx in its simulation, in one process: its algorithm, its loop, PyTorch models."""

from __future__ import annotations

import os
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.fedprox import FedProx, FedProxParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers import protocol, torch_models, workloads


class Model(torch.nn.Module):
    """A model with the loss that pfl asks for; it adds up the losses of training."""

    def __init__(self, workload: workloads.Workload) -> None:
        super().__init__()
        self.model = torch_models.build_model(workload)
        self.losses: list[float] = []

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The mean cross-entropy of a batch."""
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        self.losses.append(float(loss.detach()))
        return loss

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        """None: nothing is evaluated."""
        return {}


class TakeTurns(TrainingProcessCallback):
    """Begins a round when it is asked for, and says when it is done."""

    def __init__(self, turns: protocol.Turns, model: Model) -> None:
        self._turns = turns
        self._model = model

    def on_train_begin(self, *, model: Any) -> Metrics:
        """Round 1."""
        self._turns.wait()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Returns whether to stop."""
        losses = self._model.losses
        self._turns.done(sum(losses) / len(losses))
        losses.clear()
        return not self._turns.wait(), Metrics()


def main() -> None:
    name = protocol.parser().parse_args().workload
    workload = workloads.WORKLOADS[name]()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = Model(workload)
    data = [PyTorchTensorDataset(torch_models.tensors(examples)) for examples in workload.clients]
    num_clients = len(data)
    backend = SimulatedBackend(
        training_data=FederatedDataset(data.__getitem__, MinimizeReuseUserSampler(list(range(num_clients)))),
        val_data=None,
    )
    parameters = FedProxParams(
        central_num_iterations=10**9, evaluation_frequency=10**9, train_cohort_size=num_clients, val_cohort_size=0,
        mu=workloads.L2,
    )  # fmt: skip
    training = NNTrainHyperParams(
        local_batch_size=workload.batch_size, local_num_epochs=workload.epochs,
        local_learning_rate=workloads.LEARNING_RATE, local_max_grad_norm=workloads.CLIP_NORM,
    )  # fmt: skip
    pfl_model = PyTorchModel(
        model,
        lambda weights, lr: torch.optim.SGD(weights, lr=lr, weight_decay=workloads.WEIGHT_DECAY),
        central_optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
    )
    turns = protocol.Turns(workload, ["pfl", "torch"])
    FedProx().run(parameters, backend, pfl_model, training, callbacks=[TakeTurns(turns, model)])


if __name__ == "__main__":
    main()
