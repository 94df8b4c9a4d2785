"""A population of stateful clients that tests drive: states by id, whatever order a runtime returns them in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import tff_fen
from tests.support import models, rounds

# The names of the server's and the clients' states.
STATES = {"fed_dyn": ("h", "gradient"), "scaffold": ("control", "control")}
BUILDERS: dict[str, Any] = {"fed_dyn": tff_fen.build_fed_dyn, "scaffold": tff_fen.build_scaffold}


class Clients:
    """Clients of a SCAFFOLD or FedDyn process with their data and states."""

    def __init__(self, algorithm: str, process: Any, data: list[rounds.Examples]) -> None:
        self.shared_name, self.own_name = STATES[algorithm]
        self.process = process
        self.data_sets = [models.dataset(*d) for d in data]
        self.states = {k: process.initialize_client(k) for k in range(len(data))}
        self.server = process.initialize()

    def round(self, participants: Iterable[int]) -> Any:
        """Runs a round and keeps its states."""
        inputs = [tff_fen.ClientInput(self.states[k], self.data_sets[k]) for k in participants]
        output = self.process.next(self.server, inputs)
        self.server = output.state
        assert sorted(int(s.client_id) for s in output.client_states) == sorted(participants)
        for state in output.client_states:
            self.states[int(state.client_id)] = state
        return output.metrics

    def own(self, k: int) -> list[np.ndarray]:
        """g_k or c_k."""
        return list(getattr(self.states[k], self.own_name))

    @property
    def shared(self) -> list[np.ndarray]:
        """h or c."""
        return list(self.server.aggregator[self.shared_name])

    @property
    def theta(self) -> list[np.ndarray]:
        """The server model."""
        return list(self.process.get_model_weights(self.server).trainable)

    def invariant_gap(self) -> float:
        """The largest difference between the server's state and the mean over all clients' states."""
        means = [np.mean(tensors, axis=0) for tensors in zip(*map(self.own, self.states), strict=True)]
        return max(float(np.abs(a - b).max()) for a, b in zip(self.shared, means, strict=True))
