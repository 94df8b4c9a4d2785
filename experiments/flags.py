"""The fields of `Settings` as absl flags: one place for names, types, defaults and texts; and where data are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from experiments.methods import ALGORITHMS
from experiments.settings import FIELDS, VALUES
from experiments.values import check_name, convert

DATA_DIR = flags.DEFINE_string("data_dir", None, "[task] Folder of original files, or prepared by TensorFlow Datasets.")
CACHE_DIR = flags.DEFINE_string("cache_dir", None, "[task] Where data sets are kept; else $TFF_FEN_CACHE or ~/.cache.")
_DEFINE: dict[type, Callable[..., Any]] = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
}


def define_flags(*groups: str) -> None:
    """Defines the flags of some groups of fields, or of all."""
    for name, field in FIELDS.items():
        group, value = field.metadata["group"], VALUES[name]
        if groups and group not in groups:
            continue
        choices = tuple(ALGORITHMS) if name == "algorithm" else value.choices
        text = f"[{group}] {value.text}" + (f" One of {', '.join(choices)}." if choices else "")
        needed_by = [key for key, row in ALGORITHMS.items() if name in row.settings]
        text += f" ({', '.join(needed_by)})" if needed_by else ""
        _DEFINE[value.kind](name, field.default, text)


def explicit_values() -> dict[str, Any]:
    """Returns the values of the flags that were given, on the command line or in a flag file."""
    return {name: flags.FLAGS[name].value for name in FIELDS if name in flags.FLAGS and flags.FLAGS[name].present}


def parse_grid(axes: Sequence[str], also: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Returns the points of a grid given as `["l1=1e-2,1e-4", "seed=0,1"]`, the last axis changing fastest.

    Args:
      axes: a field and its values each; `hyperparameters` may have several, as in "hyperparameters=a=1,a=2".
      also: names that are allowed beside those of fields; their values stay texts.
    """
    names, values = [], []
    for axis in axes:
        name, _, listed = axis.partition("=")
        check_name("axis of --grid", name, [*FIELDS, *also])
        if name in names and name != "hyperparameters":
            raise ValueError(f"--grid names {name!r} twice. Put all its values into one.")
        parts = [part for part in listed.split(",") if part]
        if not parts:
            raise ValueError(f"--grid needs values, as in 'l1=1e-2,1e-4', found {axis!r}.")
        kind = VALUES[name].kind if name in FIELDS else str
        try:
            values.append([convert(kind, part) for part in parts])
        except ValueError:
            raise ValueError(f"--grid has a value for {name!r} that is no {kind.__name__}: {axis!r}.") from None
        if len(set(values[-1])) < len(values[-1]):
            raise ValueError(f"--grid has a value for {name!r} twice: {axis!r}.")
        names.append(name)
    points: list[dict[str, Any]] = []
    for point in itertools.product(*values):
        points.append({})
        for name, value in zip(names, point, strict=True):
            points[-1][name] = f"{points[-1][name]},{value}" if name in points[-1] else value
    return points
