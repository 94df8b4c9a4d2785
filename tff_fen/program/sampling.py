"""Which clients take part in a round: pure functions of (seed, round)."""

from __future__ import annotations

import numpy as np

from tff_fen.checks import check_integer, check_number

_MOST_ATTEMPTS = 2000


def sample_bernoulli(round_number: int, num_clients: int, probability: float = 0.1, seed: int = 0) -> np.ndarray:
    """Returns the sorted ids of the clients that join, each with `probability` of its own.

    The draw of FedDyn's public code, whose rounds the paper's tables count: NumPy's legacy
    generator seeded with `round_number + seed`, `uniform(num_clients) <= probability`; if
    nobody joins, the next seed is tried.

    Args:
      round_number: from 0.
      num_clients: m >= 1.
      probability: in (0, 1].
      seed: the base that is added to the round number, >= 0.
    """
    check_integer("round_number", round_number, 0)
    check_integer("num_clients", num_clients, 1)
    check_integer("seed", seed, 0)
    check_number("probability", probability, 0.0, open_low=True)
    if probability > 1.0:
        raise ValueError(f"probability must be at most 1, found {probability!r}.")
    first = round_number + seed
    for attempt in range(first, first + _MOST_ATTEMPTS):
        joined = np.flatnonzero(np.random.RandomState(attempt).uniform(size=num_clients) <= probability)
        if joined.size:
            return joined
    raise ValueError(
        f"Of {num_clients} clients nobody joined in {_MOST_ATTEMPTS} draws with probability {probability!r}. Raise it."
    )


def sample_uniform(round_number: int, num_clients: int, clients_per_round: int, seed: int = 0) -> np.ndarray:
    """Returns the sorted ids of `clients_per_round` different clients, all equally likely."""
    check_integer("round_number", round_number, 0)
    check_integer("num_clients", num_clients, 1)
    check_integer("clients_per_round", clients_per_round, 1, num_clients)
    check_integer("seed", seed, 0)
    rng = np.random.default_rng((seed, round_number))
    return np.sort(rng.choice(num_clients, clients_per_round, replace=False))
