"""Keeps calls of marked functions (`tff_fen.graph_marks`) as calls on their way through TFF's compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tensorflow as tf

from tff_fen.runtime.graph_parts import all_nodes

# TensorFlow's optimiser inlines no call that has this. (Where it is to inline all it can, as TFF has it do, it does not
# heed `_noinline`.) XLA never sees it: `release` removes it.
_KEPT = "_XlaMustCompile"
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}


def find(graph_def: tf.compat.v1.GraphDef, is_marked: Callable[[str], bool]) -> Iterator[tf.compat.v1.NodeDef]:
    """The calls of functions whose names bear a mark, as a function of `graph_marks` tells."""
    return (node for node in all_nodes(graph_def) if node.op in _CALLS and is_marked(node.attr["f"].func.name))


def keep(call: tf.compat.v1.NodeDef) -> None:
    """Keeps a call from being inlined, in place."""
    call.attr[_KEPT].b = True


def release(call: tf.compat.v1.NodeDef) -> None:
    """Lets a call be inlined again, in place."""
    call.attr.pop(_KEPT, None)
