"""What is found out of a command's experiments before work starts, once TensorFlow is there."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.build import check_algorithm
from experiments.loading import check_task_of, load_task_of
from experiments.plan import PlannedRun
from experiments.runtimes import check_runtime, set_runtime
from experiments.settings import parse_sampling
from tff_fen.checks import check_integer


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
    """Loads the data, and raises if a round asks for more clients than there are."""
    for run in runs:
        kind, amount = parse_sampling(run.config.sampling)
        num_clients = len(load_task_of(run.config).clients)
        if kind == "uniform":
            check_integer("number of clients in sampling", int(amount), 1, num_clients)
