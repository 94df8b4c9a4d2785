"""The passes over a computation's graphs in their two stages and their order, which decides the bits of results.

    compile_computation   before TFF's optimiser   marked functions are kept as calls
                          TFF's optimiser          inlines, folds and sorts all that is not kept
    GraphFunction         after TFF's optimiser    calls that were kept, and some operations, become faster ones

The first stage runs once per computation, at the driver; the second wherever a graph is imported, so on Ray at each
worker. The native runtime has neither.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tff_fen.runtime.passes import fusing, one_thread, pooling, reducing

# Each changes a graph in place and returns whether it did.
BEFORE_OPTIMISER: tuple[Callable[[tf.compat.v1.GraphDef], bool], ...] = (
    fusing.keep_calls,
    one_thread.keep_loops,
)
# Each changes a graph in place.
AFTER_OPTIMISER: tuple[Callable[[tf.compat.v1.GraphDef], None], ...] = (
    fusing.use_loops,  # before `one_thread`, which refuses a loop whose steps still call a function
    one_thread.use_one_thread,
    reducing.use_loops,
    pooling.use_fast_gradients,
)


def run_before_optimiser(graph_def: tf.compat.v1.GraphDef) -> bool:
    """Runs the first stage in place; returns whether anything has changed."""
    return any([keep(graph_def) for keep in BEFORE_OPTIMISER])


def run_after_optimiser(graph_def: tf.compat.v1.GraphDef) -> None:
    """Runs the second stage in place."""
    for rewrite in AFTER_OPTIMISER:
        rewrite(graph_def)
