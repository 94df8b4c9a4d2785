"""The names of runs and of their folders: what a command gives them, and what a report finds them by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.files import file_name


def run_name(preset: str | None, task: str, method: str, point: Mapping[str, Any]) -> str:
    """Returns the name of a run.

    Args:
      preset: of the run, if any.
      task: where there is no preset.
      method: likewise: the algorithm that was asked for, or the method where none was.
      point: the values that a grid gives it.
    """
    label = preset.replace("/", "-") if preset else f"{task}-{method}".replace(":", ".")
    return " ".join(filter(None, [label, ",".join(f"{name}={value}" for name, value in point.items())]))


def folder_name(name: str) -> str:
    """Returns the name of a run's folder below that of its grid."""
    return file_name(name.replace(" ", "_"))
