"""The commands that make runs, from their values."""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from experiments import presets
from experiments.report.groups import format_value
from experiments.report.read import Run
from experiments.settings import FIELDS


def flags_of(run: Run) -> tuple[str | None, dict[str, str]]:
    """Returns a run's preset and the flags that were given beside it, or for all its values where there is none."""
    preset = run.preset if run.preset in presets.preset_names() else None
    usual = {name: field.default for name, field in FIELDS.items()}
    if preset:
        usual |= presets.load_preset(preset).values
    else:
        del usual["algorithm"]  # where none is named, a command fills in more than that
    values: dict[str, Any] = dataclasses.asdict(run.config)
    given = {name: _text(value) for name, value in values.items() if value != usual.get(name) and value is not None}
    return preset, given | data_flags(run.training_set)


def data_flags(training_set: str) -> dict[str, str]:
    """Returns the flags that choose a training set; the official one needs none."""
    return {} if training_set in ("", "official") else {"data_dir": f"PATH/TO/{training_set}"}


def command_of(run: Run) -> str:
    """Returns the command that makes a run."""
    preset, given = flags_of(run)
    return _join([preset] if preset else [], given)


def commands_of(runs: Sequence[Run]) -> list[str]:
    """Returns commands that make all these runs, those that differ in one value or in their preset put into a grid."""
    by_flags: dict[tuple[tuple[str, str], ...], list[str]] = collections.defaultdict(list)
    for preset, given in map(flags_of, runs):
        names = by_flags[tuple(given.items())]
        if preset and preset not in names:
            names.append(preset)
    by_preset: dict[tuple[str, ...], list[dict[str, str]]] = collections.defaultdict(list)
    for given_items, names in by_flags.items():
        by_preset[tuple(names)].append(dict(given_items))
    commands = []
    for names_of, points in by_preset.items():
        while points:
            first, *rest = points
            axis, alike = _longest_axis(first, rest)
            points = [point for point in rest if point not in alike]
            if axis is None:
                commands.append(_join(names_of, first))
            else:
                values = [point[axis] for point in (first, *alike)]
                others = {name: value for name, value in first.items() if name != axis}
                commands.append(_join(names_of, others, f"--grid={axis}={','.join(values)}"))
    return commands


def report_command(folders: Sequence[pathlib.Path], output: pathlib.Path, export: pathlib.Path | None) -> str:
    """Returns the command of the report itself, without the paths of this machine."""
    arguments = [*map(portable, folders), f"--output={portable(output)}"]
    arguments += [f"--export={portable(export)}"] if export else []
    return shlex.join(["python", "make_report.py", *arguments])


def portable(path: pathlib.Path) -> str:
    """A path as seen from the working directory; of one elsewhere only its name, for the rest is of this machine."""
    relative = os.path.relpath(path)
    return f"PATH/TO/{path.resolve().name}" if relative.startswith("..") else relative


def _longest_axis(first: dict[str, str], rest: list[dict[str, str]]) -> tuple[str | None, list[dict[str, str]]]:
    """The flag in whose value alone most others differ from the first, and those others."""
    best: tuple[str | None, list[dict[str, str]]] = (None, [])
    for axis in first:
        same = {name: value for name, value in first.items() if name != axis}
        alike = [p for p in rest if axis in p and {n: v for n, v in p.items() if n != axis} == same]
        if len(alike) > len(best[1]):
            best = (axis, alike)
    return best


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, float) and float(f"{value:g}") != value else format_value(value)


def _join(names: Sequence[str], given: dict[str, str], *grid: str) -> str:
    preset = [f"--preset={names[0]}"] if len(names) == 1 else [f"--grid=preset={','.join(names)}"] if names else []
    return shlex.join(["python", "run_experiment.py", *preset, *(f"--{n}={v}" for n, v in given.items()), *grid])
