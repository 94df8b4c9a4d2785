"""Reads numbers and structures from a Matlab file (version 5), within a limit.

SciPy's reader allocates what a file's headers ask for; this one makes arrays of the bytes that are there.
https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf describes the format.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from tasks.data_sets.unpacking import SourceError, inflate

_MATRIX, _COMPRESSED = 14, 15
_STRUCT = 2
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Types of stored numbers."""
_REAL = range(6, 16)
"""Classes of arrays of numbers; these may be stored in a smaller type, and are left in it."""
_DEEPEST, _MOST_FIELDS = 8, 64


def read_mat(content: bytes, name: str, most_bytes: int) -> dict[str, Any]:
    """Returns the variables of a Matlab file: arrays, and structures as dictionaries of them.

    Args:
      content: of the file.
      name: of the file, for messages.
      most_bytes: that all variables may have together, unpacked.

    Raises:
      SourceError: if the file is larger, damaged, or holds anything else.
    """
    if len(content) < 128 or content[126:128] not in (b"IM", b"MI"):
        raise SourceError(f"{name} is no Matlab file of version 5")
    order = "<" if content[126:128] == b"IM" else ">"
    variables: dict[str, Any] = {}
    try:
        for kind, data in _elements(memoryview(content)[128:], order):
            if kind == _COMPRESSED:
                unpacked = memoryview(inflate(bytes(data), name, most_bytes))
                most_bytes -= len(unpacked)
                kind, data = next(_elements(unpacked, order))
            if kind != _MATRIX:
                raise SourceError(f"{name} holds an element of type {kind}, not a matrix")
            label, value = _matrix(data, order, 0)
            variables[label] = value
            if len(variables) > _MOST_FIELDS:
                raise ValueError(f"it has more than {_MOST_FIELDS} variables")
    except (struct.error, ValueError, KeyError, StopIteration) as error:
        raise SourceError(f"{name} cannot be read ({type(error).__name__}: {error})") from error
    return variables


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yields type and bytes of the elements, one after the other."""
    while len(data):
        (first,) = struct.unpack_from(order + "I", data)
        if first >> 16:  # a small one: type, size and up to four bytes in eight
            kind, size, start, end = first & 0xFFFF, first >> 16, 4, 8
        else:
            kind, size = struct.unpack_from(order + "II", data)
            start = 8
            # All but packed ones are filled up to a multiple of eight.
            end = start + size if kind == _COMPRESSED else start + (size + 7) // 8 * 8
        if start + size > len(data) or (start == 4 and size > 4):
            raise ValueError(f"an element of {size} bytes ends after the file")
        yield kind, data[start : start + size]
        data = data[end:]


def _matrix(data: memoryview, order: str, depth: int) -> tuple[str, Any]:
    """Returns name and value of a matrix: flags, dimensions, name, and what its class has."""
    parts = _elements(data, order)
    flags = int(_numbers(next(parts), order)[0])
    shape = [int(n) for n in _numbers(next(parts), order)]
    name = bytes(next(parts)[1]).decode("ascii")
    kind = flags & 0xFF
    if kind == _STRUCT:
        if math.prod(shape) != 1 or depth == _DEEPEST:
            raise ValueError(f"the structure {name!r} has shape {shape}, or lies too deep")
        width = int(_numbers(next(parts), order)[0])
        packed = bytes(next(parts)[1])
        if width <= 0 or len(packed) % width or len(packed) > width * _MOST_FIELDS:
            raise ValueError(f"the structure {name!r} has names of {width} bytes in {len(packed)} bytes")
        names = [packed[i : i + width].split(b"\0")[0].decode("ascii") for i in range(0, len(packed), width)]
        return name, {field: _matrix(next(parts)[1], order, depth + 1)[1] for field in names}
    if kind not in _REAL or flags & 0x0800:
        raise ValueError(f"{name!r} is no real array and no structure (class {kind})")
    numbers = _numbers(next(parts), order)
    if min(shape) < 0 or math.prod(shape) != numbers.size:
        raise ValueError(f"{name!r} of shape {shape} has {numbers.size} numbers")
    return name, numbers.reshape(shape, order="F")


def _numbers(element: tuple[int, memoryview], order: str) -> np.ndarray:
    kind, data = element
    return np.frombuffer(data, order + _NUMBERS[kind])
