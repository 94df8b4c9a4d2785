"""Training loops with a thread each: which get one, and that nothing else comes of it."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models, new_process
from tests.tff_fen.runtime.passes.test_fusing import graphs_in
from tff_fen import graph_marks
from tff_fen.runtime import devices
from tff_fen.runtime.graph_parts import all_nodes, functions_of, nodes_of
from tff_fen.runtime.inprocess import graphs
from tff_fen.runtime.machine_code import compiled_ops, element_loops
from tff_fen.runtime.passes import fusing, one_thread, stages
from tff_fen.runtime.ray.clients import RayClientExecutor
from tff_fen.runtime.ray.context import RayContext

CLIENTS = 5
TRAINING = tff_fen.LocalTraining(0.1, epochs=2, batch_size=4, lr_decay=0.9)
PENALTIES = tff_fen.ElasticNet(l1=1e-3, l2=0.1, threshold=1e-3)

Layers = list[tf.keras.layers.Layer]


def conditional(x: tf.Tensor) -> tf.Tensor:
    """As a layer: one branch for all examples of a batch, which one depends on them."""
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: 2.0 * x, lambda: 0.5 * x)


def repeated(x: tf.Tensor) -> tf.Tensor:
    """As a layer: a loop in the step, with a loop in its gradient."""
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(y) + x), (0, x))[1]


LAYERS: dict[str, Callable[[], Layers]] = {
    "dense": lambda: [],
    "repeated": lambda: [tf.keras.layers.Lambda(repeated)],
    "embedding": lambda: [
        tf.keras.layers.Lambda(lambda x: tf.cast(3.0 * tf.abs(x), tf.int32)),
        tf.keras.layers.Embedding(20, 2),
        tf.keras.layers.Flatten(),
    ],
    "dropout": lambda: [tf.keras.layers.Dropout(0.5)],
    "conditional": lambda: [tf.keras.layers.Lambda(conditional)],
    "convolution": lambda: [
        tf.keras.layers.Reshape((6, 1)),
        tf.keras.layers.Conv1D(2, 3),
        tf.keras.layers.Flatten(),
    ],
}
ON_ONE_THREAD = ["dense", "repeated", "embedding"]


def model_with(name: str) -> tff.learning.models.FunctionalModel:
    """A classifier with some layers before its two dense ones."""
    dense = [tf.keras.layers.Dense(8, "relu"), tf.keras.layers.Dense(4)]
    return models.from_layers([*LAYERS[name](), *dense], 6)


def fed_dyn(name: str, training: tff_fen.LocalTraining = TRAINING) -> tff_fen.StatefulClientProcess:
    return tff_fen.build_fed_dyn(model_with(name), PENALTIES, training, num_clients=CLIENTS)


def weights_after_rounds(process: Any, rounds: int = 2, context: Any = None) -> list[np.ndarray]:
    """The weights after rounds of all clients, in process."""
    context = context or tff_fen.runtime.create_inprocess_context()
    with tff.framework.get_context_stack().install(context):
        state = process.initialize()
        clients = [process.initialize_client(k) for k in range(CLIENTS)]
        for _ in range(rounds):
            data = [models.dataset(*models.examples(9 + k, seed=k)) for k in range(CLIENTS)]
            inputs = [tff_fen.ClientInput(c, d) for c, d in zip(clients, data, strict=True)]
            state, clients, _ = process.next(state, inputs)
        return process.get_model_weights(state).trainable


def graphs_of(computation: Any, context: Any = None) -> list[tf.compat.v1.GraphDef]:
    """What the in-process runtime, and Ray's workers, import of a computation."""
    return imported((context or tff_fen.runtime.create_inprocess_context())._compile(computation))


def imported(compiled: Any) -> list[tf.compat.v1.GraphDef]:
    """The graphs of a compiled computation as they are here."""
    functions = [graphs.GraphFunction(proto)._function for proto in graphs_in(compiled)]
    return [function.graph.as_graph_def() for function in functions if function is not None]


def loops_on_one_thread(graph_defs: list[tf.compat.v1.GraphDef]) -> list[collections.Counter[str]]:
    """The operations of each loop that has a thread of its own."""
    found = []
    for graph_def in graph_defs:
        functions = functions_of(graph_def)
        for node in all_nodes(graph_def):
            assert "_XlaMustCompile" not in node.attr
            if node.attr["executor_type"].s == b"SINGLE_THREADED_EXECUTOR":
                name = node.attr["f"].func.name
                assert graph_marks.is_loop(name) and functions[name].attr["_noinline"].b
                found.append(collections.Counter(n.op for n in nodes_of(name, functions)))
    return found


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_the_rounds_of_every_algorithm_have_one(clip_norm: float | None) -> None:
    training = tff_fen.LocalTraining(0.1, batch_size=4, clip_norm=clip_norm)
    for process in (
        tff_fen.build_fed_avg(model_with("dense"), PENALTIES, training),
        tff_fen.build_scaffold(model_with("dense"), PENALTIES, training, num_clients=3),
        tff_fen.build_fed_dyn(model_with("dense"), PENALTIES, training, num_clients=3),
    ):
        (loop,) = loops_on_one_thread(graphs_of(process.next))
        assert loop["StatelessWhile"] == 2  # of epochs, and of batches
        assert not {"Switch", "PartitionedCall"} & set(loop)
        # The forward pass and the gradient of two layers: two products, three, and none of the slow kernel.
        assert (loop["_MklMatMul"], loop["MatMul"]) == (5, 0)


@pytest.mark.parametrize("name", LAYERS)
def test_which_steps_allow_it(name: str) -> None:
    found = loops_on_one_thread(graphs_of(fed_dyn(name).next))
    assert len(found) == (1 if name in ON_ONE_THREAD else 0)


