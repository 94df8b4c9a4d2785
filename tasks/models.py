"""The paper's Keras models, with their exact numbers of parameters.

| function | data | parameters |
|---|---|---|
| `build_mlp(784, 200, 10)` | MNIST | 199 210 |
| `build_mlp(784, 100, 10)` | EMNIST-L | 89 610 |
| `build_cnn(10)` | CIFAR-10 | 797 962 |
| `build_cnn(100)` | CIFAR-100 | 815 332 |
| `build_lstm()` | Shakespeare | 132 720 |

The paper counts 133 520 for Shakespeare: PyTorch's LSTM has two bias vectors a gate where Keras has one (2 layers x 4
gates x 100 fewer). The models give logits. `initializer` is `"keras"` for Keras's defaults, or `"torch"` for those of
PyTorch, which the paper's code was written in: uniform in +-1/sqrt(fan_in), biases too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tff_fen.checks import check_name

INITIALIZERS: tuple[str, ...] = ("keras", "torch")
NUM_CHARACTERS = 80
"""Shakespeare's vocabulary."""


def build_softmax_regression(
    num_inputs: int, num_classes: int, *, initializer: str = "keras", seed: int = 0
) -> tf.keras.Model:
    """Returns a linear classifier."""
    seeds = _seeds(initializer, seed)
    return tf.keras.Sequential(
        [tf.keras.layers.InputLayer((num_inputs,)), _dense(num_inputs, num_classes, None, initializer, seeds)]
    )


def build_mlp(
    num_inputs: int, num_hidden: int, num_classes: int, *, initializer: str = "keras", seed: int = 0
) -> tf.keras.Model:
    """Returns a perceptron with two hidden ReLU layers of `num_hidden`."""
    seeds = _seeds(initializer, seed)
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer((num_inputs,)),
            _dense(num_inputs, num_hidden, "relu", initializer, seeds),
            _dense(num_hidden, num_hidden, "relu", initializer, seeds),
            _dense(num_hidden, num_classes, None, initializer, seeds),
        ]
    )


def build_cnn(num_classes: int, *, initializer: str = "keras", seed: int = 0) -> tf.keras.Model:
    """Returns the CIFAR network: two 5 x 5 convolutions of 64 filters with pooling, then layers of 384 and 192.

    (The paper writes 394; only 384 gives its counts.)
    """
    seeds = _seeds(initializer, seed)
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer((32, 32, 3)),
            tf.keras.layers.Conv2D(64, 5, activation="relu", **_initial(5 * 5 * 3, initializer, seeds)),
            tf.keras.layers.MaxPool2D(),
            tf.keras.layers.Conv2D(64, 5, activation="relu", **_initial(5 * 5 * 64, initializer, seeds)),
            tf.keras.layers.MaxPool2D(),
            tf.keras.layers.Flatten(),
            _dense(5 * 5 * 64, 384, "relu", initializer, seeds),
            _dense(384, 192, "relu", initializer, seeds),
            _dense(192, num_classes, None, initializer, seeds),
        ]
    )


def build_lstm(*, initializer: str = "keras", seed: int = 0) -> tf.keras.Model:
    """Returns the next-character model: embedding of 8, two LSTM layers of 100, logits of the last step."""
    seeds = _seeds(initializer, seed)
    if initializer == "torch":
        embedding: Any = tf.keras.initializers.RandomNormal(stddev=1.0, seed=next(seeds))
    else:
        embedding = tf.keras.initializers.RandomUniform(seed=next(seeds))

    def lstm(return_sequences: bool) -> tf.keras.layers.Layer:
        # The cell in a plain RNN, for which `tff_fen.fuse_lstm` puts one operation.
        cell = tf.keras.layers.LSTMCell(100, **_initial(100, initializer, seeds, recurrent=True))
        return tf.keras.layers.RNN(cell, return_sequences=return_sequences)

    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer((None,), dtype=tf.int32),
            tf.keras.layers.Embedding(NUM_CHARACTERS, 8, embeddings_initializer=embedding),
            lstm(return_sequences=True),
            lstm(return_sequences=False),
            _dense(100, NUM_CHARACTERS, None, initializer, seeds),
        ]
    )


def _seeds(initializer: str, seed: int) -> Iterator[int]:
    """Returns a seed for each initializer in turn, or raises if the kind of initializer is not known."""
    check_name("initializer", initializer, INITIALIZERS)
    return itertools.count(1000 * seed)


def _dense(
    fan_in: int, units: int, activation: str | None, initializer: str, seeds: Iterator[int]
) -> tf.keras.layers.Layer:
    return tf.keras.layers.Dense(units, activation, **_initial(fan_in, initializer, seeds))


def _initial(fan_in: int, initializer: str, seeds: Iterator[int], recurrent: bool = False) -> dict[str, Any]:
    """Returns a layer's initializers; each has a seed of its own, so that a model is a pure function of its seed."""
    if initializer == "torch":
        bound = 1.0 / math.sqrt(fan_in)

        def uniform() -> tf.keras.initializers.Initializer:
            return tf.keras.initializers.RandomUniform(-bound, bound, seed=next(seeds))

        initial = dict(kernel_initializer=uniform(), bias_initializer=uniform())
        if recurrent:
            # Keras sets the forget gate's bias to 1 unless told otherwise; PyTorch does not.
            initial |= dict(recurrent_initializer=uniform(), unit_forget_bias=False)
        return initial
    initial = dict(kernel_initializer=tf.keras.initializers.GlorotUniform(next(seeds)))
    if recurrent:
        initial["recurrent_initializer"] = tf.keras.initializers.Orthogonal(seed=next(seeds))
    return initial
