"""The Gaussian mechanism, with noise that nobody can repeat, for algorithms that release one aggregate or two."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_fen.aggregators import noise
from tff_fen.aggregators.fixed_denominator import FixedDenominatorFactory
from tff_fen.checks import check_number


def build_dp_factory(
    noise_multiplier: float, clients_per_round: float, clip: float, *, test_seed: int | None = None
) -> FixedDenominatorFactory:
    """Builds the Gaussian mechanism on a sum of clipped messages, divided by a fixed number.

    It is `tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed` with noise from `tff_fen.aggregators.noise`, and
    fits every builder whose round releases one message of a client: `build_fed_avg`, and `build_fed_dyn` without l1
    (`build_dp_pair` is for the others). TFF's own draws its noise from a generator that takes 32 bits once per
    process: whoever tries them all finds the noise and takes it off.

    Args:
      noise_multiplier: standard deviation of the noise in units of `clip`, >= 0.
      clients_per_round: the number the noisy sum is divided by, > 0.
      clip: norm bound of a message, > 0.
      test_seed: `None` draws noise that nobody can repeat. A seed is for tests alone: whoever
        knows it can take the noise off again.
    """
    return _build(noise_multiplier, clients_per_round, clip, test_seed, budget=object())


def _build(
    noise_multiplier: float, clients_per_round: float, clip: float, test_seed: int | None, budget: object
) -> FixedDenominatorFactory:
    check_number("noise_multiplier", noise_multiplier, 0.0)
    check_number("clients_per_round", clients_per_round, 0.0, open_low=True)
    check_number("clip", clip, 0.0, open_low=True)
    stddev = noise_multiplier * clip
    query: tfp.GaussianSumQuery
    if test_seed is None:
        noise.check_source()
        query = _FreshGaussianSumQuery(clip, stddev)
    else:
        query = _RepeatableGaussianSumQuery(clip, stddev, test_seed)
    factory = tff.aggregators.DifferentiallyPrivateFactory(tfp.NormalizedQuery(query, float(clients_per_round)))
    return FixedDenominatorFactory(factory, clients_per_round, budget=budget)


class _FreshGaussianSumQuery(tfp.GaussianSumQuery):
    """A Gaussian sum query whose noise is drawn with a new key of the operating system each time."""

    def get_noised_result(self, sample_state: Any, global_state: Any) -> Any:
        noised = noise.add_normal_noise(sample_state, global_state.stddev)
        event = dp_accounting.GaussianDpEvent(global_state.stddev / global_state.l2_norm_clip)
        return noised, global_state, event


class _RepeatableGaussianSumQuery(tfp.GaussianSumQuery):
    """A Gaussian sum query whose noise is a function of (seed, round); its state counts the rounds."""

    def __init__(self, l2_norm_clip: float, stddev: float, seed: int) -> None:
        super().__init__(l2_norm_clip, stddev)
        self._seed = seed

    def initial_global_state(self) -> Any:
        return super().initial_global_state(), tf.constant(0)

    def derive_sample_params(self, global_state: Any) -> Any:
        return super().derive_sample_params(global_state[0])

    def get_noised_result(self, sample_state: Any, global_state: Any) -> Any:
        state, count = global_state
        leaves = tf.nest.flatten(sample_state)
        noised = [
            x + tf.random.stateless_normal(tf.shape(x), [self._seed, len(leaves) * count + i], stddev=state.stddev)
            for i, x in enumerate(leaves)
        ]
        _, _, event = super().get_noised_result(sample_state, state)
        return tf.nest.pack_sequence_as(sample_state, noised), (state, count + 1), event


def build_dp_pair(
    noise_multiplier: float,
    clients_per_round: float,
    first_clip: float,
    second_clip: float,
    *,
    test_seed: int | None = None,
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
      test_seed: see `build_dp_factory`.

    Returns:
      The two factories.
    """
    for name, value in (("first_clip", first_clip), ("second_clip", second_clip)):
        check_number(name, value, 0.0, open_low=True)
    seeds = (None, None) if test_seed is None else (2 * test_seed, 2 * test_seed + 1)
    budget = object()
    first, second = (
        _build(math.sqrt(2.0) * noise_multiplier, clients_per_round, clip, seed, budget)
        for clip, seed in zip((first_clip, second_clip), seeds, strict=True)
    )
    return first, second
