"""Finds the folders of experiments and reads them: the originals, and the small form that `export` writes.

A run's folder has `config.json` and `metrics.csv`; `summary.json` and `updates.csv` come at a run's end. All sums
are made from `metrics.csv`, by the same function that wrote `summary.json`; of the latter only the
final evaluation is taken. A run that still goes on can so be read as well. No file is believed: what is missing,
damaged or out of range is named, and its folder left out.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import clients, columns
from experiments.foreign import is_foreign
from experiments.listing import TASKS
from experiments.methods import ALGORITHMS, Method, method_of
from experiments.presets import example_preset
from experiments.report.stored import AGAIN, ReportError, Values, check_range, check_text, read_json, read_table, shown
from experiments.settings import FIELDS, SAMPLINGS, Settings, parse_sampling
from experiments.summary import summarize, untimed_seconds
from experiments.values import check_name

_NAME, _PLACE = r"[\w.]{1,100}", r"[\w.]{1,100}(:[\w.]{1,100})?"
# What texts in a configuration are made of, beside those that are one of a list.
_PATTERNS = {
    "task": _PLACE, "algorithm": _PLACE, "initializer": _NAME, "uplink": r"\w+(:\d+(\.\d*)?([eE][+-]?\d+)?)?",
    "also_count": r"[\w.:,+-]*",
}  # fmt: skip
# Of the tasks of `tasks.registry`, which imports TensorFlow; a test holds these to what it takes.
_SPLITS = r"iid|natural|shards(:[1-9]\d{0,8})?|dirichlet:\d+(\.\d*)?([eE][+-]?\d{1,3})?"
_RANGES = {"num_clients": (1, 10_000_000), "alpha": (0, 1e6), "beta": (0, 1e6)}
_NEEDED = (columns.ROUND.name, columns.ACCURACY.name)
_EVALUATED = (columns.ACCURACY.name, columns.AVERAGE_ACCURACY.name)
# A user's own algorithm need not measure its messages or give them back to be counted.
_OF_OURS = (
    columns.NON_ZEROS.of(columns.UPDATE),
    columns.ENTROPY.of(columns.UPDATE),
    columns.ENTROPY.of(columns.LOCAL_MODEL),
    columns.CONTRIBUTING.name,
    columns.UPLINK.of(),
)


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


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """An experiment as its folder has it.

    Attributes:
      name: the folder, below the one given.
      path: the folder.
      root: the folder that was given, in or below which it was found.
      config: all values.
      method: the algorithm with its variant; of a user's own algorithm as `config.json` describes it.
      task_title: of a user's own task, else `None`.
      preset: the preset's name, if it was made from one.
      assumed: fields that the paper does not give.
      parameters: d.
      num_clients, split, batch_size: as the task resolved them.
      training_set: which one, where a data set has several and the run says so; else `""`.
      test_examples: size of the test set; `None` in folders of earlier versions.
      table: the columns of `metrics.csv`, NaN where a cell is empty.
      summary: as in `summary.json`, of the rounds in `metrics.csv`.
      updates: from `updates.csv`, if it is there.
      clients: from `clients.csv`, if it is there: each column, NaN where a cell is empty.
      finished: whether `summary.json` is there and of these rounds.
    """

    name: str
    path: pathlib.Path
    root: pathlib.Path
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
    test_examples: int | None
    table: dict[str, np.ndarray]
    summary: dict[str, Any]
    updates: Updates | None
    clients: dict[str, np.ndarray] | None
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
        return 4 * self.dense_elements

    @property
    def dense_elements(self) -> int:
        """Elements of all messages; 0 if they were not measured."""
        return self.summary.get("dense_elements", 0)

    @property
    def non_zeros(self) -> float:
        """Elements sent that are not zero, of all messages; NaN if they were not measured."""
        return self.summary.get("non_zeros", float("nan"))

    @property
    def non_zero_share(self) -> float:
        """Of all elements of all messages; NaN if they were not measured."""
        return self.non_zeros / max(self.dense_elements, 1)

    @property
    def measures_clients(self) -> bool:
        """Whether the folder has what single clients computed or sent, exactly."""
        return self.updates is not None or any(map(columns.is_measured, self.table))


class LeftOut(NamedTuple):
    """A folder that is no part of the report, and why."""

    path: pathlib.Path
    reason: str


def find_runs(folders: Sequence[pathlib.Path]) -> list[Run]:
    """Returns all runs in and below these folders, sorted by name; raises `ReportError` if any cannot be read."""
    runs, left_out = search(folders)
    for _, reason in left_out:
        raise ReportError(reason)
    return runs


def search(folders: Sequence[pathlib.Path]) -> tuple[list[Run], list[LeftOut]]:
    """Returns all runs in and below these folders, sorted by name, and the folders that cannot be read.

    Raises:
      ReportError: if a folder is not there, if no run is found, or if two have the same name.
    """
    paths: dict[str, tuple[pathlib.Path, pathlib.Path]] = {}
    left_out: list[LeftOut] = []
    for folder in folders:
        if not folder.is_dir():
            raise ReportError(f"{folder} is no folder. Give the folder of one run, or one with runs below it.")
        for path in _folders_of_runs(folder, left_out):
            name = folder.resolve().name if path == folder else path.relative_to(folder).as_posix()
            if name in paths and paths[name][0].resolve() != path.resolve():
                raise ReportError(
                    f"{paths[name][0]} and {path} would both be called {name!r}. Give a folder that is above both."
                )
            paths[name] = path, folder
    if not paths and not left_out:
        listed = ", ".join(map(str, folders))
        raise ReportError(
            f"No run found in {listed}: a run's folder has config.json and metrics.csv. Make one first, as with "
            f"`python run_experiment.py --preset={example_preset('digits')}`."
        )
    runs = []
    for name, (path, root) in sorted(paths.items()):
        try:
            runs.append(read_run(path, name, root))
        except ReportError as error:
            left_out.append(LeftOut(path, str(error)))
        except MemoryError:
            left_out.append(LeftOut(path, f"{path} cannot be read: there is no memory for it. Take the folder away."))
    return runs, left_out


def read_run(path: pathlib.Path, name: str, root: pathlib.Path) -> Run:
    """Reads a run's folder; raises `ReportError` if that cannot be done."""
    about = read_json(path / "config.json")
    try:
        fields = _read_config(Values(about))
    except (TypeError, ValueError, OverflowError) as error:
        raise ReportError(f"{path / 'config.json'} is damaged: {error}. {AGAIN}") from error
    measured = fields["config"].measures_clients and not is_foreign(fields["config"].algorithm)
    rows = _read_metrics(path / "metrics.csv", _NEEDED + (_OF_OURS if measured else ()))
    there, seconds = _read_summary(path / "summary.json", rows)
    finished = there is not None
    summary = summarize(rows, _last_evaluation(rows) if there is None else there, fields["parameters"], seconds)
    return Run(
        name=name,
        path=path,
        root=root,
        table={name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]},
        summary=summary,
        # A run that went on has the distribution of an earlier round there.
        updates=_read_updates(path / "updates.csv") if finished and _is_there(path / "updates.csv") else None,
        clients=_read_clients(path / clients.FILE) if finished and _is_there(path / clients.FILE) else None,
        finished=finished,
        **fields,
    )


