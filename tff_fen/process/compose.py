"""Composes an algorithm's parts into a process of stateful clients, in TFF's idiom."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.aggregators.broadcasting import broadcast_of
from tff_fen.client_work.trainer import Trainer
from tff_fen.process.accessors import State, build_accessors
from tff_fen.process.algorithm import Algorithm
from tff_fen.process.arguments import check_reporting
from tff_fen.process.client import ClientOutput, run_client
from tff_fen.process.metrics import ClientMetrics, measure_downlink
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
    aggregation = algorithm.aggregator.create(message_type(trainer, algorithm), tff.TensorType(np.float32))
    share = broadcast_of(aggregation)
    client_metrics = ClientMetrics(trainer, measurements)
    summarize = (metrics_aggregator or tff.learning.metrics.sum_then_finalize)(client_metrics.finalize)

    init_fn = _build_initialize(trainer, aggregation)
    initialize_client = _build_initialize_client(trainer, algorithm, way)
    work = _build_work(trainer, algorithm, way, client_metrics, initialize_client, share)
    move = _build_move(trainer, algorithm, aggregation)
    add_one = tff.tensorflow.computation(lambda round_number: round_number + 1, np.int32)
    measure_broadcast = tff.tensorflow.computation(trainer.weights_type, share.type_signature.result)(measure_downlink)
    output_type = work.type_signature.result
    name = tff.tensorflow.computation(output_type.state, output_type.message, output_type.steps)(_name_message)
    state_type, input_type = init_fn.type_signature.result, work.type_signature.parameter.client

    @tff.federated_computation(state_type, tff.FederatedType(input_type, tff.CLIENTS))
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
            client_work=collections.OrderedDict(train=summarize(output.metrics)),
            aggregator=aggregated.measurements,
        )
        if measurements:
            metrics["distributor"] = tff.federated_map(measure_broadcast, (weights, broadcast))
        if not release_messages:
            return RoundOutput(new_state, output.state, tff.federated_zip(metrics))
        messages = tff.federated_map(name, (output.state, output.message, output.steps))
        return MessagesOutput(new_state, output.state, tff.federated_zip(metrics), messages)

    return StatefulClientProcess(
        init_fn,
        next_fn,
        initialize_client=initialize_client,
        **build_accessors(state_type.member, algorithm, share),
        messages=algorithm.messages,
        releases=algorithm.releases or algorithm.messages,
        has_average_model=algorithm.average is not None,
        num_clients=algorithm.num_clients,
    )


def _build_initialize(trainer: Trainer, aggregation: tff.templates.AggregationProcess) -> tff.Computation:
    """Builds `( -> S@SERVER)`."""
    initial_weights = tff.tensorflow.computation(trainer.initial_weights)

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

    return init_fn


def _build_initialize_client(trainer: Trainer, algorithm: Algorithm, uplink: Uplink) -> tff.Computation:
    """Builds `(int64 -> C)`, with a residual of zeros if there is error feedback."""

    @tff.tensorflow.computation(np.int64)
    def initialize_client(client_id: tf.Tensor) -> Any:
        state = algorithm.initialize_client(client_id)
        if not uplink.error_feedback:
            return state
        nothing = collections.OrderedDict((name, trainer.zeros()) for name in algorithm.messages)
        return add_residual(state, algorithm.join(nothing))

    return initialize_client


def _build_work(
    trainer: Trainer,
    algorithm: Algorithm,
    uplink: Uplink,
    metrics: ClientMetrics,
    initialize_client: tff.Computation,
    share: tff.Computation,
) -> tff.Computation:
    """Builds `(<weights=ModelWeights, broadcast=B, round_number=int32, client=ClientInput> -> ClientOutput)`."""
    client_type = initialize_client.type_signature.result
    input_type = tff.StructWithPythonType([("state", client_type), ("data", trainer.data_type)], ClientInput)

    @tff.tensorflow.computation(trainer.weights_type, share.type_signature.result, np.int32, input_type)
    @tf.function
    def work(weights: Any, broadcast: Any, round_number: tf.Tensor, client: ClientInput) -> ClientOutput:
        return run_client(
            trainer,
            algorithm,
            uplink,
            metrics,
            weights=weights,
            broadcast=broadcast,
            client=client.state,
            dataset=client.data,
            round_number=round_number,
        )

    return work


def _build_move(
    trainer: Trainer, algorithm: Algorithm, aggregation: tff.templates.AggregationProcess
) -> tff.Computation:
    """Builds `(<weights=ModelWeights, aggregate=A> -> ModelWeights)`."""

    @tff.tensorflow.computation(trainer.weights_type, aggregation.next.type_signature.result.result.member)
    def move(weights: Any, aggregate: Any) -> Any:
        return tff.learning.models.ModelWeights(algorithm.move(weights.trainable, aggregate), weights.non_trainable)

    return move


def _name_message(client: Any, message: Any, steps: Any) -> ClientMessage | SteppedMessage:
    """What a client sent, with its id, and with the steps if a compressor sends them."""
    if not steps:
        return ClientMessage(client.client_id, message)
    return SteppedMessage(client.client_id, message, steps)
