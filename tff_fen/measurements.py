"""What a round's messages cost: non-zeros, norm, and Shannon entropy as the paper counts it.

A client measures its message (`measure_message`), the sums travel to the server with
the training metrics, and the server forms the means (`finalize_message`). Nothing here
changes an update.
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

BIN_WIDTH = 0.01
"""Width of the paper's histogram bins."""

# A table of counts up to this many bins (8 MB); wider spreads take the slower exact way.
_MAX_TABLE = 2**20
# Bin numbers and their differences must fit int32; what lies beyond (|x| > 5 * 10^6) shares the outermost bins.
_MAX_BIN = float(2**29)
# Multiples of the bin's width, as a quantised message has them, lie on the edges, and the division may end just below:
# four roundings away from zero put them where they belong.
_NUDGE = 1.0 + 4.0 * 2.0**-23


def flatten(structure: Any) -> tf.Tensor:
    """Returns all elements of a structure of tensors as one vector."""
    return tf.concat([tf.reshape(x, [-1]) for x in tf.nest.flatten(structure)], axis=0)


def entropy_bits(bins: tf.Tensor) -> tf.Tensor:
    """Returns the Shannon entropy, in bits per element, of a vector of int32 bin numbers, as float32."""
    lowest = tf.reduce_min(bins)
    size = tf.reduce_max(bins) - lowest + 1

    def by_table() -> tf.Tensor:
        no_weights = tf.constant([], tf.int64)
        return tf.raw_ops.DenseBincount(input=bins - lowest, size=size, weights=no_weights, binary_output=False)

    def by_hashing() -> tf.Tensor:
        return tf.unique_with_counts(bins, out_idx=tf.int64).count

    counts = tf.cast(tf.cond(size <= _MAX_TABLE, by_table, by_hashing), tf.float64)
    n = tf.reduce_sum(counts)
    # H = -sum (c/n) log2 (c/n) = log2 n - (1/n) sum c log2 c, with 0 log 0 = 0.
    nats = tf.math.log(n) - tf.reduce_sum(tf.math.xlogy(counts, counts)) / n
    return tf.cast(nats / tf.math.log(tf.constant(2.0, tf.float64)), tf.float32)


def measure_entropy(vector: tf.Tensor) -> collections.OrderedDict[str, tf.Tensor]:
    """Returns the entropies of a vector binned by truncation (the paper's) and by rounding."""
    scaled = tf.clip_by_value(vector / BIN_WIDTH, -_MAX_BIN, _MAX_BIN)
    scaled = tf.where(tf.math.is_nan(scaled), _MAX_BIN, scaled)  # a model that is lost must not stop the round
    return collections.OrderedDict(
        entropy_trunc=entropy_bits(tf.cast(scaled * _NUDGE, tf.int32)),  # the cast truncates towards zero
        entropy_round=entropy_bits(tf.cast(tf.round(scaled), tf.int32)),
    )


def measure_message(vector: tf.Tensor) -> collections.OrderedDict[str, tf.Tensor]:
    """Returns one client's measurements of a message it sends, ready to be summed over clients."""
    return collections.OrderedDict(
        non_zeros=tf.math.count_nonzero(vector),
        norm=tf.norm(vector),
        **measure_entropy(vector),
    )


def finalize_message(
    sums: collections.OrderedDict[str, tf.Tensor], num_messages: tf.Tensor, size: int | None = None
) -> collections.OrderedDict[str, tf.Tensor]:
    """Returns a round's measurements from the sums over the clients that sent a message.

    Args:
      sums: the summed results of `measure_message` or `measure_entropy`.
      num_messages: int32, the number of these clients.
      size: elements in one message, for the share of non-zeros.

    Returns:
      `non_zeros`, the sum over messages (int64), and `non_zero_share` of all that could
      have been sent, where these were measured; the rest as means over messages.
    """
    measured: collections.OrderedDict[str, tf.Tensor] = collections.OrderedDict()
    clients = tf.cast(num_messages, tf.float32)
    for name, total in sums.items():
        if name == "non_zeros":
            measured[name] = total
            measured["non_zero_share"] = tf.math.divide_no_nan(tf.cast(total, tf.float32), clients * size)
        else:
            measured[name] = tf.math.divide_no_nan(total, clients)
    return measured


def federated_norm(value: tff.Value) -> tff.Value:
    """Returns the Euclidean norm of a structure at SERVER, `float32@SERVER`."""

    @tff.tensorflow.computation(value.type_signature.member)
    def norm(value: Any) -> tf.Tensor:
        return tf.linalg.global_norm(tf.nest.flatten(value))

    return tff.federated_map(norm, value)


def federated_drift(delta: tff.Value, weight: tff.Value) -> tff.Value:
    """Returns how far the local models lie from their mean: `sqrt(mean_k |delta_k - mean delta|^2)`, at SERVER.

    It is formed from plain sums as `mean_k |delta_k|^2 - |mean delta|^2`, whatever aggregator
    the algorithm uses: nothing comes back down to the clients for it.

    Args:
      delta: `{W}@CLIENTS`.
      weight: `{float32}@CLIENTS`, 1 for the clients that count, else 0.
    """

    @tff.tensorflow.computation(delta.type_signature.member, np.float32)
    def terms(delta: Any, weight: tf.Tensor) -> Any:
        vector = weight * flatten(delta)
        return _squared_norm(vector), vector, weight

    @tff.tensorflow.computation(terms.type_signature.result)
    def deviation(sums: Any) -> tf.Tensor:
        squares, vector, count = sums
        variance = tf.math.divide_no_nan(squares, tf.cast(count, tf.float64)) - _squared_norm(
            tf.math.divide_no_nan(vector, count)
        )
        return tf.cast(tf.sqrt(tf.nn.relu(variance)), tf.float32)

    return tff.federated_map(deviation, tff.federated_sum(tff.federated_map(terms, (delta, weight))))


def _squared_norm(vector: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.square(tf.cast(vector, tf.float64)))
