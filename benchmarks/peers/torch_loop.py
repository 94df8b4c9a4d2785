"""FedDyn in a PyTorch loop written for it: in one process with a thread per core, or in a process per core.

python -m benchmarks.peers.torch_loop --workload=mlp [--processes]
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import multiprocessing

from benchmarks.peers import protocol, torch_models, workloads

Tensors = list[torch.Tensor]


class Clients:
    """Some of the clients, with their states, trained one after the other."""

    def __init__(self, workload: workloads.Workload, numbers: range) -> None:
        self._workload = workload
        self._model = torch_models.build_model(workload)
        self._data = {k: torch_models.tensors(workload.clients[k]) for k in numbers}
        self._states = {k: self.zeros() for k in numbers}

    def zeros(self) -> Tensors:
        """Zeros like the weights."""
        return [torch.zeros_like(w, requires_grad=False) for w in torch_models.trainable(self._model)]

    @torch.no_grad()
    def train(self, theta: Tensors, deltas: Tensors, round_number: int) -> float:
        """Puts the sum of the clients' deltas into `deltas`; returns the sum of their mean losses."""
        losses = 0.0
        for total in deltas:
            total.zero_()
        for k, (x, y) in self._data.items():
            orders = self._workload.orders(round_number, k)
            with torch.enable_grad():
                losses += torch_models.train(self._model, theta, [-g for g in self._states[k]], x, y, orders)
            weights = torch_models.trainable(self._model)
            for g, total, w, t in zip(self._states[k], deltas, weights, theta, strict=True):
                delta = w - t
                total.add_(delta)
                g.sub_(delta, alpha=workloads.L2)
        return losses


def work(name: str, numbers: range, theta: Tensors, deltas: Tensors, pipe: Any) -> None:
    """A process that trains its clients whenever it gets a round's number."""
    torch.set_num_threads(1)
    clients = Clients(workloads.WORKLOADS[name](), numbers)
    while True:
        try:
            round_number = pipe.recv()
        except EOFError:
            return
        pipe.send(clients.train(theta, deltas, round_number))


def main() -> None:
    parser = protocol.parser()
    parser.add_argument("--processes", action="store_true", help="a process per core")
    arguments = parser.parse_args()
    workload = workloads.WORKLOADS[arguments.workload]()
    num_clients, num_cores = len(workload.clients), len(os.sched_getaffinity(0))
    num_workers = num_cores if arguments.processes else 1
    torch.set_num_threads(num_cores)
    theta = [w.detach().clone() for w in torch_models.trainable(torch_models.build_model(workload))]
    h, *deltas = ([torch.zeros_like(t) for t in theta] for _ in range(1 + num_workers))
    pipes = []
    if arguments.processes:
        context = multiprocessing.get_context("spawn")
        for tensor in (*theta, *(t for tensors in deltas for t in tensors)):
            tensor.share_memory_()
        for i in range(num_workers):
            pipe, other = context.Pipe()
            shares = (arguments.workload, range(i, num_clients, num_workers), theta, deltas[i], other)
            context.Process(target=work, args=shares, daemon=True).start()
            pipes.append(pipe)
    else:
        clients = Clients(workload, range(num_clients))
    round_number = 0

    def run_round() -> float:
        nonlocal round_number
        if arguments.processes:
            for pipe in pipes:
                pipe.send(round_number)
            losses = sum(pipe.recv() for pipe in pipes)
        else:
            losses = clients.train(theta, deltas[0], round_number)
        round_number += 1
        for t, server, *of_workers in zip(theta, h, *deltas, strict=True):
            mean = sum(of_workers) / num_clients
            server.sub_(mean, alpha=workloads.L2)
            t.add_(mean).sub_(server, alpha=1 / workloads.L2)
        return losses / num_clients

    protocol.serve(workload, ["torch"], run_round)


if __name__ == "__main__":
    main()
