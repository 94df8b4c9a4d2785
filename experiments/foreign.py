"""Algorithms and tasks from outside the project: a user's `module:function`, and the keywords it is called with."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

from experiments.values import REQUIRED, Value


def is_foreign(name: str) -> bool:
    """Whether a name is `module:function`, code from outside the project."""
    return ":" in name


def readable(key: str) -> str:
    """A name of Python's as words."""
    return key.replace("_", " ").strip().capitalize()


def load_function(what: str, name: str) -> Callable[..., Any]:
    """Returns the function `module:function`; the module is looked for in the working directory as well.

    Raises:
      ValueError: if there is none; `what` is the flag that the message names.
    """
    module_name, _, function_name = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise ValueError(
            f"{what}={name!r} cannot be imported: {error}. Give it as MODULE:FUNCTION; the module must be in the "
            "working directory or on PYTHONPATH."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(f"{what}={name!r}: module {module_name!r} has no function {function_name!r}. Check the name.")
    return function


def title_of(function: Callable[..., Any], prefix: str) -> str:
    """Returns a function's title: that in `TITLES` of its module, or its name without `prefix`, as words."""
    name = getattr(function, "__name__", "")
    titles = getattr(sys.modules.get(function.__module__), "TITLES", {})
    return str(titles.get(name, readable(name.removeprefix(prefix))))


def keywords_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the parameters that can be given by name."""
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {name: p for name, p in inspect.signature(function).parameters.items() if p.kind in named}


def check_keyword(what: str, value: Any, function: Callable[..., Any], keyword: str) -> None:
    """Raises a `ValueError` unless a function takes the keyword that a value would go to."""
    if keyword not in keywords_of(function):
        raise ValueError(
            f"{what}={value!r} has no effect: {function.__name__} takes no keyword {keyword!r}. Unset it, or give the "
            "function that keyword."
        )


def hyperparameters_of(function: Callable[..., Any], ours: Collection[str]) -> dict[str, Value]:
    """Returns a function's own hyperparameters: its keywords, but for those that the experiment gives by itself."""
    found = {}
    for name, parameter in keywords_of(function).items():
        if name not in ours:
            required = parameter.default is inspect.Parameter.empty
            found[name] = Value(REQUIRED if required else parameter.default, "", _kind_of(function, parameter))
    return found


def call_with(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    """Calls a function with those of the keywords that its signature has."""
    return function(**{name: value for name, value in keywords.items() if name in keywords_of(function)})


def _kind_of(function: Callable[..., Any], parameter: inspect.Parameter) -> type:
    """The type of a parameter, from its annotation, else from its default."""
    try:
        hint = typing.get_type_hints(function).get(parameter.name)
    except (NameError, TypeError):  # an annotation of names that are there for type checkers alone
        hint = None
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next((kind for kind in typing.get_args(hint) if kind is not type(None)), None)
    return hint if hint in (bool, int, float, str) else type(parameter.default)
