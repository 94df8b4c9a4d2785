"""What counting costs: the share of a round that goes into encoding messages, storing states and evaluating.

    python -m benchmarks.accounting [--rounds=15] [--preset=mnist/iid/algorithm_3]

The MNIST workload (about ten clients of 600 examples, five epochs, batches of ten), Algorithm 3 complete. Each part is
timed in every round; medians and middle halves are over the rounds after the first two.
"""

from __future__ import annotations

import collections
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tqdm
from absl import app, flags

import run_experiment
from experiments import presets
from experiments.flags import build_config, explicit_values
from experiments.loop import Loop
from experiments.task_flags import load_task_of
from tff_fen.program.store import SqliteStore

_WARM_UP = 2


def main(argv: list[str]) -> None:
    del argv
    name = flags.FLAGS.preset or "mnist/iid/algorithm_3"
    config = build_config(presets.load_preset(name).values, {"rounds": 15}, explicit_values())
    run_experiment.set_runtime()
    times: dict[str, list[float]] = collections.defaultdict(list)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **kwargs)
            times[part][-1] += time.perf_counter() - start
            return result

        return call

    with tempfile.TemporaryDirectory() as folder, SqliteStore(folder) as store:
        loop: Any = Loop(config, run_experiment.build_parts(config, load_task_of(config)), store)
        accountant = loop._accountant
        accountant.count_uplink = timed("counting bytes", accountant.count_uplink)
        accountant.count_downlink = timed("counting bytes", accountant.count_downlink)
        loop._evaluate = timed("evaluating", loop._evaluate)
        store.commit = timed("storing", store.commit)  # type: ignore[method-assign]
        store.read_clients = timed("storing", store.read_clients)  # type: ignore[method-assign]
        for _ in tqdm.trange(config.rounds, unit="round"):
            for part in ("counting bytes", "storing", "evaluating", "the round"):
                times[part].append(0.0)
            timed("the round", loop.run_round)()
    whole = np.array(times["the round"][_WARM_UP:])
    print(f"{name}: {np.median(whole):.3f} s a round")
    for part, values in times.items():
        spent = np.array(values[_WARM_UP:])
        low, median, high = 100 * np.percentile(spent / whole, [25, 50, 75])
        print(f"  {part:15} {1000 * np.median(spent):8.1f} ms  {median:5.1f} % of the round ({low:.1f}-{high:.1f})")


if __name__ == "__main__":
    app.run(main)
