"""The workloads' models in Keras, for the peers that run on TensorFlow."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks.peers.workloads import Workload
from tasks import models


def keras_model(workload: Workload) -> tf.keras.Model:
    """The model with the workload's weights."""
    num_inputs, num_outputs, *_ = workload.weights[0].shape
    build: dict[str, Callable[[], tf.keras.Model]] = {
        "softmax": lambda: models.build_softmax_regression(num_inputs, num_outputs),
        "mlp": lambda: models.build_mlp(num_inputs, num_outputs, workload.num_classes),
        "cnn": lambda: models.build_cnn(workload.num_classes),
        "lstm": models.build_lstm,
    }
    model = build[workload.model]()
    model.set_weights(workload.weights)
    return model


def loss() -> tf.keras.losses.Loss:
    """Cross-entropy of logits."""
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def input_spec(workload: Workload) -> tuple[tf.TensorSpec, tf.TensorSpec]:
    """Of a batch."""
    x, _ = workload.clients[0]
    return tf.TensorSpec([None, *x.shape[1:]], x.dtype), tf.TensorSpec([None], tf.int32)


def metrics() -> collections.OrderedDict[str, Any]:
    """What is measured beside the loss."""
    return collections.OrderedDict(accuracy=tf.keras.metrics.SparseCategoricalAccuracy)
