"""The passes over a computation's graphs in their two stages and their order, which decides the bits of results.

    compile_computation   before TFF's optimiser   marked functions are kept as calls
                          TFF's optimiser          inlines, folds and sorts all that is not kept
    GraphFunction         after TFF's optimiser    `isolating`: the graph can be called often, by many threads at once
                                                   then calls that were kept, and some operations, become faster ones

The first stage runs once per computation, at the driver; the second wherever a graph is imported, so on Ray at each
worker. The native runtime has neither. `isolating` alone is needed for right results, and comes before the passes that
are there for speed: it removes what no result depends on, which they need not look at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tff_fen.runtime.graph_parts import tensor_node
from tff_fen.runtime.passes import fusing, isolating, one_thread, pooling, reducing

# Each changes a graph in place and returns whether it did.
BEFORE_OPTIMISER: tuple[Callable[[tf.compat.v1.GraphDef], bool], ...] = (
    fusing.keep_calls,
    one_thread.keep_loops,
)
# Each changes a graph in place, once `isolating` has.
AFTER_OPTIMISER: tuple[Callable[[tf.compat.v1.GraphDef], None], ...] = (
    fusing.use_loops,  # before `one_thread`, which refuses a loop whose steps still call a function
    one_thread.use_one_thread,
    reducing.use_loops,
    pooling.use_fast_gradients,
)


def run_before_optimiser(graph_def: tf.compat.v1.GraphDef) -> bool:
    """Runs the first stage in place; returns whether anything has changed."""
    return any([keep(graph_def) for keep in BEFORE_OPTIMISER])


def run_after_optimiser(
    graph_def: tf.compat.v1.GraphDef, *, initialize_op: str, suffix: str, feeds: Sequence[str], fetches: Sequence[str]
) -> None:
    """Runs the second stage in place.

    Args:
      graph_def: the graph.
      initialize_op: see `isolating.isolate_calls`.
      suffix: likewise.
      feeds: the tensors that arguments are fed to.
      fetches: the tensors that are the result.
    """
    isolating.isolate_calls(graph_def, initialize_op, suffix)
    isolating.cut_control_inputs(graph_def, map(tensor_node, feeds))
    isolating.keep_ancestors(graph_def, map(tensor_node, fetches))
    for rewrite in AFTER_OPTIMISER:
        rewrite(graph_def)
