"""Five hundred rounds with a varying number of participants: memory and speed must not creep.

    python -m benchmarks.long_run [--rounds=500]

FedDyn on digits, 100 clients of which each joins with probability 0.1, through the store and the counting of bytes.
Memory is the resident size of this process and of TFF's worker.
"""

from __future__ import annotations

import gc
import tempfile
import time

import numpy as np
import psutil
import tqdm
from absl import app

from experiments import columns
from experiments.build import build_parts
from experiments.experiment_config import build_config
from experiments.flags import define_flags, explicit_values
from experiments.loading import load_task_of
from experiments.measure import Measure, build_rounds
from experiments.runtimes import set_runtime
from tff_fen.program.store import SqliteStore

define_flags()

_EARLY = 50


def memory() -> int:
    """Resident bytes of this process and its children."""
    gc.collect()
    me = psutil.Process()
    return sum(process.memory_info().rss for process in [me, *me.children(recursive=True)])


def main(argv: list[str]) -> None:
    del argv
    values = dict(task="digits", num_clients=100, algorithm="fed_dyn", l1=1e-4, l2=0.05, threshold=1e-3, rounds=500)
    config = build_config(values, explicit_values())
    set_runtime("inprocess")
    sizes, seconds, participants = {}, [], []
    with tempfile.TemporaryDirectory() as folder, SqliteStore(folder) as store:
        parts = build_parts(config, load_task_of(config))
        rounds = build_rounds(parts, Measure(config, parts), store)
        for number in tqdm.trange(1, config.rounds + 1, unit="round"):
            start = time.perf_counter()
            row = rounds.run_round().row
            seconds.append(time.perf_counter() - start)
            participants.append(row[columns.PARTICIPANTS.name])
            if number % _EARLY == 0:
                sizes[number] = memory()
    for number, size in sizes.items():
        part = seconds[number - _EARLY : number]
        print(f"round {number:4}: {size / 1e6:7.1f} MB, {1000 * np.median(part):6.1f} ms a round (median of {_EARLY})")
    growth = sizes[max(sizes)] / sizes[_EARLY] - 1
    print(
        f"{min(participants)} to {max(participants)} participants; memory after round {max(sizes)} is {growth:+.1%} "
        f"of that after round {_EARLY}"
    )


if __name__ == "__main__":
    app.run(main)
