"""`NAME=VALUE,...`: an algorithm's own hyperparameters as text, as a flag gives them and `config.json` keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.values import REQUIRED, Value, check_name


def parse_hyperparameters(text: str, known: Mapping[str, Value], whose: str) -> dict[str, Any]:
    """Returns all hyperparameters: the values of `NAME=VALUE,...`, and the defaults of those that it does not name.

    Args:
      text: from the command line or a folder.
      known: what there is.
      whose: the algorithm, for messages.

    Raises:
      ValueError: for a name that is not known or is there twice, a value that cannot be, or one that is required
        and not given.
    """
    given: dict[str, Any] = {}
    for name, value in _pairs(text):
        if not known:
            raise ValueError(f"hyperparameters={text!r}: {whose} has none of its own. Unset it.")
        check_name(f"hyperparameter of {whose}", name, known)
        if name in given:
            raise ValueError(f"hyperparameters={text!r} gives {name!r} twice. Give it once.")
        given[name] = known[name].read(f"hyperparameter {name} of {whose}", value)
    for name, about in known.items():
        if about.default is REQUIRED and name not in given:
            raise ValueError(f"{whose} needs {name!r}, which has no default. Give it: --hyperparameters={name}=VALUE.")
    return {name: given.get(name, about.default) for name, about in known.items()}


def format_hyperparameters(values: Mapping[str, Any]) -> str:
    """Returns the text that `parse_hyperparameters` reads; `None`, which no text stands for, is left out."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    return ",".join(f"{name}={text}" for name, text in texts.items() if values[name] is not None)


def merge_hyperparameters(earlier: str, later: str) -> str:
    """Returns two texts as one, in which the later one's values stand; an empty later one takes all away."""
    named = {name for name, _ in _pairs(later)}
    kept = [f"{name}={value}" for name, value in _pairs(earlier) if name not in named]
    return ",".join([*kept, later]) if later else ""


def _pairs(text: str) -> list[tuple[str, str]]:
    parts = [part.partition("=") for part in text.split(",") if part]
    return [(name, value) for name, _, value in parts]
