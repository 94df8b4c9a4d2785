"""From absl flags to a task; shared by all commands."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

from absl import flags

from experiments.experiment_config import ExperimentConfig
from tasks.data_sets.sources import Places
from tasks.registry import check_task, load_task
from tasks.task import Task

DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder with the original files, or prepared by TensorFlow Datasets.")
CACHE_DIR = flags.DEFINE_string("cache_dir", None, "Where data sets are kept; by default $TFF_FEN_CACHE or ~/.cache.")

# Runs of a grid mostly share their task; the last one is kept.
_load = functools.lru_cache(maxsize=1)(load_task)


def check_task_of(config: ExperimentConfig) -> None:
    """Raises if the task's values are wrong, as far as that shows without the data."""
    check_task(config.task, **_arguments(config))


def load_task_of(config: ExperimentConfig) -> Task:
    """Returns the task of a configuration; for what it raises see `load_task`."""
    return _load(
        config.task,
        **_arguments(config),
        alpha=config.alpha,
        beta=config.beta,
        places=Places(*(pathlib.Path(flag.value) if flag.value else None for flag in (DATA_DIR, CACHE_DIR))),
    )


def _arguments(config: ExperimentConfig) -> dict[str, Any]:
    return dict(
        split=config.split,
        num_clients=config.num_clients,
        size_sigma=config.size_sigma,
        seed=config.seed,
        initializer=config.initializer,
    )
