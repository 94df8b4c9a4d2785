"""Runs the training loop of a client, which `graph_marks.mark_loop` marks, on one thread from first step to last.

Before TFF's optimiser: calls of marked loops are kept from being inlined, unless a step has operations that would be
slower in such a loop. After it: each call that was kept gets TensorFlow's single-threaded executor, if all operations
of the loop allow it, and its matrix products get the kernel that they have outside of such loops.

The operations are the same, and so is what each computes. Outside of such a loop TensorFlow fuses a product with its
bias, which rounds otherwise. So the bits depend on whether this pass runs, but neither on the number of clients side by
side nor on the device of a client.

TensorFlow's usual executor looks for operations that could run side by side and hands them to other
threads. With clients side by side nothing is gained: its bookkeeping is a fifth of a small model's
step, and where there are fewer clients than cores the weights wander between the caches of several.
TensorFlow's single-threaded executor runs one operation after the other, and a loop as a loop.

It must never meet an operation that waits for a thread: once all threads run such loops, none would
ever be free. So it gets only loops of operations without state that call no function, unless as a
loop in a loop. It also hides a loop's body from the pass that gives convolutions their fast kernels;
a step with one takes so long that the executor does not matter, so such loops stay with the usual
one, too.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry  # there is no public name for an operation's definition

from tff_fen import graph_marks
from tff_fen.runtime import devices
from tff_fen.runtime.graph_parts import functions_of, nodes_of
from tff_fen.runtime.passes import marked_calls

_EXECUTOR = "SINGLE_THREADED_EXECUTOR"
_LOWER = "_lower_using_switch_merge"
_LOOPS = {"While", "StatelessWhile"}
# What conditions and loops are taken apart to, which only the usual executor knows; and an operation that waits.
_REFUSED = {"Switch", "_SwitchN", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "Unbatch"}
# Parts of names of operations that TensorFlow has better kernels for than it would take here.
_SLOW = ("Conv", "Pool", "FusedBatchNorm", "LRN", "BatchMatMul", "Einsum")

_Functions = Mapping[str, Any]


def keep_loops(graph_def: tf.compat.v1.GraphDef) -> bool:
    """Keeps marked loops that may get a thread each from being inlined, in place; returns whether there are any."""
    functions = functions_of(graph_def)
    kept = False
    for call in marked_calls.find(graph_def, graph_marks.is_loop):
        loop = call.attr["f"].func.name
        if not any(slow in node.op for node in nodes_of(loop, functions) for slow in _SLOW):
            marked_calls.keep(call)
            _set_lowering(loop, functions, False)
            kept = True
    return kept


def use_one_thread(graph_def: tf.compat.v1.GraphDef) -> None:
    """Gives each loop that was kept one thread, in place, if all of its operations allow it."""
    functions = functions_of(graph_def)
    for call in marked_calls.find(graph_def, graph_marks.is_loop):
        loop = call.attr["f"].func.name
        marked_calls.release(call)
        if devices.has_gpu() or not all(map(_is_allowed, nodes_of(loop, functions))):
            _set_lowering(loop, functions, True)
            continue
        functions[loop].attr["_noinline"].b = True
        call.attr["executor_type"].s = _EXECUTOR.encode()
        call.attr["config_proto"].s = _config()
        if devices.uses_onednn() and _has_fast_products():
            for node in nodes_of(loop, functions):
                _use_fast_product(node)


def _set_lowering(loop: str, functions: _Functions, lower: bool) -> None:
    """Sets whether TensorFlow may take a loop, and loops in it, apart: only its usual executor knows the parts."""
    for node in nodes_of(loop, functions):
        if node.op in _LOOPS:
            node.attr[_LOWER].b = lower


def _is_allowed(node: tf.compat.v1.NodeDef) -> bool:
    """Whether an operation never waits for a thread."""
    definition = op_def_registry.get(node.op)
    if definition is None or node.op in _REFUSED:  # it has none if it calls a function by its name
        return False
    calls = any("func" in attribute.type for attribute in definition.attr)
    return node.op in _LOOPS or not (definition.is_stateful or calls)


@functools.cache
def _config() -> bytes:
    """For the call: TFF's compiler has optimised the loop, and here it would be taken apart."""
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.experimental.executor_type = _EXECUTOR
    return config.SerializeToString()


@functools.cache
def _has_fast_products() -> bool:
    return op_def_registry.get("_MklMatMul") is not None


def _use_fast_product(node: tf.compat.v1.NodeDef) -> None:
    """Gives a matrix product oneDNN's kernel, as TensorFlow's pass does outside of loops that are kept."""
    if node.op == "MatMul" and node.attr["T"].type == tf.float32.as_datatype_enum:
        node.op = "_MklMatMul"
        node.attr["_kernel"].s = devices.ONEDNN_LABEL
        for name in ("grad_a", "grad_b"):
            node.attr.pop(name, None)
