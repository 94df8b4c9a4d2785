"""Checks Python values against TFF's tensor and structure types, as strictly as TFF's own runtime, and says where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def to_tensor(value: Any, type_spec: tff.TensorType, where: str) -> tf.Tensor:
    """Returns a tensor of the value, or raises a `TypeError` unless it fits without a change of kind or size."""
    try:
        return _to_tensor(value, type_spec, where)
    except (ValueError, OverflowError) as error:  # rows of different lengths, integers of more than 64 bits
        raise TypeError(f"Expected {where} to be of type {type_spec}, found {describe(value)}: {error}") from error


def _to_tensor(value: Any, type_spec: tff.TensorType, where: str) -> tf.Tensor:
    if isinstance(value, tf.Variable):
        value = value.read_value()
    dtype = type_spec.dtype.type
    tf_dtype = tf.string if dtype is np.str_ else tf.dtypes.as_dtype(dtype)
    if isinstance(value, tf.Tensor):
        fits, shape = value.dtype == tf_dtype and not tf.is_symbolic_tensor(value), value.shape
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        fits = all(_fits(x, dtype) for x in tf.nest.flatten(value))
        if fits:
            value = np.asarray(value, np.object_ if dtype is np.str_ else dtype)
        shape = np.shape(value)
    else:
        fits, shape = _fits(value, dtype), np.shape(value)
    if not fits or not tf.TensorShape(type_spec.shape).is_compatible_with(shape):
        raise TypeError(
            f"Expected {where} to be of type {type_spec}, found {describe(value)}. "
            "Pass a value of this dtype and shape."
        )
    if isinstance(value, tf.Tensor):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "US":
        value = value.astype(np.object_)
    return tf.constant(value, tf_dtype)


def _fits(value: Any, dtype: type[np.generic]) -> bool:
    """Whether a Python or NumPy value is of the kind of `dtype`, and no larger."""
    if isinstance(value, np.ndarray | np.generic):
        found = value.dtype
    elif isinstance(value, bool | int | float | complex | str | bytes):
        found = np.dtype(type(value))
    else:
        return False
    if found.type is dtype:
        return True
    if found.kind in "USO":
        return dtype is np.str_
    kinds = {"b": np.bool_, "i": np.integer, "u": np.integer, "f": np.floating, "c": np.complexfloating}
    if found.kind not in kinds or not np.issubdtype(dtype, kinds[found.kind]):
        return False
    return bool(np.can_cast(found if isinstance(value, np.ndarray | np.generic) else value, dtype))


def elements_of(value: Any, type_spec: tff.StructType, where: str) -> Iterator[tuple[Any, tff.Type, str]]:
    """The elements of a container in the order of the type, their types, and what to call them in messages.

    Raises:
      TypeError: if there are not as many as in the type, or they have names that are not the type's.
    """
    names = [name for name, _ in tff.structure.iter_elements(type_spec)]
    elements = _named_elements(value)
    if elements is None or len(elements) != len(names):
        found = describe(value) if elements is None else f"{len(elements)} elements in {describe(value)}"
        raise TypeError(f"Expected {where} to be a structure of type {type_spec}, found {found}.")
    if any(found not in (None, name) for (found, _), name in zip(elements, names, strict=True)):
        # TFF's own runtime takes elements by their place whatever their names are: {'b': 1, 'a': 2} passes for <a, b>.
        raise TypeError(
            f"Expected {where} to have elements named {names}, found {[name for name, _ in elements]}. "
            f"Pass them by these names and in this order: the type is {type_spec}."
        )
    for i, ((_, element), (name, element_type)) in enumerate(
        zip(elements, tff.structure.iter_elements(type_spec), strict=True)
    ):
        yield element, element_type, f"{where}[{i if name is None else repr(name)}]"


def _named_elements(value: Any) -> list[tuple[str | None, Any]] | None:
    """The elements of a container with their names, as TFF understands it; `None` if it is none."""
    # What clients' states and data come in. TFF asks each value what protocols it supports, which takes longer than
    # all the rest of an argument.
    if isinstance(value, tuple) and hasattr(type(value), "_fields"):
        return list(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    if type(value) in (tuple, list):
        return [(None, element) for element in value]
    try:
        return tff.structure.to_elements(tff.structure.from_container(value))
    except TypeError:
        return None


def describe(value: Any) -> str:
    """A value in a message: what it is, without all of its numbers."""
    if tf.is_symbolic_tensor(value):
        return f"{value!r}, which has no value before its graph is run"
    if isinstance(value, np.ndarray | tf.Tensor):
        return f"an array of dtype {value.dtype} and shape {tuple(value.shape)}"
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} of type {type(value).__name__}"
