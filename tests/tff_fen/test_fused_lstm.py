"""The fused LSTM: Keras's numbers and weights, where TensorFlow's operation computes it and where Keras's loop does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models
from tests.support.runtime_graphs import CompilingOnce, imported, loops_on_one_thread

layers = tf.keras.layers
LSTM, CELL = layers.LSTM, layers.LSTMCell
FEATURES, UNITS = 3, 4
CLIENTS = 4


def sequential(*of: tf.keras.layers.Layer) -> tf.keras.Model:
    return tf.keras.Sequential([layers.InputLayer((None, FEATURES)), *of])


def with_states() -> tf.keras.Model:
    x = layers.Input((None, FEATURES))
    return tf.keras.Model(x, LSTM(UNITS, return_sequences=True, return_state=True)(x))


def with_initial_states() -> tf.keras.Model:
    x, h, c = layers.Input((None, FEATURES)), layers.Input(UNITS), layers.Input(UNITS)
    return tf.keras.Model([x, h, c], LSTM(UNITS)(x, initial_state=[h, c]))


def wrapped(layer: Callable[..., Any] = CELL, **settings: Any) -> tf.keras.layers.Layer:
    return layers.RNN(layer(UNITS, **settings))


class OtherCell(tf.keras.layers.LSTMCell):
    """What it computes is not known."""


FUSED: dict[str, Callable[[], tf.keras.Model]] = {
    "a layer": lambda: sequential(LSTM(UNITS)),
    "a cell in an RNN": lambda: sequential(wrapped()),
    "stacked": lambda: sequential(LSTM(UNITS, return_sequences=True), layers.Dense(5), LSTM(2)),
    "sequences": lambda: sequential(LSTM(UNITS, return_sequences=True)),
    "states": with_states,
    "backwards": lambda: sequential(LSTM(UNITS, go_backwards=True, return_sequences=True)),
    "backwards to the last": lambda: sequential(LSTM(UNITS, go_backwards=True)),
    "time first": lambda: sequential(LSTM(UNITS, time_major=True, return_sequences=True)),
    "no bias": lambda: sequential(LSTM(UNITS, use_bias=False)),
    "no forget bias": lambda: sequential(wrapped(unit_forget_bias=False)),
    "one unit": lambda: sequential(LSTM(1)),
}
LEFT_ALONE: dict[str, Callable[[], tf.keras.Model]] = {
    "mask": lambda: sequential(layers.Masking(), LSTM(UNITS)),
    "activation": lambda: sequential(LSTM(UNITS, activation="relu")),
    "recurrent activation": lambda: sequential(LSTM(UNITS, recurrent_activation="hard_sigmoid")),
    "dropout": lambda: sequential(LSTM(UNITS, dropout=0.5)),
    "recurrent dropout": lambda: sequential(LSTM(UNITS, recurrent_dropout=0.5)),
    "initial states": with_initial_states,
    "float64": lambda: sequential(LSTM(UNITS, dtype=tf.float64)),
    "another cell": lambda: sequential(wrapped(OtherCell)),
    "GRU": lambda: sequential(layers.GRU(UNITS)),
    "bidirectional": lambda: sequential(layers.Bidirectional(LSTM(UNITS))),
}


def with_random_weights(model: tf.keras.Model) -> tf.keras.Model:
    """Biases as well: gates in another order would not be noticed where all have the same."""
    rng = np.random.default_rng(0)
    model.set_weights([0.7 * rng.normal(size=w.shape).astype(w.dtype) for w in model.get_weights()])
    return model


def results(model: tf.keras.Model, inputs: list[tf.Tensor]) -> list[np.ndarray]:
    """What a model returns, and the gradients of weights and inputs."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = tf.nest.flatten(model(inputs if len(inputs) > 1 else inputs[0]))
        # A number with other gradients at each element.
        loss = tf.add_n(
            [
                tf.reduce_sum(tf.sin(tf.range(1.0, tf.size(y) + 1)) * tf.cast(tf.reshape(y, [-1]), tf.float32))
                for y in outputs
            ]
        )
    return [*outputs, *tape.gradient(loss, [*model.trainable_variables, *inputs])]


def inputs_of(model: tf.keras.Model, batch: int, times: int) -> list[tf.Tensor]:
    rng = np.random.default_rng(1)
    sizes = [(batch, times, FEATURES), *[(batch, *i.shape[1:]) for i in model.inputs[1:]]]
    return [tf.constant(rng.normal(size=size), tf.float32) for size in sizes]


def has_operation(model: tf.keras.Model) -> bool:
    specs = [tf.TensorSpec(i.shape, i.dtype) for i in model.inputs]
    traced = tf.function(lambda *inputs: model(inputs if len(inputs) > 1 else inputs[0])).get_concrete_function(*specs)
    return any(operation.type == "BlockLSTMV2" for operation in traced.graph.get_operations())


