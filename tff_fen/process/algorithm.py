"""What an algorithm has to say: two halves of a client's round, an aggregation, and a move of the server's model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.client_work.trainer import LocalResult


class Train(NamedTuple):
    """Trains the client's model from theta on its data of this round.

    Attributes:
      theta: the trainable weights that the server sent.
      run: `correction -> LocalResult`.
    """

    theta: Any
    run: Callable[[Any | None], LocalResult]

    def __call__(self, correction: Any | None = None) -> LocalResult:
        """Trains with `correction`, a structure like the trainable weights, added to every gradient."""
        return self.run(correction)


class Update(NamedTuple):
    """The first half of a client's round.

    Attributes:
      trained: what local training gave.
      messages: what the client wants to send, by name, each a structure like the trainable weights.
      state: the client's state as far as it does not depend on what will have been sent.
    """

    trained: LocalResult
    messages: Mapping[str, Any]
    state: Any


class Algorithm(NamedTuple):
    """An algorithm in its parts; all functions are TensorFlow code.

    Attributes:
      messages: the names of what a client sends, the first of them its main message.
      initialize_client: `client_id -> C`, the state of a client that has not taken part yet: a
        NamedTuple with a field `client_id`.
      update: `(train, C, broadcast) -> Update`, the first half: train, and say what to send.
        `broadcast` is what the aggregator shares with clients, by name.
      absorb: `(C, sent) -> C`, the second half: `C` is `Update.state`, and `sent` has the messages as
        the server gets them, by name. A client that contributes nothing keeps its old state.
      aggregator: a factory for the messages: of a structure like the weights where there is one
        message, else of an `OrderedDict` of them. A process of its that shares state with clients is a
        `tff_fen.aggregators.BroadcastingAggregationProcess`.
      move: `(theta, aggregate) -> theta`, on the trainable weights.
      average: `(theta, aggregator state) -> gamma`, the mean of the last participants' models, where
        that is not the server model itself; else `None`.
      weigh: `LocalResult -> float32`, the weight of a client that contributes; `None` for 1.
      releases: the names of the aggregates of each client that leave the aggregator, where these are
        not the messages.
      num_clients: m, where the algorithm has to know the size of the population.
    """

    messages: tuple[str, ...]
    initialize_client: Callable[[tf.Tensor], Any]
    update: Callable[[Train, Any, Mapping[str, Any]], Update]
    absorb: Callable[[Any, Mapping[str, Any]], Any]
    aggregator: tff.aggregators.WeightedAggregationFactory
    move: Callable[[Any, Any], Any]
    average: Callable[[Any, Any], Any] | None = None
    weigh: Callable[[LocalResult], tf.Tensor] | None = None
    releases: tuple[str, ...] | None = None
    num_clients: int | None = None

    def join(self, messages: Mapping[str, Any]) -> Any:
        """Returns messages as they are aggregated and given back: one by itself, several by name."""
        return messages if len(self.messages) > 1 else messages[self.messages[0]]

    def split(self, joined: Any) -> Mapping[str, Any]:
        """Returns by name what `join` returned."""
        return joined if len(self.messages) > 1 else {self.messages[0]: joined}
