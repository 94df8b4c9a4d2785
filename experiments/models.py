"""The models that an experiment came to, by name, and as models of Keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tasks.task import Task
from tff_fen.program.weights import AVERAGE, SERVER


def models_of(process: tff_fen.StatefulClientProcess, state: Any) -> dict[str, Any]:
    """Returns the weights of the server's model, and last those of the model whose accuracy the table has."""
    models = {SERVER: process.get_model_weights(state)}
    if process.has_average_model:
        models[AVERAGE] = process.get_average_weights(state)
    return models


def to_keras(weights: tff.learning.models.ModelWeights, task: Task) -> tf.keras.Model:
    """Returns the task's model with these weights, compiled so that `evaluate` gives loss and accuracy."""
    model = task.build_keras_model()
    weights.assign_weights_to(model)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss, metrics=["accuracy"])
    model.optimizer.build(model.trainable_variables)  # else Keras warns on loading
    return model
