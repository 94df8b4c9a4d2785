"""FedElasticNet for FedDyn: the paper's Algorithm 3."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen import measurements
from tff_fen import process as stateful_process
from tff_fen.aggregators import mean_and_count as mean_aggregation
from tff_fen.checks import check_integer
from tff_fen.client_work import model_checks as validation
from tff_fen.client_work.trainer import Trainer
from tff_fen.codec import Codec
from tff_fen.config import ElasticNet, LocalTraining
from tff_fen.process import ClientOutput, StatefulAggregation, StatefulClientProcess


class FedDynClientState(NamedTuple):
    """A client's state: its id, and `gradient` g_k, the algorithm's estimate of grad L_k at its last model."""

    client_id: Any
    gradient: Any


def build_fed_dyn(
    model: tff.learning.models.FunctionalModel,
    elastic_net: ElasticNet,
    local_training: LocalTraining,
    *,
    num_clients: int,
    aggregator: tff.aggregators.AggregationFactory | None = None,
    sign_aggregator: tff.aggregators.AggregationFactory | None = None,
    measurements: bool = True,
    metrics_aggregator: Any | None = None,
    codec: Codec | None = None,
    release_messages: bool = False,
) -> StatefulClientProcess:
    """Builds Algorithm 3, FedElasticNet for FedDyn (FedDyn itself with `l1 = threshold = 0`).

        client   w ~ argmin L_k(w) - <g_k, w> + l2/2 |w - theta|^2 + l1 |w - theta|_1
                 delta_k = w - theta, then the threshold;  g_k' = g_k - l2 delta_k - l1 sign(delta_k)
        server   h' = h - (l2/m) sum_k delta_k - (l1/m) sum_k sign(delta_k)
                 theta' = theta + mean_k delta_k - h'/l2

    All three uses of delta_k take what is sent, after the threshold, with sign(0) = 0;
    then `h` is the mean of g_k over all m clients after every round.

    The result is a `tff.templates.IterativeProcess` (see `StatefulClientProcess`):

        initialize: ( -> S@SERVER)
        initialize_client: (int64 -> FedDynClientState(client_id=int64, gradient=W))
        next: (<S@SERVER, {ClientInput(state=FedDynClientState, data=B*)}@CLIENTS> ->
               RoundOutput(state=S@SERVER, client_states={FedDynClientState}@CLIENTS, metrics=M@SERVER))

    `state.aggregator["h"]` is h. `get_model_weights(state)` gives theta and
    `get_average_weights(state)` gives gamma = theta + h/l2, the mean of the last
    participants' models, which FedDyn's own code tests.

    A client without data, or that is not finite, contributes nothing and keeps its state
    (an unweighted aggregator counts it as one that sent zeros). If nobody contributes,
    or an aggregate is not finite (`metrics["aggregator"]["usable"]` is 0), neither h nor
    the model moves. A round needs at least one client, and each client at most once.

    Privacy: with l1 > 0 two aggregates of each client's delta leave the aggregator, its
    mean and the mean of its signs. With delta clipped to norm C1 and its signs to norm C2,
    one client changes the pair (delta / C1, signs / C2) by at most sqrt(2) in norm;
    two Gaussian mechanisms of noise multipliers z1 and z2 cost as much as one of
    `(z1^-2 + z2^-2)^(-1/2)` (one client added or removed). `tff_fen.build_dp_pair` builds the
    two from one budget. Another private factory must be wrapped in
    `tff_fen.FixedDenominatorFactory`, for h needs to know what it divides by.

    Args:
      model: a `tff.learning.models.FunctionalModel` with float32 weights.
      elastic_net: l2 must be > 0.
      local_training: the client's SGD.
      num_clients: m, the size of the population, not of a round.
      aggregator: a `tff.aggregators` factory of a mean for delta; the exact mean by default.
      sign_aggregator: another for the signs; by default a second process of `aggregator`,
        so that what protects delta protects the signs too. Not used when l1 = 0.
      measurements: whether to measure messages (see `build_fed_avg`), the downlink
        (`metrics["distributor"]`), `h_norm` and `drift` (`metrics["aggregator"]`).
      metrics_aggregator: as for TFF's builders.
      codec: what messages go through on their way to the server (`tff_fen.codec`); the states
        of client and server take up what arrives. `None` sends float32 as it is.
      release_messages: whether a round also gives back what each client sent, as
        `output.messages`, for counting bytes.

    Returns:
      A `StatefulClientProcess`.
    """
    validation.check_training(model, elastic_net, local_training)
    validation.check_reporting(measurements, metrics_aggregator, codec, release_messages)
    check_integer("num_clients", num_clients, 1)
    if elastic_net.l2 == 0.0:
        raise ValueError("ElasticNet.l2 must be a finite number > 0 for FedDyn, which divides by it, found 0.0.")
    aggregator = mean_aggregation.resolve_factory("aggregator", aggregator)
    sign_aggregator = mean_aggregation.resolve_factory("sign_aggregator", sign_aggregator, default=aggregator)
    trainer = Trainer(model, elastic_net, local_training, measurements, codec)
    l1, l2 = elastic_net.l1, elastic_net.l2

    @tff.tensorflow.computation(np.int64)
    def initialize_client(client_id: tf.Tensor) -> FedDynClientState:
        return FedDynClientState(client_id, trainer.zeros())

    def client_work(
        weights: Any, shared: Any, client: FedDynClientState, dataset: tf.data.Dataset, round_number: tf.Tensor
    ) -> ClientOutput:
        del shared
        g = client.gradient
        result = trainer.train(
            weights,
            dataset,
            round_number,
            client_id=client.client_id,
            correction=tf.nest.map_structure(tf.negative, g),
        )

        def updated(delta: Any) -> Any:
            """g_k' = g_k - l2 delta_k - l1 sign(delta_k)."""
            return tf.nest.map_structure(lambda g, d: g - l2 * d - l1 * tf.sign(d), g, delta)

        # From here on delta is 0 for a client that contributes nothing: its g_k stays as it is.
        result = result.keep_if_finite(updated(result.delta))
        return ClientOutput(
            result.delta,
            result.contributes,
            FedDynClientState(client.client_id, updated(result.delta)),
            trainer.unfinalized_metrics(weights.trainable, result),
        )

    def finalize(theta: Any, aggregate: Any) -> Any:
        moved = tf.nest.map_structure(lambda t, d, h: t + d - h / l2, theta, aggregate["mean"], aggregate["h"])
        return tf.nest.map_structure(lambda t, new: tf.where(aggregate["usable"] > 0.0, new, t), theta, moved)

    def average(theta: Any, aggregation_state: Any) -> Any:
        return tf.nest.map_structure(lambda t, h: t + h / l2, theta, aggregation_state["h"])

    return stateful_process.compose_stateful_process(
        trainer,
        initialize_client=initialize_client,
        client_work=client_work,
        aggregation=_build_aggregation(trainer, num_clients, aggregator, sign_aggregator),
        finalize=finalize,
        average=average,
        metrics_aggregator=metrics_aggregator,
        release_messages=release_messages,
    )


