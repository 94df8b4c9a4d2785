"""TFF computations with the clients' work on a Ray cluster: other processes of this machine, or other machines."""

from __future__ import annotations

import os
import time

import tensorflow_federated as tff

from tff_fen.checks import check_integer, check_number
from tff_fen.runtime.inprocess.context import InProcessContext, configure_tensorflow
from tff_fen.runtime.ray import cluster
from tff_fen.runtime.ray.clients import RayClientExecutor

# Ray hears of CPUs that have become free with a delay.
_CAPACITY_SECONDS = 5.0


class RayContext(InProcessContext):
    """Evaluates TFF computations in this process but for the clients' work, which is done on a Ray cluster.

    Attributes:
      executor: who does the clients' work.
    """

    def __init__(self, executor: RayClientExecutor, clients_on_gpus: bool = False) -> None:
        super().__init__(executor, clients_on_gpus)
        self.executor = executor

    def close(self) -> None:
        """Ends this context's workers; the cluster goes on."""
        self.executor.close()


def create_ray_context(
    address: str | None = None,
    *,
    num_workers: int | None = None,
    threads_per_client: int = 1,
    gpus_per_worker: float = 0.0,
) -> RayContext:
    """Returns a context that evaluates TFF computations with the clients' work on a Ray cluster.

    Results are those of `create_inprocess_context` to the bit, on machines of one kind
    and with the same `threads_per_client`. A worker, or a whole machine, that is lost has
    its clients computed again by others. All machines need this package and its
    requirements.

    Call it before anything makes TensorFlow start, as `create_inprocess_context`.

    Args:
      address: "HOST:PORT" of the cluster's head node, "auto" for the cluster that this machine belongs to. `None`
        starts one on this machine, which ends with this process, and needs the calling thread as long; if this
        process is connected to a cluster already, that one is used.
      num_workers: clients computed at once, each in a process of its own; by default one for each core of this
        machine, or for each `threads_per_client` CPUs of the given cluster; with GPUs as many as there are.
      threads_per_client: threads for one operation, and CPUs of the cluster that a worker takes.
      gpus_per_worker: GPUs that a worker takes; 0.5 puts two workers on one.
    """
    if num_workers is not None:
        check_integer("num_workers", num_workers, 1)
    check_integer("threads_per_client", threads_per_client, 1)
    check_number("gpus_per_worker", gpus_per_worker, 0)
    configure_tensorflow(threads_per_client, gpu_memory_growth=True)
    local_workers = num_workers or max(1, len(os.sched_getaffinity(0)) // threads_per_client)
    cluster.connect(address, local_workers * threads_per_client)
    needs = {"CPU": float(threads_per_client), "GPU": float(gpus_per_worker)}
    executor = RayClientExecutor(_fitting_workers(num_workers, needs), threads_per_client, gpus_per_worker)
    return RayContext(executor, clients_on_gpus=gpus_per_worker > 0)


def set_ray_context(
    address: str | None = None,
    *,
    num_workers: int | None = None,
    threads_per_client: int = 1,
    gpus_per_worker: float = 0.0,
) -> None:
    """Makes the context of `create_ray_context` TFF's default runtime."""
    context = create_ray_context(
        address, num_workers=num_workers, threads_per_client=threads_per_client, gpus_per_worker=gpus_per_worker
    )
    tff.framework.set_default_context(context)


def _fitting_workers(num_workers: int | None, needs: dict[str, float]) -> int:
    """The number of workers asked for, or as many as fit; raises at once if there is no room for them."""
    import ray

    deadline = time.monotonic() + _CAPACITY_SECONDS
    while True:
        free = ray.available_resources()
        room = int(min(free.get(kind, 0.0) // need for kind, need in needs.items() if need))
        if room >= (num_workers or 1):
            return num_workers or room
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    wanted = ", ".join(f"{need:g} {kind}" for kind, need in needs.items() if need)
    raise ValueError(
        f"num_workers must be an integer from 1 to {room}, the workers of {wanted} that the Ray cluster has room for, "
        f"found {num_workers or 'none given'}. Free are {free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs of "
        f"{ray.cluster_resources().get('CPU', 0):g} and {ray.cluster_resources().get('GPU', 0):g}: close() other "
        "contexts, add machines, or ask for less."
    )
