"""FedElasticNet for FedAvg and FedProx: the paper's Algorithm 1."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.aggregators.mean_and_count import as_weighted, resolve_factory
from tff_fen.checks import check_type
from tff_fen.client_work import model_checks
from tff_fen.client_work.trainer import LocalResult, Trainer
from tff_fen.config import ElasticNet, LocalTraining
from tff_fen.process import Algorithm, Train, Update, Uplink
from tff_fen.process.arguments import check_reporting
from tff_fen.process.client import run_client
from tff_fen.process.metrics import ClientMetrics


class FedAvgClientState(NamedTuple):
    """A client's state: its id, and `residual`, what was not sent yet (empty without error feedback)."""

    client_id: Any
    residual: Any


def build_fed_avg(
    model: tff.learning.models.FunctionalModel,
    elastic_net: ElasticNet,
    local_training: LocalTraining,
    *,
    aggregator: tff.aggregators.AggregationFactory | None = None,
    client_weighting: tff.learning.ClientWeighting | None = None,
    measurements: bool = True,
    metrics_aggregator: Any | None = None,
) -> tff.learning.templates.LearningProcess:
    """Builds Algorithm 1: `theta' = theta + sum_k n_k delta_k / sum_k n_k` over the round's clients.

    Each client minimises `L_k(w) + l2/2 |w - theta|^2 + l1 |w - theta|_1` by SGD from
    `w = theta` and sends `delta_k = w - theta` after the threshold. With
    `l1 = l2 = threshold = 0` this is FedAvg, with `l2` alone FedProx.

    The result is a `tff.learning.templates.LearningProcess`:

        initialize: ( -> LearningAlgorithmState@SERVER)
        next: (<state=LearningAlgorithmState@SERVER, client_data={B*}@CLIENTS> ->
               LearningProcessOutput(state=..., metrics=...)@SERVER)

    with `B` the type of `model.input_spec`. `metrics["client_work"]["train"]` holds
    `loss`, `num_examples`, `participants`, `contributing_clients`, `non_finite_clients` and
    the model's own metrics (one named `loss` or `num_examples` takes the place of ours);
    with `measurements`, also `delta` (`non_zeros`, `non_zero_share`, `norm`,
    `entropy_trunc`, `entropy_round`) and `theta` (the entropies of the local models
    `theta + delta_k`).

    A client without data, or with a loss or weight that is not finite, sends a zero
    update of weight zero; the latter are counted in `non_finite_clients`. (An
    unweighted aggregator counts them as clients that sent zeros.)

    Args:
      model: a `tff.learning.models.FunctionalModel` with float32 weights, as made from a
        Keras model by `tff.learning.models.functional_model_from_keras`.
      elastic_net: l1, l2, threshold and the kind of l1 step.
      local_training: the client's SGD.
      aggregator: a weighted or unweighted `tff.aggregators` factory whose result is a
        mean; by default the weighted mean, 0 if all weights are 0.
      client_weighting: `NUM_EXAMPLES` (n_k, the default) or `UNIFORM`. An unweighted
        aggregator is always uniform.
      measurements: whether to measure the messages. All metrics are sums over clients in
        the clear, loss and accuracy too, whatever protects the updates; a secure
        `metrics_aggregator` hides the clients' own, but nothing makes them private.
      metrics_aggregator: as for TFF's builders, by default
        `tff.learning.metrics.sum_then_finalize`.

    Returns:
      A `tff.learning.templates.LearningProcess`.
    """
    model_checks.check_training(model, elastic_net, local_training)
    check_reporting(measurements, metrics_aggregator)
    trainer = Trainer(model, elastic_net, local_training)
    algorithm = build_algorithm(aggregator, client_weighting)
    weights_type = trainer.weights_type

    @tff.tensorflow.computation()
    def initial_weights() -> tff.learning.models.ModelWeights:
        return trainer.initial_weights()

    return tff.learning.templates.compose_learning_process(
        initial_weights,
        tff.learning.templates.build_broadcast_process(weights_type),
        _build_client_work(trainer, algorithm, ClientMetrics(trainer, measurements), metrics_aggregator),
        algorithm.aggregator.create(weights_type.trainable, tff.TensorType(np.float32)),
        _build_finalizer(algorithm, weights_type),
    )


def build_algorithm(aggregator: Any | None, client_weighting: Any | None) -> Algorithm:
    """Builds Algorithm 1 in its parts, for clients with and without an id.

    Args:
      aggregator: of delta; the weighted mean if `None`.
      client_weighting: n_k or 1; as the aggregator allows if `None`.
    """
    aggregator, client_weighting = _resolve_aggregation(aggregator, client_weighting)
    by_examples = client_weighting is tff.learning.ClientWeighting.NUM_EXAMPLES

    def initialize_client(client_id: tf.Tensor) -> FedAvgClientState:
        return FedAvgClientState(client_id, ())

    def update(train: Train, client: FedAvgClientState, broadcast: Mapping[str, Any]) -> Update:
        del broadcast
        trained = train()
        return Update(trained, {"delta": trained.delta}, client)

    def absorb(client: FedAvgClientState, sent: Mapping[str, Any]) -> FedAvgClientState:
        del sent
        return client

    def weigh(trained: LocalResult) -> tf.Tensor:
        """n_k, or 1."""
        return tf.cast(trained.num_examples, tf.float32) if by_examples else tf.constant(1.0)

    def move(theta: Any, mean_delta: Any) -> Any:
        """theta' = theta + mean_k delta_k, the mean weighted by n_k; one that is not finite is refused."""
        refuse, _ = tff.learning.templates.reject_non_finite_update(None, mean_delta)
        return tf.nest.map_structure(lambda t, d: tf.where(refuse, t, t + d), theta, mean_delta)

    return Algorithm(
        messages=("delta",),
        initialize_client=initialize_client,
        update=update,
        absorb=absorb,
        aggregator=aggregator,
        move=move,
        weigh=weigh,
    )


