"""Flower's simulation with its FedProx: an actor of Ray per core, the client's steps in PyTorch on one thread."""

from __future__ import annotations

import functools
import os
from typing import Any

# Before Flower and Ray are imported: they would tell their makers.
os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedProx
from flwr.simulation import run_simulation

from benchmarks.peers import protocol, torch_models, workloads


@functools.cache
def load(name: str) -> tuple[workloads.Workload, torch.nn.Module]:
    """The workload and a model, once per actor."""
    torch.set_num_threads(1)
    workload = workloads.WORKLOADS[name]()
    return workload, torch_models.build_model(workload)


@functools.cache
def load_client(name: str, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's examples, once per actor."""
    return torch_models.tensors(load(name)[0].clients[k])


def build_client(name: str) -> ClientApp:
    """Local training."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        k = int(context.node_config["partition-id"])
        workload, model = load(name)
        theta = [torch.from_numpy(array) for array in message.content["arrays"].to_numpy_ndarrays()]
        orders = workload.orders(int(message.content["config"]["server-round"]) - 1, k)
        loss = torch_models.train(model, theta, None, *load_client(name, k), orders)
        weights = ArrayRecord([w.detach().numpy() for w in torch_models.trainable(model)])
        metrics = MetricRecord({"loss": loss, "num-examples": len(workload.clients[k][1])})
        return Message(RecordDict({"arrays": weights, "metrics": metrics}), reply_to=message)

    return app


class InTurns(FedProx):
    """FedProx whose rounds begin when they are asked for."""

    def __init__(self, turns: protocol.Turns, num_clients: int) -> None:
        super().__init__(
            fraction_evaluate=0.0,
            min_train_nodes=num_clients,
            min_available_nodes=num_clients,
            proximal_mu=workloads.L2,
        )
        self._turns = turns

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Grid) -> Any:
        """Waits for the round."""
        if not self._turns.wait():
            os._exit(0)  # Ray's processes end with this one
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """Says that the round is done."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        if metrics is None:
            raise RuntimeError("no client has answered")
        self._turns.done(metrics["loss"])
        return arrays, metrics


def main() -> None:
    name = protocol.parser().parse_args().workload
    workload, model = load(name)
    turns = protocol.Turns(workload, ["flwr", "ray", "torch"])
    app = ServerApp()

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        first = ArrayRecord([w.detach().numpy() for w in torch_models.trainable(model)])
        InTurns(turns, len(workload.clients)).start(grid, first, num_rounds=10**9)

    run_simulation(
        app,
        build_client(name),
        num_supernodes=len(workload.clients),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    # By its name: actors get functions of __main__ by value, and would not find what those call.
    from benchmarks.peers import flower_fed_prox

    flower_fed_prox.main()
