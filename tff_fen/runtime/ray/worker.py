"""The clients' work in a process of a Ray cluster: what `clients.py` calls there."""

from __future__ import annotations

import collections
import os
import pickle
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.runtime.inprocess.context import configure_tensorflow
from tff_fen.runtime.inprocess.evaluator import ComputationEvaluator, Executable, LocalFunction
from tff_fen.runtime.inprocess.executors import ThreadedClientExecutor
from tff_fen.runtime.inprocess.values import Value
from tff_fen.runtime.ray import transport

# Functions kept in a worker. A round has a handful, and so has each evaluation beside it.
_MOST_EXECUTABLES = 64


class CommonPart(NamedTuple):
    """Stands in a client's argument for a part that several clients have in common: its number in `Common.parts`."""

    number: int


class StoredObject(NamedTuple):
    """An object in Ray's store that a worker reads only if it has not yet got what it makes of it.

    Attributes:
      key: equal for equal contents.
      reference: Ray's, in a list, for Ray to pass it on as it is rather than the object.
    """

    key: str
    reference: list[Any]


class Common(NamedTuple):
    """What all clients of a call have in common: shared parts, and the names that the function uses."""

    parts: tuple[Any, ...]
    scope: dict[str, Any]


class Failure(NamedTuple):
    """The error of a client, by its place in the shard, and where it was raised."""

    client: int
    error: Exception
    traceback: str


class Description(NamedTuple):
    """What a worker is, and what it has done so far."""

    process_id: int
    host: str
    versions: dict[str, str]
    imported_functions: int
    computed_clients: int


class RemoteWorkError(RuntimeError):
    """Stands for an error of a worker that cannot be sent to another process."""


def versions() -> dict[str, str]:
    """What must be the same for all for the same bits."""
    return {"tensorflow": tf.__version__, "tensorflow_federated": tff.__version__}


class ClientWorker:
    """Computes shards of clients one after the other; an actor of Ray's, but nothing in it needs to be one."""

    def __init__(self, threads: int, fetch: Callable[[list[Any]], list[Any]] | None = None) -> None:
        """Initializes the worker.

        Args:
          threads: of a TensorFlow operation, and operations at once.
          fetch: reads references of Ray's store.
        """
        # One client at a time: handing its operations to and fro between cores would take half as much time again, and
        # cores that other workers are to have.
        configure_tensorflow(threads, gpu_memory_growth=True, concurrent_ops=threads)
        self._fetch = fetch or _fetch
        self._executables: collections.OrderedDict[str, Executable] = collections.OrderedDict()
        # The last one alone: there is one per call, and a call is a few shards.
        self._common: tuple[str, tuple[Value, ...], dict[str, Value]] = ("", (), {})
        self._imported = 0
        self._computed = 0

    def describe(self) -> Description:
        """What it is, and what it has done so far."""
        return Description(os.getpid(), socket.gethostname(), versions(), self._imported, self._computed)

    def run(self, function: StoredObject, common: StoredObject | None, arguments: Sequence[Any]) -> list[Any] | Failure:
        """Returns the encoded results of a function for each encoded argument, or the first error."""
        results: list[Any] = []
        try:
            with tf.device("/CPU:0"):
                # At once: objects on other nodes then come side by side.
                data_sets = self._data_sets(arguments)
                parts, scope = self._read_common(common)
            executable = self._executable(function)
            work = LocalFunction(executable.block, scope, _evaluator(executable))
            for encoded in arguments:
                with tf.device("/CPU:0"):
                    argument = self._decode(encoded, parts, data_sets)
                results.append(transport.encode(work(argument)))
                self._computed += 1
        except Exception as error:
            return Failure(len(results), _portable(error), traceback.format_exc())
        return results

    def _executable(self, function: StoredObject) -> Executable:
        if function.key not in self._executables:
            (serialized,) = self._fetch(function.reference)
            self._executables[function.key] = self._import(serialized)
            if len(self._executables) > _MOST_EXECUTABLES:
                self._executables.popitem(last=False)
        self._executables.move_to_end(function.key)
        return self._executables[function.key]

    def _import(self, serialized: bytes) -> Executable:
        self._imported += 1
        return Executable(transport.deserialize_block(serialized))

    def _function(self, function: transport.Function) -> LocalFunction:
        """A function among the values that another one uses."""
        executable = self._import(function.block)
        scope = {name: transport.decode(value, self._function) for name, value in function.scope.items()}
        return LocalFunction(executable.block, scope, _evaluator(executable))

    def _read_common(self, common: StoredObject | None) -> tuple[tuple[Value, ...], dict[str, Value]]:
        if common is None:
            return (), {}
        if self._common[0] != common.key:
            ((parts, scope),) = self._fetch(common.reference)
            names = {name: transport.decode(value, self._function) for name, value in scope.items()}
            self._common = (common.key, tuple(map(transport.decode, parts)), names)
        return self._common[1:]

    def _data_sets(self, arguments: Sequence[Any]) -> dict[Any, Any]:
        references = list(dict.fromkeys(r for argument in arguments for r in _references(argument)))
        return dict(zip(references, self._fetch(references), strict=True)) if references else {}

    def _decode(self, encoded: Any, parts: Sequence[Value], data_sets: dict[Any, Any]) -> Value:
        if isinstance(encoded, CommonPart):
            return parts[encoded.number]
        if isinstance(encoded, transport.DataSet):
            if not isinstance(encoded.graph, bytes):
                return transport.decode(transport.DataSet(data_sets[encoded.graph]))
        elif isinstance(encoded, tuple) and not isinstance(encoded, transport.Function):
            return tuple(self._decode(part, parts, data_sets) for part in encoded)
        return transport.decode(encoded, self._function)


def _references(encoded: Any) -> Iterator[Any]:
    """What stands for data sets that are in Ray's store."""
    if isinstance(encoded, transport.DataSet):
        if not isinstance(encoded.graph, bytes):
            yield encoded.graph
    elif isinstance(encoded, tuple):
        for part in encoded:
            yield from _references(part)


def _evaluator(executable: Executable) -> ComputationEvaluator:
    return ComputationEvaluator(executable, ThreadedClientExecutor(1), 0)


def _portable(error: Exception) -> Exception:
    """The error itself if another process can read it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RemoteWorkError(f"{type(error).__name__}: {error}")
    return error


def _fetch(references: list[Any]) -> list[Any]:
    import ray

    return ray.get(references)
