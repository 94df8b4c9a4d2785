"""What compressors do with a message: they treat all of its tensors alike, as one vector of d elements."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from tff_fen.checks import check_number


def as_message(vector: tf.Tensor, like: Any) -> Any:
    """Returns the elements of a vector in the structure and shapes of `like`; undoes `measurements.flatten`."""
    flat = tf.nest.flatten(like)
    parts = tf.split(vector, [x.shape.num_elements() for x in flat])
    return tf.nest.pack_sequence_as(like, [tf.reshape(p, x.shape) for p, x in zip(parts, flat, strict=True)])


def largest(vector: tf.Tensor, share: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns places and values of the `ceil(share * d)` elements of largest magnitude."""
    _, places = tf.math.top_k(tf.abs(vector), math.ceil(share * int(vector.shape[0])), sorted=False)
    return places, tf.gather(vector, places)


def zeros_but_at(places: tf.Tensor, values: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Returns a vector as long as `like` with `values` at `places`, and zeros elsewhere."""
    return tf.scatter_nd(places[:, None], values, [like.shape[0]])


def check_share(name: str, share: float) -> None:
    """Raises unless `share` is in (0, 1]."""
    check_number(name, share, 0.0, open_low=True)
    if share > 1.0:
        raise ValueError(f"{name} must be a share of the elements, at most 1, found {share!r}.")
