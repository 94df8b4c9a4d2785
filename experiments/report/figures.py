"""The pictures of a report, as functions that draw them in a given look."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from experiments import split_picture
from experiments.axes import accuracy_span, at_least, whole_numbers
from experiments.columns import DRIFT, EPSILON, ROUND
from experiments.compression import marker_of
from experiments.histogram import drawn_edges, lowest_sent
from experiments.methods import Method
from experiments.report.drawing import (
    NARROW,
    Draw,
    Look,
    along,
    legend,
    number_points,
    panels,
    plain_numbers,
    powers_of_ten,
)
from experiments.report.groups import Group
from experiments.report.pareto import pareto_front
from experiments.report.read import Run, Updates
from experiments.report.telling import MARKERS, PALETTE, Shown, tell_apart

_NEAR = 1.0  # points of accuracy below the best that the second panel of the Pareto picture shows


def draw_lead(groups: Sequence[Group]) -> Draw:
    """Accuracy by megabytes sent: the one picture that comes first."""

    def draw(look: Look) -> plt.Figure:
        figure, (ax,) = panels(look, 1, entries=len(groups) if look.narrow else 0)
        _draw_by_megabytes(ax, groups, look)
        ax.set_ylabel("test accuracy, %")
        _zoom(ax, groups)
        legend(figure, ax, look)
        return figure

    return draw


def draw_accuracy(groups: Sequence[Group]) -> Draw:
    """Accuracy by round, and by megabytes sent."""

    def draw(look: Look) -> plt.Figure:
        figure, axes = panels(look, 2, sharey=True, entries=len(groups) // (1 if look.narrow else 3))
        for shown in tell_apart(groups):
            _curve(axes[0], shown, look, lambda run: run.table[ROUND.name], _accuracies)
        _draw_by_megabytes(axes[1], groups, look)
        axes[0].set(xlabel="round", ylabel="test accuracy, %")
        whole_numbers(axes[0])
        _zoom(axes[0], groups)
        legend(figure, axes[0], look)
        return figure

    return draw


def draw_drift(groups: Sequence[Group]) -> Draw:
    """Distance of the local models from their mean, by round."""
    return _draw_by_round(groups, DRIFT.name, "drift")


def draw_epsilon(groups: Sequence[Group]) -> Draw:
    """Privacy spent, by round."""
    return _draw_by_round(groups, EPSILON.name, "epsilon spent")


def _draw_by_round(groups: Sequence[Group], column: str, label: str) -> Draw:
    """A column of `metrics.csv` that is not negative, by round."""

    def draw(look: Look) -> plt.Figure:
        figure, (ax,) = panels(look, 1, entries=len(groups) // (1 if look.narrow else 3))
        for shown in tell_apart(groups):
            _curve(ax, shown, look, lambda run: run.table[ROUND.name], lambda run: run.table[column])
        ax.set(xlabel="round", ylabel=label, ylim=(0, None))
        whole_numbers(ax)
        legend(figure, ax, look)
        return figure

    return draw


def draw_updates(groups: Sequence[Group]) -> Draw:
    """How large the elements of the last round's updates are, of all seeds together."""

    def draw(look: Look) -> plt.Figure:
        figure, axes = panels(look, len(groups), sharey=True)
        for ax, shown in zip(axes, tell_apart(groups), strict=True):
            updates, config = updates_of(shown.group), shown.group.first.config
            assert updates is not None, "chosen by the caller"
            total = max(updates.zeros + updates.counts.sum(), 1)
            lowest = lowest_sent(config.threshold, config.uplink)
            edges = drawn_edges(updates.lower, updates.upper, updates.counts, lowest)
            colour = look.of(shown.group.method.colours)
            ax.stairs(100 * updates.counts / total, edges, fill=True, color=colour, alpha=0.35)
            ax.stairs(100 * updates.counts / total, edges, color=colour, lw=1.4)
            none_below = lowest > 0 and not updates.counts[edges[1:] <= lowest].any()
            if lowest:
                ax.axvline(lowest, color=look.ink, lw=1, ls="--")
            title = _wrapped(shown.label, 44 if look.narrow or len(groups) < 3 else 26)
            zeros = f"{100 * updates.zeros / total:.1f} % are zero"
            zeros += f"\nnone below {lowest:.3g}" if none_below else f"\ndashed: {lowest:.3g}" if lowest else ""
            ax.set_title(f"{title}\n{zeros}", fontsize=9.5)
            ax.set(xscale="log", xlim=(1e-7, 1), xlabel="magnitude of an element")
            powers_of_ten(ax)
        for ax in axes[:: 1 if look.narrow else 4]:
            ax.set_ylabel("share of all elements, %")
        return figure

    return draw


