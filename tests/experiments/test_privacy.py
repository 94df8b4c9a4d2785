"""Privacy spent, and the noise it is spent on."""

from __future__ import annotations

from typing import Any

import dp_accounting
import numpy as np
import pytest
import tensorflow_federated as tff
from scipy import stats

import tff_fen
from experiments.privacy import PrivacyAccountant


def test_privacy_spent_is_that_of_the_client_of_most_rounds() -> None:
    """Who takes part is known from the seed: no amplification by sampling is claimed."""
    rounds = [[0, 1], [1], [1, 2], [0]]  # client 1 takes part three times
    ours = PrivacyAccountant(1.3, 1e-5, lambda t: np.array(rounds[t]))

    def gaussian(number: int) -> float:
        accountant = dp_accounting.rdp.RdpAccountant()
        accountant.compose(dp_accounting.GaussianDpEvent(1.3), number)
        return accountant.get_epsilon(1e-5)

    spent = []
    for number in (1, 2, 3, 4, 4, 3):
        ours.count(number)
        spent.append(ours.epsilon())
    assert spent[:4] == [gaussian(n) for n in (1, 2, 3, 3)]
    assert spent[4:] == [gaussian(3), gaussian(4)], "rounds 4 and 3 again: client 0 has three releases, client 1 four"
    # Within a few per cent of the exact epsilon of a Gaussian mechanism of noise 1.3 / sqrt(3).
    assert gaussian(3) == pytest.approx(_exact_gaussian_epsilon(1.3 / np.sqrt(3), 1e-5), rel=0.1)


def _exact_gaussian_epsilon(sigma: float, delta: float) -> float:
    """Balle and Wang (2018), theorem 8, solved by bisection."""

    def spent(epsilon: float) -> float:
        a, b = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
        return float(stats.norm.cdf(a) - np.exp(epsilon) * stats.norm.cdf(b))

    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) > delta else (low, middle)
    return high


def test_noise_is_fresh_unless_a_test_fixes_it() -> None:
    value_type = tff.to_type((np.float32, [1000]))
    values = [np.zeros(1000, np.float32)] * 4

    def draw(**kwargs: Any) -> list[np.ndarray]:
        process = tff_fen.build_dp_factory(0.5, 4, 2.0, **kwargs).create(value_type)
        state, results = process.initialize(), []
        for _ in range(2):
            output = process.next(state, values)
            state = output.state
            results.append(np.asarray(output.result))
        return results

    fresh, again = draw(), draw()
    assert not np.array_equal(fresh[0], again[0]) and not np.array_equal(fresh[0], fresh[1])
    fixed, repeated, other = draw(test_seed=3), draw(test_seed=3), draw(test_seed=4)
    np.testing.assert_array_equal(fixed, repeated)
    assert not np.array_equal(fixed[0], fixed[1]) and not np.array_equal(fixed[0], other[0])
    for result in (*fresh, *fixed):
        assert np.std(result) == pytest.approx(0.5 * 2.0 / 4, rel=0.1)
    # Clipped messages, one noise: the mean of four messages of norm 10 clipped to 2.
    process = tff_fen.build_dp_factory(0.0, 4, 2.0, test_seed=1).create(value_type)
    large = np.full(1000, 10 / np.sqrt(1000), np.float32)
    np.testing.assert_allclose(process.next(process.initialize(), [large] * 4).result, large / 5, rtol=1e-5)
