"""What the way to the server does to a message: the lossy part of a codec, as TensorFlow code, and top-k.

A client's graph cannot hold an entropy coder, and need not: the codec's lossless part
changes nothing. What it rounds is rounded here, before the message is aggregated and before
the client's state takes it up, so that client, server and `codec.decode(codec.encode(...))`
all have the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_fen import codec as codec_lib


def transmit(codec: codec_lib.Codec | None, message: Any) -> Any:
    """Returns a structure of tensors as the server gets it; `None` sends float32 as it is.

    What the codec cannot hold becomes infinite, so that the client is counted as not finite.
    """
    if codec is None:
        return message
    round_tensor = _ROUND[type(codec)]
    return tf.nest.map_structure(lambda x: round_tensor(codec, x), message)


def _quantise(codec: codec_lib.QuantisedCodec, x: tf.Tensor) -> tf.Tensor:
    steps = tf.round(x / tf.constant(codec.step, tf.float32))
    rounded = steps * tf.constant(codec.step, tf.float32)
    return tf.where(tf.abs(steps) <= float(codec.max_steps), rounded, math.inf)


_ROUND: dict[type, Callable[[Any, tf.Tensor], tf.Tensor]] = {
    codec_lib.LosslessCodec: lambda codec, x: x,
    codec_lib.Float16Codec: lambda codec, x: tf.cast(tf.cast(x, tf.float16), tf.float32),
    codec_lib.QuantisedCodec: _quantise,
}


def top_k(message: Any, share: float) -> Any:
    """Returns a structure with its `ceil(share * d)` elements of largest magnitude, and zeros elsewhere."""
    flat = tf.nest.flatten(message)
    vector = tf.concat([tf.reshape(x, [-1]) for x in flat], axis=0)
    k = math.ceil(share * int(vector.shape[0]))
    _, places = tf.math.top_k(tf.abs(vector), k, sorted=False)
    kept = tf.scatter_nd(places[:, None], tf.gather(vector, places), [vector.shape[0]])
    parts = tf.split(kept, [x.shape.num_elements() for x in flat])
    return tf.nest.pack_sequence_as(message, [tf.reshape(p, x.shape) for p, x in zip(parts, flat, strict=True)])