class Study(NamedTuple):
    """Runs by lambda_1 that are otherwise alike: a line of a picture."""

    label: str
    method: Method
    groups: list[Group]


def draw_l1(studies: Sequence[Study]) -> Draw:
    """Accuracy and share of non-zeros by lambda_1."""
    everything = [group for study in studies for group in study.groups]

    def draw(look: Look) -> plt.Figure:
        figure, axes = panels(look, 2, entries=len(studies) // (1 if look.narrow else 2))
        values = sorted({group.first.config.l1 for group in everything})
        place = {value: i for i, value in enumerate(values)}
        for i, study in enumerate(studies):
            x = [place[group.first.config.l1] for group in study.groups]
            colour, marker = look.of(PALETTE[i % len(PALETTE)]), MARKERS[i % len(MARKERS)]
            for ax, quantity in zip(axes, (_percent, _non_zero_percent), strict=True):
                y = [group.mean(quantity) for group in study.groups]
                spread = [group.spread(quantity) or 0.0 for group in study.groups]
                ax.errorbar(
                    x, y, yerr=spread if any(spread) else None, capsize=3, label=study.label,
                    ls=study.method.variant.line, color=colour, marker=marker, ms=6, mfc="none",
                )  # fmt: skip
        for ax in axes:
            ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
            ax.set_xlabel("l1")
            ax.margins(0.08, 0.12)
        axes[0].set_ylabel("test accuracy, %")
        at_least(axes[0], _span(everything))
        axes[1].set_ylabel("elements that are not zero, %")
        axes[1].set_ylim(0, 1.1 * max(max(map(_mean_non_zero_percent, everything)), 0.1))
        legend(figure, axes[0], look)
        return figure

    return draw


def draw_pareto(groups: Sequence[Group]) -> Draw:
    """Final accuracy against bytes sent; points are numbered from 1, those on the front joined.

    Where some are far below the best, a second panel shows those near it.
    """
    points = pareto_points(groups)
    front = front_of(groups)
    best, near = max(y for _, y in points), max(_NEAR, _span(groups))
    far = any(y < best - 2 * near for _, y in points)

    def draw(look: Look) -> plt.Figure:
        figure, axes = panels(look, 2 if far else 1, entries=1)
        for ax, lowest in zip(axes, (-np.inf, best - near), strict=False):
            shown = [i for i, (_, y) in enumerate(points) if y >= lowest]
            line = [points[i] for i in front if i in shown]
            if line:
                ax.plot(
                    *zip(*line, strict=True), color=look.ink, lw=1, ls="--", alpha=0.7, label="Pareto front", zorder=1
                )
            for i in shown:
                _draw_point(ax, groups[i], points[i], look, i in front)
            ax.set(xlabel="megabytes sent by clients, log scale", xscale="log")
            ax.margins(0.1, 0.12)
            at_least(ax, near)
            plain_numbers(ax, look)
        axes[0].set_ylabel("test accuracy at the end, %")
        if far:
            axes[1].set_title(f"those at most {near:.2g} points below the best", fontsize=10)
        legend(figure, axes[0], look)
        figure.draw_without_rendering()  # Numbers are placed in the panels as they are in the end.
        for ax, lowest in zip(axes, (-np.inf, best - near), strict=False):
            shown = [i for i, (_, y) in enumerate(points) if y >= lowest]
            taken = [place for i in shown for place in _places_of_bars(groups[i], points[i])]
            taken += along(ax, [points[i] for i in front if i in shown])
            number_points(ax, {i: points[i] for i in shown}, taken)
        return figure

    return draw


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


def front_of(groups: Sequence[Group]) -> list[int]:
    """Returns the places of the groups on the Pareto front; truncated runs, which had less to send, are on none."""
    whole = [i for i, group in enumerate(groups) if not group.is_truncated]
    points = pareto_points([groups[i] for i in whole])
    return [whole[i] for i in pareto_front(points)]


def updates_of(group: Group) -> Updates | None:
    """Returns the histogram of the last round's updates of all seeds; `None` if none has one with the same bins."""
    found = [run.updates for run in group.runs if run.updates is not None]
    alike = [u for u in found if np.array_equal(u.upper, found[0].upper)]
    if not alike:
        return None
    return Updates(
        sum(u.zeros for u in alike), alike[0].lower, alike[0].upper, np.sum([u.counts for u in alike], axis=0)
    )


def megabytes_sent(run: Run) -> float:
    """What clients sent in all."""
    return run.bytes_sent / 1e6


def _draw_by_megabytes(ax: plt.Axes, groups: Sequence[Group], look: Look) -> None:
    for shown in tell_apart(groups):
        _curve(ax, shown, look, _megabytes, _accuracies)
    ax.set(xlabel="megabytes sent by clients, log scale", xscale="log")
    plain_numbers(ax, look)


def _draw_point(ax: plt.Axes, group: Group, point: tuple[float, float], look: Look, on_front: bool) -> None:
    colour = look.of(group.method.colours)
    ax.errorbar(
        *point, xerr=group.spread(megabytes_sent), yerr=group.spread(_percent), capsize=3, color=colour,
        marker=_marker(group), ms=7, mfc=colour if on_front else "none", alpha=0.5 if group.is_truncated else 1.0,
    )  # fmt: skip


def _places_of_bars(group: Group, point: tuple[float, float]) -> list[tuple[float, float]]:
    """Places along the error bars of a point."""
    x, y = (group.spread(quantity) or 0.0 for quantity in (megabytes_sent, _percent))
    steps = np.linspace(-1, 1, 9)
    return [(point[0], point[1] + y * s) for s in steps if y] + [(point[0] + x * s, point[1]) for s in steps if x]


def _accuracies(run: Run) -> np.ndarray:
    return 100 * run.accuracies


def _non_zero_percent(run: Run) -> float:
    return 100 * run.non_zero_share


def _mean_non_zero_percent(group: Group) -> float:
    return group.mean(_non_zero_percent)


def _percent(run: Run) -> float:
    return 100 * run.accuracy


def _megabytes(run: Run) -> np.ndarray:
    return np.cumsum(run.bytes_by_round) / 1e6


def _span(groups: Sequence[Group]) -> float:
    """Points of accuracy that an axis shows at least."""
    spans = [accuracy_span(run.accuracy, run.test_examples) for group in groups for run in group.runs]
    return max((span for span in spans if np.isfinite(span)), default=2.0)


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width))


