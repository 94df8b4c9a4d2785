"""Models of Keras users: the metrics they asked for are what a round reports, and equal what Keras gives."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models

FEATURES, CLASSES = 6, 4
X, Y = models.examples(40, FEATURES, CLASSES, seed=3)
LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
TOP_2 = tf.keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top_2")


def keras_model() -> tf.keras.Model:
    tf.keras.utils.set_random_seed(1)
    return tf.keras.Sequential([tf.keras.layers.InputLayer((FEATURES,)), tf.keras.layers.Dense(CLASSES)])


def margin(y_true: Any, y_pred: Any) -> tf.Tensor:
    """A metric of a user's own: how far the largest logit stands above the mean."""
    return tf.reduce_max(y_pred, -1) - tf.reduce_mean(y_pred, -1)


def measure(model: tff.learning.models.FunctionalModel) -> dict[str, float]:
    """Loss and metrics of the initial weights, over batches of unequal sizes, as clients compute them."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        weights = tf.nest.map_structure(tf.constant, model.initial_weights)
        state, losses = model.initialize_metrics_state(), []
        for rows in (slice(0, 25), slice(25, 40)):
            output = model.predict_on_batch(weights, tf.constant(X[rows]), training=True)
            losses.append(model.loss(output=output, label=Y[rows]) * len(Y[rows]) / len(Y))
            batch = tff.learning.models.BatchOutput(losses[-1], output, len(Y[rows]))
            state = model.update_metrics_state(state, Y[rows], batch)
        return session.run(dict(model.finalize_metrics(state), loss=tf.add_n(losses)))


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        (["accuracy"], ["accuracy"]),
        ([tf.keras.metrics.SparseCategoricalAccuracy(name="right"), TOP_2], ["right", "top_2"]),
        ([tf.keras.metrics.SparseCategoricalAccuracy], ["sparse_categorical_accuracy"]),
        ([functools.partial(tf.keras.metrics.SparseTopKCategoricalAccuracy, k=3, name="top_3")], ["top_3"]),
        ([margin], ["margin"]),
        ({"a": "accuracy", "b": TOP_2}, ["a", "b"]),
        (["sparse_categorical_crossentropy"], ["sparse_categorical_crossentropy"]),
        (TOP_2, ["top_2"]),
        ([], []),
        (None, []),
    ],
)  # fmt: skip
def test_metrics_are_those_of_keras(metrics: Any, names: list[str]) -> None:
    built = keras_model()
    reported = measure(tff_fen.from_keras_model(built, LOSS, (X[:1], Y[:1]), metrics))
    plain = measure(tff_fen.from_keras_model(built, LOSS, models.spec(FEATURES)))
    assert set(reported) - set(plain) == set(names)
    asked = [m() if isinstance(m, type | functools.partial) else m for m in metrics] if isinstance(metrics, list) else (
        list(metrics.values()) if isinstance(metrics, dict) else [m for m in [metrics] if m is not None]
    )  # fmt: skip
    built.compile(loss=LOSS, metrics=asked)
    expected = built.evaluate(X, Y, verbose=0)
    values = expected[1:] if names else []
    np.testing.assert_allclose([reported[name] for name in names], values, rtol=1e-5)
    assert reported["loss"] == pytest.approx(expected[0] if names else expected, rel=1e-5)


def test_a_compiled_model_brings_its_loss_and_metrics_along() -> None:
    built = keras_model()
    built.compile(loss=LOSS, metrics=["accuracy", TOP_2])
    model = tff_fen.from_keras_model(built, input_spec=models.dataset(X, Y, 4))
    reported = measure(model)
    loss, *others = built.evaluate(X, Y, verbose=0)
    assert [reported[name] for name in ("loss", "accuracy", "top_2")] == pytest.approx([loss, *others], rel=1e-5)
    for mine, theirs in zip(model.initial_weights[0], built.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert model.input_spec == models.spec(FEATURES)


@pytest.mark.parametrize("loss", ["sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", type(LOSS)])
def test_losses_by_name(loss: Any) -> None:
    built = tf.keras.Sequential([tf.keras.layers.InputLayer((FEATURES,)), tf.keras.layers.Dense(CLASSES, "softmax")])
    built.compile(loss=loss if isinstance(loss, str) else loss(), metrics=["accuracy"])
    reported = measure(tff_fen.from_keras_model(built, loss, (X, Y), ["accuracy"]))
    expected = built.evaluate(X, Y, verbose=0)
    assert [reported["loss"], reported["accuracy"]] == pytest.approx(expected, rel=1e-5)


def test_a_loss_that_is_a_function() -> None:
    def twice(y_true: Any, y_pred: Any) -> tf.Tensor:
        return 2.0 * tf.keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)

    built = keras_model()
    once, doubled = (measure(tff_fen.from_keras_model(built, loss, (X, Y)))["loss"] for loss in (LOSS, twice))
    assert doubled == pytest.approx(2 * once, rel=1e-6)


class Subclassed(tf.keras.Model):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layer = tf.keras.layers.Dense(classes, kernel_initializer="zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.layer(x)


def build_subclassed() -> tf.keras.Model:
    model = Subclassed(CLASSES)
    model.build((None, FEATURES))
    return model


def test_a_function_that_builds_the_model() -> None:
    reported = measure(tff_fen.from_keras_model(build_subclassed, LOSS, (X, Y), ["accuracy"]))
    assert reported["loss"] == pytest.approx(np.log(CLASSES), rel=1e-5)


def test_it_is_what_tff_makes_and_the_keras_model_can_still_be_used(tmp_path: pathlib.Path) -> None:
    """After TFF's own conversion Keras refuses it: 'Your Layer or Model is in an invalid state'."""
    built = keras_model()
    built.compile(optimizer="sgd", loss=LOSS, metrics=["accuracy"])
    before = built.evaluate(X, Y, verbose=0)
    model = tff_fen.from_keras_model(built, input_spec=(X, Y))
    assert built.evaluate(X, Y, verbose=0) == before
    net, local = tff_fen.ElasticNet(l2=0.1), tff_fen.LocalTraining(0.3, batch_size=7)
    process = tff_fen.build_fed_dyn(model, net, local, num_clients=2)
    assert built.evaluate(X, Y, verbose=0) == before
    evaluated = []

    def evaluate(weights: tff.learning.models.ModelWeights) -> dict[str, float]:
        weights.assign_weights_to(built)
        evaluated.append(built.evaluate(X, Y, verbose=0, return_dict=True))
        return evaluated[-1]

    data = {"a": (X[:25], Y[:25]), "b": (X[25:], Y[25:])}
    result = tff_fen.run_rounds(process, data, 2, 3, evaluate=evaluate)
    assert [row["accuracy"] for row in result.metrics] == [found["accuracy"] for found in evaluated]
    assert "client_work/train/accuracy" in result.metrics[0] and evaluated[-1]["loss"] < before[0]
    built.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras").evaluate(X, Y, verbose=0, return_dict=True)
    assert again == pytest.approx(evaluated[-1])
    # To the bit what TFF's conversion gives.
    theirs = tff.learning.models.functional_model_from_keras(keras_model(), LOSS, models.spec(FEATURES))
    other = tff_fen.run_rounds(tff_fen.build_fed_dyn(theirs, net, local, num_clients=2), data, 2, 3).state
    for mine, their in zip(*(process.get_model_weights(s).trainable for s in (result.state, other)), strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(their).tobytes()


def own_loss(y_true: Any, y_pred: Any) -> tf.Tensor:
    return tf.reduce_mean(y_pred, -1)


def compiled_with_own_loss() -> tf.keras.Model:
    built = keras_model()
    built.compile(loss=own_loss)
    return built


def with_layer(layer: tf.keras.layers.Layer) -> tf.keras.Model:
    return tf.keras.Sequential([tf.keras.layers.InputLayer((FEATURES,)), layer, tf.keras.layers.Dense(CLASSES)])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(keras_model=3), TypeError, r"keras_model must be a Keras model, found 3.*Pass a tf\.keras\.Model"),
        (dict(keras_model=lambda: 3), TypeError, "What keras_model returns must be a Model, found 3"),
        (
            dict(keras_model=Subclassed(CLASSES)),
            ValueError,
            "0 variables .* Pass a function .* returns a new model, built",
        ),
        (dict(keras_model=lambda: Subclassed(CLASSES)), ValueError, "has 0 variables and a copy of it 0"),
        (dict(keras_model=with_layer(tf.keras.layers.BatchNormalization())), ValueError, "Use .*LayerNormalization"),
        (dict(loss=None), TypeError, "loss must be a .* found None.*or compile the model with one"),
        (dict(loss="cross"), ValueError, "loss must be the name of a loss of Keras, found 'cross'"),
        (
            dict(loss=None, keras_model=compiled_with_own_loss()),
            ValueError,
            r"does not give back.* Pass loss=\.\.\. as",
        ),
        (dict(metrics=[3]), TypeError, "A metric must be a .*found 3 of type int"),
        (dict(metrics=["acuracy"]), ValueError, "name of one of Keras's, found 'acuracy'"),
        (dict(metrics=["accuracy", "accuracy"]), ValueError, "metrics has 'accuracy' twice"),
        (dict(metrics=["acc"], loss="mse"), ValueError, "'acc' has no meaning beside the loss 'mean_squared_error'"),
        (dict(metrics=[lambda: 3]), TypeError, "What a constructor of a metric returns must be a Metric, found 3"),
        (dict(input_spec=None), TypeError, r"input_spec must say what a batch is, found None\. Pass a few examples"),
        (dict(input_spec=(X.astype(float), Y)), TypeError, r"dtype float64; .*x\.astype\(np\.float32\)"),
        (dict(input_spec=(3.0, Y)), TypeError, "arrays whose first axis is that of the examples, found 3.0"),
        (dict(input_spec=("x", "y")), TypeError, "arrays whose first axis .* found 'x'"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    good: dict[str, Any] = dict(keras_model=keras_model(), loss=LOSS, input_spec=(X, Y), metrics=None)
    with pytest.raises(error, match=message):
        tff_fen.from_keras_model(**{**good, **arguments})


def model_fn() -> tff.learning.models.VariableModel:
    return tff.learning.models.from_keras_model(
        keras_model(),
        loss=LOSS,
        input_spec=models.spec(FEATURES),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )


@pytest.mark.parametrize("given", [model_fn, "made"])
def test_a_user_of_tffs_variable_models_gets_the_line_to_write(given: Any) -> None:
    model = model_fn() if given == "made" else given
    with pytest.raises(TypeError, match=r"write tff_fen\.from_keras_model\(keras_model, loss=.* for tff\.learning"):
        tff_fen.build_fed_avg(model, tff_fen.ElasticNet(), tff_fen.LocalTraining(0.1))
    # The line works: the same arguments.
    line = tff_fen.from_keras_model(
        keras_model(),
        loss=LOSS,
        input_spec=models.spec(FEATURES),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )
    assert "sparse_categorical_accuracy" in measure(line)
