"""The pictures of a report, each drawn twice: for light pages and for dark ones."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from report.groups import METHODS, Group
from report.pareto import pareto_front
from report.read import Run

# A colour for what the elastic net is added to; the line's kind tells what it is added by.
_LIGHT = {"1": "#0072b2", "2": "#00805c", "3": "#d1480f", "0": "#6b7280"}
_DARK = {"1": "#5bb3f0", "2": "#35c796", "3": "#ff8a50", "0": "#a3adb8"}
_FAMILIES = {"fed_avg": "0", "fed_prox": "1", "scaffold": "2", "fed_dyn": "3"}
_LINES = {"algorithm": "-", "threshold": ":", "proximal": "-."}
_DARK_STYLE = {
    "figure.facecolor": "#1d232a", "axes.facecolor": "#1d232a", "savefig.facecolor": "#1d232a", "text.color": "#e4e7eb",
    "axes.labelcolor": "#e4e7eb", "axes.edgecolor": "#76808c", "xtick.color": "#c5ccd3", "ytick.color": "#c5ccd3",
    "grid.color": "#76808c", "legend.facecolor": "#1d232a", "legend.edgecolor": "#3a424c",
}  # fmt: skip
_STYLE = {"font.size": 10.5, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}


class Palette(NamedTuple):
    """Colours of a picture."""

    colours: dict[str, str]
    ink: str

    def of(self, method: str) -> str:
        """A method's colour."""
        return self.colours[_FAMILIES.get(method, method[-1])]


Draw = Callable[[Palette], plt.Figure]


def render(draw: Draw) -> tuple[bytes, bytes]:
    """Returns a picture as PNG for light and for dark pages."""
    pictures = []
    for palette, style in ((Palette(_LIGHT, "#1d232b"), {}), (Palette(_DARK, "#e4e7eb"), _DARK_STYLE)):
        with plt.rc_context({**_STYLE, **style}):
            figure = draw(palette)
            content = io.BytesIO()
            # Software and date would make the same picture another file.
            figure.savefig(content, format="png", dpi=130, metadata={"Software": None})
            plt.close(figure)
            pictures.append(content.getvalue())
    return pictures[0], pictures[1]


def draw_accuracy(groups: Sequence[Group]) -> Draw:
    """Accuracy by round, and by megabytes sent."""

    def draw(palette: Palette) -> plt.Figure:
        with _two_panels() as (figure, axes):
            for group in groups:
                _curve(axes[0], group, palette, lambda run: run.table["round"], lambda run: 100 * run.accuracies)
                _curve(axes[1], group, palette, _megabytes, lambda run: 100 * run.accuracies)
            axes[0].set(xlabel="round", ylabel="test accuracy, %")
            axes[1].set(xlabel="megabytes sent by clients, log scale", xscale="log")
            _plain_numbers(axes[1].xaxis)
            _zoom(axes[0], groups)
            _legend(figure, axes[0], len(groups))
        return figure

    return draw


def draw_drift(groups: Sequence[Group]) -> Draw:
    """Distance of the local models from their mean, by round."""

    def draw(palette: Palette) -> plt.Figure:
        figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
        for group in groups:
            _curve(ax, group, palette, lambda run: run.table["round"], lambda run: run.table["aggregator/drift"])
        ax.set(xlabel="round", ylabel="drift", ylim=(0, None))
        ax.grid(alpha=0.3)
        _legend(figure, ax, len(groups))
        return figure

    return draw


def draw_updates(groups: Sequence[Group]) -> Draw:
    """How large the elements of the last round's updates are."""

    def draw(palette: Palette) -> plt.Figure:
        figure, axes = plt.subplots(1, len(groups), figsize=(3.6 * len(groups) + 0.6, 3.6), sharey=True, sharex=True,
                                    layout="constrained", squeeze=False)  # fmt: skip
        for ax, group in zip(axes[0], groups, strict=True):
            updates = group.first.updates
            assert updates is not None, "chosen by the caller"
            total = updates.zeros + updates.counts.sum()
            ratio = updates.upper[1] / updates.lower[1]
            edges = np.concatenate([[updates.lower[1] / ratio], updates.lower[1:], [updates.lower[-1] * ratio]])
            colour = palette.of(group.method)
            ax.stairs(100 * updates.counts / total, edges, fill=True, color=colour, alpha=0.35)
            ax.stairs(100 * updates.counts / total, edges, color=colour, lw=1.4)
            if group.first.config.threshold:
                ax.axvline(group.first.config.threshold, color=palette.ink, lw=1, ls="--", label="threshold")
                ax.legend(loc="upper left", fontsize=9)
            ax.set_title(f"{METHODS[group.method]}\n{100 * updates.zeros / total:.1f} % are zero", fontsize=10.5)
            ax.set(xscale="log", xlim=(1e-7, 1), xlabel="magnitude of an element")
            ax.grid(alpha=0.3)
        axes[0, 0].set_ylabel("share of all elements, %")
        return figure

    return draw


class Study(NamedTuple):
    """Runs by lambda_1 that are otherwise alike: a line of a picture."""

    label: str
    method: str
    groups: list[Group]


