"""TFF's own C++ worker: set up for clients side by side, and ended with the process that started it."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
from typing import Any, NoReturn

import numpy as np
import psutil
import tensorflow_federated as tff

from tff_fen.runtime import compilation

_WORKER_NAME = "worker_binary"
_THREADS_VARIABLE = "TF_NUM_INTRAOP_THREADS"


def create_native_context(
    max_concurrent_clients: int | None = None, threads_per_client: int = 1, *, ignore_interrupts: bool = False
) -> tff.framework.SyncExecutionContext:
    """Starts a TFF C++ worker with whole clients as the unit of parallelism and returns its context.

    TFF's default gives every TensorFlow operation of every client all cores; the clients
    then wait for each other inside each operation. One thread a client and about as many
    clients as cores is faster for all but a single large client
    (`python -m benchmarks.local_training` measures both).

    Args:
      max_concurrent_clients: clients computed at once, by default one more than cores: one of them waits for its data
        or hands over its result while the others compute.
      threads_per_client: threads for one operation of one client.
      ignore_interrupts: whether the worker survives a Ctrl-C in the terminal, which reaches all
        processes there, so that the script can finish its round. TFF cannot end such a
        worker when the context is dropped; the end of the process does.
    """
    context = compilation.create_local_cpp_context(max_concurrent_clients or len(os.sched_getaffinity(0)) + 1)
    # The worker reads its thread count from the environment it is started in, and TFF starts it at the
    # first computation: run one now, so that the variable need not stay set in this process.
    before = os.environ.get(_THREADS_VARIABLE)
    os.environ[_THREADS_VARIABLE] = str(threads_per_client)
    # A signal that is ignored stays so in a child.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignore_interrupts else None
    try:
        with tff.framework.get_context_stack().install(context):
            tff.federated_computation(lambda: tff.federated_value(np.int32(0), tff.SERVER))()
    finally:
        if ignore_interrupts:
            signal.signal(signal.SIGINT, handler)
        if before is None:
            del os.environ[_THREADS_VARIABLE]
        else:
            os.environ[_THREADS_VARIABLE] = before
    return context


def set_native_context(
    max_concurrent_clients: int | None = None, threads_per_client: int = 1, *, ignore_interrupts: bool = False
) -> None:
    """Makes the context of `create_native_context` TFF's default runtime."""
    context = create_native_context(max_concurrent_clients, threads_per_client, ignore_interrupts=ignore_interrupts)
    tff.framework.set_default_context(context)


class _EndedContext(tff.framework.SyncContext):
    """Stands where the runtime was once its workers are ended."""

    def invoke(self, comp: Any, arg: Any) -> NoReturn:
        raise RuntimeError(
            "tff_fen.runtime.end_worker_processes() has ended TFF's workers; "
            "call tff_fen.runtime.set_native_context() to compute again."
        )


def end_worker_processes(timeout_seconds: float = 5.0) -> None:
    """Ends the TFF workers this process started; runs by itself when the interpreter exits.

    TFF means to do so in a `__del__` that fails once modules are torn down, and a worker
    that lives on keeps the standard output it inherited open: `python script.py | tail`
    would never end.
    """
    workers = [child for child in psutil.Process().children(recursive=True) if _is_worker(child)]
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()
    # Dropping TFF's context runs its `__del__` now, while it still can. It sends SIGINT and waits, which would be for
    # ever where SIGINT is ignored, as in a shell's background job: hence the kill before it.
    tff.framework.set_default_context(_EndedContext())
    gc.collect()
    psutil.wait_procs(workers, timeout=timeout_seconds)


def _is_worker(process: psutil.Process) -> bool:
    try:
        return process.name() == _WORKER_NAME
    except psutil.NoSuchProcess:
        return False


atexit.register(end_worker_processes)
