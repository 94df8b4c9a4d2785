"""Checks of models and configurations that users hand to the builders, made before TFF sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.checks import check_type
from tff_fen.config import ElasticNet, LocalTraining


def check_training(model: Any, elastic_net: Any, local_training: Any) -> None:
    """Raises unless model and configuration are of the right types and fit together."""
    check_type("elastic_net", elastic_net, ElasticNet, "Pass tff_fen.ElasticNet(l1=..., l2=..., threshold=...).")
    check_type("local_training", local_training, LocalTraining, "Pass tff_fen.LocalTraining(learning_rate=...).")
    check_type("model", model, tff.learning.models.FunctionalModel, _model_advice(model))
    _check_weights(model)
    _check_input_spec(model.input_spec, local_training)
    _check_calls(model)
    if local_training.augment is not None:
        _check_augment(model.input_spec, local_training.augment)


def _model_advice(model: Any) -> str:
    """What to write instead of a model of another kind."""
    is_function = callable(model) and not isinstance(model, tf.keras.Model)
    if is_function or isinstance(model, tff.learning.models.VariableModel):
        return (
            "TFF's own builders take such a model, or a function that returns one. Where it is made, write "
            "tff_fen.from_keras_model(keras_model, loss=loss, input_spec=input_spec, metrics=metrics) for "
            "tff.learning.models.from_keras_model(...), which has the same arguments, and pass its result."
        )
    return (
        "Convert a Keras model with tff_fen.from_keras_model(keras_model, loss, input_spec, metrics), or with "
        "tff.learning.models.functional_model_from_keras."
    )


def _check_weights(model: tff.learning.models.FunctionalModel) -> None:
    trainable = tf.nest.flatten(model.initial_weights[0])
    if not trainable:
        raise ValueError("model has no trainable weights: there is nothing to train.")
    for i, weight in enumerate(trainable):
        dtype = tf.convert_to_tensor(weight).dtype
        if dtype != tf.float32:
            raise TypeError(f"model.initial_weights[0][{i}] has dtype {dtype.name}; trainable weights must be float32.")


def _check_input_spec(spec: Any, local_training: LocalTraining) -> None:
    is_pair = isinstance(spec, tuple | list) and len(spec) == 2
    is_mapping = isinstance(spec, Mapping) and set(spec) == {"x", "y"}
    if not (is_pair or is_mapping):
        raise TypeError(f"model.input_spec must be a pair (x, y) or a mapping of 'x' and 'y', found {spec!r}.")
    if local_training.batch_size is None:
        return
    for leaf in tf.nest.flatten(spec):
        shape = leaf.shape
        if shape.rank is None or shape.rank < 1 or shape[0] is not None or not shape[1:].is_fully_defined():
            raise ValueError(
                f"With LocalTraining.batch_size={local_training.batch_size} every tensor of model.input_spec must have "
                f"shape [None, ...] with known dimensions after the first, found {leaf!r}. "
                "Use batch_size=None to train on the data set's own batches."
            )


def _check_augment(spec: Any, augment: Callable[[Any, Any], Any]) -> None:
    """Traces the augmentation once: a batch of another type would be refused by the model, inside a loop."""
    with tf.Graph().as_default():
        batch = tf.nest.map_structure(lambda s: tf.compat.v1.placeholder(s.dtype, s.shape), spec)
        key = tf.compat.v1.placeholder(tf.int32, [2])
        try:
            augmented = augment(batch, key)
            tf.nest.assert_same_structure(spec, augmented)
            found = tf.nest.map_structure(tf.TensorSpec.from_tensor, augmented)
        except Exception as error:
            raise TypeError(
                f"LocalTraining.augment cannot be called on batches of the model's input_spec {spec!r} and a key "
                f"int32[2]: {type(error).__name__}: {error}"
            ) from error
    fits = [
        a.dtype == b.dtype and a.shape.is_compatible_with(b.shape)
        for a, b in zip(*map(tf.nest.flatten, (found, spec)), strict=True)
    ]
    if not all(fits):
        raise TypeError(
            f"LocalTraining.augment must return batches of the type that it gets, {spec!r}, found {found!r}."
        )


def _check_calls(model: tff.learning.models.FunctionalModel) -> None:
    """Traces model and loss once, so that what is wrong is named here and not from inside a loop."""
    with tf.Graph().as_default():
        batch = tf.nest.map_structure(lambda s: tf.compat.v1.placeholder(s.dtype, s.shape), model.input_spec)
        x, y = (batch["x"], batch["y"]) if isinstance(batch, Mapping) else batch
        weights = tf.nest.map_structure(tf.convert_to_tensor, model.initial_weights)
        try:
            output = model.predict_on_batch(weights, x, training=True)
            loss = model.loss(output=output, label=y)
        except Exception as error:
            raise TypeError(
                f"model cannot be called on batches of its own input_spec {model.input_spec!r}: "
                f"{type(error).__name__}: {error}\n"
                "Check the spec against the model. TFF makes no working functional model of a Keras model with layers "
                "that are not trainable: compute what they do beforehand, as a part of the data."
            ) from error
        predictions = tf.nest.flatten(output)[0]
    if loss.shape.rank not in (0, None) or loss.dtype != tf.float32:
        raise TypeError(
            f"The model's loss must be one float32 a batch, found {loss.dtype.name} of shape {loss.shape}. "
            "Take the mean over the batch."
        )
    if predictions.shape.rank == 0:
        raise TypeError("The model's output must have a first dimension of examples, found a scalar.")
