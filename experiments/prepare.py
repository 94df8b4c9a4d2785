"""What is found out of a command's experiments before work starts, once TensorFlow is there."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from experiments.build import check_algorithm
from experiments.loading import check_task_of, load_task_of
from experiments.plan import PlannedRun
from experiments.runtimes import check_runtime, set_runtime
from experiments.settings import parse_sampling
from tasks.task import Examples
from tff_fen.checks import check_integer

# Clients whose data are looked at to judge what all of a round need.
_FEW = 8


def prepare_runs(runs: Sequence[PlannedRun], runtime: str, ray_address: str | None) -> None:
    """Sets the runtime and loads the data; raises if anything of these experiments cannot be.

    Raises:
      ValueError, TypeError: for values that cannot be.
      DataUnavailableError: if the data cannot be had.
    """
    check_runtime(runtime, ray_address)
    check_runs(runs)
    # Before the first model is made: TensorFlow takes its settings only until then.
    set_runtime(runtime, ray_address, secure=any(run.config.aggregator == "secure" for run in runs))
    check_participants(runs)


def check_runs(runs: Sequence[PlannedRun]) -> None:
    """Raises if an algorithm or a task is not there or does not fit its values, as far as that shows without data."""
    for run in runs:
        run.config.check_library()
        check_algorithm(run.config)
        check_task_of(run.config)


def check_participants(runs: Sequence[PlannedRun]) -> None:
    """Loads the data, and raises if a round asks for more clients than there are, or than memory holds."""
    for run in runs:
        kind, amount = parse_sampling(run.config.sampling)
        clients = load_task_of(run.config).clients
        if kind == "uniform":
            check_integer("number of clients in sampling", int(amount), 1, len(clients))
        _check_memory(run.config.sampling, clients, amount if kind == "uniform" else amount * len(clients))


def _check_memory(sampling: str, clients: Sequence[Examples], participants: float) -> None:
    """Raises if the data of a round's clients, judged by a few of them, are more than this machine's memory."""
    few = {int(k) for k in np.linspace(0, len(clients) - 1, min(len(clients), _FEW))}
    needed = participants * float(np.mean([sum(array.nbytes for array in clients[k]) for k in few]))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ValueError(
            f"sampling={sampling!r} of {len(clients):,} clients takes about {participants:,.0f} in a round, whose data "
            f"alone need about {needed / 1e9:,.0f} GB; this machine has {memory / 1e9:,.0f} GB. Take fewer, as by "
            "--sampling=uniform:100, or lower --num_clients."
        )
