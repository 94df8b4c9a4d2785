"""How large the elements of updates are, as `updates.csv` has it: zeros, and magnitudes in quarters of a decade."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

EDGES = 10.0 ** np.arange(-8.0, 1.5, 0.25)
"""Of the bins, from 10^-8 on."""


def empty_histogram() -> np.ndarray:
    """Returns counts of nothing, int64."""
    return np.zeros(len(EDGES) + 2, np.int64)


def count_magnitudes(vector: np.ndarray) -> np.ndarray:
    """Returns counts [zeros, below the first edge, between edges..., above the last], int64."""
    magnitudes = np.abs(vector[vector != 0])
    places = np.searchsorted(EDGES, magnitudes, side="right")
    counts = np.bincount(places, minlength=len(EDGES) + 1)
    return np.concatenate([[vector.size - magnitudes.size], counts])


def format_updates(histogram: Sequence[int]) -> str:
    """Returns the lines of `updates.csv`: lower edge, upper edge, count; the first row, from 0 to 0, counts zeros."""
    edges = [0.0, 0.0, *EDGES.tolist(), float("inf")]
    lines = io.StringIO()
    writer = csv.writer(lines)
    writer.writerow(["lower", "upper", "count"])
    writer.writerows(zip(edges[:-1], edges[1:], histogram, strict=True))
    return lines.getvalue()
