"""Checks of single values, with errors that name the value found and what is allowed."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable
from typing import Any

# A message lists no more names than this.
_MOST_NAMES = 12


def check_number(name: str, value: Any, low: float, *, open_low: bool = False) -> None:
    """Raises unless `value` is a finite real number >= `low` (> `low` if `open_low`)."""
    allowed = f"a finite number {'>' if open_low else '>='} {low:g}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {allowed}, found {value!r} of type {type(value).__name__}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < low or (open_low and number == low):
        raise ValueError(f"{name} must be {allowed}, found {value!r}.")


def check_integer(name: str, value: Any, low: int, high: int | None = None) -> None:
    """Raises unless `value` is an integer in [`low`, `high`]."""
    allowed = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be {allowed}, found {value!r} of type {type(value).__name__}.")
    if value < low or (high is not None and value > high):
        raise ValueError(f"{name} must be {allowed}, found {value!r}.")


def check_type(name: str, value: Any, expected: type | tuple[type, ...], advice: str) -> None:
    """Raises a `TypeError` naming argument, found type and `advice` unless `value` is of type `expected`."""
    if not isinstance(value, expected):
        kinds = expected if isinstance(expected, tuple) else (expected,)
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be a {names}, found {value!r} of type {type(value).__name__}. {advice}")


def check_name(what: str, value: Any, known: Iterable[str]) -> None:
    """Raises a `ValueError` that lists the known names, the nearest first, unless `value` is one of them."""
    names = list(known)
    if value in names:
        return
    near = difflib.get_close_matches(str(value), names, n=3, cutoff=0.5)
    advice = f" Did you mean {near[0]!r}?" if near else ""
    if len(names) > _MOST_NAMES:
        names = [*(near or names[:3]), f"{len(names)} in all"]
    raise ValueError(f"{what} must be one of {', '.join(map(repr, names))}, found {value!r}.{advice}")
