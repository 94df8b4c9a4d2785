"""The files of an experiment's folder, all made from its configuration and its store.

    config.json      all values, versions, the commit of the source
    metrics.csv      a row a round
    summary.json     what it came to
    updates.csv      magnitudes of the elements of the last round's updates: lower edge, upper edge, count
    weights.npz      the model after the last round
    events...        for TensorBoard
    *.png            plots
    store/           rounds.sqlite: server state and client states, exactly
"""

from __future__ import annotations

import asyncio
import csv
import importlib.metadata
import io
import json
import os
import pathlib
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow_federated as tff
from absl import logging

from experiments.accounting import HISTOGRAM_EDGES
from experiments.experiment_config import ExperimentConfig
from experiments.loop import RoundRecord

_PACKAGES = ("tensorflow", "tensorflow-federated", "numpy", "keras", "constriction")


class ConfigMismatchError(Exception):
    """The folder holds an experiment with other values."""


def write_whole(path: pathlib.Path, content: bytes) -> None:
    """Writes a file so that it is there whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


class Folder:
    """An experiment's folder."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._events: tff.program.TensorBoardReleaseManager | None = None

    @property
    def store(self) -> pathlib.Path:
        """Where the store is."""
        return self.path / "store"

    def claim(self, config: ExperimentConfig, about: Mapping[str, Any], stored: bytes | None, done: int) -> bytes:
        """Writes `config.json`, after a check that the folder's experiment is this one.

        Args:
          config: the experiment's values.
          about: more to note: the preset, what is assumed, what the task made of it.
          stored: the header in the store, `None` for a new experiment.
          done: rounds that are done.

        Returns:
          The header for the store.

        Raises:
          ConfigMismatchError: if the folder's experiment has other values, or more rounds; the
            message shows them.
        """
        now = {"config": json.loads(config.to_json()), **about, "versions": _versions(), "commit": _commit()}
        if stored is None:
            stored = json.dumps(now).encode()
        there = json.loads(stored)
        different = config.differences(there["config"])
        if there["data"] != now["data"]:
            different["data"] = (now["data"], there["data"])
        if done > config.rounds:
            different["rounds"] = (config.rounds, f"{done} done")
        if different:
            lines = "\n".join(f"  {name}: {old!r} there, {new!r} asked" for name, (new, old) in different.items())
            raise ConfigMismatchError(
                f"{self.path} holds an experiment with other values:\n{lines}\n"
                "Use the same flags to go on with it, or another --output."
            )
        for name in ("versions", "commit"):
            if there[name] != now[name]:
                logging.warning("%s began with %s %s, now %s: bits may differ", self.path, name, there[name], now[name])
        content = there | {"config": now["config"]}
        write_whole(self.path / "config.json", json.dumps(content, indent=2).encode() + b"\n")
        return stored

    def start(self, records: Iterable[RoundRecord]) -> None:
        """Brings `metrics.csv` and TensorBoard's events into line with the store."""
        for stale in self.path.glob("events.out.tfevents.*"):
            stale.unlink()
        self._events = tff.program.TensorBoardReleaseManager(self.path)
        lines = io.StringIO()
        columns: list[str] | None = None
        for record in records:
            if columns is None:
                columns = list(record.row)
                csv.writer(lines).writerow(columns)
            csv.writer(lines).writerow(record.row.values())
            self._release(record)
        write_whole(self.path / "metrics.csv", lines.getvalue().encode())

    def add(self, record: RoundRecord) -> None:
        """Adds a round."""
        file = self.path / "metrics.csv"
        with file.open("a", newline="") as lines:
            if lines.tell() == 0:
                csv.writer(lines).writerow(record.row)
            csv.writer(lines).writerow(record.row.values())
        self._release(record)

    def finish(self, summary: Mapping[str, Any], weights: Any, last: RoundRecord | None) -> None:
        """Writes `summary.json`, `weights.npz` and, of the last round if there is one, `updates.csv`."""
        if last is not None:
            write_whole(self.path / "updates.csv", format_updates(last.histogram).encode())
        write_whole(self.path / "summary.json", json.dumps(summary, indent=2).encode() + b"\n")
        arrays = io.BytesIO()
        np.savez(arrays, *weights.trainable, *weights.non_trainable)
        write_whole(self.path / "weights.npz", arrays.getvalue())

    def _release(self, record: RoundRecord) -> None:
        assert self._events is not None, "start comes first"
        values = {name: np.float64(v) for name, v in record.row.items() if v is not None and name != "round"}
        # Not asyncio.run, which takes the thread's own event loop away; TFF's training loops need it.
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._events.release(values, key=record.row["round"]))
        finally:
            loop.close()


def format_updates(histogram: list[int]) -> str:
    """Returns the lines of `updates.csv`; the first row, from 0 to 0, counts the zeros.

    Args:
      histogram: `RoundRecord.histogram`.
    """
    edges = [0.0, 0.0, *HISTOGRAM_EDGES.tolist(), float("inf")]
    lines = io.StringIO()
    writer = csv.writer(lines)
    writer.writerow(["lower", "upper", "count"])
    writer.writerows(zip(edges[:-1], edges[1:], histogram, strict=True))
    return lines.getvalue()


def summarize(
    records: list[RoundRecord], evaluation: Mapping[str, Any], size: int, seconds: float
) -> dict[str, Any]:
    """Returns what an experiment came to.

    Args:
      records: of all rounds.
      evaluation: of the model after the last round, `Loop.evaluate`.
      size: d, the number of parameters.
      seconds: of training in this process; not part of what a resumed run repeats.
    """
    if not records:
        return {"rounds": 0}
    rows = [record.row for record in records]
    evaluated = [row for row in rows if row["accuracy"] is not None]

    def total(suffix: str) -> int:
        return int(sum(row.get(suffix) or 0 for row in rows))

    messages = ("delta", "control")
    non_zeros = {m: total(f"client_work/train/{m}/non_zeros") for m in messages}
    participants = total("client_work/train/contributing_clients")
    sent = sum(non_zeros.values())
    summary: dict[str, Any] = {
        "rounds": len(rows),
        "participants": participants,
        "parameters": size,
        "non_zeros": sent,
        "non_zeros_delta": non_zeros["delta"],
        "non_zeros_control": non_zeros["control"],
        "dense_elements": participants * size * (2 if "client_work/train/control/non_zeros" in rows[0] else 1),
        "entropy_delta_sum": sum(row["client_work/train/delta/entropy_trunc"] for row in rows),
        "entropy_theta_sum": sum(row["client_work/train/theta/entropy_trunc"] for row in rows),
        "entropy_control_sum": sum(row.get("client_work/train/control/entropy_trunc", 0.0) for row in rows),
    }
    summary |= {name: total(name) for name in rows[0] if name.startswith(("uplink", "downlink"))}
    for name in ("accuracy", "average_accuracy"):
        if name in evaluation:
            summary[name] = evaluation[name]
            summary[f"best_{name}"] = max([evaluation[name], *(row[name] for row in evaluated)])
    if "dp_epsilon" in rows[-1]:
        summary["dp_epsilon"] = rows[-1]["dp_epsilon"]
    summary["seconds"] = round(seconds, 1)
    return summary


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def _commit() -> str | None:
    """The commit of the source, with a mark if it was changed since; `None` without a repository."""
    root = pathlib.Path(__file__).parents[1]
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=root, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
