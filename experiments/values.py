"""A single value of an experiment: its kind, its range, and errors that name value, range and remedy.

`check_name` and `L1_STEPS` are the library's own as well. They stand here once more, since a mistake on the command
line is told before TensorFlow is imported, which every module of `tff_fen` brings with it. A test holds each to the
library's.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Collection
from typing import Any

L1_STEPS = ("subgradient", "proximal")
REQUIRED: Any = object()
"""The default of a value that must be given."""
# A message lists no more names than this.
_MOST_NAMES = 12
_TRUTHS = {"true": True, "false": False}
_KINDS = {str: "a str", int: "an integer", float: "a finite number", bool: "true or false"}


@dataclasses.dataclass(frozen=True)
class Value:
    """What a value may be.

    Attributes:
      default: what it is where it is not given; where that is `None`, `None` may be its value.
      text: what it does, in a sentence.
      kind: str, int, float or bool; of a user's own hyperparameter it may be another, which no text can give.
      low: the least, or `None`.
      above: an open lower bound, or `None`.
      high: the most, or `None`.
      below: an open upper bound, or `None`.
      choices: all there are, if not empty.
    """

    default: Any
    text: str
    kind: type
    low: float | None = None
    above: float | None = None
    high: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """What it must be, in words."""
        bounds = [
            f"{sign} {bound:g}"
            for sign, bound in ((">=", self.low), (">", self.above), ("<=", self.high), ("<", self.below))
            if bound is not None
        ]
        if self.low is not None and self.high is not None:
            bounds = [f"from {self.low} to {self.high}"]
        return " ".join([_KINDS[self.kind], *[" and ".join(bounds)][: len(bounds)]])

    def check(self, name: str, value: Any) -> None:
        """Raises a `ValueError` or `TypeError` unless a value is of this kind and in its range."""
        if value is None and self.default is None:
            return
        if not self._fits(value):
            error = ValueError if isinstance(value, int | float) and not isinstance(value, bool) else TypeError
            raise error(f"{name} must be {self.allowed}, found {value!r}.")
        if self.choices:
            check_name(name, value, self.choices)

    def read(self, name: str, text: str) -> Any:
        """Returns the value that a text stands for; raises a `ValueError` if that is none."""
        if self.kind not in _KINDS:
            kinds = ", ".join(kind.__name__ for kind in _KINDS)
            raise ValueError(
                f"{name} cannot be given on the command line: its type is none of {kinds}. Annotate it, or give it a "
                "default."
            )
        try:
            value = convert(self.kind, text)
        except ValueError:
            raise ValueError(f"{name} must be {self.allowed}, found {text!r}.") from None
        self.check(name, value)
        return value

    def _fits(self, value: Any) -> bool:
        if self.kind in (str, bool):
            return isinstance(value, self.kind)
        kinds = (int, float) if self.kind is float else (int,)
        if isinstance(value, bool) or not isinstance(value, kinds):
            return False
        return (
            math.isfinite(value)
            and (self.low is None or value >= self.low)
            and (self.above is None or value > self.above)
            and (self.high is None or value <= self.high)
            and (self.below is None or value < self.below)
        )


def convert(kind: type, text: str) -> Any:
    """Returns a text as a value of a kind; raises a `ValueError` if it is none."""
    if kind is bool and text.lower() not in _TRUTHS:
        raise ValueError(text)
    return _TRUTHS[text.lower()] if kind is bool else kind(text)


def check_name(what: str, value: Any, known: Collection[str]) -> None:
    """Raises a `ValueError` that lists the known names, the nearest first, unless `value` is one of them."""
    if value in known:
        return
    names, near = list(known), nearest(str(value), known)
    if len(names) > _MOST_NAMES:
        names = [*(near or names[:3]), f"{len(names)} in all"]
    advice = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{what} must be one of {', '.join(map(repr, names))}, found {value!r}.{advice}")


def nearest(value: str, known: Collection[str]) -> list[str]:
    """Returns the names that are most like a value, the nearest first; of none that is like it, none."""
    return difflib.get_close_matches(value, known, n=3, cutoff=0.5)
