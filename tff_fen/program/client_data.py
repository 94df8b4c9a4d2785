"""Clients' data as users have them, NumPy arrays or `tf.data.Dataset`s, and as a process takes them.

What plainly does not fit is refused before the work starts, with the line to write: TFF's own error shows two types.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

FORMS = (
    "a function from a client id to its tf.data.Dataset, a tff.simulation.datasets.ClientData, or a dictionary from "
    "client ids to data sets or pairs (x, y) of arrays"
)


def element_type_of(process: tff.templates.IterativeProcess) -> tff.Type | None:
    """Returns the type of the batches that a process takes of each client; `None` if it takes something else."""
    clients = process.next.type_signature.parameter[1]
    member = getattr(clients, "member", None)
    if isinstance(member, tff.StructType) and "data" in dir(member):
        member = member.data
    return member.element if isinstance(member, tff.SequenceType) else None


def to_dataset(value: Any) -> tf.data.Dataset:
    """Returns a data set as it is, and arrays as one of one batch: the quickest for `LocalTraining(batch_size=...)`."""
    if isinstance(value, tf.data.Dataset):
        return value
    return tf.data.Dataset.from_tensors(tuple(value) if isinstance(value, list) else value)


def check_values(data: Mapping[Any, Any], element_type: tff.Type | None) -> None:
    """Raises unless each client of a dictionary has a data set or arrays that the process takes."""
    known: set[Any] = set()
    for client, value in data.items():
        if isinstance(value, tf.data.Dataset):
            check_spec(client, value.element_spec, element_type)
            continue
        arrays = _arrays(value)
        if arrays is None:
            raise TypeError(
                f"client_dataset must be {FORMS}, found for client {client!r} the value {reprlib.repr(value)} "
                f"in one of type {type(data).__name__}."
            )
        lengths = [len(array) if array.ndim else 0 for array in arrays.values()]
        if len({*lengths}) > 1:
            raise ValueError(
                f"The arrays of client {client!r} must have as many rows each, found {lengths}. Their first axis is "
                "that of the examples."
            )
        kind = tuple((name, array.dtype.str, array.shape[1:]) for name, array in arrays.items())
        if kind not in known:  # Clients are many, and their kinds of data are few.
            known.add(kind)
            check_spec(client, to_dataset(value).element_spec, element_type, arrays=True)


def check_spec(client: Any, spec: Any, element_type: tff.Type | None, *, arrays: bool = False) -> None:
    """Raises a `TypeError` with the line to write if a client's data are of another dtype, or not in batches.

    Args:
      client: its id; `None` for all clients.
      spec: `element_spec` of its data set.
      element_type: what the process takes; with `None` nothing is checked.
      arrays: whether the user gave arrays.
    """
    if element_type is None:
        return
    found_type = tff.types.tensorflow_to_type(spec)
    found, expected = _leaves(found_type), _leaves(element_type)
    if found is None or expected is None or len(found) != len(expected):
        return  # The runtime says what it thinks of it.
    who = "The clients' data" if client is None else f"The data of client {client!r}"
    types = f"found {found_type.compact_representation()}, expected {element_type.compact_representation()}"
    for i, (name, leaf) in enumerate(expected):
        there = found[i][1]
        if there.dtype.type != leaf.dtype.type:
            kind = np.dtype(leaf.dtype.type).name
            cast = (
                f"{name}.astype(np.{kind})"
                if arrays
                else f"dataset.map(lambda x, y: {_call(['x', 'y'], i, kind)})"
                if len(expected) == 2
                else f"tf.cast({name}, tf.{kind}) in dataset.map"
            )
            raise TypeError(
                f"{who} have {name} of dtype {np.dtype(there.dtype.type).name} where the process takes {kind} "
                f"({types}). Cast it: {cast}."
            )
        if there.shape is not None and leaf.shape is not None and len(there.shape) == len(leaf.shape) - 1:
            raise TypeError(
                f"{who} are single examples where the process takes batches ({types}). Batch them: "
                "dataset.batch(20), or of a ClientData client_data.preprocess(lambda dataset: dataset.batch(20))."
            )
        if not tf.TensorShape(there.shape).is_compatible_with(leaf.shape):
            raise TypeError(
                f"{who} have {name} of shape {list(there.shape)} where the process takes {list(leaf.shape)} ({types}). "
                "Reshape it, or build the process with an input_spec of this shape; None is the axis of the examples."
            )


def _call(names: list[str], i: int, kind: str) -> str:
    cast = [f"tf.cast({name}, tf.{kind})" if i == j else name for j, name in enumerate(names)]
    return f"({', '.join(cast)})"


def _arrays(value: Any) -> dict[str, np.ndarray] | None:
    """The arrays of a client by name, x and y of a pair; `None` if it is something else."""
    if isinstance(value, Mapping):
        named = dict(value)
    elif isinstance(value, tuple | list) and len(value) == 2:
        named = dict(zip("xy", value, strict=True))
    else:
        return None
    arrays = {str(name): np.asarray(array) for name, array in named.items()}
    return None if any(array.dtype.hasobject for array in arrays.values()) else arrays


def _leaves(type_: tff.Type) -> list[tuple[str, tff.TensorType]] | None:
    """The tensors of a batch with their names, x and y of a pair without any; `None` if it is nested deeper."""
    if isinstance(type_, tff.TensorType):
        return [("x", type_)]
    if not isinstance(type_, tff.StructType):
        return None
    elements = tff.structure.to_elements(type_)
    if not all(isinstance(leaf, tff.TensorType) for _, leaf in elements):
        return None
    return [(name or ("xy"[i] if len(elements) == 2 else str(i)), leaf) for i, (name, leaf) in enumerate(elements)]
