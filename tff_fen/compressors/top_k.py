"""Top-k: the elements of largest magnitude, and zeros elsewhere."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf


def top_k(message: Any, share: float) -> Any:
    """Returns a structure with its `ceil(share * d)` elements of largest magnitude, and zeros elsewhere.

    The places of the elements cost what a codec needs for the gaps between them.
    """
    flat = tf.nest.flatten(message)
    vector = tf.concat([tf.reshape(x, [-1]) for x in flat], axis=0)
    k = math.ceil(share * int(vector.shape[0]))
    _, places = tf.math.top_k(tf.abs(vector), k, sorted=False)
    kept = tf.scatter_nd(places[:, None], tf.gather(vector, places), [vector.shape[0]])
    parts = tf.split(kept, [x.shape.num_elements() for x in flat])
    return tf.nest.pack_sequence_as(message, [tf.reshape(p, x.shape) for p, x in zip(parts, flat, strict=True)])
