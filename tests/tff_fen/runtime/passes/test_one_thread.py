"""Training loops with a thread each: which get one, and that nothing else comes of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models
from tests.support.runtime_graphs import CompilingOnce, imported, loops_on_one_thread, refuse
from tff_fen import graph_marks
from tff_fen.runtime import devices
from tff_fen.runtime.graph_parts import all_nodes
from tff_fen.runtime.machine_code import compiled_ops
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


@functools.cache
def fed_dyn(name: str, training: tff_fen.LocalTraining = TRAINING) -> tff_fen.StatefulClientProcess:
    return tff_fen.build_fed_dyn(model_with(name), PENALTIES, training, num_clients=CLIENTS)


def weights_after_rounds(process: Any, rounds: int = 2, context: Any = None) -> list[np.ndarray]:
    """The weights after rounds of all clients, in process."""
    with tff.framework.get_context_stack().install(context or CompilingOnce()):
        state = process.initialize()
        clients = [process.initialize_client(k) for k in range(CLIENTS)]
        for _ in range(rounds):
            data = [models.dataset(*models.examples(9 + k, seed=k)) for k in range(CLIENTS)]
            inputs = [tff_fen.ClientInput(c, d) for c, d in zip(clients, data, strict=True)]
            state, clients, _ = process.next(state, inputs)
        return process.get_model_weights(state).trainable


def graphs_of(computation: Any, context: Any = None) -> list[tf.compat.v1.GraphDef]:
    """What the in-process runtime, and Ray's workers, import of a computation."""
    return imported((context or CompilingOnce())._compile(computation))


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


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("dense", "convolution") else pytest.mark.long)
        for name in sorted(set(LAYERS) - {"dropout"})
    ],
)
def test_the_numbers_are_those_of_the_usual_executor(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    process = fed_dyn(name)
    with_thread = weights_after_rounds(process)
    monkeypatch.setattr(stages, "BEFORE_OPTIMISER", (fusing.keep_calls,))
    usual = weights_after_rounds(process, context=tff_fen.runtime.create_inprocess_context())
    for actual, expected in zip(with_thread, usual, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
    assert any(np.any(w != w0) for w, w0 in zip(with_thread, model_with(name).initial_weights[0], strict=True))


def test_bits_do_not_depend_on_clients_side_by_side() -> None:
    process = fed_dyn("dense")
    alone, many = (weights_after_rounds(process, context=CompilingOnce(max_concurrent_clients=n)) for n in (1, 5))
    for a, b in zip(alone, many, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_step_that_no_loop_over_elements_is_made_of_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arithmetic is then a call of a function, which needs a thread."""
    monkeypatch.setattr(compiled_ops, "register", refuse)
    process = fed_dyn("dense")
    assert not loops_on_one_thread(graphs_of(process.next))
    weights_after_rounds(process)


def test_a_gpu_keeps_the_usual_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    graph_defs = graphs_of(fed_dyn("dense").next, tff_fen.runtime.create_inprocess_context())
    assert not loops_on_one_thread(graph_defs)
    assert not any(graph_marks.is_loop(f.signature.name) for g in graph_defs for f in g.library.function)


def test_a_gpu_at_a_worker_alone_has_the_loop_taken_apart_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    graph_defs = graphs_of(fed_dyn("repeated").next)
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
    with tff.framework.get_context_stack().install(CompilingOnce()):
        x, y = models.examples(9)
        data = [models.dataset(x, labels) for labels in (y, y + 100)]
        inputs = [tff_fen.ClientInput(process.initialize_client(k), d) for k, d in enumerate(data)]
        with pytest.raises(tff_fen.runtime.ClientWorkError, match=r"(?s)client 1 .of 2.*a label value of 103"):
            process.next(process.initialize(), inputs)
