"""Accuracy and loss of a model on a task's central test set or on clients' own data, compiled once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks.task import Task

_BATCH = 1000


class Evaluation(NamedTuple):
    """The share of test examples that are right, and their mean cross-entropy."""

    accuracy: float
    loss: float


class Evaluator:
    """Evaluates weights on the test set of a task, and on the data of its clients."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._model = task.build_keras_model()

        @tf.function(input_signature=task.input_spec)
        def count(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            logits = self._model(x, training=False)
            right = tf.math.count_nonzero(tf.equal(tf.argmax(logits, 1, tf.int32), tf.cast(y, tf.int32)))
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
            return right, tf.reduce_sum(tf.cast(loss, tf.float64))

        # Traced here: once TFF has made models in graphs of its own, Keras no longer lets this one be called.
        count.get_concrete_function()
        self._count = count

    def evaluate(self, weights: tff.learning.models.ModelWeights) -> Evaluation:
        """Returns the test accuracy and loss of `weights`."""
        weights.assign_weights_to(self._model)
        return self._evaluate_on(*self._task.test)

    def evaluate_clients(
        self, weights: tff.learning.models.ModelWeights, clients: Iterable[int]
    ) -> Iterator[tuple[int, Evaluation]]:
        """Yields the number of examples of each client, and accuracy and loss of `weights` on them (0 if none)."""
        weights.assign_weights_to(self._model)
        for client in clients:
            x, y = self._task.clients[client]
            yield len(y), self._evaluate_on(x, y) if len(y) else Evaluation(0.0, 0.0)

    def _evaluate_on(self, x: np.ndarray, y: np.ndarray) -> Evaluation:
        right, loss = 0, 0.0
        for start in range(0, len(y), _BATCH):
            part = self._count(x[start : start + _BATCH], y[start : start + _BATCH])
            right += int(part[0])
            loss += float(part[1])
        return Evaluation(right / len(y), loss / len(y))
