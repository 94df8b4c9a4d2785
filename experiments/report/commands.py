"""The commands that make runs, each in the folder in which the report found it."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import pathlib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import presets
from experiments.naming import folder_name, run_name
from experiments.report.groups import format_value
from experiments.report.read import Run
from experiments.settings import FIELDS

_POINT = re.compile(r"(?:^|[_,])(\w+)=[^,]*$")


def command_of(run: Run) -> str:
    """Returns the command that makes a run in its folder."""
    preset, given = _flags_of(run)
    return _join([f"--preset={preset}"] if preset else [], given, [], place_of(run))


def commands_of(runs: Sequence[Run]) -> list[str]:
    """Returns commands that make all these runs in their folders; those of one grid are put together."""
    by_parent: dict[tuple[str, tuple[str, ...]], list[Run]] = collections.defaultdict(list)
    for run in runs:
        by_parent[str(run.path.parent), _axes_of(run)].append(run)
    commands = []
    for (_, axes), members in by_parent.items():
        commands += _grids(members, axes)
    return commands


def data_flags(training_set: str) -> dict[str, str]:
    """Returns the flags that choose a training set; the official one needs none."""
    return {} if training_set in ("", "official") else {"data_dir": f"PATH/TO/{training_set}"}


def report_command(
    folders: Sequence[pathlib.Path], output: pathlib.Path, export: pathlib.Path | None, splits: bool = True
) -> str:
    """Returns the command of the report itself, without the paths of this machine."""
    arguments = [*map(portable, folders), f"--output={portable(output)}"]
    arguments += [f"--export={portable(export)}"] if export else []
    arguments += [] if splits else ["--nosplits"]
    return shlex.join(["python", "make_report.py", *arguments])


def place_of(run: Run) -> str:
    """Returns a run's folder as seen from the working directory; of one elsewhere what lies below the folder given."""
    root = portable(run.root)
    return root if run.path == run.root else f"{root}/{run.path.relative_to(run.root).as_posix()}"


def portable(path: pathlib.Path) -> str:
    """A path as seen from the working directory; of one elsewhere only its name, for the rest is of this machine."""
    relative = os.path.relpath(path)
    return f"PATH/TO/{path.resolve().name}" if relative.startswith("..") else relative


def _flags_of(run: Run, named: bool = True) -> tuple[str | None, dict[str, str]]:
    """Returns a run's preset and the flags that were given beside it, or for all its values where there is none.

    Where the algorithm is not `named` either, they are those beside what a command then fills in.
    """
    values: dict[str, Any] = dataclasses.asdict(run.config)
    usual = {name: field.default for name, field in FIELDS.items()}
    preset = run.preset if run.preset in presets.preset_names() else None
    if preset:
        changed = presets.load_preset(preset).values
        # No flag unsets a value: where the preset sets one that the run has not, it is no help.
        preset = None if any(values[name] is None for name, value in changed.items() if value is not None) else preset
    if preset:
        usual |= presets.load_preset(preset).values
    elif named:
        del usual["algorithm"]  # where none is named, a command fills in more than that
    else:
        usual |= presets.example_values(run.config.task)
    given = {name: value for name, value in values.items() if value != usual.get(name) and value is not None}
    return preset, {name: format_value(value) for name, value in given.items()} | data_flags(run.training_set)


def _axes_of(run: Run) -> tuple[str, ...]:
    """The fields of a grid's point by which a run's folder is named, in their order."""
    names: list[str] = []
    rest = run.path.name
    while found := _POINT.search(rest):
        # The name of the first field begins where the label ends, in which there are underscores too.
        fitting = [name for name in FIELDS if found[1] == name or found[1].endswith(f"_{name}")]
        if not fitting:
            return ()
        name = max(fitting, key=len)
        names.insert(0, name)
        rest = rest[: found.start()]
    return tuple(names)


def _grids(runs: Sequence[Run], axes: tuple[str, ...]) -> list[str]:
    """Commands for runs of a folder that are named by the same fields: one grid if they are all of its points."""
    if len(runs) > 1:
        for named in (True, False):
            command = _grid(runs, axes, named)
            if command is not None:
                return [command]
        by_first: dict[Any, list[Run]] = collections.defaultdict(list)
        for run in runs:
            by_first[getattr(run.config, axes[0]) if axes else run.path].append(run)
        if len(by_first) > 1:
            return [line for members in by_first.values() for line in _grids(members, axes)]
    return [command_of(run) for run in runs]


def _grid(runs: Sequence[Run], axes: tuple[str, ...], named: bool) -> str | None:
    """The command of a grid with just these runs in just these folders; `None` if there is none.

    Without a preset folders are called after the algorithm where a command has `named` it, else after the method.
    """
    about = [_flags_of(run, named) for run in runs]
    names = list(dict.fromkeys(preset for preset, _ in about))
    others = {tuple((n, v) for n, v in given.items() if n not in axes) for _, given in about}
    values = [list(dict.fromkeys(getattr(run.config, axis) for run in runs)) for axis in axes]
    if len(others) > 1 or (None in names and len(names) > 1) or any(None in listed for listed in values):
        return None
    points = {(preset, point) for preset in names for point in itertools.product(*values)}
    found = {}
    for run, (preset, _) in zip(runs, about, strict=True):
        point = tuple(getattr(run.config, axis) for axis in axes)
        method = run.config.algorithm if named else run.method.key
        name = run_name(preset, run.config.task, method, dict(zip(axes, point, strict=True)))
        if folder_name(name) == run.path.name:
            found[preset, point] = run
    if found.keys() != points or len(runs) > len(points):
        return None
    asked = [] if names == [None] else [f"--preset={names[0]}"]
    if len(names) > 1:
        asked = [f"--grid=preset={','.join(filter(None, names))}"]
    grid = [f"--grid={n}={','.join(map(format_value, listed))}" for n, listed in zip(axes, values, strict=True)]
    place = place_of(runs[0]).rpartition("/")[0]
    return _join(asked, dict(next(iter(others))), grid, place) if place else None


def _join(asked: Sequence[str], given: Mapping[str, str], grid: Sequence[str], output: str) -> str:
    flags = [f"--{name}={value}" for name, value in given.items()]
    return shlex.join(["python", "run_experiment.py", *asked, *flags, *grid, f"--output={output}"])
