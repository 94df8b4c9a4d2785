"""Computes `Dataset.reduce`, with which TFF's own algorithms train and evaluate, in a loop that is optimised once.

After TFF's optimiser: each ReduceDataset of the graph becomes a call of a loop over the data set. The loop calls the
same function of the same elements in the same order, so the bits stay.

TensorFlow's operation for it, ReduceDataset, optimises its function anew at every call. That
takes tens of milliseconds for the step of a small Keras model, at each client in each round;
TFF's worker does not optimise functions at all. The loop is optimised once, with the rest of the
graph.

Two kinds stay as they are: those in functions that TFF's compiler has not inlined, and those
whose step has random operations with a seed, which begin anew at every call of ReduceDataset
and would go on from call to call in a loop.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tff_fen.dataset_loop import fold_dataset
from tff_fen.runtime.graph_parts import functions_of, nodes_of

_FunctionDef = Any


def use_loops(graph_def: tf.compat.v1.GraphDef) -> None:
    """Replaces each ReduceDataset by a loop, in place, where that changes nothing but the time."""
    functions = functions_of(graph_def)
    for node in graph_def.node:
        if node.op == "ReduceDataset":
            step = node.attr["f"].func.name
            if not any(map(_has_seed, nodes_of(step, functions))):
                _replace(node, functions[step], graph_def.library)


def _has_seed(node: tf.compat.v1.NodeDef) -> bool:
    return any(name in node.attr and node.attr[name].i for name in ("seed", "seed2"))


def _replace(node: tf.compat.v1.NodeDef, step_function: _FunctionDef, library: Any) -> None:
    """Turns the node into a call of a loop, which it adds to the library. The inputs and outputs stay as they are."""
    state_specs = [
        tf.TensorSpec(tf.TensorShape(shape), tf.dtypes.as_dtype(dtype))
        for shape, dtype in zip(node.attr["output_shapes"].list.shape, node.attr["Tstate"].list.type, strict=True)
    ]
    others = [tf.dtypes.as_dtype(dtype) for dtype in node.attr["Targuments"].list.type]
    # The function takes the state, the parts of an element, and the other arguments. Only ReduceDataset's own shapes
    # are to be trusted: nothing checks those of the function's arguments.
    dtypes = [tf.dtypes.as_dtype(argument.type) for argument in step_function.signature.input_arg]
    element_specs = tuple(tf.TensorSpec(None, dtype) for dtype in dtypes[len(state_specs) : -len(others) or None])

    def reduce(variant: tf.Tensor, *arguments: tf.Tensor) -> list[tf.Tensor]:
        state, other_arguments = arguments[: len(state_specs)], arguments[len(state_specs) :]

        def step(state: Any, element: Any) -> tuple[tf.Tensor, ...]:
            stepped = tf.raw_ops.StatefulPartitionedCall(
                args=[*state, *element, *other_arguments],
                Tout=[spec.dtype for spec in state_specs],
                f=step_function.signature.name,
            )
            return tuple(tf.ensure_shape(x, spec.shape) for x, spec in zip(stepped, state_specs, strict=True))

        # An operation begins when all of its inputs are there; of a loop, once inlined, that has to be asked for. It
        # also puts the loop where the operation was if that was in another loop. What an operation does to variables
        # is done when its results are there: so it is here, with one iteration at a time.
        with tf.control_dependencies(arguments):
            dataset = tf.data.experimental.from_variant(variant, element_specs)
            return list(fold_dataset(dataset, step, state))

    specs = [tf.TensorSpec([], tf.variant), *state_specs, *[tf.TensorSpec(None, dtype) for dtype in others]]
    with tf.Graph().as_default() as graph:
        # Traced on its own: a call would run it as Python where tf.config.run_functions_eagerly is on.
        function = tf.function(reduce, autograph=False).get_concrete_function(*specs)
        function(*[tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs])
    loop = graph.as_graph_def()
    (call,) = (n for n in loop.node if n.op == "StatefulPartitionedCall")
    library.MergeFrom(loop.library)
    node.op = call.op
    node.attr.clear()
    for name, value in call.attr.items():
        node.attr[name].CopyFrom(value)
