"""Runs local training and whole rounds for tests, and says which batches a client takes."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.support import models, reference
from tff_fen import ElasticNet, LocalTraining
from tff_fen.client_work import batches as client_data
from tff_fen.client_work import step as local_training
from tff_fen.client_work.trainer import Trainer

Examples = tuple[np.ndarray, np.ndarray]


def run_local(
    model: tff.learning.models.FunctionalModel,
    data: Examples,
    elastic_net: ElasticNet,
    settings: LocalTraining,
    *,
    round_number: int = 0,
    correction: Any | None = None,
    batch_size: int | None = None,
    as_mapping: bool = False,
) -> local_training.LocalResult:
    """One client's local training from the model's initial weights, on TFF's runtime."""
    trainer = Trainer(model, elastic_net, settings, measure=False)

    @tff.tensorflow.computation(trainer.weights_type, trainer.data_type)
    @tf.function
    def train(weights: Any, dataset: tf.data.Dataset) -> Any:
        result = trainer.train(weights, dataset, tf.constant(round_number), correction=correction)
        return result._asdict()

    weights = tff.learning.models.ModelWeights(*model.initial_weights)
    dataset = models.dataset(*data, batch_size)
    if as_mapping:
        dataset = dataset.map(lambda x, y: collections.OrderedDict(x=x, y=y))
    return local_training.LocalResult(**train(weights, dataset))


def batches_of_client(
    data: Examples, settings: LocalTraining, round_number: int = 0, client_id: int | None = None
) -> list[reference.Batch]:
    """The minibatches of all epochs in which a client with `settings.batch_size` visits its examples."""
    x, y = data
    assert settings.batch_size is not None
    key = client_data.digest((tf.constant(x), tf.constant(y))) if client_id is None else client_id
    seed = client_data.shuffle_seed(settings.seed, tf.constant(round_number), tf.cast(key, tf.int64))
    batches = []
    for epoch in range(settings.epochs):
        order = client_data.epoch_order(seed, tf.constant(epoch), tf.constant(len(y))).numpy()
        for i in range(0, len(y), settings.batch_size):
            rows = order[i : i + settings.batch_size]
            batches.append((x[rows], y[rows]))
    return batches


def local_settings(elastic_net: ElasticNet, settings: LocalTraining, round_number: int = 0) -> reference.Local:
    """The same settings for the NumPy reference."""
    return reference.Local(
        lr=settings.learning_rate * settings.lr_decay**round_number,
        l1=elastic_net.l1,
        l2=elastic_net.l2,
        threshold=elastic_net.threshold,
        l1_step=elastic_net.l1_step,
        weight_decay=settings.weight_decay,
        clip_norm=settings.clip_norm,
    )


def assert_weights_close(actual: Any, expected: reference.Weights, atol: float = 1e-6) -> None:
    """Asserts that two lists of arrays agree tensor by tensor."""
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=0, atol=atol)
