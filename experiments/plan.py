"""The experiments that a command asks for: presets, flags and grids, put together and checked before any work.

No TensorFlow is imported, so that a mistake is told at once; `prepare` finds what needs it.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments import presets
from experiments.experiment_config import ExperimentConfig, build_config
from experiments.flags import parse_grid
from experiments.foreign import is_foreign
from experiments.listing import TASKS
from experiments.methods import ALGORITHMS, method_of
from experiments.naming import folder_name, run_name
from experiments.values import check_name


class PlannedRun(NamedTuple):
    """One experiment of a command: its name, its values, and what is said of them in `config.json`."""

    name: str
    config: ExperimentConfig
    about: dict[str, Any]


def plan_runs(
    preset: str | None,
    grid: Sequence[str],
    explicit: Mapping[str, Any],
    file: Mapping[str, Any] | None = None,
    *,
    preset_wins: bool = False,
) -> list[PlannedRun]:
    """Returns the experiments of a command; raises `ValueError` or `TypeError` if any cannot be.

    Args:
      preset: a name or a pattern of names, see `presets`.
      grid: `FIELD=VALUE,...` each; `preset` is a field too.
      explicit: values that were given by flags; they win over the preset.
      file: values from a file of settings; flags win over them.
      preset_wins: whether the preset wins over the file.
    """
    points = parse_grid(grid, also=["preset"])
    for name in {*points[0]} - {"hyperparameters"}:  # the names in these are checked one by one
        if name in explicit or (name == "preset" and preset):
            raise ValueError(f"--grid and --{name} both give {name!r}. Give it once.")
    runs = []
    for point in points:
        asked = point.pop("preset", preset)
        names: Sequence[str | None] = presets.expand_presets(asked) if asked else (None,)
        runs += [_plan_run(name, point, explicit, file or {}, preset_wins) for name in names]
    return runs


def folders_of(runs: Sequence[PlannedRun], output: str | None) -> tuple[pathlib.Path, list[pathlib.Path]]:
    """Returns the folder of a command, by default one below out/ named after its runs, and the folder of each run."""
    if len(runs) == 1:
        folder = pathlib.Path(output) if output else pathlib.Path("out") / folder_name(runs[0].name)
        return folder, [folder]
    folder = pathlib.Path(output) if output else pathlib.Path("out") / f"grid-{runs[0].name.split(' ')[0]}"
    return folder, [folder / folder_name(run.name) for run in runs]


def _plan_run(
    preset_name: str | None,
    point: Mapping[str, Any],
    explicit: Mapping[str, Any],
    file: Mapping[str, Any],
    preset_wins: bool,
) -> PlannedRun:
    preset = presets.load_preset(preset_name) if preset_name else _fill_in({**file, **explicit, **point})
    layers = (file, preset.values) if preset_wins else (preset.values, file)
    given = {**explicit, **point}
    if "hyperparameters" in explicit and "hyperparameters" in point:
        given["hyperparameters"] = f"{explicit['hyperparameters']},{point['hyperparameters']}"
    config = build_config(*layers, given)
    if not is_foreign(config.task):
        check_name("task", config.task, TASKS)
    values = dataclasses.asdict(config)
    assumed = [name for name in preset.assumed if values[name] == preset.values[name]]
    named = is_foreign(config.algorithm) or "algorithm" in {**explicit, **point}
    method = config.algorithm if named else method_of(config.row(), config).key
    return PlannedRun(
        run_name(preset_name, config.task, method, point), config, {"preset": preset_name, "assumed": assumed}
    )


def _fill_in(given: Mapping[str, Any]) -> presets.Preset:
    """What is taken where no preset is named: the paper's example of a method, or what the algorithm cannot do without.

    Not defaults of `Settings`, which say what a stored folder means that lacks a value.
    """
    if "algorithm" not in given:
        return presets.Preset(presets.example_values(given.get("task")), ())
    row = ALGORITHMS.get(given["algorithm"])
    return presets.Preset(dict(row.needs) if row else {}, ())
