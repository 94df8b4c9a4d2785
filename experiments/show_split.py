"""Draws how a split deals the classes out to the clients.

    python -m experiments.show_split --task=mnist --split=dirichlet:0.3 [--num_clients=100] [--out=split.png]
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import tqdm
from absl import app, flags, logging

from experiments.flags import build_config, define_flags, explicit_values
from experiments.task_flags import load_task_of
from tasks.data_sets.sources import DataUnavailableError
from tasks.task import Task

define_flags("task")

_OUT = flags.DEFINE_string("out", "split.png", "The picture to write; its ending names the format (png, svg, pdf).")


def count_labels(task: Task) -> np.ndarray:
    """Returns how many examples of each class each client has, [m, classes]."""
    num_classes = task.build_keras_model().output_shape[-1]
    clients = tqdm.tqdm(task.clients, total=len(task.clients), desc="clients", disable=None, delay=2)
    return np.array([np.bincount(y, minlength=num_classes) for _, y in clients])


def draw(counts: np.ndarray, title: str) -> plt.Figure:
    """Returns a picture of clients by classes: shares of each client's data as shades, and the clients' sizes."""
    sizes = counts.sum(1)
    shares = counts / np.maximum(sizes, 1)[:, None]
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(10, 6), height_ratios=(1, 3), sharex=True, layout="constrained"
    )
    top.bar(np.arange(len(sizes)), sizes, width=1.0, color="0.4")
    top.set_ylabel("examples")
    top.set_title(title)
    image = bottom.imshow(shares.T, aspect="auto", origin="lower", cmap="viridis", interpolation="nearest", vmin=0.0)
    bottom.set_xlabel("client")
    bottom.set_ylabel("class")
    if counts.shape[1] <= 26:
        bottom.set_yticks(np.arange(counts.shape[1]))
    figure.colorbar(image, ax=bottom, label="share of the client's examples")
    return figure


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {' '.join(argv[1:])}")
    out = pathlib.Path(_OUT.value)
    known = plt.figure().canvas.get_supported_filetypes()
    if out.suffix[1:] not in known:
        raise app.UsageError(f"--out must end with one of {', '.join(sorted(known))}, found {_OUT.value!r}.")
    logging.set_verbosity(logging.WARNING)  # TFF tells of each metric it adds
    try:
        config = build_config({"l2": 1.0}, explicit_values())
        task = load_task_of(config)
    except (ValueError, TypeError, DataUnavailableError) as error:
        raise app.UsageError(str(error)) from error
    counts = count_labels(task)
    figure = draw(counts, f"{config.task} {config.split or ''}: {counts.sum():,} examples, {len(counts)} clients")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=120)
    except OSError as error:
        raise SystemExit(f"--out={out} cannot be written: {error}.") from error
    sizes, present = counts.sum(1), (counts > 0).sum(1)
    print(
        f"{out}: {len(counts)} clients of {sizes.min()} to {sizes.max()} examples, "
        f"{present.min()} to {present.max()} of {counts.shape[1]} classes each"
    )


if __name__ == "__main__":
    app.run(main)
