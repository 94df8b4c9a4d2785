"""The elastic net's arithmetic on one tensor: the only place where its signs and thresholds are written."""

from __future__ import annotations

import tensorflow as tf


def descent_terms(delta: tf.Tensor, l1: float, l2: float, lr: tf.Tensor) -> list[tf.Tensor]:
    """Returns the terms of `-lr * (l2 * delta + l1 * sign(delta))`, with sign(0) = 0.

    That is `-lr` times the subgradient of `l2/2 |delta|^2 + l1 |delta|_1` at
    `delta = w - theta`: each term points back to `theta`. A penalty of weight 0 has no
    term, and the terms are left apart for one fused sum with the rest of the step.
    """
    terms = []
    if l2:
        terms.append((-lr * l2) * delta)
    if l1:
        terms.append((-lr * l1) * tf.sign(delta))
    return terms


def shrink(delta: tf.Tensor, l2: float, lr: tf.Tensor) -> tf.Tensor:
    """Returns `(1 - lr * l2) * delta`: `delta` and the l2 term of `descent_terms` in one pass.

    The factor is rounded to float32, which is as if `l2` were off by up to `3e-8 / lr`.
    """
    return (1.0 - lr * l2) * delta if l2 else delta


def soft_threshold(delta: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Returns `soft(delta, amount)`, the proximal map of `amount * |.|_1`: shrinks towards 0 and stops there."""
    return delta - tf.clip_by_value(delta, -amount, amount)


def hard_threshold(delta: tf.Tensor, threshold: float) -> tf.Tensor:
    """Returns `delta` with 0 where `|delta[i]| <= threshold` (epsilon, paper section 3)."""
    if not threshold:
        return delta
    return tf.where(tf.abs(delta) <= threshold, tf.zeros_like(delta), delta)
