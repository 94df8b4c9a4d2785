"""Federated algorithms whose clients keep a state from round to round, composed in TFF's idiom.

`tff.learning.templates.LearningProcess` has nowhere to put a value at CLIENTS, so the
processes here are `tff.templates.IterativeProcess`es with three outputs:

    next: (<S@SERVER, {ClientInput(state=C, data=B*)}@CLIENTS> ->
           RoundOutput(state=S@SERVER, client_states={C}@CLIENTS, metrics=M@SERVER))

With `release_messages` they have a fourth, what each client sent:

           MessagesOutput(..., messages={ClientMessage(client_id=int64, message=V)}@CLIENTS)
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen import measurements
from tff_fen.client_work.trainer import Metrics, Trainer

State = tff.learning.templates.LearningAlgorithmState


class ClientInput(NamedTuple):
    """What a client brings to a round: its own state, and its data set."""

    state: Any
    data: Any


class RoundOutput(NamedTuple):
    """What a round gives back: the server's state, the participants' new states in any order, and the metrics."""

    state: Any
    client_states: Any
    metrics: Any


class MessagesOutput(NamedTuple):
    """What a round gives back that also tells what each client sent."""

    state: Any
    client_states: Any
    metrics: Any
    messages: Any


class ClientMessage(NamedTuple):
    """What a client sent: `message` is delta, for SCAFFOLD `OrderedDict(delta=..., control=...)`."""

    client_id: Any
    message: Any


class ClientOutput(NamedTuple):
    """What a client's work gives back.

    Attributes:
      message: what is aggregated.
      weight: float32, 1, or 0 if the client has nothing to contribute.
      state: the client's new state.
      metrics: sums for the server, as `Trainer.unfinalized_metrics` returns.
    """

    message: Any
    weight: tf.Tensor
    state: Any
    metrics: Metrics


class StatefulAggregation(NamedTuple):
    """An aggregation whose state the algorithm reads.

    Attributes:
      process: a weighted `tff.templates.AggregationProcess` of messages.
      get_shared: `(state -> shared)`, what of its state goes to the clients with the model.
    """

    process: tff.templates.AggregationProcess
    get_shared: tff.Computation


class StatefulClientProcess(tff.templates.IterativeProcess):
    """An `IterativeProcess` of stateful clients; see the module's docstring for the type of `next`."""

    def __init__(
        self,
        initialize_fn: tff.Computation,
        next_fn: tff.Computation,
        *,
        initialize_client: tff.Computation,
        get_model_weights: tff.Computation,
        set_model_weights: tff.Computation,
        get_average_weights: tff.Computation,
    ) -> None:
        super().__init__(initialize_fn, next_fn, next_is_multi_arg=True)
        self._initialize_client = initialize_client
        self._get_model_weights = get_model_weights
        self._set_model_weights = set_model_weights
        self._get_average_weights = get_average_weights

    @property
    def initialize_client(self) -> tff.Computation:
        """`(int64 -> C)`: the state of a client that has not taken part yet."""
        return self._initialize_client

    @property
    def get_model_weights(self) -> tff.Computation:
        """`(S -> ModelWeights)`: theta, the server model."""
        return self._get_model_weights

    @property
    def set_model_weights(self) -> tff.Computation:
        """`(<S, ModelWeights> -> S)`: replaces theta and nothing else."""
        return self._set_model_weights

    @property
    def get_average_weights(self) -> tff.Computation:
        """`(S -> ModelWeights)`: for FedDyn gamma, the mean of the last participants' models; else theta."""
        return self._get_average_weights


