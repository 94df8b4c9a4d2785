"""Files of a result folder as plain values: JSON objects and tables of numbers, every one checked.

A folder may be damaged, or come from somebody else. Whatever is wrong with a file is a `ReportError` that names it.
"""

from __future__ import annotations

import csv
import io
import json
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from experiments.files import UnreadableFileError, read_regular

AGAIN = "Run the experiment's command again, which writes the file anew from its store, or take the folder away."
_MOST_BYTES, _MOST_BYTES_OF_TABLE = 2**20, 2**28
# A row takes some hundred bytes however short its line is, a cell of many about a hundred.
_MOST_ROWS, _MOST_CELLS = 300_000, 10_000_000
_LONGEST = 1000
"""Characters of a text."""


class ReportError(Exception):
    """What was given cannot be read; the message names the file and says what to do."""


class Values:
    """Values by name, read with a check of each; raises a `ValueError` that names the value and what is allowed."""

    def __init__(self, values: Any, name: str = "") -> None:
        """Initializes the values.

        Args:
          values: a mapping, or the check fails.
          name: of the mapping, where it is part of another.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"{name or 'it'} must be an object, found {shown(values)}")
        self._values, self._prefix = values, f"{name}." if name else ""

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def inner(self, name: str) -> Values:
        """Returns a mapping within."""
        return Values(self._get(name), self._prefix + name)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Returns a mapping within, as it is."""
        return self.inner(name)._values

    def text(self, name: str) -> str:
        """Returns a text of one line, as a reader can see it."""
        value = self._get(name)
        check_text(self._prefix + name, value)
        return value

    def optional_text(self, name: str) -> str | None:
        """Returns a text, or `None` where there is none."""
        return None if self._values.get(name) is None else self.text(name)

    def texts(self, name: str, known: Collection[str]) -> tuple[str, ...]:
        """Returns a list of known names."""
        values = self._get(name)
        if not isinstance(values, list) or not all(isinstance(value, str) and value in known for value in values):
            raise ValueError(f"{self._prefix}{name} must be a list of names of settings, found {shown(values)}")
        return tuple(values)

    def integer(self, name: str, low: int) -> int:
        """Returns an integer from `low` to 2^63."""
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**63:
            raise ValueError(f"{self._prefix}{name} must be an integer >= {low}, found {shown(value)}")
        return value

    def share(self, name: str) -> float | None:
        """Returns a number from 0 to 1, or `None` where there is none."""
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"{self._prefix}{name} must be a number from 0 to 1, found {shown(value)}")
        return value

    def seconds(self) -> float:
        """Returns `seconds`, a number that is not negative; 0 where there is none."""
        value = self._values.get("seconds", 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise ValueError(f"{self._prefix}seconds must be a number >= 0, found {shown(value)}")
        return value

    def _get(self, name: str) -> Any:
        if name not in self._values:
            raise ValueError(f"{self._prefix + name!r} is missing")
        return self._values[name]


def check_text(name: str, value: Any, pattern: str = r".*") -> None:
    """Raises a `ValueError` unless a value is text of one line of printable characters that fits the pattern."""
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        raise ValueError(f"{name} must be a line of at most {_LONGEST} printable characters, found {shown(value)}")
    if not re.fullmatch(pattern, value):
        raise ValueError(f"{name} must fit {pattern}, found {shown(value)}")


def shown(value: Any) -> str:
    """A value for a message, in one line and short."""
    try:
        text = repr(value)
    except ValueError:  # an integer with too many digits
        text = f"a large {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Returns the object that a file holds."""
    try:
        content = json.loads(_read(path, _MOST_BYTES).decode())
    except UnicodeDecodeError as error:
        raise ReportError(f"{path} cannot be read: it is not UTF-8. {AGAIN}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} is damaged: it is not JSON ({shown(str(error))}). {AGAIN}") from error
    if not isinstance(content, dict):
        raise ReportError(f"{path} is damaged: an object is expected, found {type(content).__name__}. {AGAIN}")
    return content


def read_table(path: pathlib.Path, needed: Sequence[str] = ()) -> list[dict[str, float | int | None]]:
    """Returns the rows of a file by the names of its columns; `None` where a cell is empty.

    Args:
      path: of the file.
      needed: columns that must be there.
    """
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(_read(path, _MOST_BYTES_OF_TABLE)), "utf-8", newline=""))
    try:
        header = next(lines, [])
        if len(set(header)) < len(header) or not all(name.isprintable() and len(name) <= _LONGEST for name in header):
            raise ReportError(f"{path} is damaged: its first line must be the names of its columns. {AGAIN}")
        found: list[dict[str, float | int | None]] = []
        for line, row in enumerate(lines, 2):
            if len(row) != len(header):
                raise ReportError(f"{path} is damaged: line {line} has {len(row)} fields of {len(header)}. {AGAIN}")
            if len(found) >= _MOST_ROWS or len(found) * len(header) >= _MOST_CELLS:
                raise ReportError(f"{path} has more than {_MOST_ROWS:,} rows or {_MOST_CELLS:,} cells. {AGAIN}")
            found.append({name: _number(path, line, name, text) for name, text in zip(header, row, strict=True)})
    except csv.Error as error:
        raise ReportError(f"{path} is damaged: {error}. {AGAIN}") from error
    except UnicodeDecodeError as error:
        raise ReportError(f"{path} cannot be read: it is not UTF-8. {AGAIN}") from error
    if not found:
        raise ReportError(f"{path} has no round yet. Wait for the first, or take the folder away.")
    missing = [name for name in needed if name not in header]
    if missing:
        raise ReportError(f"{path} has no column {missing[0]!r}. {AGAIN}")
    return found


def check_range(
    path: pathlib.Path, rows: Sequence[Mapping[str, float | None]], name: str, low: float, high: float
) -> None:
    """Raises a `ReportError` if a cell of a column, other than an empty one, is not in a range."""
    for line, row in enumerate(rows, 2):
        value = row[name]
        if value is not None and not low <= value <= high:
            raise ReportError(
                f"{path} is damaged: {value!r} in column {name!r} of line {line}, "
                f"from {low:g} to {high:g} is expected. {AGAIN}"
            )


def _read(path: pathlib.Path, most: int) -> bytes:
    try:
        return read_regular(path, most)
    except UnreadableFileError as error:
        raise ReportError(f"{error}. {AGAIN}") from error


def _number(path: pathlib.Path, line: int, column: str, text: str) -> float | int | None:
    if not text:
        return None
    try:
        value = int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        raise ReportError(f"{path} is damaged: {shown(text)} in column {column!r} of line {line}. {AGAIN}") from None
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ReportError(f"{path} is damaged: {shown(text)} in column {column!r} of line {line}. {AGAIN}")
    return value
