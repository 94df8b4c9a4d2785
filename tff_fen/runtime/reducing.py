"""Gives `Dataset.reduce`, with which TFF's own algorithms train and evaluate, the speed of a loop.

TensorFlow's operation for it, ReduceDataset, optimises its function anew at every call. That takes tens of
milliseconds for the step of a small Keras model, at each client in each round. (TFF's worker does not optimise
functions at all.) Here the operation becomes a call of a function with a loop over the data set, which is optimised
once, with the rest of the graph; but for those in functions that TFF's compiler has not inlined.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tff_fen import client_data


def use_loops(graph_def: tf.compat.v1.GraphDef) -> None:
    """Replaces each ReduceDataset by a loop, in place."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    for node in graph_def.node:
        if node.op == "ReduceDataset":
            _replace(node, _element_specs(node, functions[node.attr["f"].func.name]), graph_def.library)


def _element_specs(node: tf.compat.v1.NodeDef, function: Any) -> tuple[tf.TensorSpec, ...]:
    """The parts of the data set's elements: what the function takes between the state and its other arguments."""
    start = len(node.attr["Tstate"].list.type)
    stop = len(function.signature.input_arg) - len(node.attr["Targuments"].list.type)
    specs = []
    for i in range(start, stop):
        shapes = function.arg_attr[i].attr["_output_shapes"].list.shape if i in function.arg_attr else ()
        dtype = tf.dtypes.as_dtype(function.signature.input_arg[i].type)
        specs.append(tf.TensorSpec(tf.TensorShape(shapes[0] if shapes else None), dtype))
    return tuple(specs)


def _replace(node: tf.compat.v1.NodeDef, element_specs: tuple[tf.TensorSpec, ...], library: Any) -> None:
    """Turns the node into a call of a loop, which it adds to the library. The inputs and outputs stay as they are."""
    if not element_specs:
        return  # TensorFlow has no iterator over elements without parts
    state_specs = [
        tf.TensorSpec(tf.TensorShape(shape), tf.dtypes.as_dtype(dtype))
        for shape, dtype in zip(node.attr["output_shapes"].list.shape, node.attr["Tstate"].list.type, strict=True)
    ]
    others = [tf.dtypes.as_dtype(dtype) for dtype in node.attr["Targuments"].list.type]
    step_name = node.attr["f"].func.name

    def reduce(variant: tf.Tensor, *arguments: tf.Tensor) -> list[tf.Tensor]:
        state, other_arguments = arguments[: len(state_specs)], arguments[len(state_specs) :]

        def step(state: Any, element: Any) -> tuple[tf.Tensor, ...]:
            stepped = tf.raw_ops.StatefulPartitionedCall(
                args=[*state, *element, *other_arguments], Tout=[spec.dtype for spec in state_specs], f=step_name
            )
            return tuple(tf.ensure_shape(x, spec.shape) for x, spec in zip(stepped, state_specs, strict=True))

        dataset = tf.data.experimental.from_variant(variant, element_specs)
        return list(client_data.fold_dataset(dataset, step, state))

    with tf.Graph().as_default() as graph:
        tf.function(reduce, autograph=False)(
            tf.compat.v1.placeholder(tf.variant, []),
            *[tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in state_specs],
            *[tf.compat.v1.placeholder(dtype) for dtype in others],
        )
    loop = graph.as_graph_def()
    (call,) = (n for n in loop.node if n.op == "StatefulPartitionedCall")
    library.MergeFrom(loop.library)
    node.op = call.op
    node.attr.clear()
    for name, value in call.attr.items():
        node.attr[name].CopyFrom(value)