def compose_stateful_process(
    trainer: Trainer,
    *,
    initialize_client: tff.Computation,
    client_work: Callable[[Any, Any, Any, tf.data.Dataset, tf.Tensor], ClientOutput],
    aggregation: StatefulAggregation,
    finalize: Callable[[Any, Any], Any],
    average: Callable[[Any, Any], Any] | None = None,
    metrics_aggregator: Any | None = None,
    release_messages: bool = False,
) -> StatefulClientProcess:
    """Composes a process from what its clients do, how messages are aggregated, and how the model then moves.

    Args:
      trainer: model and settings of the clients.
      initialize_client: `(int64 -> C)`.
      client_work: TensorFlow code `(weights, shared, client state, data set, round) -> ClientOutput`.
      aggregation: of the messages.
      finalize: TensorFlow code `(trainable weights, aggregate) -> trainable weights`.
      average: TensorFlow code `(trainable weights, aggregation state) -> trainable weights` of
        gamma; `None` if gamma is the server model itself.
      metrics_aggregator: as for TFF's builders.
      release_messages: whether a round gives back what each client sent. A simulation's own
        means to count bytes: it takes no part in what an aggregator protects.

    Returns:
      A `StatefulClientProcess`. Its server state is a `tff.learning.templates.LearningAlgorithmState`
      with the number of rounds done in `client_work` and the aggregation's state in `aggregator`.
    """
    metrics_aggregator = metrics_aggregator or tff.learning.metrics.sum_then_finalize
    weights_type = trainer.weights_type
    shared_type = aggregation.get_shared.type_signature.result
    client_type = initialize_client.type_signature.result
    input_type = tff.StructWithPythonType([("state", client_type), ("data", trainer.data_type)], ClientInput)
    round_type = tff.TensorType(np.int32)

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
                aggregation.process.initialize(),
                nothing,
            )
        )

    state_type = init_fn.type_signature.result.member

    @tff.tensorflow.computation(weights_type, shared_type, round_type, input_type)
    @tf.function
    def work(weights: Any, shared: Any, round_number: tf.Tensor, client: ClientInput) -> ClientOutput:
        return client_work(weights, shared, client.state, client.data, round_number)

    @tff.tensorflow.computation(client_type, work.type_signature.result.message)
    def name_message(client: Any, message: Any) -> ClientMessage:
        return ClientMessage(client.client_id, message)

    @tff.tensorflow.computation(weights_type, shared_type)
    def measure_downlink(weights: Any, shared: Any) -> Metrics:
        downlink = collections.OrderedDict(theta=measurements.measure_message(measurements.flatten(weights.trainable)))
        if tf.nest.flatten(shared):
            downlink["shared"] = measurements.measure_message(measurements.flatten(shared))
        return downlink

    @tff.tensorflow.computation(weights_type, aggregation.process.next.type_signature.result.result.member)
    def move(weights: Any, aggregate: Any) -> Any:
        return tff.learning.models.ModelWeights(finalize(weights.trainable, aggregate), weights.non_trainable)

    @tff.tensorflow.computation(round_type)
    def add_one(round_number: tf.Tensor) -> tf.Tensor:
        return round_number + 1

    @tff.federated_computation(init_fn.type_signature.result, tff.FederatedType(input_type, tff.CLIENTS))
    def next_fn(state: Any, clients: Any) -> RoundOutput | MessagesOutput:
        weights, round_number = state.global_model_weights, state.client_work
        shared = tff.federated_map(aggregation.get_shared, state.aggregator)
        broadcast = [tff.federated_broadcast(value) for value in (weights, shared, round_number)]
        output = tff.federated_map(work, (*broadcast, clients))
        aggregated = aggregation.process.next(state.aggregator, output.message, output.weight)
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
            client_work=collections.OrderedDict(train=metrics_aggregator(trainer.finalize_metrics)(output.metrics)),
            aggregator=aggregated.measurements,
        )
        if trainer.measure:
            metrics["distributor"] = tff.federated_map(measure_downlink, (weights, shared))
        if not release_messages:
            return RoundOutput(new_state, output.state, tff.federated_zip(metrics))
        messages = tff.federated_map(name_message, (output.state, output.message))
        return MessagesOutput(new_state, output.state, tff.federated_zip(metrics), messages)

    @tff.tensorflow.computation(state_type)
    def get_model_weights(state: Any) -> Any:
        return state.global_model_weights

    @tff.tensorflow.computation(state_type, weights_type)
    def set_model_weights(state: Any, weights: Any) -> Any:
        return State(weights, state.distributor, state.client_work, state.aggregator, state.finalizer)

    @tff.tensorflow.computation(state_type)
    def get_average_weights(state: Any) -> Any:
        weights = state.global_model_weights
        gamma = weights.trainable if average is None else average(weights.trainable, state.aggregator)
        return tff.learning.models.ModelWeights(gamma, weights.non_trainable)

    return StatefulClientProcess(
        init_fn,
        next_fn,
        initialize_client=initialize_client,
        get_model_weights=get_model_weights,
        set_model_weights=set_model_weights,
        get_average_weights=get_average_weights,
    )
