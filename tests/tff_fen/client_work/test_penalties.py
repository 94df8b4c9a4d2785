"""Signs and thresholds on hand-made numbers."""

import numpy as np
import tensorflow as tf

from tff_fen.client_work import penalties

DELTA = tf.constant([-2.0, -0.5, 0.0, 0.5, 2.0])


def test_descent_terms_point_back_to_theta_with_sign_of_zero_zero() -> None:
    l2_term, l1_term = penalties.descent_terms(DELTA, l1=3.0, l2=0.25, lr=tf.constant(0.5))
    np.testing.assert_array_equal(l2_term, [0.25, 0.0625, 0.0, -0.0625, -0.25])
    np.testing.assert_array_equal(l1_term, [1.5, 1.5, 0.0, -1.5, -1.5])


def test_penalties_of_weight_zero_have_no_term() -> None:
    assert penalties.descent_terms(DELTA, l1=0.0, l2=0.0, lr=tf.constant(0.5)) == []
    assert len(penalties.descent_terms(DELTA, l1=1.0, l2=0.0, lr=tf.constant(0.5))) == 1


def test_shrink_is_delta_with_its_l2_term() -> None:
    l2_term, _ = penalties.descent_terms(DELTA, l1=3.0, l2=0.25, lr=tf.constant(0.5))
    np.testing.assert_array_equal(penalties.shrink(DELTA, l2=0.25, lr=tf.constant(0.5)), DELTA + l2_term)
    np.testing.assert_array_equal(penalties.shrink(DELTA, l2=0.0, lr=tf.constant(0.5)), DELTA)


def test_soft_threshold_shrinks_and_stops_at_zero() -> None:
    np.testing.assert_array_equal(penalties.soft_threshold(DELTA, tf.constant(0.5)), [-1.5, 0.0, 0.0, 0.0, 1.5])


def test_hard_threshold_takes_the_bound_itself_and_keeps_the_rest_unshrunk() -> None:
    np.testing.assert_array_equal(penalties.hard_threshold(DELTA, 0.5), [-2.0, 0.0, 0.0, 0.0, 2.0])
    np.testing.assert_array_equal(penalties.hard_threshold(DELTA, 0.49), DELTA)
    np.testing.assert_array_equal(penalties.hard_threshold(DELTA, 0.0), DELTA)