@pytest.mark.parametrize("name", FUSED)
def test_numbers_and_weights_are_kerass(name: str) -> None:
    model = with_random_weights(FUSED[name]())
    fused = tff_fen.fuse_lstm(model)
    assert has_operation(fused) and not has_operation(model)
    for mine, keras in zip(fused.weights, model.weights, strict=True):
        assert mine.name == keras.name
        np.testing.assert_array_equal(mine, keras)
    for batch, times in ((3, 4), (1, 1)):
        inputs = inputs_of(model, batch, times)
        for actual, expected in zip(results(fused, inputs), results(model, inputs), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_kerass_loop_computes_what_the_operation_does_not_know(name: str) -> None:
    model = with_random_weights(LEFT_ALONE[name]())
    fused = tff_fen.fuse_lstm(model)
    assert not has_operation(fused)
    inputs = inputs_of(model, 2, 3)
    if name == "mask":
        inputs[0] = tf.concat([inputs[0][:, :2], tf.zeros([2, 1, FEATURES])], 1)
    for actual, expected in zip(results(fused, inputs), results(model, inputs), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_stateful_and_unrolled_layers_are_left_alone() -> None:
    for settings in (dict(stateful=True), dict(unroll=True)):
        model = tf.keras.Sequential([layers.InputLayer((3, FEATURES), 2), LSTM(UNITS, **settings)])
        fused = tff_fen.fuse_lstm(model)
        assert not has_operation(fused)
        x = tf.ones([2, 3, FEATURES])
        for _ in range(2):
            np.testing.assert_allclose(fused(x), model(x), rtol=1e-6)


def test_a_model_without_an_lstm_is_returned_itself() -> None:
    model = sequential(layers.Dense(2))
    assert tff_fen.fuse_lstm(model) is model
    fused = tff_fen.fuse_lstm(FUSED["a layer"]())
    assert tff_fen.fuse_lstm(fused) is fused


def test_what_is_no_keras_model_is_refused() -> None:
    with pytest.raises(TypeError, match=r"keras_model must be a Model, found .* of type FunctionalModel\. Pass a"):
        tff_fen.fuse_lstm(models.softmax_regression())


def character_model() -> tf.keras.Model:
    tf.keras.utils.set_random_seed(0)
    of = [layers.Embedding(20, 3), wrapped(), layers.Dense(20)]
    return tf.keras.Sequential([layers.InputLayer((None,), dtype=tf.int32), *of])


@functools.cache
def process(fused: bool) -> Any:
    model = tff.learning.models.functional_model_from_keras(
        tff_fen.fuse_lstm(character_model()) if fused else character_model(),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        (tf.TensorSpec([None, 6], tf.int32), tf.TensorSpec([None], tf.int32)),
    )
    training = tff_fen.LocalTraining(0.3, epochs=2, batch_size=4, clip_norm=1.0, weight_decay=1e-3)
    return tff_fen.build_fed_dyn(model, tff_fen.ElasticNet(l1=1e-4, l2=0.1), training, num_clients=CLIENTS)


def weights_after_a_round(process: Any) -> list[np.ndarray]:
    """With last batches that are not full."""
    rng = np.random.default_rng(0)
    clients = []
    for k in range(CLIENTS):
        x, y = rng.integers(0, 20, (9 + k, 6)).astype(np.int32), rng.integers(0, 20, 9 + k).astype(np.int32)
        clients.append(tff_fen.ClientInput(process.initialize_client(k), models.dataset(x, y)))
    state = process.next(process.initialize(), clients).state
    return process.get_model_weights(state).trainable


@pytest.mark.long
def test_rounds_are_those_of_kerass_loop_on_every_runtime() -> None:
    expected = weights_after_a_round(process(fused=False))
    initial = process(fused=False).get_model_weights(process(fused=False).initialize()).trainable
    assert all(np.abs(e - i).max() > 1e-3 for e, i in zip(expected, initial, strict=True)), "all weights must move"
    native = weights_after_a_round(process(fused=True))
    with tff.framework.get_context_stack().install(CompilingOnce()):
        in_process = weights_after_a_round(process(fused=True))
    for actual in (native, in_process):
        for a, e in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)


def test_the_operation_is_in_the_loop_of_one_thread() -> None:
    (loop,) = loops_on_one_thread(imported(CompilingOnce()._compile(process(fused=True).next)))
    assert (loop["BlockLSTMV2"], loop["BlockLSTMGradV2"]) == (1, 1)
    assert loop["StatelessWhile"] == 2  # of epochs, and of batches


def test_clients_side_by_side_do_not_disturb_each_other() -> None:
    with tff.framework.get_context_stack().install(CompilingOnce(max_concurrent_clients=4)):
        first = weights_after_a_round(process(fused=True))
        for _ in range(20):
            for a, b in zip(weights_after_a_round(process(fused=True)), first, strict=True):
                np.testing.assert_array_equal(a, b)
