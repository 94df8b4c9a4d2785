"""Says whether this machine computes as another one did, by trainings in plain TensorFlow and NumPy.

    python -m tests.support.plain_training      prints the digest of their results

Nothing of this project takes part: a change here cannot change the digest, and a machine that has another one rounds
otherwise (another processor, other libraries, other settings of oneDNN).
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import numpy as np
import tensorflow as tf


def digest() -> str:
    """Returns a digest of the bits of two trainings, and of what metrics take logarithms of."""
    rng = np.random.default_rng(0)
    # The sizes of the task `synthetic`, and some whose products are cut into other blocks where vectors are shorter.
    values = [*_train(rng, [60, 10], batch=10, steps=200), *_train(rng, [784, 200, 10], batch=50, steps=3)]
    found = hashlib.sha256()
    for value in values:
        found.update(np.asarray(value).tobytes())
    return found.hexdigest()


def _train(rng: np.random.Generator, sizes: list[int], batch: int, steps: int) -> list[Any]:
    """The weights, losses and measurements of a perceptron's SGD with l1 on random examples."""
    x = rng.standard_normal((steps, batch, sizes[0])).astype(np.float32)
    y = rng.integers(0, sizes[-1], (steps, batch), np.int32)
    weights = [tf.constant(0.1 * rng.standard_normal(shape), tf.float32) for shape in itertools.pairwise(sizes)]

    def logits_of(weights: list[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
        for w in weights[:-1]:
            x = tf.nn.relu(tf.matmul(x, w))
        return tf.matmul(x, weights[-1])

    @tf.function
    def step(weights: list[tf.Tensor], x: tf.Tensor, y: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits_of(weights, x)))
        gradients = tape.gradient(loss, weights)
        return [w - 0.05 * (g + 1e-4 * tf.sign(w)) for w, g in zip(weights, gradients, strict=True)], loss

    losses = []
    for examples, labels in zip(x, y, strict=True):
        weights, loss = step(weights, tf.constant(examples), tf.constant(labels))
        losses.append(loss)
    probabilities = tf.nn.softmax(logits_of(weights, x.reshape(-1, sizes[0])))  # as many at once as are evaluated
    bins = np.trunc(weights[-1].numpy().ravel() / 0.01).astype(int)
    shares = np.unique(bins, return_counts=True)[1] / bins.size
    return [*weights, *losses, tf.math.log(probabilities), tf.norm(weights[-1]), -np.sum(shares * np.log2(shares))]


if __name__ == "__main__":
    print(digest())
