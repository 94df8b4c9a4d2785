"""scikit-learn's digits: 1797 real handwritten digits of 8 x 8 pixels that come with an installed package."""

from __future__ import annotations

import collections
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from sklearn import datasets

NUM_TEST = 397
INPUT_SPEC = (tf.TensorSpec([None, 64], tf.float32), tf.TensorSpec([None], tf.int32))


class Digits(NamedTuple):
    """The data: `clients[k]` and `test` are pairs (pixels [n, 64] in [0, 1], labels [n])."""

    clients: list[tuple[np.ndarray, np.ndarray]]
    test: tuple[np.ndarray, np.ndarray]


def load(num_clients: int = 20, seed: int = 0) -> Digits:
    """Returns the digits, split at random into a test set and clients of (almost) equal size.

    Args:
      num_clients: 1 to 1400, the number of training examples.
      seed: of the split; the same seed gives the same clients.
    """
    x, y = datasets.load_digits(return_X_y=True)
    num_train = len(y) - NUM_TEST
    if not 1 <= num_clients <= num_train:
        raise ValueError(f"num_clients must be an integer from 1 to {num_train}, found {num_clients!r}.")
    order = np.random.default_rng(seed).permutation(len(y))
    x, y = (x[order] / 16.0).astype(np.float32), y[order].astype(np.int32)
    clients = list(
        zip(np.array_split(x[:num_train], num_clients), np.array_split(y[:num_train], num_clients), strict=True)
    )
    return Digits(clients, (x[num_train:], y[num_train:]))


def build_keras_model(seed: int = 0) -> tf.keras.Model:
    """Returns an MLP 64-50-10 that gives logits, with seeded initial weights."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer((64,)),
            tf.keras.layers.Dense(50, "relu", kernel_initializer=tf.keras.initializers.GlorotUniform(seed)),
            tf.keras.layers.Dense(10, kernel_initializer=tf.keras.initializers.GlorotUniform(seed + 1)),
        ]
    )


def accuracy(
    weights: tff.learning.models.ModelWeights, keras_model: tf.keras.Model, test: tuple[np.ndarray, np.ndarray]
) -> float:
    """Returns the share of test examples that `keras_model` gets right with `weights`, which it keeps."""
    weights.assign_weights_to(keras_model)
    return float((keras_model.predict_on_batch(test[0]).argmax(1) == test[1]).mean())


def build_model(seed: int = 0) -> tff.learning.models.FunctionalModel:
    """Returns the model for TFF, with cross-entropy loss and accuracy as its metric."""
    return tff.learning.models.functional_model_from_keras(
        build_keras_model(seed),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        INPUT_SPEC,
        collections.OrderedDict(accuracy=tf.keras.metrics.SparseCategoricalAccuracy),
    )
