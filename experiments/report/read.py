"""Finds the folders of experiments and reads them: the originals, and the small form that `export` writes.

A run's folder has `config.json` and `metrics.csv`; `summary.json` and `updates.csv` come at a run's end. All sums
are made from `metrics.csv`, by the same function that wrote `summary.json`; of the latter only the
final evaluation is taken. A run that still goes on can so be read as well.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import columns
from experiments.methods import Method, is_foreign, method_of
from experiments.presets import example_preset
from experiments.settings import Settings
from experiments.summary import summarize

_AGAIN = "Run the experiment's command again, which writes the file anew from its store, or take the folder away."
_NEEDED = (columns.ROUND.name, columns.ACCURACY.name)
# A user's own algorithm need not measure its messages or give them back to be counted.
_NEEDED_OF_OURS = (
    columns.NON_ZEROS.of(columns.UPDATE),
    columns.ENTROPY.of(columns.UPDATE),
    columns.ENTROPY.of(columns.LOCAL_MODEL),
    columns.CONTRIBUTING.name,
    columns.UPLINK.of(),
)


class ReportError(Exception):
    """What was given cannot be read; the message names the file and says what to do."""


class Updates(NamedTuple):
    """Magnitudes of the elements of the last round's updates.

    Attributes:
      zeros: how many are zero.
      lower, upper: edges, [bins].
      counts: elements between them, [bins].
    """

    zeros: int
    lower: np.ndarray
    upper: np.ndarray
    counts: np.ndarray


@dataclasses.dataclass(frozen=True)
class Run:
    """An experiment as its folder has it.

    Attributes:
      name: the folder, below the one given.
      path: the folder.
      config: all values.
      method: the algorithm with its variant; of a user's own algorithm as `config.json` describes it.
      task_title: of a user's own task, else `None`.
      preset: the preset's name, if it was made from one.
      assumed: fields that the paper does not give.
      parameters: d.
      num_clients, split, batch_size: as the task resolved them.
      training_set: which one, where a data set has several and the run says so; else `""`.
      table: the columns of `metrics.csv`, NaN where a cell is empty.
      summary: as in `summary.json`, of the rounds in `metrics.csv`.
      updates: from `updates.csv`, if it is there.
      finished: whether `summary.json` is there and of these rounds.
    """

    name: str
    path: pathlib.Path
    config: Settings
    method: Method
    task_title: str | None
    preset: str | None
    assumed: tuple[str, ...]
    parameters: int
    num_clients: int
    split: str
    batch_size: int
    training_set: str
    table: dict[str, np.ndarray]
    summary: dict[str, Any]
    updates: Updates | None
    finished: bool

    @property
    def rounds(self) -> int:
        """Rounds done."""
        return len(self.table[columns.ROUND.name])

    @property
    def accuracy(self) -> float:
        """After the last round, of the mean of the participants' models where there is one; NaN if not evaluated."""
        found = columns.best_accuracy(self.summary)
        return float("nan") if found is None else found

    @property
    def accuracies(self) -> np.ndarray:
        """By round, of the same model."""
        return columns.best_accuracy(self.table)

    @property
    def bytes_by_round(self) -> np.ndarray:
        """What clients sent, messages of all kinds; NaN if it was not counted."""
        sent = [values for name, values in self.table.items() if columns.is_sent(name)]
        return np.sum(sent, axis=0) if sent else np.full(self.rounds, np.nan)

    @property
    def bytes_sent(self) -> float:
        """What clients sent in all rounds; NaN if it was not counted."""
        return float(self.bytes_by_round.sum())

    @property
    def dense_bytes(self) -> int:
        """What they would have sent with every element as float32."""
        return 4 * self.summary["dense_elements"]

    @property
    def non_zero_share(self) -> float:
        """Of all elements of all messages."""
        return self.summary["non_zeros"] / max(self.summary["dense_elements"], 1)


