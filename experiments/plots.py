"""Pictures of an experiment: accuracy by round and by megabytes, non-zeros, entropy, distribution of the updates."""

from __future__ import annotations

import io
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from experiments import columns
from experiments.axes import accuracy_span, at_least, whole_numbers
from experiments.histogram import EDGES, drawn_edges
from tff_fen.program.records import Record

_MESSAGES = {columns.UPDATE: "updates", columns.LOCAL_MODEL: "local models"}


def draw(records: list[Record], lowest: float = 0.0) -> dict[str, bytes]:
    """Returns the pictures by file name, as PNG.

    Args:
      records: of all rounds.
      lowest: the magnitude below which an update has only zeros, see `lowest_sent`.
    """
    if not records:
        return {}
    table = {name: np.array([r.row.get(name) for r in records], dtype=float) for name in records[0].row}
    share, entropy = "elements that are not zero, %", "entropy in bins of 0.01, bits per parameter"
    pictures = {"accuracy.png": _png(_draw_accuracy(table))}
    for name, column, unit, label in (
        ("non_zeros.png", columns.NON_ZERO_SHARE, 100.0, share),
        ("entropy.png", columns.ENTROPY, 1.0, entropy),
    ):
        if column.messages(table):
            pictures[name] = _png(_draw_by_message(table, column, unit, label))
    if columns.HISTOGRAM in records[-1].lists:
        pictures["updates.png"] = _png(_draw_updates(records[-1], lowest))
    return pictures


def _draw_accuracy(table: dict[str, np.ndarray]) -> plt.Figure:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    rounds = table[columns.ROUND.name]
    sent = [values for name, values in table.items() if columns.is_sent(name)]
    megabytes = np.cumsum(np.sum(sent, axis=0)) / 1e6 if sent else np.full(len(rounds), np.nan)
    names = {
        columns.ACCURACY.name: "server model",
        columns.AVERAGE_ACCURACY.name: "mean of the participants' models",
    }
    for ax, x, label in zip(axes, (rounds, megabytes), ("round", "megabytes sent by clients"), strict=True):
        for name, text in names.items():
            if name in table:
                known = np.isfinite(table[name])
                ax.plot(x[known], 100 * table[name][known], label=text, marker="." if known.sum() < 40 else None)
        ax.set_xlabel(label)
        ax.grid(alpha=0.3)
    whole_numbers(axes[0])
    axes[0].set_ylabel("test accuracy, %")
    at_least(axes[0], accuracy_span(0.5, None))
    axes[0].legend()
    return figure


def _draw_by_message(table: dict[str, np.ndarray], column: columns.Column, unit: float, label: str) -> plt.Figure:
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    for message in column.messages(table):
        values = unit * table[column.of(message)]
        ax.plot(table[columns.ROUND.name], values, label=_MESSAGES.get(message, message))
    ax.set(xlabel="round", ylabel=label, ylim=(0, None))
    whole_numbers(ax)
    ax.grid(alpha=0.3)
    ax.legend()
    return figure


def _draw_updates(record: Record, lowest: float) -> plt.Figure:
    counts = np.array(record.lists[columns.HISTOGRAM], dtype=float)
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    edges = [0.0, *EDGES.tolist(), float("inf")]
    places = drawn_edges(np.array(edges[:-1]), np.array(edges[1:]), counts[1:], lowest)
    ax.stairs(100 * counts[1:] / counts.sum(), places, fill=True)
    if lowest:
        ax.axvline(lowest, color="0.3", lw=1, ls="--", label=f"{lowest:g}: nothing smaller is sent")
        ax.legend(loc="upper left", fontsize=9)
    ax.set_xscale("log")
    ax.set(xlabel="magnitude of an element of an update", ylabel="share of all elements, %")
    ax.set_title(f"round {record.row[columns.ROUND.name]}: {100 * counts[0] / counts.sum():.1f} % are zero")
    ax.grid(alpha=0.3)
    return figure


def _png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    plt.close(figure)
    return content.getvalue()
