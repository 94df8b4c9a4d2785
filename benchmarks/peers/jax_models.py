"""The workloads' models in JAX, as functions of weights in Keras's layout, for the peers that run on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Array = Any
Arrays = list[Any]


def _mlp(weights: Arrays, x: Array) -> Array:
    """Softmax regression, too."""
    *hidden, (kernel, bias) = zip(weights[::2], weights[1::2], strict=True)
    for w, b in hidden:
        x = jax.nn.relu(x @ w + b)
    return x @ kernel + bias


def _cnn(weights: Arrays, x: Array) -> Array:
    for kernel, bias in (weights[:2], weights[2:4]):
        x = jax.nn.relu(_convolve(x, kernel) + bias)
        n, height, width, channels = x.shape
        x = x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))
    return _mlp(weights[4:], x.reshape(len(x), -1))


def _convolve(x: Array, kernel: Array) -> Array:
    """A product of patches and kernel: XLA's own convolution takes 20 times as long in a loop on CPUs."""
    size, _, num_inputs, num_outputs = kernel.shape
    height, width = (n - size + 1 for n in x.shape[1:3])
    patches = [x[:, i : i + height, j : j + width] for i in range(size) for j in range(size)]
    return jnp.concatenate(patches, axis=-1) @ kernel.reshape(size * size * num_inputs, num_outputs)


def _lstm(weights: Arrays, x: Array) -> Array:
    embedding, *layers, kernel, bias = weights
    x = embedding[x.T]  # time first
    for of_layer, recurrent, b in (layers[:3], layers[3:]):
        x = _lstm_layer(of_layer, recurrent, b, x)
    return x[-1] @ kernel + bias


def _lstm_layer(kernel: Array, recurrent: Array, bias: Array, x: Array) -> Array:
    def step(carry: tuple[Array, Array], projected: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = carry
        i, f, g, o = jnp.split(projected + h @ recurrent, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[1], len(recurrent)))
    return jax.lax.scan(step, (zeros, zeros), x @ kernel + bias)[1]


def build_loss(model: str) -> Callable[[Arrays, Array, Array], Array]:
    """The mean cross-entropy of a batch as a function of weights, x and labels."""
    logits = {"softmax": _mlp, "mlp": _mlp, "cnn": _cnn, "lstm": _lstm}[model]

    def loss(weights: Arrays, x: Array, y: Array) -> Array:
        log_p = jax.nn.log_softmax(logits(weights, x))
        return -jnp.take_along_axis(log_p, y[:, None], axis=1).mean()

    return loss
