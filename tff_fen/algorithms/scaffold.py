"""FedElasticNet for SCAFFOLD: the paper's Algorithm 2."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen import measurements
from tff_fen import process as stateful_process
from tff_fen.aggregators import mean_and_count as mean_aggregation
from tff_fen.checks import check_integer, check_number
from tff_fen.client_work import model_checks as validation
from tff_fen.client_work import penalties
from tff_fen.client_work import step as local_training_lib
from tff_fen.client_work.trainer import Trainer
from tff_fen.codec import Codec
from tff_fen.config import ElasticNet, LocalTraining
from tff_fen.process import ClientOutput, StatefulAggregation, StatefulClientProcess


class ScaffoldClientState(NamedTuple):
    """A client's state: its id, and `control` c_k, its control variate."""

    client_id: Any
    control: Any


def build_scaffold(
    model: tff.learning.models.FunctionalModel,
    elastic_net: ElasticNet,
    local_training: LocalTraining,
    *,
    num_clients: int,
    server_learning_rate: float = 1.0,
    aggregator: tff.aggregators.AggregationFactory | None = None,
    control_aggregator: tff.aggregators.AggregationFactory | None = None,
    control_threshold: float = 0.0,
    measurements: bool = True,
    metrics_aggregator: Any | None = None,
    codec: Codec | None = None,
    release_messages: bool = False,
) -> StatefulClientProcess:
    """Builds Algorithm 2, FedElasticNet for SCAFFOLD (SCAFFOLD itself with `l1 = l2 = threshold = 0`).

        client   B steps  w <- w - lr (grad L_k(w) - c_k + c + l2 (w - theta) + l1 sign(w - theta))
                 c_k' = c_k - c + (theta - w)/(B lr);  sends delta_k = w - theta after the threshold, and c_k' - c_k
        server   theta' = theta + eta_g mean_k delta_k;  c' = c + (1/m) sum_k (c_k' - c_k)

    The change of c_k takes the raw w - theta, before the threshold, and the learning rate
    of the round: c_k' is then the mean of the local gradients and penalties. `c` is the
    mean of c_k over all m clients after every round.

    The result is a `tff.templates.IterativeProcess` (see `StatefulClientProcess`):

        initialize: ( -> S@SERVER)
        initialize_client: (int64 -> ScaffoldClientState(client_id=int64, control=W))
        next: (<S@SERVER, {ClientInput(state=ScaffoldClientState, data=B*)}@CLIENTS> ->
               RoundOutput(state=S@SERVER, client_states={ScaffoldClientState}@CLIENTS, metrics=M@SERVER))

    `state.aggregator["control"]` is c, which goes to the clients with the model.

    A client without data, or that is not finite, contributes nothing and keeps its state
    (an unweighted aggregator counts it as one that sent zeros). If nobody contributes,
    or an aggregate is not finite (`metrics["aggregator"]["usable"]` is 0), neither c nor
    the model moves. A round needs at least one client, and each client at most once.

    Privacy: two aggregates of each client leave the aggregator, of delta_k and of
    c_k' - c_k. With the two clipped to norms C1 and C2 one client changes the pair
    (delta / C1, change / C2) by at most sqrt(2) in norm; see `tff_fen.build_dp_pair`. Another
    private factory must be wrapped in `tff_fen.FixedDenominatorFactory`, for c needs to
    know what it divides by.

    Args:
      model: a `tff.learning.models.FunctionalModel` with float32 weights.
      elastic_net: l1, l2, threshold and the kind of l1 step.
      local_training: the client's SGD.
      num_clients: m, the size of the population, not of a round.
      server_learning_rate: eta_g > 0.
      aggregator: a `tff.aggregators` factory of a mean for delta; the exact mean by default.
      control_aggregator: another for the change of c_k; by default a second process of
        `aggregator`.
      control_threshold: changes of c_k up to this are not sent; c_k then keeps what was
        sent, so that c stays the mean of c_k.
      measurements: whether to measure messages (see `build_fed_avg`; `control` beside
        `delta`), the downlink (`metrics["distributor"]`), `control_norm` and `drift`
        (`metrics["aggregator"]`).
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
    check_number("server_learning_rate", server_learning_rate, 0.0, open_low=True)
    check_number("control_threshold", control_threshold, 0.0)
    aggregator = mean_aggregation.resolve_factory("aggregator", aggregator)
    control_aggregator = mean_aggregation.resolve_factory("control_aggregator", control_aggregator, default=aggregator)
    trainer = Trainer(model, elastic_net, local_training, measurements, codec)

    @tff.tensorflow.computation(np.int64)
    def initialize_client(client_id: tf.Tensor) -> ScaffoldClientState:
        return ScaffoldClientState(client_id, trainer.zeros())

    def client_work(
        weights: Any, control: Any, client: ScaffoldClientState, dataset: tf.data.Dataset, round_number: tf.Tensor
    ) -> ClientOutput:
        result = trainer.train(
            weights,
            dataset,
            round_number,
            client_id=client.client_id,
            correction=tf.nest.map_structure(tf.subtract, control, client.control),
        )
        lr = local_training_lib.learning_rate(local_training, round_number)
        steps = tf.cast(result.num_steps, tf.float32)

        def change(c: tf.Tensor, raw_delta: tf.Tensor) -> tf.Tensor:
            """c_k' - c_k = -c + (theta - w)/(B lr), as far as it is sent."""
            return penalties.hard_threshold(-c - raw_delta / (steps * lr), control_threshold)

        full_change = trainer.transmit(tf.nest.map_structure(change, control, result.raw_delta))
        # A client of no steps divides 0 by 0 here; it has no examples, and is not counted as not finite for it.
        result = result.keep_if_finite(
            tf.nest.map_structure(lambda x: tf.where(steps > 0.0, x, tf.zeros_like(x)), full_change)
        )
        control_change = tf.nest.map_structure(
            lambda x: tf.where(result.contributes > 0.0, x, tf.zeros_like(x)), full_change
        )
        new_control = tf.nest.map_structure(tf.add, client.control, control_change)
        return ClientOutput(
            collections.OrderedDict(delta=result.delta, control=control_change),
            result.contributes,
            ScaffoldClientState(client.client_id, new_control),
            trainer.unfinalized_metrics(weights.trainable, result, control=control_change),
        )

    def finalize(theta: Any, mean_delta: Any) -> Any:
        # A mean that is not to be used is zero.
        return tf.nest.map_structure(lambda t, d: t + server_learning_rate * d, theta, mean_delta)

    return stateful_process.compose_stateful_process(
        trainer,
        initialize_client=initialize_client,
        client_work=client_work,
        aggregation=_build_aggregation(trainer, num_clients, aggregator, control_aggregator),
        finalize=finalize,
        metrics_aggregator=metrics_aggregator,
        release_messages=release_messages,
    )


