"""scikit-learn's digits: 1797 real handwritten digits of 8 x 8 pixels that come with an installed package."""

from __future__ import annotations

import numpy as np
from sklearn import datasets

from tasks.data_sets import sources

NUM_TEST = 397


def load(places: sources.Places) -> sources.Arrays:
    """Returns `x_train` [1400, 64] with values from 0 to 16, `y_train`, `x_test` [397, 64], `y_test`, all uint8.

    The data set has no test part of its own: one is drawn, always the same.
    """
    del places  # nothing is fetched
    x, y = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order].astype(np.uint8), y[order].astype(np.uint8)
    return {"x_train": x[NUM_TEST:], "y_train": y[NUM_TEST:], "x_test": x[:NUM_TEST], "y_test": y[:NUM_TEST]}
