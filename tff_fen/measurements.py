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
    return collections.OrderedDict(
        entropy_trunc=entropy_bits(tf.cast(scaled, tf.int32)),  # the cast truncates towards zero
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
    sums: collections.OrderedDict[str, tf.Tensor], participants: tf.Tensor, size: int | None = None
) -> collections.OrderedDict[str, tf.Tensor]:
    """Returns a round's measurements from the sums over its participants.

    Args:
      sums: the summed results of `measure_message` or `measure_entropy`.
      participants: int32, the number of clients in the sums.
      size: elements in one message, for the share of non-zeros.

    Returns:
      `non_zeros`, the sum over participants (int64), and `non_zero_share` of all that
      could have been sent, where these were measured; the rest as means over participants.
    """
    measured: collections.OrderedDict[str, tf.Tensor] = collections.OrderedDict()
    clients = tf.cast(participants, tf.float32)
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


def federated_drift(delta: tff.Value, weight: tff.Value, aggregate: tff.Value) -> tff.Value:
    """Returns how far the local models lie from their mean: `sqrt(mean_k |delta_k - mean delta|^2)`, at SERVER.

    It is formed as `mean_k |delta_k|^2 - |mean delta|^2`, so that one number a client goes
    up and nothing comes back down; an aggregator that adds noise adds it here too.

    Args:
      delta: `{W}@CLIENTS`.
      weight: `{float32}@CLIENTS`, 1 for the clients that count, else 0.
      aggregate: `<mean=W,count=float32>@SERVER`, of `mean_aggregation.build_mean_and_count`.
    """
    delta_type = delta.type_signature.member

    @tff.tensorflow.computation(delta_type, np.float32)
    def squared_norm(delta: Any, weight: tf.Tensor) -> tf.Tensor:
        return tf.cast(weight, tf.float64) * _squared_norm(delta)

    @tff.tensorflow.computation(np.float64, np.float32, aggregate.type_signature.member)
    def deviation(total: tf.Tensor, count: tf.Tensor, aggregate: Any) -> tf.Tensor:
        mean_square = tf.math.divide_no_nan(total, tf.cast(count, tf.float64))
        return tf.cast(tf.sqrt(tf.nn.relu(mean_square - _squared_norm(aggregate["mean"]))), tf.float32)

    total = tff.federated_sum(tff.federated_map(squared_norm, (delta, weight)))
    return tff.federated_map(deviation, (total, tff.federated_sum(weight), aggregate))


def _squared_norm(structure: Any) -> tf.Tensor:
    return tf.reduce_sum(tf.square(tf.cast(flatten(structure), tf.float64)))
