"""How large the elements of updates are, as `updates.csv` has it: zeros, and magnitudes in quarters of a decade."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

import numpy as np

from experiments.compression import step_of

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


def lowest_sent(threshold: float, uplink: str | None) -> float:
    """Returns a magnitude below which nothing is sent but zeros; 0 if there is none.

    Args:
      threshold: epsilon; elements up to it are zero.
      uplink: the codec, if any; a quantiser sends multiples of its step, some of them below the threshold.
    """
    step = step_of(uplink)
    if threshold <= 0 or step is None:
        return max(threshold, 0.0)
    return step * max(1, math.floor(threshold / step + 0.5))


def drawn_edges(lower: np.ndarray, upper: np.ndarray, counts: np.ndarray, lowest: float) -> np.ndarray:
    """Returns where the bars of a histogram begin and end on a logarithmic axis, [bins + 1].

    The bin in which the lowest magnitude lies begins at it, since none of its elements is below. That holds unless
    there are some in lower bins.

    Args:
      lower: edges of the bins, the first of which may be 0.
      upper: likewise, the last of which may be infinite.
      counts: of the bins.
      lowest: see `lowest_sent`.
    """
    ratio = upper[1] / lower[1]
    edges = np.concatenate([[lower[1] / ratio], lower[1:], [lower[-1] * ratio]])
    bin_of = int(np.searchsorted(edges, lowest, side="right")) - 1
    if 0 <= bin_of < len(counts) and not counts[:bin_of].any():
        edges[bin_of] = lowest
    return edges
