"""The clients' work on a Ray cluster: in shards, wherever there is a worker, and again elsewhere if one is lost."""

from __future__ import annotations

import collections
import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tff_fen.runtime.errors import ClientWorkError
from tff_fen.runtime.inprocess.executors import ClientFunction
from tff_fen.runtime.inprocess.values import Value
from tff_fen.runtime.ray import transport
from tff_fen.runtime.ray.object_store import ObjectStore
from tff_fen.runtime.ray.worker import ClientWorker, Description, Failure, versions

# A worker that is being started has to import TensorFlow, on a busy machine many at once.
_START_SECONDS = 180.0
# So often a client may lose its worker: more is the client's own doing, such as memory that no worker has.
_MOST_LOSSES = 3


class RayWorkersError(RuntimeError):
    """The Ray cluster has no workers to compute clients with; the message says why."""


class _Shard(NamedTuple):
    """Clients `start` to `stop - 1`, which have lost `losses` workers."""

    start: int
    stop: int
    losses: int = 0

    def after_loss(self) -> Iterator[_Shard]:
        """Its clients one by one: if one of them it was that ended the worker, this tells which."""
        return (_Shard(client, client + 1, self.losses + 1) for client in range(self.start, self.stop))


class RayClientExecutor:
    """Runs clients in actors of a Ray cluster that this process is connected to.

    Local training is pure, so it does not matter to the bits who computes a client, nor how often.
    """

    def __init__(self, num_workers: int, threads_per_client: int = 1, gpus_per_worker: float = 0) -> None:
        """Starts the workers and waits for them.

        Args:
          num_workers: clients computed at once.
          threads_per_client: threads for one operation; a worker takes as many CPUs of the cluster.
          gpus_per_worker: GPUs of the cluster that a worker takes.

        Raises:
          RayWorkersError: if they do not start.
        """
        import ray

        self._ray: Any = ray
        self._actor: Any = ray.remote(ClientWorker).options(
            num_cpus=threads_per_client, num_gpus=gpus_per_worker, scheduling_strategy="SPREAD"
        )
        self._threads = threads_per_client
        self._num_workers = num_workers
        self._store = ObjectStore(lambda value: ray.put(value))
        self._ready: list[Any] = []
        self._starting: dict[Any, Any] = {}  # the answer of each worker that has not yet given it
        self._failed_starts = 0
        self._lock = threading.RLock()
        for _ in range(num_workers):
            self._start_worker()
        deadline = time.monotonic() + _START_SECONDS
        while self._starting:
            self._await([], deadline - time.monotonic())

    def run(self, function: ClientFunction, arguments: Sequence[Value]) -> list[Value]:
        if not arguments:
            return []
        # One call at a time: it has all workers.
        with self._lock:
            stored = self._store.function(function.block)
            common, encoded = self._store.arguments(function.scope, arguments)
            return self._compute(stored, common, encoded)

    def describe_workers(self) -> list[Description]:
        """What the workers are, and what they have done so far."""
        with self._lock:
            return self._ray.get([worker.describe.remote() for worker in self._ready])

    def close(self) -> None:
        """Ends the workers. Nothing can be run any more."""
        with self._lock:
            for worker in [*self._ready, *self._starting.values()]:
                self._ray.kill(worker)
            self._ready, self._starting = [], {}

    def _compute(self, function: Any, common: Any, encoded: list[Any]) -> list[Value]:
        results: list[Value] = [None] * len(encoded)
        waiting = collections.deque(_shards(len(encoded), self._num_workers))
        running: dict[Any, tuple[Any, _Shard]] = {}
        while waiting or running:
            busy = [worker for worker, _ in running.values()]
            for worker in [w for w in self._ready if w not in busy][: len(waiting)]:
                shard = waiting.popleft()
                running[worker.run.remote(function, common, encoded[shard.start : shard.stop])] = (worker, shard)
            done = self._await(list(running), math.inf if running else _START_SECONDS)
            # By the clients' order, so that of several errors known by now the first is raised.
            for answer in sorted(done, key=lambda ref: running[ref][1]):
                worker, shard = running.pop(answer)
                try:
                    outcome = self._ray.get(answer)
                except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError) as error:
                    if shard.losses == _MOST_LOSSES:
                        raise ClientWorkError(shard.start, len(encoded), error) from error
                    waiting.extendleft(reversed(list(shard.after_loss())))
                    self._replace(worker)
                    continue
                if isinstance(outcome, Failure):
                    _raise_failure(outcome, shard.start + outcome.client, len(encoded))
                results[shard.start : shard.stop] = map(transport.decode, outcome)
        return results

    def _await(self, answers: list[Any], seconds: float) -> list[Any]:
        """Waits for one of the answers, or for a worker that is starting; returns the answers that have come."""
        if not answers and not self._starting:
            raise RayWorkersError(
                "The Ray runtime has no workers any more: its context was closed. Call "
                "tff_fen.runtime.set_ray_context() to compute again."
            )
        timeout = None if math.isinf(seconds) else max(seconds, 0.0)
        done, _ = self._ray.wait([*answers, *self._starting], timeout=timeout)
        if not done:
            raise RayWorkersError(
                f"No worker of the Ray cluster has started in {_START_SECONDS:.0f} s; {len(self._starting)} were asked "
                f"for. Nodes: {self._nodes()}. See that the cluster has {self._threads} free CPUs a worker (`ray "
                "status`)."
            )
        for answer in [ref for ref in done if ref in self._starting]:
            self._welcome(answer)
        return [ref for ref in done if ref in answers]

    def _start_worker(self) -> None:
        worker = self._actor.remote(self._threads)
        self._starting[worker.describe.remote()] = worker

    def _welcome(self, answer: Any) -> None:
        """Takes a worker that has started, or another one in its place."""
        worker = self._starting.pop(answer)
        try:
            description = self._ray.get(answer)
        except self._ray.exceptions.RayActorError as error:
            self._failed_starts += 1
            if self._failed_starts > _MOST_LOSSES:
                raise RayWorkersError(
                    f"Workers of the Ray cluster end as they start: {error} See that all nodes have this package and "
                    "its requirements."
                ) from error
            self._start_worker()
            return
        self._failed_starts = 0
        if description.versions != versions():
            raise RayWorkersError(
                f"The worker on {description.host} has {description.versions}, this process {versions()}: "
                "results would differ. Install the same requirements.txt on all nodes."
            )
        self._ready.append(worker)

    def _replace(self, worker: Any) -> None:
        if worker in self._ready:
            self._ready.remove(worker)
            self._ray.kill(worker)  # if only its answer was lost
            self._start_worker()

    def _nodes(self) -> str:
        nodes = [n for n in self._ray.nodes() if n["Alive"]]
        return ", ".join(f"{n['NodeManagerAddress']} {n['Resources'].get('CPU', 0):g} CPUs" for n in nodes) or "none"


def _shards(num_clients: int, num_workers: int) -> Iterator[_Shard]:
    """Large shards first, for few messages; single clients at the end, so that all workers end together."""
    start = 0
    while start < num_clients:
        size = math.ceil((num_clients - start) / (2 * num_workers))
        yield _Shard(start, start + size)
        start += size


def _raise_failure(failure: Failure, client: int, num_clients: int) -> None:
    error = ClientWorkError(client, num_clients, failure.error)
    error.add_note(f"On the worker:\n{failure.traceback}")
    raise error from failure.error
