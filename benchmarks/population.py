"""What a round costs as the population grows: only participants' states are passed, so it must not grow.

    python -m benchmarks.population [--rounds=20]

FedDyn and SCAFFOLD on digits, 10 participants a round out of 100 and out of 1000 clients with data of the same size.
Rounds are interleaved; the spread is the range of the middle half. The first two rounds (warm-up) are not counted.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tqdm
from absl import app, flags

import tff_fen
from tasks.registry import load_task
from tff_fen.program import sampling

_ROUNDS = flags.DEFINE_integer("rounds", 20, "Rounds timed for each.", lower_bound=3)

POPULATIONS, PER_ROUND = (100, 1000), 10
BUILDERS: dict[str, Any] = {"FedDyn": tff_fen.build_fed_dyn, "SCAFFOLD": tff_fen.build_scaffold}


def main(argv: list[str]) -> None:
    del argv
    tff_fen.runtime.set_native_context()
    # 100 data sets serve all: client k has that of k mod 100.
    task = load_task("digits", num_clients=100)
    data_sets = [task.client_dataset(k) for k in range(100)]
    training = tff_fen.LocalTraining(0.1, epochs=5, batch_size=5)
    net = tff_fen.ElasticNet(l1=1e-4, l2=0.05, threshold=1e-3)
    processes = {
        (name, m): build(task.build_model(), net, training, num_clients=m)
        for name, build in BUILDERS.items()
        for m in POPULATIONS
    }
    servers = {key: process.initialize() for key, process in processes.items()}
    states: dict[Any, dict[int, Any]] = {key: {} for key in processes}
    times: dict[Any, list[float]] = {key: [] for key in processes}
    for t in tqdm.trange(2 + _ROUNDS.value, unit="round"):
        for key, process in processes.items():
            chosen = sampling.sample_uniform(t, key[1], PER_ROUND)
            known = states[key]
            known.update((k, process.initialize_client(k)) for k in chosen if k not in known)
            inputs = [tff_fen.ClientInput(known[k], data_sets[k % len(data_sets)]) for k in chosen]
            start = time.perf_counter()
            output = process.next(servers[key], inputs)
            times[key].append(time.perf_counter() - start)
            servers[key] = output.state
            known.update((int(s.client_id), s) for s in output.client_states)
    for name in BUILDERS:
        base = np.median(times[name, POPULATIONS[0]][2:])
        for m in POPULATIONS:
            low, median, high = 1000 * np.percentile(times[name, m][2:], [25, 50, 75])
            print(
                f"{name:9} {m:5} clients: {median:6.1f} ms a round ({low:.1f}-{high:.1f}), {median / base / 1000:.2f} x"
            )


if __name__ == "__main__":
    app.run(main)
