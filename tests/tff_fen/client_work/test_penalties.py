"""Signs of the penalties on hand-made numbers."""

import numpy as np
import tensorflow as tf

from tff_fen.client_work import penalties

DELTA = tf.constant([-2.0, -0.5, 0.0, 0.5, 2.0])
LR = tf.constant(0.5)


def test_descent_terms_point_back_to_theta_with_sign_of_zero_zero() -> None:
    l2_term = penalties.l2_descent(DELTA, 0.25, LR)
    l1_term = penalties.l1_descent(DELTA, 3.0, LR)
    np.testing.assert_array_equal(np.asarray(l2_term), [0.25, 0.0625, 0.0, -0.0625, -0.25])
    np.testing.assert_array_equal(np.asarray(l1_term), [1.5, 1.5, 0.0, -1.5, -1.5])


def test_penalties_of_weight_zero_have_no_term() -> None:
    assert penalties.l2_descent(DELTA, 0.0, LR) is penalties.l1_descent(DELTA, 0.0, LR) is None


def test_shrink_is_delta_with_its_l2_term() -> None:
    l2_term = penalties.l2_descent(DELTA, 0.25, LR)
    np.testing.assert_array_equal(penalties.shrink(DELTA, l2=0.25, lr=LR), DELTA + l2_term)
    np.testing.assert_array_equal(penalties.shrink(DELTA, l2=0.0, lr=LR), DELTA)


def test_soft_threshold_shrinks_and_stops_at_zero() -> None:
    np.testing.assert_array_equal(penalties.soft_threshold(DELTA, tf.constant(0.5)), [-1.5, 0.0, 0.0, 0.0, 1.5])
