"""FedDyn by FedJAX: its data sets, its `for_each_client`, its tree functions."""

from __future__ import annotations

from typing import Any

import fedjax
import jax
import jax.numpy as jnp
from fedjax.core import tree_util

from benchmarks.peers import jax_models, protocol, workloads

tree_map = jax.tree_util.tree_map


def build_train(workload: workloads.Workload) -> Any:
    """Local training of clients; each gives its delta, its new state and the mean loss of its steps."""
    value_and_grad = jax.value_and_grad(jax_models.build_loss(workload.model))
    num_steps = workload.epochs * workload.steps_per_epoch

    def client_init(theta: Any, state: Any) -> Any:
        return {"theta": theta, "weights": theta, "state": state, "loss": jnp.zeros(())}

    def client_step(client: Any, batch: Any) -> Any:
        loss, gradient = value_and_grad(client["weights"], batch["x"], batch["y"])
        penalised = tree_map(
            lambda g, g_k, w, t: g - g_k + workloads.L2 * (w - t),
            gradient, client["state"], client["weights"], client["theta"],
        )  # fmt: skip
        clip = jnp.minimum(1.0, workloads.CLIP_NORM / tree_util.tree_l2_norm(penalised))
        weights = tree_map(
            lambda w, g: w - workloads.LEARNING_RATE * (clip * g + workloads.WEIGHT_DECAY * w),
            client["weights"], penalised,
        )  # fmt: skip
        return client | {"weights": weights, "loss": client["loss"] + loss}

    def client_final(theta: Any, client: Any) -> Any:
        delta = tree_map(jnp.subtract, client["weights"], theta)
        state = tree_map(lambda g_k, d: g_k - workloads.L2 * d, client["state"], delta)
        return delta, state, client["loss"] / num_steps

    return fedjax.for_each_client(client_init, client_step, client_final)


def main() -> None:
    name = protocol.parser().parse_args().workload
    workload = workloads.WORKLOADS[name]()
    train = build_train(workload)
    datasets = [fedjax.ClientDataset({"x": x, "y": y}) for x, y in workload.clients]
    theta = [jnp.asarray(w) for w in workload.weights]
    h = tree_map(jnp.zeros_like, theta)
    states = [h] * len(datasets)
    round_number = 0

    @jax.jit
    def move(theta: Any, h: Any, total: Any) -> Any:
        mean = tree_map(lambda d: d / len(datasets), total)
        h = tree_map(lambda s, d: s - workloads.L2 * d, h, mean)
        return tree_map(lambda t, d, s: t + d - s / workloads.L2, theta, mean, h), h

    def run_round() -> float:
        nonlocal theta, h, round_number
        batching = {"batch_size": workload.batch_size, "num_epochs": workload.epochs}
        clients = [
            (k, data.shuffle_repeat_batch(**batching, seed=round_number * len(datasets) + k), states[k])
            for k, data in enumerate(datasets)
        ]
        total, losses = tree_map(jnp.zeros_like, theta), []
        for k, (delta, state, loss) in train(theta, clients):
            total = tree_util.tree_add(total, delta)
            states[k] = state
            losses.append(loss)
        theta, h = move(theta, h, total)
        round_number += 1
        return float(sum(losses)) / len(datasets)

    protocol.serve(workload, ["fedjax", "jax", "jaxlib"], run_round)


if __name__ == "__main__":
    main()
