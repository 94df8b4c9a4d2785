"""The privacy that an experiment has spent."""

from __future__ import annotations

import collections
from collections.abc import Callable

import dp_accounting
import numpy as np


class PrivacyAccountant:
    """(epsilon, delta) spent by releases of rounds, by Renyi accounting; neighbours differ by one client's presence.

    Who takes part is a function of the published seed, so that sampling hides nobody: what is
    spent is what the client of most releases has spent, a Gaussian mechanism for each of them. A
    round that is run again with new noise is a release more.
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
        self._releases_of: collections.Counter[int] = collections.Counter()

    def count(self, number: int) -> None:
        """Counts a release of a round, from 1."""
        self._releases_of.update(int(k) for k in self._sample(number - 1))

    def epsilon(self) -> float:
        """Returns epsilon of all releases that were counted."""
        accountant = dp_accounting.rdp.RdpAccountant()
        accountant.compose(self._event, max(self._releases_of.values()))
        return float(accountant.get_epsilon(self._delta))
