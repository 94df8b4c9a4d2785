"""FedElasticNet for FedAvg and FedProx: the paper's Algorithm 1."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.aggregators import mean_and_count as mean_aggregation
from tff_fen.checks import check_type
from tff_fen.client_work import model_checks as validation
from tff_fen.client_work.trainer import Trainer
from tff_fen.config import ElasticNet, LocalTraining


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
    validation.check_training(model, elastic_net, local_training)
    validation.check_reporting(measurements, metrics_aggregator)
    aggregator, client_weighting = resolve_aggregation(aggregator, client_weighting)
    trainer = Trainer(model, elastic_net, local_training, measurements)
    client_work = _build_client_work(
        trainer, client_weighting, metrics_aggregator or tff.learning.metrics.sum_then_finalize
    )
    client_result = client_work.next.type_signature.result.result.member

    @tff.tensorflow.computation()
    def initial_weights() -> tff.learning.models.ModelWeights:
        return trainer.initial_weights()

    return tff.learning.templates.compose_learning_process(
        initial_weights,
        tff.learning.templates.build_broadcast_process(trainer.weights_type),
        client_work,
        aggregator.create(client_result.update, client_result.update_weight),
        _build_finalizer(trainer.weights_type),
    )


def resolve_aggregation(
    aggregator: Any | None, client_weighting: Any | None
) -> tuple[tff.aggregators.WeightedAggregationFactory, tff.learning.ClientWeighting]:
    """Returns a weighted factory and the clients' weighting, or raises if the two do not fit."""
    aggregator = mean_aggregation.resolve_factory("aggregator", aggregator)
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
    return mean_aggregation.as_weighted(aggregator), uniform


def _build_client_work(
    trainer: Trainer, client_weighting: tff.learning.ClientWeighting, metrics_aggregator: Any
) -> tff.learning.templates.ClientWorkProcess:
    """Builds the client work; its state is the number of rounds done, which sets learning rate and shuffling."""

    @tff.federated_computation()
    def init_fn() -> Any:
        return tff.federated_value(np.int32(0), tff.SERVER)

    round_type = init_fn.type_signature.result.member

    @tff.tensorflow.computation(round_type, trainer.weights_type, trainer.data_type)
    @tf.function
    def train_client(
        round_number: tf.Tensor, weights: tff.learning.models.ModelWeights, dataset: tf.data.Dataset
    ) -> tuple[tff.learning.templates.ClientResult, collections.OrderedDict[str, Any]]:
        result = trainer.train(weights, dataset, round_number)
        by_examples = client_weighting is tff.learning.ClientWeighting.NUM_EXAMPLES
        weight = tf.cast(result.num_examples, tf.float32) if by_examples else result.contributes
        update = tff.learning.templates.ClientResult(result.delta, weight)
        return update, trainer.unfinalized_metrics(weights.trainable, result)

    @tff.tensorflow.computation(round_type)
    def add_one(round_number: tf.Tensor) -> tf.Tensor:
        return round_number + 1

    @tff.federated_computation(
        init_fn.type_signature.result,
        tff.FederatedType(trainer.weights_type, tff.CLIENTS),
        tff.FederatedType(trainer.data_type, tff.CLIENTS),
    )
    def next_fn(round_number: Any, weights: Any, client_data: Any) -> tff.templates.MeasuredProcessOutput:
        result, client_metrics = tff.federated_map(
            train_client, (tff.federated_broadcast(round_number), weights, client_data)
        )
        train_metrics = metrics_aggregator(trainer.finalize_metrics)(client_metrics)
        return tff.templates.MeasuredProcessOutput(
            tff.federated_map(add_one, round_number),
            result,
            tff.federated_zip(collections.OrderedDict(train=train_metrics)),
        )

    return tff.learning.templates.ClientWorkProcess(init_fn, next_fn)


def _build_finalizer(weights_type: tff.StructWithPythonType) -> tff.learning.templates.FinalizerProcess:
    """Builds `theta' = theta + update`; an update that is not finite is refused and counted."""

    @tff.federated_computation()
    def init_fn() -> Any:
        return tff.federated_value((), tff.SERVER)

    @tff.tensorflow.computation(weights_type, weights_type.trainable)
    def add(weights: tff.learning.models.ModelWeights, update: Any) -> Any:
        refuse, measured = tff.learning.templates.reject_non_finite_update(None, update)
        trainable = tf.nest.map_structure(lambda w, u: tf.where(refuse, w, w + u), weights.trainable, update)
        return tff.learning.models.ModelWeights(trainable, weights.non_trainable), measured

    @tff.federated_computation(
        init_fn.type_signature.result,
        tff.FederatedType(weights_type, tff.SERVER),
        tff.FederatedType(weights_type.trainable, tff.SERVER),
    )
    def next_fn(state: Any, weights: Any, update: Any) -> tff.templates.MeasuredProcessOutput:
        new_weights, measured = tff.federated_map(add, (weights, update))
        return tff.templates.MeasuredProcessOutput(state, new_weights, measured)

    return tff.learning.templates.FinalizerProcess(init_fn, next_fn)
