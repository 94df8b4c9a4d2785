"""Nested structures of arrays as bytes and back, bit for bit, without pickle.

A structure is made of NamedTuples, attrs classes, mappings, lists, tuples and `tff.structure.Struct`s, as TFF's
processes return them; its leaves are arrays, tensors, numbers and strings. The bytes hold the leaves with their paths,
not the containers: `from_bytes` takes those from a structure of the same kind, and checks that the leaves fit.

    8 bytes   b"tff_fen1"
    8 bytes   length of the header, little-endian
    header    JSON: [{"path": [...], "dtype": ..., "shape": [...], "size": bytes}, ...]
    leaves    raw, little-endian, in C order; header and leaves are each padded to a multiple of 64 bytes
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import tensorflow_federated as tff

_MAGIC = b"tff_fen1"
_ALIGNMENT = 64
_STRINGS = "strings"  # The dtype of arrays of strings of any lengths, which NumPy holds as objects.
# Kinds of dtype whose name in the array protocol says all; of others, such as bfloat16, the name does.
_PLAIN_KINDS = frozenset("biufcSU")

_Path = tuple[str | int, ...]


def to_bytes(structure: Any) -> bytes:
    """The leaves of a structure as bytes.

    Raises:
      TypeError: if a leaf is neither an array of numbers or strings, nor a number or a string.
    """
    entries: list[dict[str, Any]] = []
    parts: list[Any] = []

    def add(path: _Path, leaf: Any) -> Any:
        array = _to_array(path, leaf)
        raw = _pack_strings(array) if array.dtype.hasobject else _raw(array)
        entries.append({"path": path, "dtype": _dtype_name(array.dtype), "shape": array.shape, "size": len(raw)})
        parts.extend((raw, bytes(-len(raw) % _ALIGNMENT)))
        return leaf

    _map_leaves(add, structure, ())
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-(len(header) + 16) % _ALIGNMENT)
    return b"".join([_MAGIC, struct.pack("<Q", len(header)), header, *parts])


def from_bytes(content: bytes, like: Any) -> Any:
    """The structure whose bytes these are.

    Args:
      content: what `to_bytes` returned.
      like: a structure of the same kind, with leaves of the same dtypes and shapes; their values do not matter.

    Returns:
      A structure with the containers of `like`. Its arrays are views of `content`, and so read-only.

    Raises:
      ValueError: if the bytes are not those of a structure like `like`; the message names the first difference.
    """
    leaves = _read_leaves(content)
    used: set[_Path] = set()

    def find(path: _Path, expected: Any) -> Any:
        if path not in leaves:
            raise ValueError(f"The stored structure has no leaf {_show(path)}; it has {_show_all(leaves)}. {_ADVICE}")
        used.add(path)
        return _convert(path, leaves[path], expected)

    structure = _map_leaves(find, like, ())
    if len(used) < len(leaves):
        unused = [path for path in leaves if path not in used]
        raise ValueError(f"The stored structure has leaves that are not expected: {_show_all(unused)}. {_ADVICE}")
    return structure


_ADVICE = "Use the model and the settings that it was stored with."


def _map_leaves(function: Callable[[_Path, Any], Any], value: Any, path: _Path) -> Any:
    """Maps the leaves of a structure, with their paths, in order; `None` is a container of nothing."""
    if value is None:
        return None
    if isinstance(value, tff.structure.Struct):
        elements = tff.structure.to_elements(value)
        names = [i if name is None else name for i, (name, _) in enumerate(elements)]
        mapped = [_map_leaves(function, child, (*path, key)) for key, (_, child) in zip(names, elements, strict=True)]
        return tff.structure.Struct([(name, child) for (name, _), child in zip(elements, mapped, strict=True)])
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise TypeError(f"Keys of mappings must be str or int, found {key!r} below {_show(path)}.")
        items = [(key, _map_leaves(function, child, (*path, key))) for key, child in value.items()]
        return type(value)(items)  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        named = zip(value._fields, value, strict=True)
        return type(value)(*(_map_leaves(function, child, (*path, name)) for name, child in named))
    if attrs.has(type(value)):
        fields = [field.name for field in attrs.fields(type(value))]
        mapped = [_map_leaves(function, getattr(value, name), (*path, name)) for name in fields]
        return attrs.evolve(value, **{name.lstrip("_"): new for name, new in zip(fields, mapped, strict=True)})
    if isinstance(value, (list, tuple)):
        return type(value)([_map_leaves(function, child, (*path, i)) for i, child in enumerate(value)])
    return function(path, value)


def _to_array(path: _Path, leaf: Any) -> np.ndarray:
    if isinstance(leaf, (str, bytes)):
        # As an object: NumPy's own strings drop zeros at the end.
        array = np.empty((), object)
        array[()] = leaf
        return array
    array = np.asarray(leaf)
    if array.dtype.hasobject and not all(isinstance(item, (str, bytes)) for item in array.flat):
        raise TypeError(
            f"Leaf {_show(path)} must be an array of numbers or strings, a number or a string, found {leaf!r} of type "
            f"{type(leaf).__name__}. Keep other things out of the state."
        )
    if array.dtype.fields or array.dtype.kind in "mM" or array.dtype.name.startswith("void"):
        raise TypeError(f"Leaf {_show(path)} must be of a dtype of numbers or strings, found {array.dtype}.")
    return array


def _raw(array: np.ndarray) -> memoryview:
    """The bytes of an array, little-endian, without a copy where they are so already."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return memoryview(flat.astype(_little(flat.dtype), copy=False).view(np.uint8))  # type: ignore[arg-type]


