"""The pictures of a report, as functions that draw them in a given look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from experiments import split_picture
from experiments.columns import DRIFT, EPSILON, ROUND
from experiments.methods import PROXIMAL_STEP, Method
from experiments.report.drawing import NARROW, Draw, Look, legend, number_points, panels, plain_numbers
from experiments.report.groups import Group
from experiments.report.pareto import pareto_front
from experiments.report.read import Run

_NEAR = 1.0  # points of accuracy below the best that the second panel of the Pareto picture shows


def draw_accuracy(groups: Sequence[Group]) -> Draw:
    """Accuracy by round, and by megabytes sent."""

    def draw(look: Look) -> plt.Figure:
        figure, axes = panels(look, 2, sharey=True)
        for group in groups:
            _curve(axes[0], group, look, lambda run: run.table[ROUND.name], lambda run: 100 * run.accuracies)
            _curve(axes[1], group, look, _megabytes, lambda run: 100 * run.accuracies)
        axes[0].set(xlabel="round", ylabel="test accuracy, %")
        axes[1].set(xlabel="megabytes sent by clients, log scale", xscale="log")
        plain_numbers(axes[1], look)
        _zoom(axes[0], groups)
        legend(figure, axes[0], look)
        return figure

    return draw


def draw_drift(groups: Sequence[Group]) -> Draw:
    """Distance of the local models from their mean, by round."""
    return _draw_by_round(groups, DRIFT.name, "drift")


def _draw_by_round(groups: Sequence[Group], column: str, label: str) -> Draw:
    """A column of `metrics.csv` that is not negative, by round."""

    def draw(look: Look) -> plt.Figure:
        figure, (ax,) = panels(look, 1)
        for group in groups:
            _curve(ax, group, look, lambda run: run.table[ROUND.name], lambda run: run.table[column])
        ax.set(xlabel="round", ylabel=label, ylim=(0, None))
        legend(figure, ax, look)
        return figure

    return draw


def draw_updates(groups: Sequence[Group]) -> Draw:
    """How large the elements of the last round's updates are."""

    def draw(look: Look) -> plt.Figure:
        figure, axes = panels(look, len(groups), sharey=True)
        for ax, group in zip(axes, groups, strict=True):
            updates = group.first.updates
            assert updates is not None, "chosen by the caller"
            total = updates.zeros + updates.counts.sum()
            ratio = updates.upper[1] / updates.lower[1]
            edges = np.concatenate([[updates.lower[1] / ratio], updates.lower[1:], [updates.lower[-1] * ratio]])
            colour = look.of(group.method)
            ax.stairs(100 * updates.counts / total, edges, fill=True, color=colour, alpha=0.35)
            ax.stairs(100 * updates.counts / total, edges, color=colour, lw=1.4)
            if group.first.config.threshold:
                ax.axvline(group.first.config.threshold, color=look.ink, lw=1, ls="--", label="threshold")
                ax.legend(loc="upper left", fontsize=9)
            ax.set_title(f"{group.method.title}\n{100 * updates.zeros / total:.1f} % are zero", fontsize=10.5)
            ax.set(xscale="log", xlim=(1e-7, 1), xlabel="magnitude of an element")
        axes[0].set_ylabel("share of all elements, %")
        return figure

    return draw


class Study(NamedTuple):
    """Runs by lambda_1 that are otherwise alike: a line of a picture."""

    label: str
    method: Method
    groups: list[Group]


def draw_l1(studies: Sequence[Study]) -> Draw:
    """Accuracy and share of non-zeros by lambda_1."""

    def draw(look: Look) -> plt.Figure:
        figure, axes = panels(look, 2)
        values = sorted({group.first.config.l1 for study in studies for group in study.groups})
        place = {value: i for i, value in enumerate(values)}
        for study in studies:
            x = [place[group.first.config.l1] for group in study.groups]
            variant = study.method.variant
            for ax, quantity in zip(axes, (_percent, _non_zero_percent), strict=True):
                y = [group.mean(quantity) for group in study.groups]
                spread = [group.spread(quantity) or 0.0 for group in study.groups]
                ax.errorbar(
                    x, y, yerr=spread if any(spread) else None, capsize=3, label=study.label, ls=variant.line,
                    color=look.of(study.method), marker="o", ms=5, mfc="none" if variant is PROXIMAL_STEP else None,
                )  # fmt: skip
        for ax in axes:
            ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
            ax.set_xlabel("l1")
            ax.margins(0.08, 0.12)
        axes[0].set_ylabel("test accuracy, %")
        axes[1].set_ylabel("elements that are not zero, %")
        axes[1].set_ylim(0, 1.1 * max(group.mean(_non_zero_percent) for study in studies for group in study.groups))
        legend(figure, axes[0], look)
        return figure

    return draw