def _marker(group: Group) -> str:
    config = group.first.config
    lossy = (config.uplink, config.compressor, "top_k" if config.top_k is not None else None)
    return next(filter(None, map(marker_of, lossy)), "X" if config.aggregator != "mean" else "o")


def _curve(
    ax: plt.Axes, shown: Shown, look: Look, x: Callable[[Run], np.ndarray], y: Callable[[Run], np.ndarray]
) -> None:
    """Draws the mean over the seeds, and what lies between the least and the most of them."""
    runs = shown.group.runs
    xs, ys = (np.array([quantity(run) for run in runs]) for quantity in (x, y))
    known = (np.isfinite(xs) & np.isfinite(ys)).all(0)
    if not known.any():
        return
    xs, ys = xs.mean(0)[known], ys[:, known]
    colour = look.of(shown.colours)
    marker = "." if len(xs) < 15 and shown.marker is None else shown.marker
    ax.plot(
        xs, ys.mean(0), label=shown.label, marker=marker, markevery=max(1, len(xs) // 12), ms=5, color=colour,
        ls=shown.line, lw=shown.width,
    )  # fmt: skip
    if len(runs) > 1:
        ax.fill_between(xs, ys.min(0), ys.max(0), color=colour, alpha=0.15, lw=0)


def _zoom(ax: plt.Axes, groups: Sequence[Group]) -> None:
    """The first rounds would leave the rest no room: the axis begins at what all have reached after a tenth of them."""
    values = [_accuracies(run) for group in groups for run in group.runs]
    starts = [np.nanmin(v[len(v) // 10 :]) for v in values if np.isfinite(v[len(v) // 10 :]).any()]
    if starts:
        top = max(np.nanmax(v) for v in values if np.isfinite(v).any())
        bottom = min(starts)
        ax.set_ylim(bottom - 0.05 * (top - bottom + 1e-3), top + 0.05 * (top - bottom + 1e-3))
        at_least(ax, _span(groups))
