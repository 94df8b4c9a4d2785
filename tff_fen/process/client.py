"""One client's round: the algorithm's first half, the way to the server, the algorithm's second half."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.client_work import batches
from tff_fen.client_work.trainer import LocalResult, Trainer
from tff_fen.process.algorithm import Algorithm, Train, Update
from tff_fen.process.metrics import ClientMetrics, Metrics
from tff_fen.process.uplink import Uplink


class ClientOutput(NamedTuple):
    """What a client's round gives back.

    Attributes:
      message: what is aggregated.
      weight: float32, 0 if the client has nothing to contribute.
      state: the client's new state.
      metrics: sums for the server.
      steps: of which a message's elements are multiples, by name, where a compressor sends them so.
    """

    message: Any
    weight: tf.Tensor
    state: Any
    metrics: Metrics
    steps: Mapping[str, tf.Tensor]


class _Outcome(NamedTuple):
    """What depends on whether the client contributes."""

    trained: LocalResult
    sent: Mapping[str, Any]
    weight: tf.Tensor
    state: list[tf.Tensor]


def run_client(
    trainer: Trainer,
    algorithm: Algorithm,
    uplink: Uplink,
    metrics: ClientMetrics,
    *,
    weights: tff.learning.models.ModelWeights,
    broadcast: Mapping[str, Any],
    client: Any,
    dataset: tf.data.Dataset,
    round_number: tf.Tensor,
) -> ClientOutput:
    """Runs a client's round; call it inside a `tf.function`.

    A client without data, or with a loss, a message or a new state that is not finite, sends
    zeros of weight zero and keeps its old state.

    Args:
      trainer: model and local training.
      algorithm: its halves.
      uplink: what happens to messages between the halves.
      metrics: what is counted.
      weights: theta, the server model.
      broadcast: what the aggregator shares with clients, by name.
      client: the client's state; its `client_id` is `None` for a client that has none.
      dataset: the client's data.
      round_number: int32 scalar, from 0.
    """

    def run(correction: Any | None) -> LocalResult:
        return trainer.train(weights, dataset, round_number, client_id=client.client_id, correction=correction)

    update = algorithm.update(Train(weights.trainable, run), client, broadcast)
    residuals = algorithm.split(client.residual) if uplink.error_feedback else {}
    seed = None if uplink.compressor is None else message_seed(trainer, round_number, client.client_id)
    sent, residuals, steps = uplink.send(update.messages, residuals, seed)
    state = algorithm.absorb(update.state, sent)
    if uplink.error_feedback:
        state = state._replace(residual=algorithm.join(residuals))

    trained = update.trained
    checked = [x for x in _tensors((trained.loss_sum, sent, state)) if x.dtype.is_floating]
    all_finite = tf.reduce_all(tf.stack([tf.reduce_all(tf.math.is_finite(x)) for x in checked]))
    # Without a step there is nothing that could be wrong: SCAFFOLD divides 0 by 0 then.
    is_finite = tf.logical_or(tf.equal(trained.num_steps, 0), all_finite)
    contributes = tf.logical_and(is_finite, trained.num_examples > 0)

    weight = tf.constant(1.0) if algorithm.weigh is None else algorithm.weigh(trained)
    full = _Outcome(_as_sent(update, sent), sent, weight, _tensors(state))
    empty = tf.nest.map_structure(tf.zeros_like, full)._replace(state=_tensors(client))
    # A branch, where a select would copy every tensor of a client that is as it should be.
    outcome = tf.cond(contributes, lambda: full, lambda: empty)
    return ClientOutput(
        algorithm.join(outcome.sent),
        outcome.weight,
        _with_tensors(client, outcome.state),
        metrics.sums(weights.trainable, outcome.trained, outcome.sent, contributes, is_finite),
        tf.nest.map_structure(lambda step: tf.where(contributes, step, 1.0), steps),
    )


def _as_sent(update: Update, sent: Mapping[str, Any]) -> LocalResult:
    """What training gave, with delta as the server gets it where the algorithm sends delta as it is."""
    for name, message in update.messages.items():
        if message is update.trained.delta:
            return update.trained._replace(delta=sent[name])
    return update.trained


def message_seed(trainer: Trainer, round_number: tf.Tensor, client_id: tf.Tensor) -> tf.Tensor:
    """Returns the int32[2] seed of a client's compressors in a round: a pure function of (seed, round, client)."""
    of_client = batches.shuffle_seed(trainer.local_training.seed, round_number, client_id)
    # Shuffling folds in its epochs, which are >= 0.
    return tf.random.experimental.stateless_fold_in(of_client, -1, alg=batches.RNG_ALGORITHM)


def _tensors(structure: Any) -> list[tf.Tensor]:
    """The tensors of a structure; a client without an id has `None` there."""
    return [x for x in tf.nest.flatten(structure) if x is not None]


def _with_tensors(structure: Any, tensors: list[tf.Tensor]) -> Any:
    """The structure with these tensors in the places of its own."""
    rest = iter(tensors)
    flat = [None if x is None else next(rest) for x in tf.nest.flatten(structure)]
    return tf.nest.pack_sequence_as(structure, flat)
