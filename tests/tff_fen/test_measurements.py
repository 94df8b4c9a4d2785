"""Non-zeros, norms and entropies against NumPy."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_fen import measurements


def numpy_entropy(values: np.ndarray, how: str) -> float:
    scaled = values.astype(np.float32) / np.float32(0.01)
    bins = np.trunc(scaled) if how == "trunc" else np.round(scaled)
    p = np.unique(bins, return_counts=True)[1] / values.size
    return float(-(p * np.log2(p)).sum())


def test_entropy_of_known_histograms() -> None:
    assert float(measurements.entropy_bits(tf.constant([5, 5, 5]))) == 0.0
    assert float(measurements.entropy_bits(tf.constant([0, 1, 2, 3]))) == pytest.approx(2.0)
    assert float(measurements.entropy_bits(tf.constant([0, 0, 7, -9]))) == pytest.approx(1.5)


def test_truncation_and_rounding_differ_around_zero() -> None:
    # Truncation puts all of (-0.01, 0.01) into bin 0; rounding only (-0.005, 0.005).
    measured = measurements.measure_entropy(tf.constant([-0.009, -0.004, 0.004, 0.009]))
    assert float(measured["entropy_trunc"]) == 0.0
    assert float(measured["entropy_round"]) == pytest.approx(1.5)


@pytest.mark.parametrize("scale", [0.003, 0.1, 5.0])
def test_entropy_of_a_gaussian(scale: float) -> None:
    values = (np.random.default_rng(1).normal(size=20000) * scale).astype(np.float32)
    measured = measurements.measure_entropy(tf.constant(values))
    assert float(measured["entropy_trunc"]) == pytest.approx(numpy_entropy(values, "trunc"), abs=1e-5)
    assert float(measured["entropy_round"]) == pytest.approx(numpy_entropy(values, "round"), abs=1e-5)


def test_spreads_too_wide_for_a_table_take_the_exact_way() -> None:
    values = np.array([0.0, 0.0, 1e5, -1e5, 3e4, 3e4, 3e4, 0.011], np.float32)
    assert (values.max() - values.min()) / 0.01 > measurements._MAX_TABLE
    measured = measurements.measure_entropy(tf.constant(values))
    assert float(measured["entropy_trunc"]) == pytest.approx(numpy_entropy(values, "trunc"), abs=1e-6)


def test_huge_values_do_not_overflow() -> None:
    measured = measurements.measure_entropy(tf.constant([1e30, -1e30, 0.0, 0.0]))
    assert float(measured["entropy_trunc"]) == pytest.approx(1.5)


def test_message_and_its_round_means() -> None:
    one = measurements.measure_message(tf.constant([3.0, 0.0, 4.0, 0.0]))
    assert int(one["non_zeros"]) == 2 and one["non_zeros"].dtype == tf.int64
    assert float(one["norm"]) == 5.0
    two = measurements.measure_message(tf.constant([0.0, 0.0, 0.0, 1.0]))
    sums = collections.OrderedDict((k, one[k] + two[k]) for k in one)
    measured = measurements.finalize_message(sums, tf.constant(2), size=4)
    assert int(measured["non_zeros"]) == 3
    assert float(measured["non_zero_share"]) == 3 / 8
    assert float(measured["norm"]) == 3.0
    # bins 300, 0, 400, 0: 1.5 bits; bins 0, 0, 0, 100: 0.811 bits
    assert float(measured["entropy_trunc"]) == pytest.approx((1.5 + 0.8112781) / 2)


def test_no_participants_gives_zeros_not_nans() -> None:
    sums = measurements.measure_message(tf.constant([0.0]))
    measured = measurements.finalize_message(sums, tf.constant(0), size=1)
    assert all(float(v) == 0.0 for v in measured.values())


def test_multiples_of_the_bin_width_are_bins_of_their_own() -> None:
    """As quantised messages have them: in a graph x / 0.01 may become a product, and end just below a whole number."""
    whole = np.arange(-3000, 3001)
    values = (whole * np.float32(0.01)).astype(np.float32)
    measured = tf.function(measurements.measure_entropy)(tf.constant(values))
    expected = np.log2(len(whole))
    assert float(measured["entropy_trunc"]) == pytest.approx(expected, abs=1e-5)
    assert float(measured["entropy_round"]) == pytest.approx(expected, abs=1e-5)
