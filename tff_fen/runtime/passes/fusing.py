"""Computes the arithmetic of a local step, which `graph_marks.map_tensors` marks, in one loop over the weights.

Before TFF's optimiser: calls of marked functions are kept from being inlined, and the functions from being changed; the
optimiser would sort the terms of a sum. After it: each call becomes an operation of machine code (`machine_code/`),
which computes what the function does in the order in which it is written, and rounds as TensorFlow's operations do.

The operation is for CPUs alone: where there is a GPU, the call stays a call. So does that of a function with operations
that `element_loops.py` does not know.
"""

from __future__ import annotations

import warnings
from typing import Any

import tensorflow as tf

from tff_fen import graph_marks
from tff_fen.runtime import devices
from tff_fen.runtime.graph_parts import functions_of
from tff_fen.runtime.machine_code import compiled_ops, element_loops
from tff_fen.runtime.passes import marked_calls

# TensorFlow's optimiser changes no function that has this; it would sort the terms of a sum. (tf.data has its own.)
_UNCHANGED = "_tf_data_function"


def keep_calls(graph_def: tf.compat.v1.GraphDef) -> bool:
    """Keeps calls of marked functions from being inlined, in place; returns whether there are any."""
    calls = list(marked_calls.find(graph_def, graph_marks.is_elementwise))
    for call in calls:
        marked_calls.keep(call)
    called = {call.attr["f"].func.name for call in calls}
    for function in graph_def.library.function:
        if function.signature.name in called:
            function.attr[_UNCHANGED].b = True
    return bool(calls)


def use_loops(graph_def: tf.compat.v1.GraphDef) -> None:
    """Replaces each call of a marked function that was kept by an operation of its own, in place."""
    functions = functions_of(graph_def)
    operations: dict[str, str | None] = {}
    for call in marked_calls.find(graph_def, graph_marks.is_elementwise):
        name = call.attr["f"].func.name
        if name not in operations:
            operations[name] = _operation(functions[name])
        marked_calls.release(call)
        if operation := operations[name]:
            call.op = operation
            for attribute in set(call.attr) - {"Tin", "Tout"}:
                del call.attr[attribute]


def _operation(function: Any) -> str | None:
    """The name of the operation, or `None` where the call has to stay."""
    try:
        if not devices.has_gpu():
            return compiled_ops.register(element_loops.ElementFunction(function))
    except element_loops.UnsupportedFunctionError:
        pass
    except compiled_ops.CompilationError as error:
        warnings.warn(
            f"A local step is computed by TensorFlow's operations, more slowly: no machine code can be made ({error}). "
            "Check that llvmlite is installed as in requirements.txt.",
            RuntimeWarning,
            stacklevel=2,
        )
    function.attr.pop(_UNCHANGED, None)
    # TensorFlow would put the function's constants outside of the loop that the call is in.
    function.attr["_noinline"].b = True
    return None
