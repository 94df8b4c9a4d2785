"""The types of a process whose clients keep a state from round to round.

`tff.learning.templates.LearningProcess` has nowhere to put a value at CLIENTS, so the
processes here are `tff.templates.IterativeProcess`es with three outputs:

    next: (<S@SERVER, {ClientInput(state=C, data=B*)}@CLIENTS> ->
           RoundOutput(state=S@SERVER, client_states={C}@CLIENTS, metrics=M@SERVER))

With `release_messages` they have a fourth, what each client sent:

           MessagesOutput(..., messages={ClientMessage(client_id=int64, message=V)}@CLIENTS)
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow_federated as tff


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
    """What a client sent: its one message, or an `OrderedDict` of them (SCAFFOLD: `delta` and `control`)."""

    client_id: Any
    message: Any


class SteppedMessage(NamedTuple):
    """What a client sent through a compressor whose messages are whole multiples of a step.

    `steps` has the step of each message, by name: `QuantisedCodec(step)` encodes the message as it was sent.
    """

    client_id: Any
    message: Any
    steps: Any


class _NextComputation(tff.framework.ConcreteComputation):
    """`next`, which refuses a client that comes twice when Python calls it.

    Not a part of the computation: there the server would have to be told who takes part, in the clear whatever
    aggregator is used, and comparing each client with all others costs the square of the cohort. Whoever calls `next`
    knows the clients. A computation that calls `next` passes no values yet, and nothing is checked.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        clients = kwargs["clients"] if "clients" in kwargs else args[1] if len(args) > 1 else None
        if isinstance(clients, (list, tuple)):
            _check_different(clients)
        return super().__call__(*args, **kwargs)


def _check_different(clients: Sequence[Any]) -> None:
    """Raises a `ValueError` if two clients have one id."""
    try:
        ids = [int(_field(_field(client, "state"), "client_id")) for client in clients]
    except (TypeError, KeyError):
        # These are no clients: TFF says so, and names the type.
        return
    twice = sorted(client for client, count in collections.Counter(ids).items() if count > 1)
    if twice:
        raise ValueError(
            f"clients must be different ones, found client_id {', '.join(map(str, twice[:5]))} more than once: both "
            "messages would count, and only one of the two new states be kept. Pass each client once per round."
        )


def _refusing_repeats(next_fn: tff.Computation) -> tff.Computation:
    return _NextComputation(
        computation_proto=tff.framework.ConcreteComputation.get_proto(next_fn),
        context_stack=tff.framework.get_context_stack(),
        annotated_type=next_fn.type_signature,
    )


def _field(value: Any, name: str) -> Any:
    """A field of whatever container TFF takes for a structure with names."""
    return getattr(value, name) if hasattr(value, name) else value[name]


class StatefulClientProcess(tff.templates.IterativeProcess):
    """An `IterativeProcess` of stateful clients that describes itself; see the module's docstring for its type."""

    def __init__(
        self,
        initialize_fn: tff.Computation,
        next_fn: tff.Computation,
        *,
        initialize_client: tff.Computation,
        get_model_weights: tff.Computation,
        set_model_weights: tff.Computation,
        get_average_weights: tff.Computation,
        get_broadcast: tff.Computation,
        messages: tuple[str, ...],
        releases: tuple[str, ...],
        has_average_model: bool,
        num_clients: int | None = None,
    ) -> None:
        super().__init__(initialize_fn, _refusing_repeats(next_fn), next_is_multi_arg=True)
        self._initialize_client = initialize_client
        self._get_model_weights = get_model_weights
        self._set_model_weights = set_model_weights
        self._get_average_weights = get_average_weights
        self._get_broadcast = get_broadcast
        self._messages = messages
        self._releases = releases
        self._has_average_model = has_average_model
        self._num_clients = num_clients

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
        """`(S -> ModelWeights)`: the mean of the last participants' models where it is known; else theta."""
        return self._get_average_weights

    @property
    def get_broadcast(self) -> tff.Computation:
        """`(S -> <name=W, ...>)`: what clients get beside the model, by name; SCAFFOLD's c is `control`."""
        return self._get_broadcast

    @property
    def messages(self) -> tuple[str, ...]:
        """The names of what each client sends, its main message first."""
        return self._messages

    @property
    def releases(self) -> tuple[str, ...]:
        """The names of the aggregates of each client that leave the aggregators; FedDyn with l1 has `sign` too."""
        return self._releases

    @property
    def has_average_model(self) -> bool:
        """Whether `get_average_weights` gives another model than `get_model_weights`."""
        return self._has_average_model

    @property
    def num_clients(self) -> int | None:
        """m, the size of the population that the algorithm was built for; `None` if it need not know."""
        return self._num_clients
