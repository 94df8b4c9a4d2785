"""Folds over a `tf.data.Dataset` inside a `tf.function`: what client work and the runtime's graph passes both need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Step = Callable[[Any, Any], Any]


def fold_dataset(dataset: tf.data.Dataset, step: Step, carry: Any) -> Any:
    """Returns `carry` after `carry = step(carry, element)` for each element of a data set; in a `tf.function`.

    With an iterator: `Dataset.reduce` optimises its function anew at every call.
    """
    # tf.data would tune each client's data set on its own, from a thread that takes up to 16 ms to end, while clients
    # side by side share the cores. Without, AUTOTUNE in a user's data set stands for tf.data's default.
    options = tf.data.Options()
    options.autotune.enabled = False
    iterator = iter(dataset.with_options(options))

    def take(batch: Any, carry: Any) -> Any:
        carry = step(carry, batch.get_value())
        # In turns, as `Dataset.reduce` does: a data set may read what a step changes.
        with tf.control_dependencies(list(filter(tf.is_tensor, tf.nest.flatten(carry)))):
            return iterator.get_next_as_optional(), carry

    _, carry = tf.while_loop(
        lambda batch, _: batch.has_value(), take, (iterator.get_next_as_optional(), carry), parallel_iterations=1
    )
    return carry
