"""The client states of a process with error feedback: the algorithm's own, with what was not sent yet."""

from __future__ import annotations

import collections
import functools
from typing import Any


def add_residual(state: Any, residual: Any) -> Any:
    """Returns a client's state with `residual`, in a field of that name, which is added where there is none."""
    if "residual" in state._fields:
        return state._replace(residual=residual)
    return _type_with_residual(type(state).__name__, state._fields)(*state, residual)


@functools.cache
def _type_with_residual(name: str, fields: tuple[str, ...]) -> Any:
    return collections.namedtuple(name, [*fields, "residual"])
