"""The small form of results that is kept with the source: text alone, and nothing of the machine it was made on."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence

from experiments import clients
from experiments.files import read_regular, write_whole
from experiments.report.read import Run

_MOST = 2**28


def export_runs(runs: Sequence[Run], folder: pathlib.Path) -> list[str]:
    """Writes config.json, metrics.csv, summary.json, updates.csv and any clients.csv of finished runs below a folder.

    `seconds` is left out of the summaries: it is another one whenever the command is run.

    Returns:
      What was left out and why, a sentence each.
    """
    left_out = []
    for run in runs:
        if not run.finished:
            left_out.append(f"{run.name} is not exported: it has not ended (no summary.json of {run.rounds} rounds).")
            continue
        target = folder / run.name
        target.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", "metrics.csv"):
            write_whole(target / name, read_regular(run.path / name, _MOST))
        summary = {key: value for key, value in run.summary.items() if key != "seconds"}
        write_whole(target / "summary.json", json.dumps(summary, indent=2).encode() + b"\n")
        if run.clients is not None:
            write_whole(target / clients.FILE, read_regular(run.path / clients.FILE, _MOST))
        if run.updates is None:
            left_out.append(f"{run.name} has no updates.csv. Run its command again, which writes it: {run.path}.")
        else:
            write_whole(target / "updates.csv", read_regular(run.path / "updates.csv", _MOST))
    return left_out