def _build_aggregation(
    trainer: Trainer, num_clients: int, aggregator: Any, control_aggregator: Any
) -> StatefulAggregation:
    """Builds the aggregation that carries c.

    next: (<<control=W,delta=S1,control_change=S2>@SERVER, {<delta=W,control=W>}@CLIENTS, {float32}@CLIENTS> ->
           <state=<control=W,delta=S1,control_change=S2>@SERVER, result=W@SERVER, measurements=M@SERVER>)
    """
    delta_type = trainer.weights_type.trainable
    delta_mean = mean_aggregation.build_mean_and_count(aggregator, delta_type)
    control_mean = mean_aggregation.build_mean_and_count(control_aggregator, delta_type)

    @tff.federated_computation()
    def init_fn() -> Any:
        return tff.federated_zip(
            collections.OrderedDict(
                control=trainer.federated_zeros(),
                delta=delta_mean.initialize(),
                control_change=control_mean.initialize(),
            )
        )

    aggregate_type = delta_mean.next.type_signature.result.result.member

    @tff.tensorflow.computation(delta_type, aggregate_type, aggregate_type)
    def update_control(control: Any, delta: Any, change: Any) -> Any:
        """c' = c + (1/m) sum (c_k' - c_k); a round counts with both of its aggregates or not at all."""
        usable = delta["usable"] * change["usable"]
        share = usable * mean_aggregation.check_population(change["count"], num_clients) / num_clients
        return collections.OrderedDict(
            mean=tf.nest.map_structure(lambda d: usable * d, delta["mean"]),
            usable=usable,
            control=tf.nest.map_structure(lambda c, x: c + share * x, control, change["mean"]),
        )

    message_type = tff.to_type(collections.OrderedDict(delta=delta_type, control=delta_type))

    @tff.federated_computation(
        init_fn.type_signature.result,
        tff.FederatedType(message_type, tff.CLIENTS),
        tff.FederatedType(np.float32, tff.CLIENTS),
    )
    def next_fn(state: Any, message: Any, weight: Any) -> tff.templates.MeasuredProcessOutput:
        delta_output = delta_mean.next(state["delta"], message["delta"], weight)
        control_output = control_mean.next(state["control_change"], message["control"], weight)
        updated = tff.federated_map(update_control, (state["control"], delta_output.result, control_output.result))
        measured = collections.OrderedDict(
            delta=delta_output.measurements,
            control_change=control_output.measurements,
            usable=updated["usable"],
        )
        if trainer.measure:
            measured["control_norm"] = measurements.federated_norm(updated["control"])
            measured["drift"] = measurements.federated_drift(message["delta"], weight)
        new_state = collections.OrderedDict(
            control=updated["control"], delta=delta_output.state, control_change=control_output.state
        )
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip(new_state), updated["mean"], tff.federated_zip(measured)
        )

    @tff.tensorflow.computation(init_fn.type_signature.result.member)
    def get_shared(state: Any) -> Any:
        return state["control"]

    return StatefulAggregation(tff.templates.AggregationProcess(init_fn, next_fn), get_shared)