def _little(dtype: np.dtype) -> np.dtype:
    return dtype.newbyteorder("<") if dtype.kind in _PLAIN_KINDS else dtype


def _dtype_name(dtype: np.dtype) -> str:
    if dtype.hasobject:
        return _STRINGS
    return _little(dtype).str if dtype.kind in _PLAIN_KINDS else dtype.name


def _pack_strings(array: np.ndarray) -> bytes:
    """Lengths, then contents; a `str` is marked by a negative length (less one, for there are empty ones)."""
    encoded = [item.encode() if isinstance(item, str) else item for item in array.flat]
    marks = [-len(e) - 1 if isinstance(item, str) else len(e) for item, e in zip(array.flat, encoded, strict=True)]
    return struct.pack(f"<{len(marks)}q", *marks) + b"".join(encoded)


def _unpack_strings(content: memoryview, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape, dtype=np.int64))
    array = np.empty(count, object)
    start = 8 * count
    for i, mark in enumerate(struct.unpack_from(f"<{count}q", content)):
        length = mark if mark >= 0 else -mark - 1
        item = bytes(content[start : start + length])
        array[i] = item if mark >= 0 else item.decode()
        start += length
    return array.reshape(shape)


class _Leaf:
    """A stored leaf, not yet made an array."""

    def __init__(self, entry: Mapping[str, Any], content: memoryview) -> None:
        self.dtype: str = entry["dtype"]
        self.shape: tuple[int, ...] = tuple(entry["shape"])
        self._content = content

    def array(self, dtype: np.dtype) -> np.ndarray:
        """The leaf as an array; `dtype` is that of the expected one."""
        if self.dtype == _STRINGS:
            return _unpack_strings(self._content, self.shape)
        return np.frombuffer(self._content, np.dtype(self.dtype) if dtype.kind in _PLAIN_KINDS else dtype).reshape(
            self.shape
        )


def _read_leaves(content: bytes) -> dict[_Path, _Leaf]:
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise TypeError(f"content must be bytes, found {content!r} of type {type(content).__name__}.")
    view = memoryview(content).toreadonly()
    if len(view) < 16 or view[:8] != _MAGIC:
        raise ValueError(f"content is not a stored structure: it begins with {bytes(view[:8])!r}, not {_MAGIC!r}.")
    start = 16 + struct.unpack_from("<Q", view, 8)[0]
    if start > len(view):
        raise ValueError(f"content is cut off: its header ends at byte {start}, it has {len(view)}.")
    leaves = {}
    try:
        for entry in json.loads(bytes(view[16:start])):
            end = start + entry["size"]
            leaves[tuple(entry["path"])] = _Leaf(entry, view[start:end])
            start = end + -entry["size"] % _ALIGNMENT
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"content has a header that is none ({type(error).__name__}: {error}).") from error
    if start != len(view):
        raise ValueError(f"content must have {start} bytes by its header, found {len(view)}.")
    return leaves


def _convert(path: _Path, leaf: _Leaf, expected: Any) -> Any:
    """The leaf as what `expected` is: an array, a NumPy scalar, or a Python number or string."""
    like = _to_array(path, expected)
    name = _dtype_name(like.dtype)
    # NumPy's fixed-length strings are as long as the longest happens to be.
    same = leaf.dtype == name or (like.dtype.kind in "SU" and leaf.dtype[:2] == name[:2])
    if not same or leaf.shape != like.shape:
        raise ValueError(
            f"Leaf {_show(path)} must be {name} of shape {list(like.shape)}, found {leaf.dtype} of shape "
            f"{list(leaf.shape)}. {_ADVICE}"
        )
    array = leaf.array(like.dtype)
    if isinstance(expected, (str, bytes)):
        return array[()]
    if isinstance(expected, (bool, int, float, complex)) and not isinstance(expected, np.generic):
        return array.item()
    return array[()] if isinstance(expected, np.generic) else array


def _show(path: _Path) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".") or "(the structure)"


def _show_all(paths: Any) -> str:
    names = [_show(path) for path in paths]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "none"