@pytest.mark.parametrize(
    ("operation", "allowed"),
    [
        ("MatMul", True),
        ("StatelessWhile", True),
        ("While", True),
        ("IteratorGetNext", False),
        ("RandomUniform", False),
        ("PartitionedCall", False),
        ("StatelessIf", False),
        ("MapDefun", False),
        ("Switch", False),
        ("Merge", False),
        ("a function's name", False),
    ],
)
def test_which_operations_allow_it(operation: str, allowed: bool) -> None:
    assert one_thread._is_allowed(tf.compat.v1.NodeDef(name="x", op=operation)) is allowed


def test_batches_of_a_data_set_stay_with_the_usual_executor() -> None:
    """Who reads a data set waits for its threads."""
    assert not loops_on_one_thread(graphs_of(fed_dyn("dense", tff_fen.LocalTraining(0.1)).next))


@pytest.mark.parametrize("name", sorted(set(LAYERS) - {"dropout"}))
def test_the_numbers_are_those_of_the_usual_executor(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    process = fed_dyn(name)
    with_thread = weights_after_rounds(process)
    monkeypatch.setattr(stages, "BEFORE_OPTIMISER", (fusing.keep_calls,))
    for actual, expected in zip(with_thread, weights_after_rounds(process), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
    assert any(np.any(w != w0) for w, w0 in zip(with_thread, model_with(name).initial_weights[0], strict=True))


def test_bits_do_not_depend_on_clients_side_by_side() -> None:
    process = fed_dyn("dense")
    alone, many = (
        weights_after_rounds(process, context=tff_fen.runtime.create_inprocess_context(max_concurrent_clients=n))
        for n in (1, 5)
    )
    for a, b in zip(alone, many, strict=True):
        np.testing.assert_array_equal(a, b)


def test_bits_do_not_depend_on_the_device() -> None:
    new_process.run_python(
        """
import numpy as np, tensorflow as tf, tff_fen
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
contexts = [tff_fen.runtime.create_inprocess_context(client_devices=d) for d in (["CPU:0"], ["CPU:1", "CPU:0"])]
from tests.tff_fen.runtime.passes import test_one_thread as here
process = here.fed_dyn("dense")
assert len(here.loops_on_one_thread(here.graphs_of(process.next))) == 1
for a, b in zip(*[here.weights_after_rounds(process, context=c) for c in contexts], strict=True):
    np.testing.assert_array_equal(a, b)
"""
    )


def test_clients_that_hold_all_threads_do_not_wait_for_one() -> None:
    """A step whose arithmetic stays a call of a function needs a thread more than TensorFlow has here."""
    new_process.run_python(
        """
import tensorflow as tf, tff_fen
from tff_fen.runtime.machine_code import compiled_ops, element_loops
tf.config.threading.set_inter_op_parallelism_threads(1)
context = tff_fen.runtime.create_inprocess_context(max_concurrent_clients=5)
def refuse(function):
    raise element_loops.UnsupportedFunctionError("Refused for the test.")
compiled_ops.register = refuse
from tests.tff_fen.runtime.passes import test_one_thread as here
here.weights_after_rounds(here.fed_dyn("dense"), context=context)
"""
    )


def test_a_step_that_no_loop_over_elements_is_made_of_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arithmetic is then a call of a function, which needs a thread."""

    def refuse(function: element_loops.ElementFunction) -> str:
        raise element_loops.UnsupportedFunctionError("Refused for the test.")

    monkeypatch.setattr(compiled_ops, "register", refuse)
    process = fed_dyn("dense")
    assert not loops_on_one_thread(graphs_of(process.next))
    weights_after_rounds(process)


def test_a_gpu_keeps_the_usual_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    graph_defs = graphs_of(fed_dyn("dense").next)
    assert not loops_on_one_thread(graph_defs)
    assert not any(graph_marks.is_loop(f.signature.name) for g in graph_defs for f in g.library.function)


def test_a_gpu_at_a_worker_alone_has_the_loop_taken_apart_there(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tff_fen.runtime.create_inprocess_context()
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    graph_defs = graphs_of(fed_dyn("repeated").next, driver)
    assert not loops_on_one_thread(graph_defs)
    loops = [n for g in graph_defs for n in all_nodes(g) if n.op == "StatelessWhile"]
    in_the_step = [loop for loop in loops if "lambda" in loop.name]
    assert in_the_step and all(loop.attr["_lower_using_switch_merge"].b for loop in in_the_step)


def test_a_gpu_at_the_driver_alone_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for Ray's workers without GPUs: the driver keeps for them what it would not keep for itself."""
    with monkeypatch.context() as at_the_driver:
        at_the_driver.setattr(devices, "has_gpu", lambda: True)
        process, driver = fed_dyn("dense"), RayContext(executor=mock.create_autospec(RayClientExecutor))
        compiled = driver._compile(process.next)
    assert len(loops_on_one_thread(imported(compiled))) == 1


def test_products_are_tensorflows_own_where_one_dnn_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_thread, "_has_fast_products", lambda: False)
    (loop,) = loops_on_one_thread(graphs_of(fed_dyn("dense").next))
    assert (loop["_MklMatMul"], loop["MatMul"]) == (0, 5)


def test_an_error_in_a_step_names_its_client() -> None:
    process = fed_dyn("dense")
    with tff.framework.get_context_stack().install(tff_fen.runtime.create_inprocess_context()):
        x, y = models.examples(9)
        data = [models.dataset(x, labels) for labels in (y, y + 100)]
        inputs = [tff_fen.ClientInput(process.initialize_client(k), d) for k, d in enumerate(data)]
        with pytest.raises(tff_fen.runtime.ClientWorkError, match=r"(?s)client 1 .of 2.*a label value of 103"):
            process.next(process.initialize(), inputs)
