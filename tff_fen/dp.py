"""Differential privacy for the algorithms that release two aggregates of each client."""

from __future__ import annotations

import math

import tensorflow_federated as tff

from tff_fen.checks import check_number
from tff_fen.mean_aggregation import FixedDenominatorFactory


def build_dp_pair(
    noise_multiplier: float, clients_per_round: float, first_clip: float, second_clip: float
) -> tuple[FixedDenominatorFactory, FixedDenominatorFactory]:
    """Builds the two aggregators of FedDyn or SCAFFOLD from one noise budget.

    Each message is clipped to its own norm, so that a client changes the pair
    `(first / first_clip, second / second_clip)` by at most sqrt(2) in norm. Noise of
    `sqrt(2) * noise_multiplier` times its clip on each of the two sums then costs the
    privacy of one Gaussian mechanism with `noise_multiplier`: account for the round with
    that one number, not for two releases. (Neighbours differ by one client's presence. What
    the metrics tell, and how many clients took part, is not private.)

    Args:
      noise_multiplier: of the pair together, >= 0.
      clients_per_round: the number the noisy sums are divided by, > 0.
      first_clip: norm bound of delta (`aggregator`), > 0.
      second_clip: norm bound of the signs (`sign_aggregator`; all signs of d parameters
        have norm sqrt(d)) or of the control change (`control_aggregator`), > 0.

    Returns:
      The two factories.
    """
    check_number("noise_multiplier", noise_multiplier, 0.0)
    for name, value in (
        ("clients_per_round", clients_per_round),
        ("first_clip", first_clip),
        ("second_clip", second_clip),
    ):
        check_number(name, value, 0.0, open_low=True)
    first, second = (
        tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
            noise_multiplier=math.sqrt(2.0) * noise_multiplier, clients_per_round=clients_per_round, clip=clip
        )
        for clip in (first_clip, second_clip)
    )
    return FixedDenominatorFactory(first, clients_per_round), FixedDenominatorFactory(second, clients_per_round)
