"""The files of an experiment's folder, all made from its configuration and its store.

config.json      all values, the commit of the source, and what decides bits: versions, numerics
experiment.toml  the same values, as `--config` takes them
metrics.csv      a row per round
summary.json     what it came to
clients.csv      a row per client, with --per_client_metrics
updates.csv      magnitudes of the elements of the last round's updates: lower edge, upper edge, count
weights.npz      the models after the last round, for tff_fen.load_weights
model.keras      with --export, the model whose accuracy the table has
events...        for TensorBoard
*.png            plots
releases         with dp: the number of each round released, in order; rounds that are rolled back stay in it
store/           rounds.sqlite: server state and client states, exactly
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl import logging

from experiments.columns import HISTOGRAM, ROUND
from experiments.files import UnreadableFileError, open_regular, read_regular, remove_unfinished, write_whole
from experiments.histogram import format_updates
from experiments.numerics import describe_numerics, describe_versions, find_differences
from experiments.settings import Settings
from tff_fen.program.records import Record
from tff_fen.program.store import DamagedStoreError
from tff_fen.program.store.errors import START_ANEW

_MOST = 2**32  # bytes of a file that is read


class ConfigMismatchError(Exception):
    """The folder holds an experiment with other values, or one that began with other numerics."""


class Folder:
    """An experiment's folder."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        if self.store.is_symlink():
            raise UnreadableFileError(f"{self.store} is a symbolic link, which is not followed")
        self._events: tff.program.TensorBoardReleaseManager | None = None
        self._columns: list[str] = []

    @property
    def store(self) -> pathlib.Path:
        """Where the store is."""
        return self.path / "store"

    @property
    def releases(self) -> pathlib.Path:
        """Where the list of releases is."""
        return self.path / "releases"

    def claim(
        self,
        config: Settings,
        about: Mapping[str, Any],
        stored: bytes | None,
        done: int,
        *,
        allow_other_numerics: bool = False,
    ) -> bytes:
        """Writes `config.json`, after a check that the folder's experiment is this one.

        Args:
          config: the experiment's values.
          about: more to note: the preset, what is assumed, what the task made of it.
          stored: the header in the store, `None` for a new experiment.
          done: rounds that are done.
          allow_other_numerics: whether to go on where packages, processor or settings would change bits;
            `config.json` then says from which round on.

        Returns:
          The header for the store.

        Raises:
          ConfigMismatchError: if the folder's experiment has other values, or more rounds, or began with other
            numerics; the message shows them.
          DamagedStoreError: if the header in the store is none.
        """
        now = {"config": json.loads(config.to_json()), **about, "versions": describe_versions(), "commit": _commit()}
        now["numerics"] = describe_numerics()
        if stored is None:
            stored = json.dumps(now).encode()
        there = self._parse_header(stored)
        different = config.differences(there["config"])
        if there["data"] != now["data"]:
            sets = [(content.get("resolved") or {}).get("training_set") for content in (now, there)]
            if sets[0] != sets[1]:
                different["training_set"] = (sets[0], sets[1])
            else:
                different["data"] = (now["data"], there["data"])
        if done > config.rounds:
            different["rounds"] = (config.rounds, f"{done} done")
        if different:
            lines = "\n".join(f"  {name}: {old!r} there, {new!r} asked" for name, (new, old) in different.items())
            raise ConfigMismatchError(
                f"{self.path} holds an experiment with other values:\n{lines}\n"
                "Use the same flags to go on with it, or another --output."
            )
        if there["commit"] != now["commit"]:
            logging.warning(
                "%s began with commit %s, now %s: bits may differ", self.path, there["commit"], now["commit"]
            )
        changed = self._check_numerics(there, now, done, allow_other_numerics)
        content = {**now, "numerics": None, **there, "config": now["config"], **changed}
        write_whole(self.path / "config.json", json.dumps(content, indent=2).encode() + b"\n")
        return stored

    def _parse_header(self, stored: bytes) -> dict[str, Any]:
        """The header in the store, as far as it is looked at of the kinds that it was written with."""
        try:
            there = json.loads(stored)
        except (ValueError, RecursionError) as error:
            there = str(error)
        if (
            not isinstance(there, dict)
            or not isinstance(there.get("config"), dict)
            or not isinstance(there.get("data"), str)
            or not isinstance(there.get("commit", 0), str | None)
            or not all(isinstance(there.get(name) or {}, dict) for name in ("versions", "numerics", "resolved"))
            or not all(isinstance(there["config"].get(name, ""), str) for name in ("algorithm", "hyperparameters"))
        ):
            raise DamagedStoreError(
                f"{self.store} is damaged: its header must be a JSON object with config, data and commit as they were "
                f"written, found {str(there)[:80]!r}. {START_ANEW}"
            )
        return there

    def _check_numerics(
        self, there: Mapping[str, Any], now: Mapping[str, Any], done: int, allow: bool
    ) -> dict[str, list[Any]]:
        """Refuses other numerics unless they are allowed; returns what `config.json` says of those of later rounds."""
        different, unknown = find_differences(there, now)
        if unknown:
            logging.warning(
                "%s is of an earlier version, which did not record %s. Where they have changed, bits may differ.",
                self.path, ", ".join(unknown),
            )  # fmt: skip
        lines = "\n".join(f"  {name}: began with {was}, now {value}" for name, (was, value) in different.items())
        if different and not allow:
            raise ConfigMismatchError(
                f"{self.path} began with other numerics. To go on may change the bits of its results:\n{lines}\n"
                "Go on as it began, or on purpose with --allow_other_numerics, or begin anew with another --output."
            )
        if different:
            logging.warning("%s goes on with other numerics, as allowed; bits may differ:\n%s", self.path, lines)
        changes = _well_formed(self._read("config.json").get("numerics_changed"))
        values = {name: value for name, (_, value) in different.items()}
        if values != (changes[-1]["values"] if changes else {}):
            changes = [*changes, {"after_round": done, "values": values}]
        return {"numerics_changed": changes} if changes else {}

    def start(self, records: Iterable[Record]) -> None:
        """Brings `metrics.csv` and TensorBoard's events into line with the store.

        Raises:
          DamagedStoreError: if a record has a column that is no number.
        """
        records = [*records]
        for record in records:
            self._check_record(record.row)
        remove_unfinished(self.path)
        for stale in self.path.glob("events.out.tfevents.*"):
            stale.unlink()
        self._events = tff.program.TensorBoardReleaseManager(self.path)
        rows = [record.row for record in records]
        self._columns = list(dict.fromkeys(name for row in rows for name in row))
        self._warn_if_ahead(len(rows))
        write_whole(self.path / "metrics.csv", _format_rows(self._columns, rows, header=True).encode())
        for row in rows:
            self._release(row)

    def _check_record(self, row: Mapping[str, Any]) -> None:
        numbers = {name: value for name, value in row.items() if value is not None}
        bad = [
            name for name, value in numbers.items()
            if not isinstance(value, float) and not (isinstance(value, int) and abs(value) < 2**63)
        ]  # fmt: skip
        if bad:
            raise DamagedStoreError(
                f"{self.store} is damaged: of round {row[ROUND.name]}, {bad[0]} is no number. {START_ANEW}"
            )

    def add(self, record: Record) -> None:
        """Adds a round; its columns may come in another order than before, and there may be new ones."""
        file = self.path / "metrics.csv"
        new = [name for name in record.row if name not in self._columns]
        if new:
            rows = list(self._stored_rows())
            self._columns += new
            write_whole(file, _format_rows(self._columns, [*rows, record.row], header=True).encode())
        else:
            with open(open_regular(file, os.O_WRONLY | os.O_APPEND), "a", newline="") as lines:
                lines.write(_format_rows(self._columns, [record.row], header=False))
        self._release(record.row)

    def earlier_summary(self) -> dict[str, Any]:
        """Returns `summary.json` as an earlier process left it; empty if there is none that can be read."""
        return self._read("summary.json")

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads(read_regular(self.path / name, _MOST))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _stored_rows(self) -> Iterator[dict[str, Any]]:
        return csv.DictReader(io.StringIO(read_regular(self.path / "metrics.csv", _MOST).decode(), newline=""))

    def _warn_if_ahead(self, done: int) -> None:
        """Warns if `metrics.csv`, which follows the store, holds rounds that the store does not."""
        try:
            known = sum(1 for _ in self._stored_rows())
        except (OSError, ValueError, csv.Error):
            return
        if known > done:
            logging.warning(
                "%s has %d rounds, the store %d: the store went back. Rounds from %d on are computed again.",
                self.path / "metrics.csv", known, done, done + 1,
            )  # fmt: skip

    def finish(self, summary: Mapping[str, Any], weights: bytes, last: Record | None) -> None:
        """Writes `summary.json`, `weights.npz` and, of the last round if there is one, `updates.csv`."""
        if last is not None and HISTOGRAM in last.lists:
            write_whole(self.path / "updates.csv", format_updates(last.lists[HISTOGRAM]).encode())
        write_whole(self.path / "summary.json", json.dumps(summary, indent=2).encode() + b"\n")
        write_whole(self.path / "weights.npz", weights)

    def export(self, model: tf.keras.Model) -> None:
        """Writes `model.keras`, which `tf.keras.models.load_model` opens."""
        with tempfile.TemporaryDirectory(dir=self.path) as folder:
            file = pathlib.Path(folder) / "model.keras"
            model.save(file)
            write_whole(self.path / file.name, file.read_bytes())

    def _release(self, row: Mapping[str, Any]) -> None:
        assert self._events is not None, "start comes first"
        values = {name: np.float64(v) for name, v in row.items() if v is not None and name != ROUND.name}
        # Not asyncio.run, which takes the thread's own event loop away; TFF's training loops need it.
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._events.release(values, key=row[ROUND.name]))
        finally:
            loop.close()


def _well_formed(changes: Any) -> list[dict[str, Any]]:
    """The changes of numerics that a file lists, as far as they are of this program's making."""
    listed = changes if isinstance(changes, list) else []
    return [change for change in listed if isinstance(change, dict) and "values" in change]


def _format_rows(columns: list[str], rows: list[dict[str, Any]], header: bool) -> str:
    """Rows of `metrics.csv` by the names of its columns; what a row does not have stays empty."""
    lines = io.StringIO()
    writer = csv.DictWriter(lines, columns)
    if header and columns:
        writer.writeheader()
    writer.writerows(rows)
    return lines.getvalue()


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
