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

from experiments.methods import readable
from experiments.values import check_name

_TRUTHS = {"true": True, "false": False}


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


def parse_hyperparameters(function: Callable[..., Any], text: str, ours: Collection[str]) -> dict[str, Any]:
    """Returns the values of `NAME=VALUE,...`, each of the type of the function's annotation or default.

    Args:
      function: whose keywords they are.
      text: from the command line.
      ours: keywords that the experiment gives by itself.

    Raises:
      ValueError: for a name that is no keyword of the function or is `ours`, a value of another type, or a keyword
        without default that is neither given nor `ours`.
    """
    own = {name: p for name, p in keywords_of(function).items() if name not in ours}
    values: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if not own:
            raise ValueError(f"hyperparameters={text!r}: {function.__name__} has none of its own. Unset it.")
        check_name(f"hyperparameter of {function.__name__}", name, own)
        if name in values:
            raise ValueError(f"hyperparameters={text!r} gives {name!r} twice. Give it once.")
        values[name] = _convert(function, own[name], value)
    for name, parameter in own.items():
        if parameter.default is inspect.Parameter.empty and name not in values:
            raise ValueError(
                f"{function.__name__} needs {name!r}, which has no default. Give it: --hyperparameters={name}=VALUE. "
                f"What an experiment gives by itself is {', '.join(sorted(ours))}."
            )
    return values


def call_with(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    """Calls a function with those of the keywords that its signature has."""
    return function(**{name: value for name, value in keywords.items() if name in keywords_of(function)})


def _convert(function: Callable[..., Any], parameter: inspect.Parameter, text: str) -> Any:
    kind = _kind_of(function, parameter)
    try:
        return _TRUTHS[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        raise ValueError(
            f"hyperparameter {parameter.name} of {function.__name__} must be of type {kind.__name__}, found {text!r}."
        ) from None


def _kind_of(function: Callable[..., Any], parameter: inspect.Parameter) -> type:
    """The type of a parameter: bool, int, float or str, from its annotation, else from its default."""
    try:
        hint = typing.get_type_hints(function).get(parameter.name)
    except (NameError, TypeError):  # an annotation of names that are there for type checkers alone
        hint = None
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next((kind for kind in typing.get_args(hint) if kind is not type(None)), None)
    for kind in (hint, type(parameter.default)):
        if kind in (bool, int, float, str):
            return kind
    raise ValueError(
        f"hyperparameter {parameter.name} of {function.__name__} cannot be given on the command line: its type is "
        "none of bool, int, float, str. Annotate it, or give it a default."
    )