def find_runs(folders: Sequence[pathlib.Path]) -> list[Run]:
    """Returns all runs in and below these folders, sorted by name.

    Raises:
      ReportError: if a folder is not there, if no run is found, if two have the same name, or if a file is damaged.
    """
    paths: dict[str, pathlib.Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ReportError(f"{folder} is no folder. Give the folder of one run, or one with runs below it.")
        for path in sorted({file.parent for name in ("config.json", "metrics.csv") for file in folder.rglob(name)}):
            name = folder.resolve().name if path == folder else path.relative_to(folder).as_posix()
            if name in paths and paths[name].resolve() != path.resolve():
                raise ReportError(
                    f"{paths[name]} and {path} would both be called {name!r}. Give a folder that is above both."
                )
            paths[name] = path
    if not paths:
        listed = ", ".join(map(str, folders))
        raise ReportError(
            f"No run found in {listed}: a run's folder has config.json and metrics.csv. Make one first, as with "
            f"`python run_experiment.py --preset={example_preset('digits')}`."
        )
    return [read_run(paths[name], name) for name in sorted(paths)]


def read_run(path: pathlib.Path, name: str) -> Run:
    """Reads a run's folder; raises `ReportError` if that cannot be done."""
    about = _read_json(path / "config.json")
    try:
        config = Settings.from_stored(about["config"])
        title = about["method"]["algorithm"] if is_foreign(config.algorithm) else None
        resolved = about["resolved"]
        fields: dict[str, Any] = dict(
            config=config,
            method=method_of(config.row(title), config),
            task_title=about.get("task"),
            preset=about["preset"],
            assumed=tuple(about["assumed"]),
            parameters=int(about["parameters"]),
            num_clients=int(resolved["num_clients"]),
            split=str(resolved["split"]),
            batch_size=int(resolved["batch_size"]),
            training_set=str(resolved.get("training_set", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ReportError(f"{path / 'config.json'} is damaged: {what}. {_AGAIN}") from error
    rows = _read_metrics(path / "metrics.csv", _NEEDED + (() if is_foreign(config.algorithm) else _NEEDED_OF_OURS))
    there = _read_json(path / "summary.json") if (path / "summary.json").exists() else {"rounds": 0}
    if not isinstance(there.get("rounds"), int) or there["rounds"] > len(rows):
        raise ReportError(
            f"{path / 'metrics.csv'} has {len(rows)} rounds, summary.json says {there.get('rounds')!r}. {_AGAIN}"
        )
    finished = there["rounds"] == len(rows)
    evaluation = there if finished else _last_evaluation(rows)
    summary = summarize(rows, evaluation, int(about["parameters"]), there.get("seconds", 0.0))
    updates = path / "updates.csv"
    return Run(
        name=name,
        path=path,
        table={name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]},
        summary=summary,
        # A run that went on has the distribution of an earlier round there.
        updates=_read_updates(updates) if finished and updates.exists() else None,
        finished=finished,
        **fields,
    )


def _last_evaluation(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    evaluated = [row for row in rows if row[columns.ACCURACY.name] is not None]
    return columns.evaluation(evaluated[-1]) if evaluated else {}


def _read_text(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise ReportError(f"{path} is missing, which a run's folder must have. {_AGAIN}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path} cannot be read: {error}. {_AGAIN}") from error


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        content = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise ReportError(f"{path} is damaged: it is not JSON ({error}). {_AGAIN}") from error
    if not isinstance(content, dict):
        raise ReportError(f"{path} is damaged: an object is expected, found {type(content).__name__}. {_AGAIN}")
    return content


def _read_rows(path: pathlib.Path) -> tuple[list[str], list[list[str]]]:
    """Returns the names of the columns and the rows; all rows are of the same length."""
    header, *rows = [*csv.reader(_read_text(path).splitlines())] or [[]]
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise ReportError(f"{path} is damaged: line {number} has {len(row)} fields of {len(header)}. {_AGAIN}")
    return header, rows


def _read_metrics(path: pathlib.Path, needed: Sequence[str]) -> list[dict[str, Any]]:
    header, rows = _read_rows(path)
    if not rows:
        raise ReportError(f"{path} has no round yet. Wait for the first, or take the folder away.")
    missing = [name for name in needed if name not in header]
    if missing:
        raise ReportError(f"{path} has no column {missing[0]!r}. {_AGAIN}")
    found = []
    for number, row in enumerate(rows, 1):
        values = {name: _number(path, number + 1, name, text) for name, text in zip(header, row, strict=True)}
        if values[columns.ROUND.name] != number:
            raise ReportError(
                f"{path} is damaged: line {number + 1} is of round {values[columns.ROUND.name]}. {_AGAIN}"
            )
        found.append(values)
    return found


def _number(path: pathlib.Path, line: int, column: str, text: str) -> float | int | None:
    if not text:
        return None
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        raise ReportError(f"{path} is damaged: {text!r} in column {column!r} of line {line}. {_AGAIN}") from None


def _read_updates(path: pathlib.Path) -> Updates:
    header, rows = _read_rows(path)
    if header != ["lower", "upper", "count"] or len(rows) < 2:
        raise ReportError(f"{path} is damaged: columns lower, upper, count and some rows are expected. {_AGAIN}")
    table = np.array([[_number(path, i, name, text) for name, text in zip(header, row, strict=True)]
                      for i, row in enumerate(rows, 2)], dtype=float)  # fmt: skip
    if table[0, 1] != 0 or not np.all(np.isfinite(table[:, [0, 2]])):
        raise ReportError(f"{path} is damaged: the first row must count the zeros, from 0 to 0. {_AGAIN}")
    return Updates(int(table[0, 2]), table[1:, 0], table[1:, 1], table[1:, 2])