def _folders_of_runs(folder: pathlib.Path, left_out: list[LeftOut]) -> list[pathlib.Path]:
    """All folders below that have one of a run's two files; links to folders are not followed."""

    def note(error: OSError) -> None:
        left_out.append(LeftOut(pathlib.Path(error.filename), f"{error.filename} cannot be read: {error.strerror}."))

    walk = os.walk(folder, onerror=note)
    return sorted(
        pathlib.Path(place) for place, inner, files in walk if {*inner, *files} & {"config.json", "metrics.csv"}
    )


def _read_config(about: Values) -> dict[str, Any]:
    """Returns the fields of a `Run` that `config.json` has."""
    config = Settings.from_stored(about.mapping("config"))
    for name in FIELDS:
        value = getattr(config, name)
        if isinstance(value, str):
            check_text(name, value, _PATTERNS.get(name, ".*"))
    if not is_foreign(config.algorithm) and config.algorithm not in ALGORITHMS:
        raise ValueError(
            f"algorithm must be one of {', '.join(ALGORITHMS)} or MODULE:FUNCTION, {config.algorithm!r} found"
        )
    if not is_foreign(config.task):
        check_name("task", config.task, TASKS)
        if config.split is not None:
            check_text("split", config.split, _SPLITS)
        for name, (low, high) in _RANGES.items():
            if (value := getattr(config, name)) is not None and not low <= value <= high:
                raise ValueError(f"{name} must be from {low} to {high:g}, found {shown(value)}")
    if config.uplink is not None and not 0 < float(config.uplink.partition(":")[2] or 1) < math.inf:
        raise ValueError(f"uplink must have a step > 0, found {config.uplink!r}")
    kind, amount = parse_sampling(config.sampling)
    if kind not in SAMPLINGS or not 0 < amount < (1.0001 if kind == "bernoulli" else 2**63):
        raise ValueError(f"sampling must be 'bernoulli:0.1' or 'uniform:10', say, found {config.sampling!r}")
    config = config.with_shown_hyperparameters()
    title = about.inner("method").text("algorithm") if is_foreign(config.algorithm) else None
    task_title = about.optional_text("task")
    resolved = about.inner("resolved")
    return dict(
        config=config,
        method=method_of(config.row(title), config),
        task_title=task_title if is_foreign(config.task) else None,
        preset=about.optional_text("preset"),
        assumed=about.texts("assumed", FIELDS),
        parameters=about.integer("parameters", 1),
        num_clients=resolved.integer("num_clients", 1),
        split=resolved.text("split"),
        batch_size=resolved.integer("batch_size", 1),
        training_set=resolved.optional_text("training_set") or "",
        test_examples=resolved.integer("test_examples", 1) if "test_examples" in resolved else None,
    )


