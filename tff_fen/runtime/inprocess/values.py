"""Values inside the in-process runtime, and how they come in and go out by their TFF type.

A value of a type is:

    tff.TensorType       a tf.Tensor
    tff.SequenceType     the variant tensor of a tf.data.Dataset, handed over as it is
    tff.StructType       a tuple, in the order of the type
    tff.FederatedType    at SERVER its member, at CLIENTS a `ClientValues`
    tff.FunctionType     a callable of one value, or of none
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.runtime.inprocess import sequences, tensors

Value = Any


class ClientValues:
    """A value placed at CLIENTS: one member a client, or one for all of them.

    Attributes:
      members: the clients' values in the order of the clients; of one element if `all_equal`.
      all_equal: whether the one element is the value of every client, however many there are.
    """

    __slots__ = ("all_equal", "members")

    def __init__(self, members: list[Value], all_equal: bool = False) -> None:
        self.members = members
        self.all_equal = all_equal

    def each(self, num_clients: int) -> list[Value]:
        """The values of all clients, one by one."""
        return self.members * num_clients if self.all_equal else self.members


def flatten(value: Value) -> Iterator[tf.Tensor]:
    """The tensors of a value that holds no client values, in the order of its type."""
    if isinstance(value, tuple):
        for element in value:
            yield from flatten(element)
    else:
        yield value


def count_clients(value: Any, type_spec: tff.Type, where: str = "the argument") -> int | None:
    """Returns how many clients an argument speaks of, or `None` if it has nothing at CLIENTS.

    Raises:
      TypeError: if a value at CLIENTS is not a list.
      ValueError: if two parts speak of different numbers of clients.
    """
    if isinstance(type_spec, tff.FederatedType):
        if type_spec.all_equal:
            return None
        if not isinstance(value, list):
            raise TypeError(
                f"Expected {where}, a value of type {type_spec}, to be a list of one value a client, found "
                f"{tensors.describe(value)}. Pass a list."
            )
        return len(value)
    found: int | None = None
    if isinstance(type_spec, tff.StructType):
        for element, element_type, path in tensors.elements_of(value, type_spec, where):
            count = count_clients(element, element_type, path)
            if found is not None and count is not None and count != found:
                raise ValueError(
                    f"Conflicting numbers of clients: {path} has {count}, a part before it {found}. "
                    "Pass one value a client in each."
                )
            found = count if found is None else found
    return found


def ingest(
    value: Any,
    type_spec: tff.Type,
    ingest_function: Callable[[Any], Callable[..., Value]],
    where: str = "the argument",
) -> Value:
    """Turns an argument from Python into a value of the runtime, checked against its type.

    Args:
      value: what the caller passed.
      type_spec: the type of the computation's parameter.
      ingest_function: what makes a callable of an argument that is a computation.
      where: what to call the value in messages.

    Raises:
      TypeError: if the value is not of the type, as TFF's own runtime does.
    """
    if isinstance(type_spec, tff.TensorType):
        return tensors.to_tensor(value, type_spec, where)
    if isinstance(type_spec, tff.SequenceType):
        return tf.data.experimental.to_variant(sequences.to_dataset(value, type_spec, where))
    if isinstance(type_spec, tff.StructType):
        return tuple(
            ingest(element, element_type, ingest_function, path)
            for element, element_type, path in tensors.elements_of(value, type_spec, where)
        )
    if isinstance(type_spec, tff.FederatedType):
        member = type_spec.member
        if type_spec.placement is tff.SERVER:
            return ingest(value, member, ingest_function, where)
        if type_spec.all_equal:
            return ClientValues([ingest(value, member, ingest_function, where)], all_equal=True)
        return ClientValues([ingest(v, member, ingest_function, f"{where} of client {i}") for i, v in enumerate(value)])
    if isinstance(type_spec, tff.FunctionType) and isinstance(value, tff.Computation):
        type_spec.check_assignable_from(value.type_signature)
        return ingest_function(value)
    raise TypeError(f"Expected {where} to be of type {type_spec}, found {tensors.describe(value)}.")


def egest(value: Value, type_spec: tff.Type, num_clients: int) -> Any:
    """Turns a result into what TFF's own runtime returns: NumPy values in Python's containers, lists of clients.

    Args:
      value: of the runtime.
      type_spec: the result's type as the computation was written: compiling it drops the Python containers.
      num_clients: of the invocation.
    """
    if isinstance(type_spec, tff.TensorType):
        return value.numpy()
    if isinstance(type_spec, tff.SequenceType):
        return tf.data.experimental.from_variant(value, sequences.element_spec(type_spec.element))
    if isinstance(type_spec, tff.StructType):
        return _contain([egest(v, t, num_clients) for t, v in zip(type_spec, value, strict=True)], type_spec)
    if isinstance(type_spec, tff.FederatedType):
        if type_spec.placement is tff.SERVER:
            return egest(value, type_spec.member, num_clients)
        if type_spec.all_equal:
            # Whatever the number of clients: TFF's own runtime wants one, as its `default_num_clients` then.
            return egest(value.members[0], type_spec.member, num_clients)
        if num_clients == 0:
            # TFF's own runtime raises too: without clients there is no value to show.
            raise ValueError(
                f"The result holds a value of type {type_spec}, but there are no clients. Pass at least one client, "
                "or return values at SERVER only."
            )
        return [egest(member, type_spec.member, num_clients) for member in value.each(num_clients)]
    raise TypeError(f"A result of type {type_spec} cannot be returned to Python; return what it computes instead.")


def _contain(elements: list[Any], type_spec: tff.StructType) -> Any:
    """Puts elements into the container of their type, or into the one that TFF takes where there is none."""
    container, names = type_spec.python_container, [name for name, _ in tff.structure.iter_elements(type_spec)]
    # What clients' states come in. TFF asks each container what protocols it supports, which takes long.
    if getattr(container, "_fields", None) == (*names,) and issubclass(container, tuple):
        return container(*elements)
    if container in (tuple, list) and not any(names):
        return container(elements)
    return tff.types.type_to_py_container(tff.structure.Struct(list(zip(names, elements, strict=True))), type_spec)
