"""What every peer trains: clients' examples, first weights and settings, in NumPy alone.

| workload | model | clients x examples | epochs | batch |
|---|---|---|---|---|
| `mlp` | 784-200-200-10 | 10 x 600 | 5 | 10 |
| `cnn` | the paper's for CIFAR-10 | 10 x 500 images | 1 | 50 |
| `lstm` | the paper's for Shakespeare | 10 x 100 windows of 80 characters | 1 | 20 |
| `softmax_1000` | softmax regression, 60-10 | 1000 x 20 | 1 | 10 |
| `mlp_1000` | 60-64-64-10 | 1000 x 20 | 1 | 10 |
| `tiny` | 8-6-6-3 | 3 x 20 | 2 | 5 |

The local step that a peer written by hand takes is that of FedDyn with the paper's clipping and weight decay:

    w <- w - lr (clip(grad L_k(w) - g_k + l2 (w - theta)) + weight_decay w),    g_k <- g_k - l2 (w - theta) at the end

and the server's is h <- h - l2 mean(delta), theta <- theta + mean(delta) - h / l2, with delta = w - theta.

Weights are in Keras's layout and order: dense kernels [in, out], convolutions [height, width, in, out] on images
[height, width, channel], LSTM kernels [in, 4 units] with the gates in the order i, f, c, o and one bias.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

LEARNING_RATE = 0.1
CLIP_NORM = 10.0
WEIGHT_DECAY = 1e-3
L2 = 1e-2

Examples = tuple[np.ndarray, np.ndarray]
Weights = list[np.ndarray]


class Workload(NamedTuple):
    """What a round trains.

    Attributes:
      model: `softmax`, `mlp`, `cnn` or `lstm`.
      clients: their examples: x, float32 (`lstm`: int32), and int32 labels; as many for each.
      weights: the server's before round 1.
      epochs: passes over a client's examples per round.
      batch_size: examples per step; divides the number of a client's examples.
    """

    model: str
    clients: list[Examples]
    weights: Weights
    epochs: int
    batch_size: int

    @property
    def num_classes(self) -> int:
        """How many labels there are."""
        return len(self.weights[-1])

    @property
    def steps_per_epoch(self) -> int:
        """Local steps of a client per epoch."""
        return len(self.clients[0][1]) // self.batch_size

    def orders(self, round_number: int, client: int) -> np.ndarray:
        """The rows of each minibatch, [steps, batch_size]: shuffled anew in each epoch of each round."""
        rng = np.random.default_rng((round_number, client))
        num_examples = len(self.clients[client][1])
        rows = np.concatenate([rng.permutation(num_examples) for _ in range(self.epochs)])
        return rows.reshape(-1, self.batch_size)

    def digest(self) -> str:
        """Of all arrays: who has the same digest has the same work."""
        arrays = [array for examples in self.clients for array in examples] + self.weights
        hashed = hashlib.sha256(repr((self.model, self.epochs, self.batch_size)).encode())
        for array in arrays:
            hashed.update(f"{array.dtype}{array.shape}".encode())
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()[:16]


def _labelled_points(num_clients: int, num_examples: int, shape: tuple[int, ...], num_classes: int) -> list[Examples]:
    """Gaussian points about a mean per class, near enough to one another that a round does not learn them all."""
    rng = np.random.default_rng(0)
    means = rng.normal(scale=0.1, size=(num_classes, *shape))
    clients = []
    for _ in range(num_clients):
        y = rng.integers(0, num_classes, num_examples)
        x = means[y] + rng.normal(size=(num_examples, *shape))
        clients.append((x.astype(np.float32), y.astype(np.int32)))
    return clients


def _texts(num_clients: int, num_examples: int, length: int, num_characters: int) -> list[Examples]:
    """Windows of random characters, some more frequent than others, and the character after each."""
    rng = np.random.default_rng(0)
    uniform = rng.integers(0, num_characters, size=(num_clients, num_examples, length + 1))
    texts = (uniform**2 // num_characters).astype(np.int32)
    return [(np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, -1])) for text in texts]


def _dense(rng: np.random.Generator, *sizes: int) -> Weights:
    """Kernels and biases of dense layers from the first size to the last."""
    weights = []
    for num_inputs, num_outputs in itertools.pairwise(sizes):
        weights += [_glorot(rng, num_inputs, num_outputs), np.zeros(num_outputs, np.float32)]
    return weights


def _glorot(rng: np.random.Generator, *shape: int) -> np.ndarray:
    receptive_field = int(np.prod(shape[:-2]))
    bound = np.sqrt(6 / (receptive_field * (shape[-2] + shape[-1])))
    return rng.uniform(-bound, bound, shape).astype(np.float32)


def _lstm_layer(rng: np.random.Generator, num_inputs: int, units: int) -> Weights:
    bias = np.zeros(4 * units, np.float32)
    bias[units : 2 * units] = 1.0  # of the forget gate, as Keras has it
    return [_glorot(rng, num_inputs, 4 * units), _glorot(rng, units, 4 * units), bias]


def _mlp() -> Workload:
    weights = _dense(np.random.default_rng(1), 784, 200, 200, 10)
    return Workload("mlp", _labelled_points(10, 600, (784,), 10), weights, epochs=5, batch_size=10)


def _cnn() -> Workload:
    rng = np.random.default_rng(1)
    weights = [
        _glorot(rng, 5, 5, 3, 64),
        np.zeros(64, np.float32),
        _glorot(rng, 5, 5, 64, 64),
        np.zeros(64, np.float32),
    ]
    weights += _dense(rng, 5 * 5 * 64, 384, 192, 10)
    return Workload("cnn", _labelled_points(10, 500, (32, 32, 3), 10), weights, epochs=1, batch_size=50)


def _lstm() -> Workload:
    rng = np.random.default_rng(1)
    embedding = rng.uniform(-0.05, 0.05, (80, 8)).astype(np.float32)
    weights = [embedding, *_lstm_layer(rng, 8, 100), *_lstm_layer(rng, 100, 100), *_dense(rng, 100, 80)]
    return Workload("lstm", _texts(10, 100, 80, 80), weights, epochs=1, batch_size=20)


def _softmax_1000() -> Workload:
    weights = _dense(np.random.default_rng(1), 60, 10)
    return Workload("softmax", _labelled_points(1000, 20, (60,), 10), weights, epochs=1, batch_size=10)


def _mlp_1000() -> Workload:
    weights = _dense(np.random.default_rng(1), 60, 64, 64, 10)
    return Workload("mlp", _labelled_points(1000, 20, (60,), 10), weights, epochs=1, batch_size=10)


def _tiny() -> Workload:
    weights = _dense(np.random.default_rng(1), 8, 6, 6, 3)
    return Workload("mlp", _labelled_points(3, 20, (8,), 3), weights, epochs=2, batch_size=5)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "lstm": _lstm,
    "softmax_1000": _softmax_1000,
    "mlp_1000": _mlp_1000,
    "tiny": _tiny,
}
