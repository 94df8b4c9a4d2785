"""The TensorFlow twins of the models in `reference.py`."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def spec(features: int) -> tuple[tf.TensorSpec, tf.TensorSpec]:
    """The input spec of a classifier: rows of features and integer labels."""
    return tf.TensorSpec([None, features], tf.float32), tf.TensorSpec([None], tf.int32)


def from_layers(layers: list[Any], features: int, seed: int = 0) -> tff.learning.models.FunctionalModel:
    """A classifier from Keras layers, with the accuracy as its metric."""
    tf.keras.utils.set_random_seed(seed)
    keras_model = tf.keras.Sequential([tf.keras.layers.InputLayer((features,)), *layers])
    return tff.learning.models.functional_model_from_keras(
        keras_model,
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        spec(features),
        collections.OrderedDict(accuracy=tf.keras.metrics.SparseCategoricalAccuracy),
    )


def softmax_regression(features: int = 6, classes: int = 4) -> tff.learning.models.FunctionalModel:
    """Twin of `reference.softmax_regression`."""
    return from_layers([tf.keras.layers.Dense(classes, bias_initializer="normal")], features)


def two_layer_mlp(features: int = 6, hidden: int = 5, classes: int = 4) -> tff.learning.models.FunctionalModel:
    """Twin of `reference.two_layer_mlp`."""
    return from_layers(
        [
            tf.keras.layers.Dense(hidden, "relu", bias_initializer="normal"),
            tf.keras.layers.Dense(classes, bias_initializer="normal"),
        ],
        features,
    )


def quadratic(a: float, theta: list[float]) -> tff.learning.models.FunctionalModel:
    """Twin of `reference.quadratic`, starting from `theta`."""

    @tf.function
    def predict_on_batch(weights: Any, x: tf.Tensor, training: bool = True) -> tf.Tensor:
        del training
        ((w,), _) = weights
        return 0.5 * a * tf.reduce_sum(w * w) - tf.linalg.matvec(x, w)

    def loss(output: tf.Tensor, label: Any, sample_weight: Any = None) -> tf.Tensor:
        del label, sample_weight
        return tf.reduce_mean(output)

    return tff.learning.models.FunctionalModel(
        initial_weights=((np.asarray(theta, np.float32),), ()),
        predict_on_batch_fn=predict_on_batch,
        loss_fn=loss,
        input_spec=spec(len(theta)),
    )


def examples(n: int, features: int = 6, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random examples of a classifier."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, features)).astype(np.float32), rng.integers(0, classes, n).astype(np.int32)


def dataset(x: np.ndarray, y: np.ndarray, batch_size: int | None = None) -> tf.data.Dataset:
    """A client's data set: one batch of everything, or batches of `batch_size`."""
    if batch_size is None:
        return tf.data.Dataset.from_tensors((x, y))
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)


def rows(b: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """The one-example data of a quadratic client with linear term `b`."""
    return np.asarray([b], np.float32), np.zeros(1, np.int32)