def _build_aggregation(
    trainer: Trainer, num_clients: int, aggregator: Any, sign_aggregator: Any
) -> StatefulAggregation:
    """Builds the aggregation that carries h.

    next: (<<h=W,delta=S1,sign=S2>@SERVER, {W}@CLIENTS, {float32}@CLIENTS> ->
           <state=<h=W,delta=S1,sign=S2>@SERVER, result=<mean=W,usable=float32,h=W>@SERVER, measurements=M@SERVER>)
    """
    l1, l2 = trainer.elastic_net.l1, trainer.elastic_net.l2
    delta_type = trainer.weights_type.trainable
    delta_mean = mean_aggregation.build_mean_and_count(aggregator, delta_type)
    sign_mean = mean_aggregation.build_mean_and_count(sign_aggregator, delta_type) if l1 else None

    @tff.federated_computation()
    def init_fn() -> Any:
        return tff.federated_zip(
            collections.OrderedDict(
                h=trainer.federated_zeros(),
                delta=delta_mean.initialize(),
                sign=sign_mean.initialize() if sign_mean else tff.federated_value((), tff.SERVER),
            )
        )

    aggregate_type = delta_mean.next.type_signature.result.result.member

    @tff.tensorflow.computation(delta_type, aggregate_type, aggregate_type)
    def update_h(h: Any, delta: Any, sign: Any) -> Any:
        """h' = h - (l2/m) sum delta_k - (l1/m) sum sign(delta_k); a round counts with both sums or not at all."""
        usable = delta["usable"] * sign["usable"]
        l2_share = usable * l2 / num_clients * mean_aggregation.check_population(delta["count"], num_clients)
        l1_share = usable * l1 / num_clients * sign["count"]
        new_h = tf.nest.map_structure(lambda h, d, s: h - l2_share * d - l1_share * s, h, delta["mean"], sign["mean"])
        return collections.OrderedDict(mean=delta["mean"], usable=usable, h=new_h)

    @tff.tensorflow.computation(delta_type)
    def signs(delta: Any) -> Any:
        return tf.nest.map_structure(tf.sign, delta)

    @tff.federated_computation(
        init_fn.type_signature.result,
        tff.FederatedType(delta_type, tff.CLIENTS),
        tff.FederatedType(np.float32, tff.CLIENTS),
    )
    def next_fn(state: Any, delta: Any, weight: Any) -> tff.templates.MeasuredProcessOutput:
        delta_output = delta_mean.next(state["delta"], delta, weight)
        sign_result, sign_state = delta_output.result, state["sign"]  # weighs nothing where l1 = 0
        measured = collections.OrderedDict(delta=delta_output.measurements)
        if sign_mean:
            sign_output = sign_mean.next(sign_state, tff.federated_map(signs, delta), weight)
            sign_result, sign_state = sign_output.result, sign_output.state
            measured["sign"] = sign_output.measurements
        result = tff.federated_map(update_h, (state["h"], delta_output.result, sign_result))
        measured["usable"] = result["usable"]
        if trainer.measure:
            measured["h_norm"] = measurements.federated_norm(result["h"])
            measured["drift"] = measurements.federated_drift(delta, weight)
        new_state = collections.OrderedDict(h=result["h"], delta=delta_output.state, sign=sign_state)
        return tff.templates.MeasuredProcessOutput(tff.federated_zip(new_state), result, tff.federated_zip(measured))

    @tff.tensorflow.computation(init_fn.type_signature.result.member)
    def get_shared(state: Any) -> Any:
        return ()

    return StatefulAggregation(tff.templates.AggregationProcess(init_fn, next_fn), get_shared)
