"""Gives what `elementwise.py` marks, the arithmetic of a local step, one loop over the weights.

The loop is machine code (`compiled_ops.py`), for CPUs alone: where there is a GPU, graphs stay as
they are. So does a function with operations that `element_loops.py` does not know.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tff_fen import elementwise
from tff_fen.runtime import compiled_ops, element_loops
from tff_fen.runtime.graph_rewriting import all_nodes

# TensorFlow's optimiser inlines no call that has this. (Where it is to inline all it can, as TFF has it do, it does not
# heed `_noinline`.) XLA never sees it: `use_loops` removes it.
_KEPT = "_XlaMustCompile"
# Nor does it change a function that has this, where it would sort the terms of a sum: tf.data has its own optimiser.
_UNCHANGED = "_tf_data_function"
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}


def keep_calls(graph_def: tf.compat.v1.GraphDef) -> bool:
    """Keeps calls of marked functions from being inlined, in place; returns whether there are any.

    They are not kept where there is a GPU.
    """
    calls = [] if _has_gpu() else list(_marked_calls(graph_def))
    for call in calls:
        call.attr[_KEPT].b = True
    called = {call.attr["f"].func.name for call in calls}
    for function in graph_def.library.function:
        if function.signature.name in called:
            function.attr[_UNCHANGED].b = True
    return bool(calls)


def use_loops(graph_def: tf.compat.v1.GraphDef) -> None:
    """Replaces each call of a marked function that was kept by an operation of its own, in place."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    operations: dict[str, str | None] = {}
    for call in _marked_calls(graph_def):
        name = call.attr["f"].func.name
        if name not in operations:
            operations[name] = _operation(functions[name])
        call.attr.pop(_KEPT, None)
        if operation := operations[name]:
            call.op = operation
            for attribute in set(call.attr) - {"Tin", "Tout"}:
                del call.attr[attribute]


def _marked_calls(graph_def: tf.compat.v1.GraphDef) -> Iterator[tf.compat.v1.NodeDef]:
    return (n for n in all_nodes(graph_def) if n.op in _CALLS and elementwise.NAME in n.attr["f"].func.name)


def _operation(function: Any) -> str | None:
    """The name of the operation, or `None` where the call has to stay."""
    try:
        if not _has_gpu():
            return compiled_ops.register(element_loops.ElementFunction(function))
    except element_loops.UnsupportedFunctionError:
        pass
    function.attr.pop(_UNCHANGED, None)
    # TensorFlow would put the function's constants outside of the loop that the call is in.
    function.attr["_noinline"].b = True
    return None


@functools.cache
def _has_gpu() -> bool:
    return bool(tf.config.list_logical_devices("GPU"))
