"""`Dataset.reduce` as a loop where it can be one. That results stay those of TFF: `test_evaluator.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.runtime.inprocess import graphs


def reduction(step: Callable[[Any, Any], Any]) -> graphs.GraphFunction:
    """A graph as TFF has it, imported as the in-process runtime and Ray's workers do."""
    computation = tff.tensorflow.computation(lambda d: d.reduce(0, step), tff.SequenceType(np.int32))
    return graphs.GraphFunction(computation.to_building_block().proto.tensorflow)


def of(function: graphs.GraphFunction, *elements: int) -> int:
    dataset = tf.data.Dataset.from_tensor_slices(np.array(elements, np.int32))
    return int(function((tf.data.experimental.to_variant(dataset),)))


def operations(function: graphs.GraphFunction) -> set[str]:
    assert function._function is not None
    return {node.op for node in function._function.graph.as_graph_def().node}


def test_the_graphs_of_tff_have_loops() -> None:
    function = reduction(lambda a, b: 10 * a + b)
    assert of(function, 1, 2, 3) == 123
    assert "ReduceDataset" not in operations(function)


def draw(state: tf.Tensor, seed: int | None) -> tf.Tensor:
    return state + tf.random.uniform([], maxval=2**29, dtype=tf.int32, seed=seed)


def test_a_seed_begins_anew_at_every_call() -> None:
    function = reduction(lambda a, _: draw(a, seed=3))
    assert of(function, 1, 2, 3) == of(function, 1, 2, 3)
    assert "ReduceDataset" in operations(function)


def test_random_steps_without_a_seed_are_loops() -> None:
    function = reduction(lambda a, _: draw(a, seed=None))
    assert of(function, 1, 2, 3) != of(function, 1, 2, 3)
    assert "ReduceDataset" not in operations(function)


def test_errors_of_a_step_are_raised() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Integer division by zero"):
        of(reduction(lambda a, b: a // b), 1, 0)


def test_a_data_set_may_read_what_a_step_changes() -> None:
    @tff.tensorflow.computation(tff.SequenceType(np.int32))
    def changing(dataset: tf.data.Dataset) -> tf.Tensor:
        offset = tf.Variable(0)

        def step(state: tf.Tensor, element: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([offset.assign_add(100)]):
                return 1000 * state + element

        return dataset.map(lambda x: x + offset).reduce(0, step)

    function = graphs.GraphFunction(changing.to_building_block().proto.tensorflow)
    assert {of(function, 1, 2, 3) for _ in range(30)} == {1_102_203}


def test_functions_may_be_run_eagerly() -> None:
    tf.config.run_functions_eagerly(True)
    try:
        function = reduction(lambda a, b: 10 * a + b)
    finally:
        tf.config.run_functions_eagerly(False)
    assert of(function, 1, 2, 3) == 123
    assert "ReduceDataset" not in operations(function)
