"""The columns that a store keeps of each round: nested metrics made flat, as JSON and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

_ROW = "row"


class Record(NamedTuple):
    """The columns of a round.

    Attributes:
      row: the columns that hold one value: a number, a string or `None`, in order; the first is `round`, from 1.
      lists: the columns that hold a list.
    """

    row: dict[str, Any]
    lists: dict[str, list[Any]]

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> Record:
        """Returns the record of columns that hold scalars (numbers, strings, `None`), lists and arrays.

        Raises:
          TypeError: if a column holds anything else.
        """
        record = cls({}, {})
        for name, value in columns.items():
            plain = _plain(name, value)
            if not isinstance(plain, list):
                record.row[name] = plain
            elif name == _ROW:
                raise ValueError(f"A column with a list must not be named {_ROW!r}. Rename it.")
            else:
                record.lists[name] = plain
        return record

    def to_bytes(self) -> bytes:
        """Returns the record as JSON; floats as their shortest exact form."""
        return json.dumps({_ROW: self.row, **self.lists}).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Record:
        """Returns the record whose `to_bytes` this is.

        Raises:
          ValueError: if it is no record; the message says why.
        """
        try:
            lists = json.loads(content)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        row = lists.pop(_ROW, None) if isinstance(lists, dict) else None
        if not isinstance(row, dict) or not all(isinstance(value, list) for value in lists.values()):
            raise ValueError(f"it must be an object of {_ROW!r}, an object, and of lists")
        if bad := [name for name, value in row.items() if isinstance(value, dict | list)]:
            raise ValueError(f"column {bad[0]!r} must be one value")
        return cls(row, lists)


def flatten(metrics: Any, prefix: str = "") -> dict[str, Any]:
    """Returns nested mappings as columns `client_work/train/loss`, ...; what is no mapping has none."""
    columns: dict[str, Any] = {}
    if isinstance(metrics, Mapping):
        for name, value in metrics.items():
            if isinstance(value, Mapping):
                columns |= flatten(value, f"{prefix}{name}/")
            else:
                columns[f"{prefix}{name}"] = value
    return columns


def numbers(metrics: Any) -> dict[str, Any]:
    """Returns the single numbers of a process's metrics as columns; arrays, strings and sequences are left out."""
    flat = {name: value for name, value in flatten(metrics).items() if not isinstance(value, tuple | list)}
    arrays = {name: np.asarray(value) for name, value in flat.items()}
    return {name: array.item() for name, array in arrays.items() if array.ndim == 0 and array.dtype.kind in "biuf"}


def _plain(name: str, value: Any) -> Any:
    """The value as what JSON gives back: Python's own scalar or list."""
    if value is None or type(value) in (str, bool, int, float):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biufU":
        raise TypeError(
            f"Column {name!r} must hold a number, a string, None, or a list of such, found {value!r} of type "
            f"{type(value).__name__}. Convert it."
        )
    return array.tolist()
