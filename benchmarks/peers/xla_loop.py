"""Plain SGD in one compiled XLA loop per client, clients side by side in a thread per core; their mean is the server.

No states, penalties, clipping or measurements: what the arithmetic of a round costs a compiler at least.
"""

from __future__ import annotations

import os

# Before JAX is imported. The threads are the clients': Eigen's own would be too many.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import concurrent.futures
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers import jax_models, protocol, workloads


def main() -> None:
    name = protocol.parser().parse_args().workload
    workload = workloads.WORKLOADS[name]()
    loss = jax_models.build_loss(workload.model)

    @jax.jit
    def train(theta: Any, x: Any, y: Any, orders: Any) -> Any:
        def step(weights: Any, rows: Any) -> Any:
            value, gradients = jax.value_and_grad(loss)(weights, x[rows], y[rows])
            return [w - workloads.LEARNING_RATE * g for w, g in zip(weights, gradients, strict=True)], value

        weights, losses = jax.lax.scan(step, theta, orders)
        return weights, losses.mean()

    clients = [(jnp.asarray(x), jnp.asarray(y)) for x, y in workload.clients]
    theta = [jnp.asarray(w) for w in workload.weights]
    pool = concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    round_number = 0

    def work(k: int) -> tuple[list[np.ndarray], float]:
        weights, value = train(theta, *clients[k], workload.orders(round_number, k))
        return [np.asarray(w) for w in weights], float(value)

    def run_round() -> float:
        nonlocal theta, round_number
        trained, losses = zip(*pool.map(work, range(len(clients))), strict=True)
        theta = [jnp.asarray(sum(of_clients) / len(clients)) for of_clients in zip(*trained, strict=True)]
        round_number += 1
        return float(np.mean(losses))

    protocol.serve(workload, ["jax", "jaxlib"], run_round)


if __name__ == "__main__":
    main()
