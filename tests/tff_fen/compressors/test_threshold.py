"""The threshold on hand-made numbers."""

import numpy as np
import tensorflow as tf

from tff_fen.compressors.threshold import hard_threshold

DELTA = tf.constant([-2.0, -0.5, 0.0, 0.5, 2.0])


def test_hard_threshold_takes_the_bound_itself_and_keeps_the_rest_unshrunk() -> None:
    np.testing.assert_array_equal(hard_threshold(DELTA, 0.5), [-2.0, 0.0, 0.0, 0.0, 2.0])
    np.testing.assert_array_equal(hard_threshold(DELTA, 0.49), DELTA)
    np.testing.assert_array_equal(hard_threshold(DELTA, 0.0), DELTA)
