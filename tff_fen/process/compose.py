"""Composes an algorithm's parts into a process of stateful clients, in TFF's idiom."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.aggregators.broadcasting import broadcast_of
from tff_fen.client_work.trainer import Trainer
from tff_fen.process.algorithm import Algorithm
from tff_fen.process.arguments import check_reporting
from tff_fen.process.client import ClientOutput, run_client
from tff_fen.process.metrics import ClientMetrics, Metrics, measure_downlink
from tff_fen.process.outputs import (
    ClientInput,
    ClientMessage,
    MessagesOutput,
    RoundOutput,
    StatefulClientProcess,
    SteppedMessage,
)
from tff_fen.process.residual import add_residual
from tff_fen.process.uplink import Uplink

State = tff.learning.templates.LearningAlgorithmState


def message_type(trainer: Trainer, algorithm: Algorithm) -> tff.Type:
    """Returns the type of what a client sends."""
    delta_type = trainer.weights_type.trainable
    return tff.to_type(algorithm.join(collections.OrderedDict.fromkeys(algorithm.messages, delta_type)))


def compose_process(
    trainer: Trainer,
    algorithm: Algorithm,
    *,
    uplink: Uplink | None = None,
    measurements: bool = True,
    metrics_aggregator: Any | None = None,
    release_messages: bool = False,
) -> StatefulClientProcess:
    """Composes a process; `tff_fen.process.outputs` has its type.

    Args:
      trainer: model and settings of the clients.
      algorithm: what a client does, how messages are aggregated, and how the model then moves.
      uplink: what happens to messages on their way; by default the elastic net's threshold on the
        main message.
      measurements: whether to measure messages and the downlink.
      metrics_aggregator: as for TFF's builders, by default `tff.learning.metrics.sum_then_finalize`.
      release_messages: whether a round gives back what each client sent. A simulation's own
        means to count bytes: it takes no part in what an aggregator protects.

    Returns:
      A `StatefulClientProcess`. Its server state is a `tff.learning.templates.LearningAlgorithmState`
      with the number of rounds done in `client_work` and the aggregation's state in `aggregator`.
    """
    check_reporting(measurements, metrics_aggregator, release_messages)
    way = Uplink({algorithm.messages[0]: trainer.elastic_net.threshold}) if uplink is None else uplink
    way.check()
    client_metrics = ClientMetrics(trainer, measurements)
    metrics_aggregator = metrics_aggregator or tff.learning.metrics.sum_then_finalize
    aggregation = algorithm.aggregator.create(message_type(trainer, algorithm), tff.TensorType(np.float32))
    share = broadcast_of(aggregation)
    weights_type = trainer.weights_type
    broadcast_type = share.type_signature.result
    round_type = tff.TensorType(np.int32)

    @tff.tensorflow.computation(np.int64)
    def initialize_client(client_id: tf.Tensor) -> Any:
        state = algorithm.initialize_client(client_id)
        if not way.error_feedback:
            return state
        nothing = collections.OrderedDict((name, trainer.zeros()) for name in algorithm.messages)
        return add_residual(state, algorithm.join(nothing))

    client_type = initialize_client.type_signature.result
    input_type = tff.StructWithPythonType([("state", client_type), ("data", trainer.data_type)], ClientInput)

    @tff.tensorflow.computation()
    def initial_weights() -> tff.learning.models.ModelWeights:
        return trainer.initial_weights()

    @tff.federated_computation()
    def init_fn() -> Any:
        nothing = tff.federated_value((), tff.SERVER)
        return tff.federated_zip(
            State(
                tff.federated_eval(initial_weights, tff.SERVER),
                nothing,
                tff.federated_value(np.int32(0), tff.SERVER),
                aggregation.initialize(),
                nothing,
            )
        )

    state_type = init_fn.type_signature.result.member

    @tff.tensorflow.computation(weights_type, broadcast_type, round_type, input_type)
    @tf.function
    def work(weights: Any, broadcast: Any, round_number: tf.Tensor, client: ClientInput) -> ClientOutput:
        return run_client(
            trainer,
            algorithm,
            way,
            client_metrics,
            weights=weights,
            broadcast=broadcast,
            client=client.state,
            dataset=client.data,
            round_number=round_number,
        )

    output_type = work.type_signature.result

    @tff.tensorflow.computation(client_type, output_type.message, output_type.steps)
    def name_message(client: Any, message: Any, steps: Any) -> ClientMessage | SteppedMessage:
        if not steps:
            return ClientMessage(client.client_id, message)
        return SteppedMessage(client.client_id, message, steps)

    @tff.tensorflow.computation(weights_type, broadcast_type)
    def measure_broadcast(weights: Any, broadcast: Any) -> Metrics:
        return measure_downlink(weights, broadcast)

    @tff.tensorflow.computation(weights_type, aggregation.next.type_signature.result.result.member)
    def move(weights: Any, aggregate: Any) -> Any:
        return tff.learning.models.ModelWeights(algorithm.move(weights.trainable, aggregate), weights.non_trainable)

    @tff.tensorflow.computation(round_type)
    def add_one(round_number: tf.Tensor) -> tf.Tensor:
        return round_number + 1

    @tff.federated_computation(init_fn.type_signature.result, tff.FederatedType(input_type, tff.CLIENTS))
    def next_fn(state: Any, clients: Any) -> RoundOutput | MessagesOutput:
        weights, round_number = state.global_model_weights, state.client_work
        broadcast = tff.federated_map(share, state.aggregator)
        at_clients = [tff.federated_broadcast(value) for value in (weights, broadcast, round_number)]
        output = tff.federated_map(work, (*at_clients, clients))
        aggregated = aggregation.next(state.aggregator, output.message, output.weight)
        new_state = tff.federated_zip(
            State(
                tff.federated_map(move, (weights, aggregated.result)),
                state.distributor,
                tff.federated_map(add_one, round_number),
                aggregated.state,
                state.finalizer,
            )
        )
        metrics = collections.OrderedDict(
            client_work=collections.OrderedDict(train=metrics_aggregator(client_metrics.finalize)(output.metrics)),
            aggregator=aggregated.measurements,
        )
        if measurements:
            metrics["distributor"] = tff.federated_map(measure_broadcast, (weights, broadcast))
        if not release_messages:
            return RoundOutput(new_state, output.state, tff.federated_zip(metrics))
        messages = tff.federated_map(name_message, (output.state, output.message, output.steps))
        return MessagesOutput(new_state, output.state, tff.federated_zip(metrics), messages)

    @tff.tensorflow.computation(state_type)
    def get_model_weights(state: Any) -> Any:
        return state.global_model_weights

    @tff.tensorflow.computation(state_type, weights_type)
    def set_model_weights(state: Any, weights: Any) -> Any:
        return State(weights, state.distributor, state.client_work, state.aggregator, state.finalizer)

    @tff.tensorflow.computation(state_type)
    def get_average_weights(state: Any) -> Any:
        theta = state.global_model_weights
        gamma = theta.trainable if algorithm.average is None else algorithm.average(theta.trainable, state.aggregator)
        return tff.learning.models.ModelWeights(gamma, theta.non_trainable)

    @tff.tensorflow.computation(state_type)
    def get_broadcast(state: Any) -> Any:
        return share(state.aggregator)

    return StatefulClientProcess(
        init_fn,
        next_fn,
        initialize_client=initialize_client,
        get_model_weights=get_model_weights,
        set_model_weights=set_model_weights,
        get_average_weights=get_average_weights,
        get_broadcast=get_broadcast,
        messages=algorithm.messages,
        releases=algorithm.releases or algorithm.messages,
        has_average_model=algorithm.average is not None,
    )
