"""Gives the gradient of max pooling its fast kernel in every process.

After TFF's optimiser: each MaxPoolGrad of the graph and its MaxPool become oneDNN's pair, which computes the same
numbers. Where windows overlap, a kernel adds in an order of its own: with this pass it is the same kernel, and so the
same bits, in every process.

TensorFlow has two: its own, and oneDNN's, which remembers where each maximum was and is
ten times as fast. A pass over the graph puts oneDNN's in, but only where it comes by a
MaxPool before its MaxPoolGrad; in a lowered loop, which has no first operation, the order
follows the addresses of the nodes and differs from process to process. With the paper's
CNN a round takes 1.4 times as long where it goes wrong. Here the pair is put in beforehand,
but for those in functions that TFF's compiler has not inlined.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from tff_fen.runtime import devices
from tff_fen.runtime.graph_parts import tensor_node

_FAST = {"MaxPool": "_MklNativeMaxPool", "MaxPoolGrad": "_MklNativeMaxPoolGrad"}


class _Pair(NamedTuple):
    pool: tf.compat.v1.NodeDef
    gradient: tf.compat.v1.NodeDef


def use_fast_gradients(graph_def: tf.compat.v1.GraphDef) -> None:
    """Replaces each pair of MaxPool and MaxPoolGrad by oneDNN's, in place, where that can compute it.

    A GPU has kernels of its own: where there is one, or oneDNN is switched off (TF_ENABLE_ONEDNN_OPTS=0), the graph
    stays as it is.
    """
    pairs = list(_pairs(graph_def))
    if pairs and devices.uses_onednn() and _is_available():
        _replace(pairs)


def _pairs(graph_def: tf.compat.v1.GraphDef) -> Iterator[_Pair]:
    """The pools that oneDNN can compute, each with a gradient of it."""
    nodes = {node.name: node for node in graph_def.node}
    for gradient in graph_def.node:
        if gradient.op == "MaxPoolGrad":
            pool = nodes[tensor_node(gradient.input[1])]
            # The kernel trusts that the places it is given are those of the same windows of the same tensor.
            is_pair = pool.op == "MaxPool" and pool.input[0] == gradient.input[0]
            settings = [_attributes(node) for node in (pool, gradient)]
            if is_pair and settings[0] == settings[1] and _is_supported(settings[0]):
                yield _Pair(pool, gradient)


def _attributes(node: tf.compat.v1.NodeDef) -> dict[str, Any]:
    """What a pool and its gradient have to have in common; the layout may be left out of a node."""
    layout = node.attr["data_format"].s if "data_format" in node.attr else b"NHWC"
    return {**{name: node.attr[name] for name in ("T", "ksize", "strides", "padding")}, "data_format": layout}


def _is_supported(attributes: dict[str, Any]) -> bool:
    is_float = attributes["T"].type == tf.float32.as_datatype_enum
    return is_float and attributes["data_format"] == b"NHWC" and attributes["padding"].s in (b"VALID", b"SAME")


def _replace(pairs: list[_Pair]) -> None:
    for pool, gradient in pairs:
        # The pool's second output is where its maxima were: the last of the tensors, before control inputs.
        gradient.input.insert(3, f"{pool.name}:1")
        for node in (pool, gradient):
            node.op = _FAST.get(node.op, node.op)  # a pool may have several gradients
            node.attr["workspace_enabled"].b = True
            node.attr["_kernel"].s = devices.ONEDNN_LABEL


@functools.cache
def _is_available() -> bool:
    """Whether TensorFlow has these operations: a pair is tried."""
    with tf.Graph().as_default() as graph:
        image = tf.zeros([1, 2, 2, 1])
        pool = tf.nn.max_pool2d(image, 2, 2, "VALID")
        (gradient,) = tf.gradients(pool, image)
    graph_def = graph.as_graph_def()
    _replace(list(_pairs(graph_def)))
    try:
        with tf.init_scope():
            tf.compat.v1.wrap_function(
                lambda: tf.graph_util.import_graph_def(graph_def, return_elements=[gradient.name]), []
            )()
    except (tf.errors.OpError, ValueError):
        return False
    return True
