"""What the driver puts into Ray's object store: each thing once, and kept there as long as it can be of use again."""

from __future__ import annotations

import collections
import hashlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_fen.runtime.inprocess.values import Value
from tff_fen.runtime.ray import transport
from tff_fen.runtime.ray.worker import Common, CommonPart, StoredObject

# Serialised data sets that stay in the store for rounds to come; those unused for longest make room.
_KEPT_DATA_BYTES = 2**29
# Smaller data sets go along with the other arguments: the store costs more than a copy.
_LEAST_STORED_BYTES = 2**16


class ObjectStore:
    """The driver's side of Ray's object store. Not safe to use from two threads at once."""

    def __init__(self, put: Callable[[Any], Any], kept_data_bytes: int = _KEPT_DATA_BYTES) -> None:
        """Initializes the store.

        Args:
          put: Ray's function of this name.
          kept_data_bytes: most bytes of data sets to keep for calls to come.
        """
        self._put = put
        self._kept_data_bytes = kept_data_bytes
        # By identity, as to serialise is what is to be saved; an entry goes with the object whose id is its key.
        self._functions: dict[int, tuple[weakref.ref, StoredObject]] = {}
        self._digests: dict[int, tuple[weakref.ref, bytes]] = {}
        # By content: a round's data sets are often made anew, of the same arrays.
        self._data_sets: collections.OrderedDict[bytes, tuple[Any, int]] = collections.OrderedDict()
        self._data_bytes = 0

    def function(self, block: Any) -> StoredObject:
        """A building block in the store."""
        key = id(block)
        if key not in self._functions:
            serialized = transport.serialize_block(block)
            stored = StoredObject(hashlib.sha256(serialized).hexdigest(), [self._put(serialized)])
            self._functions[key] = (weakref.ref(block, lambda _: self._functions.pop(key, None)), stored)
        return self._functions[key][1]

    def arguments(self, scope: dict[str, Value], arguments: Sequence[Value]) -> tuple[StoredObject | None, list[Any]]:
        """Returns what the clients have in common, in the store, and their encoded arguments without it."""
        common = _shared_tensors(arguments)
        numbers = {key: CommonPart(i) for i, key in enumerate(common)}

        def encode_tensor(tensor: tf.Tensor) -> Any:
            return numbers.get(id(tensor)) or tensor.numpy()

        encoded = [transport.encode(argument, encode_tensor, self.data_set) for argument in arguments]
        if not common and not scope:
            return None, encoded
        parts = tuple(tensor.numpy() for tensor in common.values())
        reference = self._put(Common(parts, {name: transport.encode(value) for name, value in scope.items()}))
        return StoredObject(reference.hex(), [reference]), encoded

    def data_set(self, variant: tf.Tensor) -> Any:
        """The serialised graph of a data set: a reference to it in the store, or its bytes if these are few."""
        key = id(variant)
        if key in self._digests and self._digests[key][1] in self._data_sets:
            return self._use(self._digests[key][1])
        graph = transport.serialize_data_set(variant)
        digest = hashlib.sha256(graph).digest()
        if transport.is_constant(graph):
            self._digests[key] = (weakref.ref(variant, lambda _: self._digests.pop(key, None)), digest)
        if digest in self._data_sets:
            return self._use(digest)
        # Arrays are read from the store where they lie; bytes would be copied.
        kept = graph if len(graph) < _LEAST_STORED_BYTES else self._put(np.frombuffer(graph, np.uint8))
        self._data_sets[digest] = (kept, len(graph))
        self._data_bytes += len(graph)
        while self._data_bytes > self._kept_data_bytes:
            # The object itself stays in Ray's store as long as a call that uses it is under way.
            _, (_, size) = self._data_sets.popitem(last=False)
            self._data_bytes -= size
        return kept

    def _use(self, digest: bytes) -> Any:
        self._data_sets.move_to_end(digest)
        return self._data_sets[digest][0]


def _shared_tensors(arguments: Sequence[Value]) -> dict[int, tf.Tensor]:
    """The tensors that are in the arguments of more than one client, by their ids."""
    seen: dict[int, int] = {}
    shared: dict[int, tf.Tensor] = {}
    for client, argument in enumerate(arguments):
        for tensor in _tensors(argument):
            if seen.setdefault(id(tensor), client) != client:
                shared[id(tensor)] = tensor
    return shared


def _tensors(value: Value) -> Iterator[tf.Tensor]:
    if isinstance(value, tuple):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, tf.Tensor) and value.dtype != tf.variant:
        yield value
