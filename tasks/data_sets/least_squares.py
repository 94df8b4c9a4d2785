"""Least squares with clients that disagree: convex, smooth, with a known optimum. Client drift in its purest form."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


class LeastSquares(NamedTuple):
    """`L_k(w) = |x_k w - y_k|^2 / (2 n_k)` for the clients `(x_k [n, d], y_k [n])`, all of equal weight."""

    clients: list[tuple[np.ndarray, np.ndarray]]

    def hessians(self) -> np.ndarray:
        """The clients' second derivatives, [m, d, d]."""
        return np.array([x.astype(np.float64).T @ x / len(y) for x, y in self.clients])

    def linear_terms(self) -> np.ndarray:
        """`x_k' y_k / n_k`, so that `grad L_k(w) = hessian_k w - linear_k`; [m, d]."""
        return np.array([x.astype(np.float64).T @ y / len(y) for x, y in self.clients])

    def smoothness(self) -> float:
        """beta, the largest curvature of any client's loss."""
        return float(np.linalg.eigvalsh(self.hessians()).max())

    def optimum(self) -> np.ndarray:
        """theta*, the minimiser of the mean of the clients' losses."""
        return np.linalg.solve(self.hessians().mean(0), self.linear_terms().mean(0))

    def risk(self, w: np.ndarray) -> float:
        """R(w), the mean of the clients' losses."""
        return float(np.mean([np.mean((x.astype(np.float64) @ w - y) ** 2) / 2 for x, y in self.clients]))


def generate(num_clients: int = 20, dim: int = 10, num_examples: int = 40, seed: int = 0) -> LeastSquares:
    """Returns clients whose inputs are scaled, and whose true weights are moved, each in its own way."""
    rng = np.random.default_rng(seed)
    clients = []
    for _ in range(num_clients):
        x = rng.normal(size=(num_examples, dim)) * rng.uniform(0.2, 1.5, dim)
        y = x @ (np.ones(dim) + rng.normal(size=dim)) + 0.1 * rng.normal(size=num_examples)
        clients.append((x.astype(np.float32), y.astype(np.float32)))
    return LeastSquares(clients)


def build_model(dim: int = 10) -> tff.learning.models.FunctionalModel:
    """Returns the linear model `x w` from w = 0, with half the mean squared error as its loss."""

    @tf.function
    def predict_on_batch(weights: Any, x: tf.Tensor, training: bool = True) -> tf.Tensor:
        del training
        ((w,), _) = weights
        return tf.linalg.matvec(x, w)

    def loss(output: tf.Tensor, label: tf.Tensor, sample_weight: Any = None) -> tf.Tensor:
        del sample_weight
        return 0.5 * tf.reduce_mean(tf.square(output - label))

    return tff.learning.models.FunctionalModel(
        initial_weights=((np.zeros(dim, np.float32),), ()),
        predict_on_batch_fn=predict_on_batch,
        loss_fn=loss,
        input_spec=(tf.TensorSpec([None, dim], tf.float32), tf.TensorSpec([None], tf.float32)),
    )