def _resolve_aggregation(
    aggregator: Any | None, client_weighting: Any | None
) -> tuple[tff.aggregators.WeightedAggregationFactory, tff.learning.ClientWeighting]:
    """Returns a weighted factory and the clients' weighting, or raises if the two do not fit."""
    aggregator = resolve_factory("aggregator", aggregator)
    if client_weighting is not None:
        check_type("client_weighting", client_weighting, tff.learning.ClientWeighting, "Use NUM_EXAMPLES or UNIFORM.")
    by_examples, uniform = tff.learning.ClientWeighting.NUM_EXAMPLES, tff.learning.ClientWeighting.UNIFORM
    if isinstance(aggregator, tff.aggregators.WeightedAggregationFactory):
        return aggregator, client_weighting or by_examples
    if client_weighting is by_examples:
        raise ValueError(
            f"client_weighting=NUM_EXAMPLES needs a weighted aggregator, found the unweighted "
            f"{type(aggregator).__name__}, which ignores weights. Use UNIFORM or a weighted factory."
        )
    return as_weighted(aggregator), uniform


def _build_client_work(
    trainer: Trainer, algorithm: Algorithm, client_metrics: ClientMetrics, metrics_aggregator: Any | None
) -> tff.learning.templates.ClientWorkProcess:
    """Builds the client work; its state is the number of rounds done, which sets learning rate and shuffling."""
    metrics_aggregator = metrics_aggregator or tff.learning.metrics.sum_then_finalize
    uplink = Uplink({"delta": trainer.elastic_net.threshold})

    @tff.federated_computation()
    def init_fn() -> Any:
        return tff.federated_value(np.int32(0), tff.SERVER)

    round_type = init_fn.type_signature.result.member

    @tff.tensorflow.computation(round_type, trainer.weights_type, trainer.data_type)
    @tf.function
    def train_client(
        round_number: tf.Tensor, weights: tff.learning.models.ModelWeights, dataset: tf.data.Dataset
    ) -> tuple[tff.learning.templates.ClientResult, collections.OrderedDict[str, Any]]:
        output = run_client(
            trainer,
            algorithm,
            uplink,
            client_metrics,
            weights=weights,
            broadcast={},
            client=FedAvgClientState(None, ()),
            dataset=dataset,
            round_number=round_number,
        )
        return tff.learning.templates.ClientResult(output.message, output.weight), output.metrics

    @tff.tensorflow.computation(round_type)
    def add_one(round_number: tf.Tensor) -> tf.Tensor:
        return round_number + 1

    @tff.federated_computation(
        init_fn.type_signature.result,
        tff.FederatedType(trainer.weights_type, tff.CLIENTS),
        tff.FederatedType(trainer.data_type, tff.CLIENTS),
    )
    def next_fn(round_number: Any, weights: Any, client_data: Any) -> tff.templates.MeasuredProcessOutput:
        result, sums = tff.federated_map(train_client, (tff.federated_broadcast(round_number), weights, client_data))
        train_metrics = metrics_aggregator(client_metrics.finalize)(sums)
        return tff.templates.MeasuredProcessOutput(
            tff.federated_map(add_one, round_number),
            result,
            tff.federated_zip(collections.OrderedDict(train=train_metrics)),
        )

    return tff.learning.templates.ClientWorkProcess(init_fn, next_fn)


def _build_finalizer(
    algorithm: Algorithm, weights_type: tff.StructWithPythonType
) -> tff.learning.templates.FinalizerProcess:
    """Builds the server's move as TFF's finalizer, which also says whether the update was refused."""

    @tff.federated_computation()
    def init_fn() -> Any:
        return tff.federated_value((), tff.SERVER)

    @tff.tensorflow.computation(weights_type, weights_type.trainable)
    def move(weights: tff.learning.models.ModelWeights, update: Any) -> Any:
        _, measured = tff.learning.templates.reject_non_finite_update(None, update)
        moved = algorithm.move(weights.trainable, update)
        return tff.learning.models.ModelWeights(moved, weights.non_trainable), measured

    @tff.federated_computation(
        init_fn.type_signature.result,
        tff.FederatedType(weights_type, tff.SERVER),
        tff.FederatedType(weights_type.trainable, tff.SERVER),
    )
    def next_fn(state: Any, weights: Any, update: Any) -> tff.templates.MeasuredProcessOutput:
        new_weights, measured = tff.federated_map(move, (weights, update))
        return tff.templates.MeasuredProcessOutput(state, new_weights, measured)

    return tff.learning.templates.FinalizerProcess(init_fn, next_fn)
