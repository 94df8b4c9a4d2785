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

from experiments import presets
from experiments.build import build_parts
from experiments.experiment_config import build_config
from experiments.flags import define_flags, explicit_values
from experiments.loading import load_task_of
from experiments.measure import Measure, build_rounds
from experiments.runtimes import set_runtime
from tff_fen.program.store import SqliteStore

define_flags()
_PRESET = flags.DEFINE_string("preset", presets.example_preset("mnist"), "The cell of the paper's tables to run.")

_WARM_UP = 2


def main(argv: list[str]) -> None:
    del argv
    name = _PRESET.value
    config = build_config(presets.load_preset(name).values, {"rounds": 15}, explicit_values())
    set_runtime("inprocess")
    times: dict[str, list[float]] = collections.defaultdict(list)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **kwargs)
            times[part][-1] += time.perf_counter() - start
            return result

        return call

    with tempfile.TemporaryDirectory() as folder, SqliteStore(folder) as store:
        parts = build_parts(config, load_task_of(config))
        measure: Any = Measure(config, parts)
        measure.bytes.count_uplink = timed("counting bytes", measure.bytes.count_uplink)
        measure.bytes.count_downlink = timed("counting bytes", measure.bytes.count_downlink)
        measure.evaluate = timed("evaluating", measure.evaluate)
        rounds = build_rounds(parts, measure, store)
        store.commit = timed("storing", store.commit)  # type: ignore[method-assign]
        store.read_clients = timed("storing", store.read_clients)  # type: ignore[method-assign]
        for _ in tqdm.trange(config.rounds, unit="round"):
            for part in ("counting bytes", "storing", "evaluating", "the round"):
                times[part].append(0.0)
            timed("the round", rounds.run_round)()
    whole = np.array(times["the round"][_WARM_UP:])
    print(f"{name}: {np.median(whole):.3f} s a round")
    for part, values in times.items():
        spent = np.array(values[_WARM_UP:])
        low, median, high = 100 * np.percentile(spent / whole, [25, 50, 75])
        print(f"  {part:15} {1000 * np.median(spent):8.1f} ms  {median:5.1f} % of the round ({low:.1f}-{high:.1f})")


if __name__ == "__main__":
    app.run(main)
