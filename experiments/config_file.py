"""Files of settings: `--config=experiment.toml`, which a run also writes into its folder.

preset = "mnist/iid/algorithm_3"     # a key is a flag's name; at the top, or in the table of its group
[penalties]
l1 = 1e-3
[grid]                               # as --grid: one experiment for each value
seed = [0, 1, 2]
"""

from __future__ import annotations

import json
import os
import pathlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.command_line import group_of, own_flags
from experiments.files import read_regular
from experiments.plan import PlannedRun, plan_runs
from experiments.settings import FIELDS, GROUPS, VALUES, Settings
from experiments.values import check_name, nearest

FILE = "experiment.toml"
_MOST = 2**20  # bytes
# What is no setting of an experiment, or has a table of its own.
_NOT_IN_FILES = ("config", "grid", "list")
_WORDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text in quotes"}


class Asked(NamedTuple):
    """What the command line or a file asks for.

    Attributes:
      preset: a name or a pattern of names.
      grid: `FIELD=VALUE,...` each.
      values: by the names of fields of `Settings`.
      others: by the names of flags that are none of these.
    """

    preset: str | None = None
    grid: Sequence[str] = ()
    values: Mapping[str, Any] = {}
    others: Mapping[str, Any] = {}


def read_config(path: str) -> Asked:
    """Reads a file of settings; raises a `ValueError` that names file and key for what is wrong with it."""
    try:
        # What the user names may be a link to a file, never a pipe, which would make its reader wait.
        content = tomllib.loads(read_regular(pathlib.Path(os.path.realpath(path)), _MOST).decode())
    except (OSError, UnicodeError) as error:
        raise ValueError(f"--config={path} cannot be read: {error}. Give a TOML file.") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f'{path} is no TOML: {error}. Texts need quotes, as in task = "digits".') from error
    try:
        grid = [_axis(name, values) for name, values in _table("grid", content.pop("grid", {})).items()]
        found: dict[str, Any] = {}
        for place, name, value in _entries(content):
            if name in found:
                raise ValueError(f"{place} is given twice. Give it once.")
            found[name] = value
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    preset = found.pop("preset", None)
    values = {name: VALUES[name].kind(found.pop(name)) for name in [*found] if name in FIELDS}
    return Asked(preset, grid, values, found)


def format_config(config: Settings, preset: str | None) -> str:
    """Returns the file that repeats a run: all its values, so that it means the same when defaults change."""
    lines = [f"# Repeats this run: python run_experiment.py --config={FILE} --output=FOLDER"]
    if preset:
        lines.append(f"preset = {_format(preset)}")
    stored = config.stored()
    for group in GROUPS:
        rows = [
            f"{name} = {_format(stored[name])}"
            for name, field in FIELDS.items()
            if field.metadata["group"] == group and stored[name] is not None
        ]
        lines += ["", f"[{group}]", *rows] if rows else []
    return "\n".join(lines) + "\n"


def plan(command: Asked, file: Asked) -> list[PlannedRun]:
    """Returns the experiments of a command with a file. The command line wins; a preset that it names wins, too."""
    axes = [axis.partition("=")[0] for axis in command.grid]
    preset_wins = command.preset is not None or "preset" in axes
    taken = {*command.values, *(["preset"] if preset_wins else [])}
    grid = command.grid or [axis for axis in file.grid if axis.partition("=")[0] not in taken]
    preset = command.preset if preset_wins else file.preset
    return plan_runs(preset, grid, command.values, file.values, preset_wins=preset_wins)


def _entries(content: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Where each entry of a file is, its name and its value, checked against the flag of that name."""
    known = {flag.name: flag for flag in own_flags() if flag.name not in _NOT_IN_FILES}
    for key, value in content.items():
        inside = isinstance(value, Mapping)
        if inside:
            check_name("table", key, (*GROUPS, "grid"))
        for name, entry in value.items() if inside else [(key, value)]:
            place = f"{name} in [{key}]" if inside else name
            if name not in known:
                near = nearest(name, known)
                raise ValueError(
                    f"{place} is no flag.{f' Did you mean {near[0]!r}?' if near else ''} --help lists all."
                )
            group = group_of(known[name])
            if inside and group != key:
                raise ValueError(f"{place} is in the wrong table. It belongs to [{group}].")
            kind = {"bool": bool, "int": int, "float": float}.get(known[name].flag_type(), str)
            if not (isinstance(entry, kind) or (kind is float and isinstance(entry, int))) or (
                isinstance(entry, bool) and kind is not bool
            ):
                raise ValueError(f"{place} must be {_WORDS[kind]}, found {entry!r}.")
            yield place, name, entry


def _table(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a table of lists, as in [{name}] and l1 = [1e-2, 1e-4], found {value!r}.")
    return value


def _axis(name: str, values: Any) -> str:
    """An axis as `--grid` takes it."""
    if not isinstance(values, list) or not values:
        raise ValueError(f"{name} in [grid] must be a list of values, as in {name} = [1e-2, 1e-4], found {values!r}.")
    return f"{name}={','.join(map(str, values))}"


def _format(value: Any) -> str:
    """A value in TOML; a text is written as JSON writes it, which TOML reads."""
    return json.dumps(value, ensure_ascii=False)