def draw_pareto(groups: Sequence[Group]) -> Draw:
    """Final accuracy against bytes sent; points are numbered from 1, those on the front joined.

    Where some are far below the best, a second panel shows those near it.
    """
    points = pareto_points(groups)
    front = pareto_front(points)
    best = max(y for _, y in points)
    far = any(y < best - 2 * _NEAR for _, y in points)

    def draw(look: Look) -> plt.Figure:
        figure, axes = panels(look, 2 if far else 1)
        for ax, lowest in zip(axes, (-np.inf, best - _NEAR), strict=False):
            shown = [i for i, (_, y) in enumerate(points) if y >= lowest]
            line = [points[i] for i in front if i in shown]
            ax.plot(*zip(*line, strict=True), color=look.ink, lw=1, ls="--", alpha=0.7, label="Pareto front", zorder=1)
            for i in shown:
                colour = look.of(groups[i].method)
                ax.errorbar(
                    *points[i], xerr=groups[i].spread(megabytes_sent), yerr=groups[i].spread(_percent), capsize=3,
                    color=colour, marker=_marker(groups[i]), ms=7, mfc=colour if i in front else "none",
                )  # fmt: skip
            ax.set(xlabel="megabytes sent by clients, log scale", xscale="log")
            ax.margins(0.1, 0.12)
            plain_numbers(ax, look)
            number_points(ax, {i: points[i] for i in shown})
        axes[0].set_ylabel("test accuracy at the end, %")
        if far:
            axes[1].set_title(f"those at most {_NEAR:g} point below the best", fontsize=10)
        legend(figure, axes[0], look)
        return figure

    return draw


def draw_epsilon(groups: Sequence[Group]) -> Draw:
    """Privacy spent, by round."""
    return _draw_by_round(groups, EPSILON.name, "epsilon spent")


def draw_split(counts: np.ndarray) -> Draw:
    """How classes are dealt out to clients, as `python -m experiments.show_split` draws it."""

    def draw(look: Look) -> plt.Figure:
        figure = split_picture.draw(counts, "")
        if look.narrow:
            figure.set_size_inches(NARROW, 4.6)
        return figure

    return draw


def pareto_points(groups: Sequence[Group]) -> list[tuple[float, float]]:
    """Returns (megabytes, accuracy in per cent) of groups, means over seeds."""
    return [(group.mean(megabytes_sent), group.mean(_percent)) for group in groups]


def megabytes_sent(run: Run) -> float:
    """What clients sent in all."""
    return run.bytes_sent / 1e6


def _non_zero_percent(run: Run) -> float:
    return 100 * run.non_zero_share


def _percent(run: Run) -> float:
    return 100 * run.accuracy


def _megabytes(run: Run) -> np.ndarray:
    return np.cumsum(run.bytes_by_round) / 1e6


def _marker(group: Group) -> str:
    config = group.first.config
    if config.uplink is not None and config.uplink != "lossless":
        return "D" if config.uplink.startswith("quantised") else "s"
    return "^" if config.top_k is not None else "X" if config.aggregator != "mean" else "o"


def _curve(
    ax: plt.Axes, group: Group, look: Look, x: Callable[[Run], np.ndarray], y: Callable[[Run], np.ndarray]
) -> None:
    """Draws the mean over the seeds, and what lies between the least and the most of them."""
    xs, ys = (np.array([quantity(run) for run in group.runs]) for quantity in (x, y))
    known = (np.isfinite(xs) & np.isfinite(ys)).all(0)
    if not known.any():
        return
    xs, ys = xs.mean(0)[known], ys[:, known]
    colour, variant = look.of(group.method), group.method.variant
    marker = "." if len(xs) < 15 else None
    ax.plot(
        xs, ys.mean(0), label=group.full_label, marker=marker, color=colour, ls=variant.line, lw=variant.width
    )  # fmt: skip
    if len(group.runs) > 1:
        ax.fill_between(xs, ys.min(0), ys.max(0), color=colour, alpha=0.15, lw=0)


def _zoom(ax: plt.Axes, groups: Sequence[Group]) -> None:
    """The first rounds would leave the rest no room: the axis begins at what all have reached after a tenth of them."""
    values = [100 * run.accuracies for group in groups for run in group.runs]
    starts = [np.nanmin(v[len(v) // 10 :]) for v in values if np.isfinite(v[len(v) // 10 :]).any()]
    if starts:
        top = max(np.nanmax(v) for v in values if np.isfinite(v).any())
        bottom = min(starts)
        ax.set_ylim(bottom - 0.05 * (top - bottom + 1e-3), top + 0.05 * (top - bottom + 1e-3))
