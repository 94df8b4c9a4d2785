"""The client states of a process with error feedback: the algorithm's own, with what was not sent yet."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple


def add_residual(state: Any, residual: Any) -> Any:
    """Returns a client's state with `residual`, in a field of that name, which is added where there is none."""
    if "residual" in state._fields:
        return state._replace(residual=residual)
    return _with_field(type(state))(*state, residual)


@functools.cache
def _with_field(kind: Any) -> Any:
    return NamedTuple(kind.__name__, [*((field, Any) for field in kind._fields), ("residual", Any)])  # type: ignore[misc]
