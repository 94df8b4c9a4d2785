"""The experiments that a command asks for: presets, flags and grids, put together and checked before any work."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments import presets
from experiments.build import check_algorithm
from experiments.experiment_config import ExperimentConfig, build_config
from experiments.flags import parse_grid
from experiments.loading import check_task_of, load_task_of
from experiments.settings import parse_sampling
from tff_fen.checks import check_integer


class Run(NamedTuple):
    """One experiment of a command: its name, its values, and what is said of them in `config.json`."""

    name: str
    config: ExperimentConfig
    about: dict[str, Any]


def plan_runs(preset: str | None, grid: Sequence[str], explicit: Mapping[str, Any]) -> list[Run]:
    """Returns the experiments of a command; raises `ValueError` or `TypeError` if any cannot be.

    Args:
      preset: a name or a pattern of names, see `presets`.
      grid: `FIELD=VALUE,...` each; `preset` is a field too.
      explicit: values that were given by flags.
    """
    points = parse_grid(grid, also=["preset"])
    for name in points[0]:
        if name in explicit or (name == "preset" and preset):
            raise ValueError(f"--grid and --{name} both give {name!r}. Give it once.")
    runs = []
    for point in points:
        asked = point.pop("preset", preset)
        names: Sequence[str | None] = presets.expand_presets(asked) if asked else (None,)
        runs += [_plan_run(name, point, explicit) for name in names]
    return runs


def check_runs(runs: Sequence[Run]) -> None:
    """Raises if an algorithm or a task is not there or does not fit its values, as far as that shows without data."""
    for run in runs:
        check_algorithm(run.config)
        check_task_of(run.config)


def check_participants(runs: Sequence[Run]) -> None:
    """Loads the data, and raises if a round asks for more clients than there are."""
    for run in runs:
        kind, amount = parse_sampling(run.config.sampling)
        num_clients = len(load_task_of(run.config).clients)
        if kind == "uniform":
            check_integer("number of clients in sampling", int(amount), 1, num_clients)


def folders_of(runs: Sequence[Run], output: str | None) -> tuple[pathlib.Path, list[pathlib.Path]]:
    """Returns the folder of a command, by default one below out/ named after its runs, and the folder of each run."""
    if len(runs) == 1:
        folder = pathlib.Path(output) if output else pathlib.Path("out") / _file_name(runs[0].name)
        return folder, [folder]
    folder = pathlib.Path(output) if output else pathlib.Path("out") / f"grid-{runs[0].name.split(' ')[0]}"
    return folder, [folder / _file_name(run.name) for run in runs]


def _file_name(name: str) -> str:
    return name.replace(" ", "_")


def _plan_run(preset_name: str | None, point: Mapping[str, Any], explicit: Mapping[str, Any]) -> Run:
    preset = presets.load_preset(preset_name) if preset_name else presets.Preset({}, ())
    config = build_config(preset.values, explicit, point)
    assumed = [name for name in preset.assumed if name not in {*explicit, *point}]
    label = preset_name.replace("/", "-") if preset_name else f"{config.task}-{config.algorithm}".replace(":", ".")
    own = ",".join(f"{name}={value}" for name, value in point.items())
    return Run(" ".join(filter(None, [label, own])), config, {"preset": preset_name, "assumed": assumed})
