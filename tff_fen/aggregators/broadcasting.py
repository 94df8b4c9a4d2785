"""Aggregation processes of whose state clients need a part, for which TFF's have no accessor."""

from __future__ import annotations

from typing import Any

import tensorflow_federated as tff


class BroadcastingAggregationProcess(tff.templates.AggregationProcess):
    """An `AggregationProcess` that shares a part of its state with clients.

        get_broadcast: (S -> <name=V, ...>)

    The server sends that part, as it is before the round, to the participants with the model.
    """

    def __init__(self, initialize_fn: tff.Computation, next_fn: tff.Computation, get_broadcast: tff.Computation):
        """Initializes the process.

        Args:
          initialize_fn: as for `tff.templates.AggregationProcess`.
          next_fn: likewise.
          get_broadcast: takes the state, without a placement, and returns a structure with named fields.
        """
        super().__init__(initialize_fn, next_fn)
        expected = initialize_fn.type_signature.result.member
        found = get_broadcast.type_signature.parameter
        if not expected.is_equivalent_to(found):
            raise TypeError(f"get_broadcast must take the process's state, {expected}, found {found}.")
        self._get_broadcast = get_broadcast

    @property
    def get_broadcast(self) -> tff.Computation:
        """What of the state goes to the clients, by name."""
        return self._get_broadcast


def broadcast_of(process: tff.templates.AggregationProcess) -> tff.Computation:
    """Returns `get_broadcast` of a process, which gives `<>` where nothing is shared."""
    if isinstance(process, BroadcastingAggregationProcess):
        return process.get_broadcast

    @tff.tensorflow.computation(process.initialize.type_signature.result.member)
    def share_nothing(state: Any) -> Any:
        del state
        return ()

    return share_nothing
