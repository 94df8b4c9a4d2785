"""The paper's threshold: elements up to epsilon are not sent."""

from __future__ import annotations

import tensorflow as tf


def hard_threshold(x: tf.Tensor, threshold: float) -> tf.Tensor:
    """Returns `x` with 0 where `|x[i]| <= threshold` (epsilon, paper section 3). A zero costs no bytes in any codec."""
    if not threshold:
        return x
    return tf.where(tf.abs(x) <= threshold, tf.zeros_like(x), x)