def draw_l1(studies: Sequence[Study]) -> Draw:
    """Accuracy and share of non-zeros by lambda_1."""

    def draw(palette: Palette) -> plt.Figure:
        with _two_panels(sharey=False) as (figure, axes):
            values = sorted({group.first.config.l1 for study in studies for group in study.groups})
            place = {value: i for i, value in enumerate(values)}
            for study in studies:
                x = [place[group.first.config.l1] for group in study.groups]
                line = dict(color=palette.of(study.method), ls=_LINES[study.method.partition("_")[0]], marker="o", ms=5,
                            capsize=3, label=study.label, mfc="none" if study.method[0] == "p" else None)  # fmt: skip
                for ax, quantity in zip(axes, (_percent, lambda r: 100 * r.non_zero_share), strict=True):
                    y = [group.mean(quantity) for group in study.groups]
                    spread = [group.spread(quantity) or 0.0 for group in study.groups]
                    ax.errorbar(x, y, yerr=spread if any(spread) else None, **line)
            for ax in axes:
                ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
                ax.set_xlabel("l1")
                ax.margins(0.08, 0.12)
            axes[0].set_ylabel("test accuracy, %")
            axes[1].set_ylabel("elements that are not zero, %")
            axes[1].set_ylim(0, None)
            _legend(figure, axes[0], len(studies))
        return figure

    return draw


def draw_pareto(groups: Sequence[Group]) -> Draw:
    """Final accuracy against bytes sent; points are numbered from 1, those on the front joined."""

    def draw(palette: Palette) -> plt.Figure:
        figure, ax = plt.subplots(figsize=(9, 5.2), layout="constrained")
        points = pareto_points(groups)
        front = [points[i] for i in pareto_front(points)]
        ax.plot(*zip(*front, strict=True), color=palette.ink, lw=1, ls="--", alpha=0.7, label="Pareto front", zorder=1)
        on_front = set(pareto_front(points))
        for i, (group, (x, y)) in enumerate(zip(groups, points, strict=True)):
            colour = palette.of(group.method)
            errors = [group.spread(megabytes_sent), group.spread(_percent)]
            ax.errorbar(x, y, xerr=errors[0], yerr=errors[1], color=colour, marker=_marker(group), ms=7, capsize=3,
                        mfc=colour if i in on_front else "none")  # fmt: skip
            ax.annotate(str(i + 1), (x, y), textcoords="offset points", xytext=(5, 5), fontsize=8.5)
        ax.set(xlabel="megabytes sent by clients, log scale", ylabel="test accuracy at the end, %", xscale="log")
        _plain_numbers(ax.xaxis)
        ax.margins(0.08, 0.1)
        ax.grid(alpha=0.3)
        ax.legend(loc="lower right")
        return figure

    return draw


def draw_epsilon(groups: Sequence[Group]) -> Draw:
    """Privacy spent, by round."""

    def draw(palette: Palette) -> plt.Figure:
        figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
        for group in groups:
            _curve(ax, group, palette, lambda run: run.table["round"], lambda run: run.table["dp_epsilon"])
        ax.set(xlabel="round", ylabel="epsilon spent", ylim=(0, None))
        ax.grid(alpha=0.3)
        _legend(figure, ax, len(groups))
        return figure

    return draw


def draw_split(counts: np.ndarray) -> Draw:
    """How classes are dealt out to clients, as `python -m tasks.show_split` draws it."""

    def draw(_: Palette) -> plt.Figure:
        # Here, since the module defines flags of its own, which are no flags of a report.
        from tasks import show_split

        return show_split.draw(counts, "")

    return draw


def pareto_points(groups: Sequence[Group]) -> list[tuple[float, float]]:
    """Returns (megabytes, accuracy in per cent) of groups, means over seeds."""
    return [(group.mean(megabytes_sent), group.mean(_percent)) for group in groups]


def megabytes_sent(run: Run) -> float:
    """What clients sent in all."""
    return run.bytes_sent / 1e6


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
    ax: plt.Axes, group: Group, palette: Palette, x: Callable[[Run], np.ndarray], y: Callable[[Run], np.ndarray]
) -> None:
    """Draws the mean over the seeds, and what lies between the least and the most of them."""
    xs, ys = (np.array([quantity(run) for run in group.runs]) for quantity in (x, y))
    known = np.isfinite(ys).all(0)
    if not known.any():
        return
    xs, ys = xs.mean(0)[known], ys[:, known]
    kind = group.method.partition("_")[0]
    line = dict(color=palette.of(group.method), ls=_LINES.get(kind, "--"), lw=1.8 if kind == "algorithm" else 1.3)
    ax.plot(xs, ys.mean(0), label=group.full_label, marker="." if len(xs) < 15 else None, **line)
    if len(group.runs) > 1:
        ax.fill_between(xs, ys.min(0), ys.max(0), color=line["color"], alpha=0.15, lw=0)


def _zoom(ax: plt.Axes, groups: Sequence[Group]) -> None:
    """The first rounds would leave the rest no room: the axis begins at what all have reached after a tenth of them."""
    values = [100 * run.accuracies for group in groups for run in group.runs]
    starts = [np.nanmin(v[len(v) // 10 :]) for v in values if np.isfinite(v[len(v) // 10 :]).any()]
    if starts:
        top = max(np.nanmax(v) for v in values if np.isfinite(v).any())
        bottom = min(starts)
        ax.set_ylim(bottom - 0.05 * (top - bottom + 1e-3), top + 0.05 * (top - bottom + 1e-3))


@contextlib.contextmanager
def _two_panels(sharey: bool = True) -> Iterator[tuple[plt.Figure, np.ndarray]]:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), sharey=sharey, layout="constrained")
    for ax in axes:
        ax.grid(alpha=0.3)
    yield figure, axes


def _legend(figure: plt.Figure, ax: plt.Axes, entries: int) -> None:
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        columns = 3 if max(map(len, labels)) < 40 else 2 if max(map(len, labels)) < 60 else 1
        figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, entries), fontsize=9)


def _plain_numbers(axis: matplotlib.axis.Axis) -> None:
    """Marks of a log axis as 20 and 200, not as powers of ten."""
    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
