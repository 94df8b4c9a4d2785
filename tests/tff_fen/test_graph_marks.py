"""Marks of functions: what is marked is recognised in a graph, nothing else is, and what is computed stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tff_fen import graph_marks

Function = Callable[..., tuple[tf.Tensor, ...]]


def test_marks_are_recognised_in_a_graph() -> None:
    @tf.function(autograph=False)
    def call(x: tf.Tensor, s: tf.Tensor) -> Any:
        ((x,),) = graph_marks.map_tensors(lambda s, a: (s * a,), [s], [x])
        x = graph_marks.mark_loop(lambda x: tf.while_loop(lambda y: y[0] < 9.0, lambda y: 2.0 * y, [x])[0])(x)
        return tf.function(lambda x: x + 1.0)(x)

    assert call(tf.constant([1.0, 2.0]), tf.constant(3.0)).numpy().tolist() == [13.0, 25.0]
    specs = tf.TensorSpec([2]), tf.TensorSpec([])
    graph_def = call.get_concrete_function(*specs).graph.as_graph_def()
    called = [node.attr["f"].func.name for node in graph_def.node if "PartitionedCall" in node.op]
    assert [graph_marks.is_elementwise(name) for name in called] == [True, False, False]
    assert [graph_marks.is_loop(name) for name in called] == [False, True, False]
    (function,) = (f for f in graph_def.library.function if graph_marks.is_elementwise(f.signature.name))
    assert [graph_marks.is_scalar(argument.name) for argument in function.signature.input_arg] == [False, True]


@pytest.mark.parametrize(
    ("function", "scalars", "tensors", "message"),
    [
        (lambda s, x: (s * x,), [[2]], [[2]], "found .TensorShape..2.."),
        (lambda x, y: (x + y,), [], [[3, 1], [1, 3]], "tensors of one shape"),
    ],
    ids=["a scalar of two elements", "two shapes"],
)
def test_shapes_are_checked(function: Function, scalars: list, tensors: list, message: str) -> None:
    columns = [[tf.ones(shape)] for shape in tensors]
    with pytest.raises(ValueError, match=message):
        graph_marks.map_tensors(function, list(map(tf.ones, scalars)), *columns)


def test_a_function_may_use_its_arguments_only() -> None:
    @tf.function(autograph=False)
    def call(x: tf.Tensor, other: tf.Tensor) -> Any:
        return graph_marks.map_tensors(lambda x: (x * other,), [], [x])

    with pytest.raises(ValueError, match="arguments alone"):
        call(tf.ones(3), tf.ones([]))
