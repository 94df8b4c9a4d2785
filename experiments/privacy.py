"""The privacy that an experiment has spent."""

from __future__ import annotations

import collections
from collections.abc import Callable

import dp_accounting
import numpy as np


class PrivacyAccountant:
    """(epsilon, delta) spent after so many rounds, by Renyi accounting; neighbours differ by one client's presence.

    Who takes part is a function of the published seed, so that sampling hides nobody: what is
    spent is what the client of most rounds has spent, a Gaussian mechanism for each of them.
    """

    def __init__(self, noise_multiplier: float, delta: float, sample: Callable[[int], np.ndarray]) -> None:
        """Initializes the accountant.

        Args:
          noise_multiplier: of a round, all its releases together.
          delta: of (epsilon, delta).
          sample: `(round -> client ids)`, who takes part.
        """
        self._event = dp_accounting.GaussianDpEvent(noise_multiplier)
        self._delta = delta
        self._sample = sample
        self._rounds_of: collections.Counter[int] = collections.Counter()
        self._counted = 0

    def epsilon(self, rounds: int) -> float:
        """Returns epsilon after `rounds` rounds; they may not be fewer than last time."""
        for t in range(self._counted, rounds):
            self._rounds_of.update(int(k) for k in self._sample(t))
        self._counted = rounds
        accountant = dp_accounting.rdp.RdpAccountant()
        accountant.compose(self._event, max(self._rounds_of.values()))
        return float(accountant.get_epsilon(self._delta))
