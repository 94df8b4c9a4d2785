"""Draws how a split deals the classes out to the clients.

python -m experiments.show_split --task=mnist --split=dirichlet:0.3 [--num_clients=100] [--out=split.png]
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib

from absl import app, flags, logging

from experiments.experiment_config import build_config
from experiments.flags import define_flags, explicit_values
from experiments.loading import count_labels, load_task_of
from experiments.split_picture import FORMATS, draw
from tasks.data_sets.sources import DataUnavailableError

define_flags("task")

_OUT = flags.DEFINE_string("out", "split.png", "The picture to write; its ending names the format (png, svg, pdf).")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {' '.join(argv[1:])}")
    out = pathlib.Path(_OUT.value)
    if out.suffix[1:] not in FORMATS:
        raise app.UsageError(f"--out must end with one of {', '.join(sorted(FORMATS))}, found {_OUT.value!r}.")
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
