"""The elastic net's arithmetic on one tensor: the only place where the signs of its penalties are written.

With `delta = w - theta`, the penalty is `l2/2 |delta|^2 + l1 |delta|_1`. Each term of a step points
back to `theta`. A penalty of weight 0 has no term: the functions return `None`.
"""

from __future__ import annotations

import tensorflow as tf


def l2_descent(delta: tf.Tensor, l2: float, lr: tf.Tensor) -> tf.Tensor | None:
    """Returns `-lr * l2 * delta`; `None` where l2 = 0."""
    return (-lr * l2) * delta if l2 else None


def l1_descent(delta: tf.Tensor, l1: float, lr: tf.Tensor) -> tf.Tensor | None:
    """Returns `-lr * l1 * sign(delta)` with sign(0) = 0; `None` where l1 = 0."""
    return (-lr * l1) * tf.sign(delta) if l1 else None


def shrink(delta: tf.Tensor, l2: float, lr: tf.Tensor) -> tf.Tensor:
    """Returns `(1 - lr * l2) * delta`: `delta` and its l2 term in one pass.

    The factor is rounded to float32, which is as if `l2` were off by up to `3e-8 / lr`.
    """
    return (1.0 - lr * l2) * delta if l2 else delta


def soft_threshold(delta: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Returns `soft(delta, amount)`, the proximal map of `amount * |.|_1`: shrinks towards 0 and stops there."""
    return delta - tf.clip_by_value(delta, -amount, amount)
