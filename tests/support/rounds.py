"""Runs local training and whole rounds for tests, and says which batches a client takes."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.support import models, reference
from tff_fen import Algorithm, ElasticNet, LocalTraining, Trainer, Update, Uplink
from tff_fen.client_work import batches as client_batches
from tff_fen.process.client import run_client
from tff_fen.process.metrics import ClientMetrics

Examples = tuple[np.ndarray, np.ndarray]


class LocalRound(NamedTuple):
    """One client's round: what local training gave, what was sent, and what was counted."""

    raw_delta: Any
    delta: Any
    num_steps: int
    num_examples: int
    loss_sum: float
    loss_count: float
    metrics_state: Any
    is_finite: bool


class _Seen(NamedTuple):
    """A client's state that keeps what training gave, for a look at it."""

    client_id: None
    raw_delta: Any
    num_steps: Any


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
) -> LocalRound:
    """One client's round from the model's initial weights, with a correction of any kind, on TFF's runtime."""
    trainer = Trainer(model, elastic_net, settings)

    def update(train: Any, client: _Seen, broadcast: Any) -> Update:
        trained = train(correction=correction)
        return Update(trained, {"delta": trained.delta}, _Seen(None, trained.delta, trained.num_steps))

    algorithm = Algorithm(("delta",), lambda k: k, update, lambda client, sent: client, None, lambda theta, mean: theta)

    @tff.tensorflow.computation(trainer.weights_type, trainer.data_type)
    @tf.function
    def run(weights: Any, dataset: tf.data.Dataset) -> Any:
        output = run_client(
            trainer,
            algorithm,
            Uplink({"delta": elastic_net.threshold}),
            ClientMetrics(trainer, measure=False),
            weights=weights,
            broadcast={},
            client=_Seen(None, trainer.zeros(), tf.constant(0)),
            dataset=dataset,
            round_number=tf.constant(round_number),
        )
        seen = collections.OrderedDict(raw_delta=output.state.raw_delta, num_steps=output.state.num_steps)
        return output.message, seen, output.metrics

    weights = tff.learning.models.ModelWeights(*model.initial_weights)
    dataset = models.dataset(*data, batch_size)
    if as_mapping:
        dataset = dataset.map(lambda x, y: collections.OrderedDict(x=x, y=y))
    delta, seen, sums = run(weights, dataset)
    counted = {name: sums[name] for name in ("num_examples", "loss_sum", "loss_count")}
    return LocalRound(delta=delta, **seen, **counted, metrics_state=sums["model"],
                      is_finite=not sums["non_finite_clients"])  # fmt: skip


def batches_of_client(
    data: Examples, settings: LocalTraining, round_number: int = 0, client_id: int | None = None
) -> list[reference.Batch]:
    """The minibatches of all epochs in which a client with `settings.batch_size` visits its examples."""
    x, y = data
    assert settings.batch_size is not None
    key = client_batches.digest((tf.constant(x), tf.constant(y))) if client_id is None else client_id
    seed = client_batches.shuffle_seed(settings.seed, tf.constant(round_number), tf.cast(key, tf.int64))
    batches = []
    for epoch in range(settings.epochs):
        order = client_batches.epoch_order(seed, tf.constant(epoch), tf.constant(len(y))).numpy()
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
