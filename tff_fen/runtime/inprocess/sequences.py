"""`tff.SequenceType` values: data sets checked against their type, or made from lists of elements."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.runtime.inprocess import tensors


def element_spec(type_spec: tff.Type) -> Any:
    """Returns the `element_spec` of a data set whose elements are of a TFF type.

    (`tff.types.type_to_tf_tensor_specs` makes a tuple of names of a named structure without a container.)
    """
    return _in_containers(map(_tensor_spec, _tensor_types(type_spec)), type_spec)


def to_element(element: Any, type_spec: tff.Type) -> Any:
    """Turns an element of a data set into nested tuples in the order of the type."""
    if isinstance(type_spec, tff.StructType):
        parts = tff.structure.from_container(element)
        return tuple(to_element(part, t) for part, t in zip(parts, type_spec, strict=True))
    return element


def from_element(flat: Iterator[tf.Tensor], type_spec: tff.Type) -> Any:
    """Turns the tensors of an element, in the order of the type, into the element of a data set."""
    return _in_containers(flat, type_spec)


def to_dataset(value: Any, type_spec: tff.SequenceType, where: str) -> tf.data.Dataset:
    """Returns a data set of the value, itself a data set or a list of elements, checked against the type.

    Raises:
      TypeError: if its elements are of another type.
      ValueError: if the order of its elements' names is ambiguous.
    """
    if isinstance(value, list):
        return _from_list(value, type_spec.element, where)
    if not isinstance(value, tf.data.Dataset):
        raise TypeError(
            f"Expected {where}, of type {type_spec}, to be a tf.data.Dataset or a list of elements, found "
            f"{tensors.describe(value)}."
        )
    found = _type_of(value.element_spec)
    if not type_spec.is_assignable_from(found):
        raise TypeError(
            f"Expected {where} to be a data set of type {type_spec}, found one of type {found}. Map or batch it so "
            "that its element_spec fits."
        )
    _check_name_order(found.element, where)
    return value


def _type_of(spec: Any) -> tff.SequenceType:
    """The type of a data set with elements like these; that of plain tuples, which most clients share, is kept."""
    # Nothing else: a named tuple equals a tuple, and would be given its type.
    is_plain = type(spec) is tuple and all(type(part) is tf.TensorSpec for part in spec)
    return _type_of_plain(spec) if is_plain else tff.SequenceType(tff.types.tensorflow_to_type(spec))


@functools.lru_cache(maxsize=64)
def _type_of_plain(spec: tuple[tf.TensorSpec, ...]) -> tff.SequenceType:
    return tff.SequenceType(tff.types.tensorflow_to_type(spec))


def _check_name_order(type_spec: tff.Type, where: str) -> None:
    """Raises unless the order of names that TensorFlow uses, by the alphabet in a dict, is that of the type."""
    if not isinstance(type_spec, tff.StructType):
        return
    names = [name for name, _ in tff.structure.iter_elements(type_spec) if name is not None]
    container = type_spec.python_container
    if names != sorted(names) and container is not collections.OrderedDict:
        raise ValueError(
            f"The elements of {where} have the names {names} in a {getattr(container, '__name__', container)}, in an "
            "order that TensorFlow and TFF understand differently. Use a collections.OrderedDict."
        )
    for element_type in type_spec:
        _check_name_order(element_type, where)


def _from_list(elements: list[Any], type_spec: tff.Type, where: str) -> tf.data.Dataset:
    """A data set of the elements, where runs of elements of one shape are slices of one tensor."""
    rows = [list(_flatten(e, type_spec, f"element {i} of {where}")) for i, e in enumerate(elements)]
    runs = [list(run) for _, run in itertools.groupby(rows, key=lambda row: [tensor.shape for tensor in row])]
    stacks = [[tf.stack(column) for column in zip(*run, strict=True)] for run in runs]
    if not stacks:
        # Of no elements one knows the dimensions that the type knows.
        specs = map(_tensor_spec, _tensor_types(type_spec))
        stacks = [[tf.zeros([0, *(d or 0 for d in s.shape)], s.dtype) for s in specs]]
    data_sets = [tf.data.Dataset.from_tensor_slices(_in_containers(iter(stack), type_spec)) for stack in stacks]
    dataset = data_sets[0]
    for following in data_sets[1:]:
        dataset = dataset.concatenate(following)
    return dataset


def _flatten(element: Any, type_spec: tff.Type, where: str) -> Iterator[tf.Tensor]:
    if isinstance(type_spec, tff.StructType):
        for part, part_type, path in tensors.elements_of(element, type_spec, where):
            yield from _flatten(part, part_type, path)
    else:
        yield tensors.to_tensor(element, type_spec, where)


def _tensor_types(type_spec: tff.Type) -> Iterator[tff.TensorType]:
    if isinstance(type_spec, tff.StructType):
        for element_type in type_spec:
            yield from _tensor_types(element_type)
    elif isinstance(type_spec, tff.TensorType):
        yield type_spec
    else:
        raise TypeError(f"The elements of a data set must be structures of tensors, found the type {type_spec}.")


def _tensor_spec(type_spec: tff.TensorType) -> tf.TensorSpec:
    return tf.TensorSpec(type_spec.shape, tf.string if type_spec.dtype.type is np.str_ else type_spec.dtype)


def _in_containers(leaves: Iterator[Any], type_spec: tff.Type) -> Any:
    """Puts one leaf a tensor into the containers of the type; by default an OrderedDict if named, else a tuple."""

    def structured(type_spec: tff.Type) -> Any:
        if isinstance(type_spec, tff.StructType):
            return tff.structure.Struct([(name, structured(t)) for name, t in tff.structure.iter_elements(type_spec)])
        return next(leaves)

    return tff.types.type_to_py_container(structured(type_spec), type_spec)
