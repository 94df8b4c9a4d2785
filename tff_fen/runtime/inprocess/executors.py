"""Who does the clients' work: the one interface between the evaluator and threads, devices or other machines."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from tff_fen.runtime.errors import ClientWorkError
from tff_fen.runtime.inprocess.values import Value


class ClientFunction(Protocol):
    """What clients compute.

    Attributes:
      block: the function as a building block of TFF, with a proto: what another process needs to have it too.
      scope: the values of the names that `block` uses and does not bind; mostly none.
    """

    block: Any
    scope: dict[str, Value]

    def __call__(self, argument: Value = ()) -> Value:
        """Computes it here, with the installed TensorFlow."""


class ClientExecutor(Protocol):
    """Runs a function once a client. The results are in the order of the arguments, whoever computed them."""

    def run(self, function: ClientFunction, arguments: Sequence[Value]) -> list[Value]:
        """Returns `[function(argument) for argument in arguments]`.

        A part that is equal for all clients, such as the weights that the server sends, is one and the same
        `tf.Tensor` in all of the arguments: by its identity it is known, and can be sent once.

        Raises:
          ClientWorkError: of the first client, in the order of the arguments, known to have failed.
        """


class ThreadedClientExecutor:
    """Clients side by side in the threads of this process; client i on device i modulo the number of devices."""

    def __init__(self, max_concurrent_clients: int, devices: Sequence[str] | None = None) -> None:
        """Initializes the executor.

        Args:
          max_concurrent_clients: how many threads compute clients.
          devices: TensorFlow's names of devices; `None` leaves the choice to TensorFlow.
        """
        self._threads = max_concurrent_clients
        self._devices = list(devices or [])
        self._pool = concurrent.futures.ThreadPoolExecutor(max_concurrent_clients, thread_name_prefix="tff_fen_client")

    def run(self, function: ClientFunction, arguments: Sequence[Value]) -> list[Value]:
        results: list[Value] = [None] * len(arguments)
        errors: dict[int, Exception] = {}
        is_cancelled = threading.Event()
        remaining = itertools.count()

        def work() -> None:
            # Each thread takes the next client until none is left: one task a thread rather than one a client, which
            # with a thousand small clients would cost more than their work.
            while not (errors or is_cancelled.is_set()) and (i := next(remaining)) < len(arguments):
                try:
                    with self._device(i):
                        results[i] = function(arguments[i])
                except Exception as error:
                    errors[i] = error

        if self._threads == 1 or len(arguments) < 2:
            work()
        else:
            workers = [self._pool.submit(work) for _ in range(min(self._threads, len(arguments)))]
            try:
                for worker in workers:
                    worker.result()
            finally:
                is_cancelled.set()  # Ctrl-C ends the wait of this thread alone; of each other, the client it is at
        if errors:
            first = min(errors)
            raise ClientWorkError(first, len(arguments), errors[first]) from errors[first]
        return results

    def _device(self, client: int) -> contextlib.AbstractContextManager[None]:
        if not self._devices:
            return contextlib.nullcontext()
        return tf.device(self._devices[client % len(self._devices)])