def _read_metrics(path: pathlib.Path, needed: Sequence[str]) -> list[dict[str, Any]]:
    rows = read_table(path, needed)
    for number, row in enumerate(rows, 1):
        if row[columns.ROUND.name] != number:
            raise ReportError(f"{path} is damaged: line {number + 1} is of round {row[columns.ROUND.name]}. {AGAIN}")
    for name in rows[0]:
        if columns.is_count(name):
            check_range(path, rows, name, 0, 2**63)
        elif name in _EVALUATED:
            check_range(path, rows, name, 0, 1)
            for row in rows:
                if row[columns.ACCURACY.name] is not None and row[name] is None:
                    raise ReportError(f"{path} is damaged: round {row[columns.ROUND.name]} has no {name}. {AGAIN}")
    return rows


def _read_summary(path: pathlib.Path, rows: Sequence[dict[str, Any]]) -> tuple[dict[str, Any] | None, float]:
    """The evaluation after the last round, `None` for a run that goes on; and the seconds that no row has."""
    rounds = len(rows)
    if not _is_there(path):
        return None, 0.0
    stored = Values(read_json(path))
    try:
        done = stored.integer("rounds", 0)
        names = [name for name in _EVALUATED if name in rows[0]]
        evaluation = {name: value for name in names if (value := stored.share(name)) is not None}
        seconds = untimed_seconds(rows, {"rounds": done, columns.SECONDS.name: stored.seconds()})
    except ValueError as error:
        raise ReportError(f"{path} is damaged: {error}. {AGAIN}") from error
    if done > rounds:
        raise ReportError(f"{path.with_name('metrics.csv')} has {rounds} rounds, summary.json says {done}. {AGAIN}")
    return (evaluation if done == rounds else None), seconds


def _last_evaluation(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    evaluated = [row for row in rows if row[columns.ACCURACY.name] is not None]
    return columns.evaluation(evaluated[-1]) if evaluated else {}


def _read_updates(path: pathlib.Path) -> Updates:
    rows = read_table(path)
    if [*rows[0]] != ["lower", "upper", "count"] or len(rows) < 3:
        raise ReportError(f"{path} is damaged: columns lower, upper, count and some rows are expected. {AGAIN}")
    lower, upper, counts = np.array([[*row.values()] for row in rows], dtype=float).T
    if lower[0] != 0 or upper[0] != 0:
        raise ReportError(f"{path} is damaged: the first row must count the zeros, from 0 to 0. {AGAIN}")
    if not (np.all(lower[1:] == upper[:-1]) and np.all(lower[2:] > lower[1:-1]) and upper[-1] > lower[-1]):
        raise ReportError(f"{path} is damaged: each row must begin where the one before it ends. {AGAIN}")
    check_range(path, rows, "count", 0, 2**63)
    if not np.isfinite(counts).all():
        raise ReportError(f"{path} is damaged: a count is missing. {AGAIN}")
    return Updates(int(counts[0]), lower[1:], upper[1:], counts[1:])


def _read_clients(path: pathlib.Path) -> dict[str, np.ndarray]:
    rows = read_table(path, clients.COLUMNS)
    for name in clients.COLUMNS:
        check_range(path, rows, name, 0, 1 if name in ("accuracy", "share_of_rounds") else 2**63)
    return {name: np.array([row[name] for row in rows], dtype=float) for name in clients.COLUMNS}


def _is_there(path: pathlib.Path) -> bool:
    """Whether there is anything of that name, be it a link to nowhere."""
    return os.path.lexists(path)
