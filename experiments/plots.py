"""Pictures of an experiment: accuracy by round and by megabytes, non-zeros, entropy, distribution of the updates."""

from __future__ import annotations

import io
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from experiments.accounting import HISTOGRAM_EDGES, SENT_COLUMNS
from experiments.loop import RoundRecord


def draw(records: list[RoundRecord]) -> dict[str, bytes]:
    """Returns the pictures by file name, as PNG."""
    if not records:
        return {}
    table = {name: np.array([r.row[name] for r in records], dtype=float) for name in records[0].row}
    return {
        "accuracy.png": _png(_draw_accuracy(table)),
        "non_zeros.png": _png(_draw_non_zeros(table)),
        "entropy.png": _png(_draw_entropy(table)),
        "updates.png": _png(_draw_updates(records[-1])),
    }


def _draw_accuracy(table: dict[str, np.ndarray]) -> plt.Figure:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    megabytes = np.cumsum(sum(table[name] for name in SENT_COLUMNS if name in table)) / 1e6
    names = {"accuracy": "server model", "average_accuracy": "mean of the participants' models"}
    for ax, x, label in zip(axes, (table["round"], megabytes), ("round", "megabytes sent by clients"), strict=True):
        for name, text in names.items():
            if name in table:
                known = np.isfinite(table[name])
                ax.plot(x[known], 100 * table[name][known], label=text, marker="." if known.sum() < 40 else None)
        ax.set_xlabel(label)
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy, %")
    axes[0].legend()
    return figure


def _draw_non_zeros(table: dict[str, np.ndarray]) -> plt.Figure:
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, text in (("delta", "updates"), ("control", "control changes")):
        column = f"client_work/train/{name}/non_zero_share"
        if column in table:
            ax.plot(table["round"], 100 * table[column], label=text)
    ax.set(xlabel="round", ylabel="elements that are not zero, %", ylim=(0, None))
    ax.grid(alpha=0.3)
    ax.legend()
    return figure


def _draw_entropy(table: dict[str, np.ndarray]) -> plt.Figure:
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, text in (("delta", "updates"), ("theta", "local models"), ("control", "control changes")):
        column = f"client_work/train/{name}/entropy_trunc"
        if column in table:
            ax.plot(table["round"], table[column], label=text)
    ax.set(xlabel="round", ylabel="entropy in bins of 0.01, bits a parameter", ylim=(0, None))
    ax.grid(alpha=0.3)
    ax.legend()
    return figure


def _draw_updates(record: RoundRecord) -> plt.Figure:
    counts = np.array(record.histogram, dtype=float)
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    ratio = HISTOGRAM_EDGES[1] / HISTOGRAM_EDGES[0]
    edges = np.concatenate([[HISTOGRAM_EDGES[0] / ratio], HISTOGRAM_EDGES, [HISTOGRAM_EDGES[-1] * ratio]])
    ax.stairs(100 * counts[1:] / counts.sum(), edges, fill=True)
    ax.set_xscale("log")
    ax.set(xlabel="magnitude of an element of an update", ylabel="share of all elements, %")
    ax.set_title(f"round {record.row['round']}: {100 * counts[0] / counts.sum():.1f} % are zero")
    ax.grid(alpha=0.3)
    return figure


def _png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    plt.close(figure)
    return content.getvalue()
