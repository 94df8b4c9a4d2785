"""The task of an experiment: one of `tasks.registry`, or a user's own `module:function`."""

from __future__ import annotations

import functools
import inspect
import pathlib
from typing import Any

import numpy as np
import tqdm

from experiments.flags import CACHE_DIR, DATA_DIR
from experiments.foreign import call_with, check_keyword, is_foreign, keywords_of, load_function, title_of
from experiments.settings import FIELDS, Settings
from tasks.data_sets.sources import Places
from tasks.registry import check_task, default_split, find_training_set, load_task
from tasks.task import Task

# What is asked of a task; None is the task's own. docs/extending.md lists these.
ASKED = ("split", "num_clients", "size_sigma", "seed", "initializer", "augment")


def check_task_of(config: Settings) -> None:
    """Raises if the task's values are wrong, as far as that shows without the data."""
    if not is_foreign(config.task):
        check_task(config.task, **{name: getattr(config, name) for name in ASKED})
        return
    function = load_function("task", config.task)
    for name, value in _given(config).items():
        check_keyword(name, value, function, name)
    for name, parameter in keywords_of(function).items():
        if parameter.default is inspect.Parameter.empty and name not in (*_given(config), "seed", "places"):
            raise ValueError(
                f"task={config.task!r} needs {name!r}, which has no default. Give it one, or set the flag of that name "
                f"(there are {', '.join(ASKED)})."
            )


def load_task_of(config: Settings) -> Task:
    """Returns the task of a configuration; for what it raises see `load_task`."""
    # Values, not the configuration: runs of a grid mostly share their task.
    if is_foreign(config.task):
        return _load_foreign(config.task, _places(), config.seed, **_given(config))
    asked = {name: getattr(config, name) for name in (*ASKED, "alpha", "beta")}
    return _load(config.task, places=_places(), **asked)


def training_set_of(config: Settings) -> str | None:
    """Returns which training set `load_task_of` would take where there are several, else `None`."""
    return None if is_foreign(config.task) else find_training_set(config.task, _places())


def split_of(config: Settings) -> str:
    """Returns the split: the one asked for, or the task's own."""
    if config.split is not None:
        return config.split
    if not is_foreign(config.task):
        return default_split(config.task)
    parameter = keywords_of(load_function("task", config.task)).get("split")
    return parameter.default if parameter is not None and isinstance(parameter.default, str) else "own"


def task_title(config: Settings) -> str | None:
    """Returns the title of a user's own task, else `None`."""
    return title_of(load_function("task", config.task), "load_") if is_foreign(config.task) else None


def count_labels(task: Task) -> np.ndarray:
    """Returns how many examples of each class each client has, [m, classes]."""
    clients = tqdm.tqdm(task.clients, total=len(task.clients), desc="clients", disable=None, delay=2)
    counts = [np.bincount(y) for _, y in clients]
    # From the labels: Keras builds no model where TensorFlow is imported late, as a report does.
    num_classes = max(1 + int(task.test[1].max()), *map(len, counts))
    return np.array([np.pad(count, (0, num_classes - len(count))) for count in counts])


def _places() -> Places:
    return Places(*(pathlib.Path(flag.value) if flag.value else None for flag in (DATA_DIR, CACHE_DIR)))


def _given(config: Settings) -> dict[str, Any]:
    """What differs from the flags' defaults; the rest is left to a user's own defaults."""
    return {n: getattr(config, n) for n in ASKED if n != "seed" and getattr(config, n) != FIELDS[n].default}


# The last one is kept.
_load = functools.lru_cache(maxsize=1)(load_task)


@functools.lru_cache(maxsize=1)
def _load_foreign(name: str, places: Places, seed: int, **given: Any) -> Task:
    task = call_with(load_function("task", name), dict(given, seed=seed, places=places))
    if not isinstance(task, Task):
        raise TypeError(
            f"task={name!r} must return a tasks.task.Task, found {type(task).__name__}. Make it with "
            "tasks.task.build_task."
        )
    return task
