"""Gives what `elementwise.py` marks, the arithmetic of a local step, one loop over the weights.

The loop is machine code (`compiled_ops.py`), for CPUs alone: where there is a GPU, graphs stay as
they are. So does a function with operations that `element_loops.py` does not know.
"""

from __future__ import annotations

import warnings
from typing import Any

import tensorflow as tf

from tff_fen import graph_marks as elementwise
from tff_fen.runtime import devices, marked_calls
from tff_fen.runtime.machine_code import compiled_ops, element_loops
from tff_fen.runtime.passes.graph_rewriting import functions_of

# TensorFlow's optimiser changes no function that has this; it would sort the terms of a sum. (tf.data has its own.)
_UNCHANGED = "_tf_data_function"


def keep_calls(graph_def: tf.compat.v1.GraphDef) -> bool:
    """Keeps calls of marked functions from being inlined, in place; returns whether there are any."""
    calls = list(marked_calls.find(graph_def, elementwise.NAME))
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
    for call in marked_calls.find(graph_def, elementwise.NAME):
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
