"""What reads and replaces parts of a process's server state, as computations."""

from __future__ import annotations

from typing import Any

import tensorflow_federated as tff

from tff_fen.process.algorithm import Algorithm

State = tff.learning.templates.LearningAlgorithmState


def build_accessors(state_type: tff.Type, algorithm: Algorithm, share: tff.Computation) -> dict[str, tff.Computation]:
    """Returns the accessors of a `StatefulClientProcess` by name.

    Args:
      state_type: S, of the server's state.
      algorithm: says whether there is an average model.
      share: `(aggregator state -> what it shares with clients)`.
    """

    @tff.tensorflow.computation(state_type)
    def get_model_weights(state: Any) -> Any:
        return state.global_model_weights

    @tff.tensorflow.computation(state_type, state_type.global_model_weights)
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

    return {
        "get_model_weights": get_model_weights,
        "set_model_weights": set_model_weights,
        "get_average_weights": get_average_weights,
        "get_broadcast": get_broadcast,
    }
