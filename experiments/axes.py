"""Axes that say no more than is measured."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator


def whole_numbers(ax: plt.Axes) -> None:
    """Marks an x axis of rounds or clients, of which there is no half."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def accuracy_span(accuracy: float, examples: int | None) -> float:
    """Returns how many points of accuracy an axis shows at least: eight standard errors of a test set, at least one.

    Args:
      accuracy: about, from 0 to 1.
      examples: of the test set; where it is not known, two points are shown.
    """
    if examples is None:
        return 2.0
    return max(1.0, 800 * math.sqrt(max(accuracy * (1 - accuracy), 1 / examples) / examples))


def at_least(ax: plt.Axes, span: float, highest: float = 100.0) -> None:
    """Widens a y axis to a span, so that differences that chance makes do not fill the panel."""
    low, high = ax.get_ylim()
    if high - low < span:
        top = min((low + high + span) / 2, max(high, highest + 0.05 * span))
        ax.set_ylim(top - span, top)
