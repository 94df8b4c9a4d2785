"""The cost of a client and the memory of the process, by the number of clients in a round.

    python -m benchmarks.scale [--timed_rounds=5]

Algorithm 3 in process on the synthetic task, a population of 100 000 with client states in the store on disk; 10, 100
and 1000 participants a round, rounds of the three interleaved. Clients take their first 50 examples, so that all are of
one size. Every round is what `run_experiment.py` does: states read, training, messages encoded and counted, states
written in one transaction. Milliseconds a client are medians with the range of the middle half; memory is the resident
size after the first and after the last of these rounds.
"""

from __future__ import annotations

import pathlib
import tempfile
import time

import numpy as np
import psutil
import tensorflow as tf
from absl import app, flags

import tff_fen
from experiments.build import build_parts
from experiments.experiment_config import ExperimentConfig
from experiments.measure import Measure, build_rounds
from tasks.data_sets.synthetic import Synthetic
from tasks.registry import load_task
from tff_fen.program.store import SqliteStore

ROUNDS = flags.DEFINE_integer("timed_rounds", 5, "Rounds timed for each number of participants.", lower_bound=2)
POPULATION = 100_000
PARTICIPANTS = (10, 100, 1000)
EXAMPLES = 50


def megabytes() -> float:
    """The resident size of this process."""
    return psutil.Process().memory_info().rss / 2**20


def client_dataset(k: int) -> tf.data.Dataset:
    """The first examples of a client: every client has 50 at least."""
    x, y = Synthetic(POPULATION).client(k)
    return tf.data.Dataset.from_tensors((x[:EXAMPLES], y[:EXAMPLES]))


def main(argv: list[str]) -> None:
    del argv
    tff_fen.runtime.set_inprocess_context()
    task = load_task("synthetic", num_clients=POPULATION)
    with tempfile.TemporaryDirectory() as folder:
        loops = {}
        for participants in PARTICIPANTS:
            config = ExperimentConfig(
                task="synthetic", num_clients=POPULATION, sampling=f"uniform:{participants}", algorithm="fed_dyn",
                l1=1e-4, l2=0.05, threshold=1e-3, rounds=ROUNDS.value + 1, evaluate_every=ROUNDS.value + 2,
            )  # fmt: skip
            store = SqliteStore(pathlib.Path(folder) / str(participants))
            parts = build_parts(config, task)._replace(client_dataset=client_dataset)
            loops[participants] = build_rounds(parts, Measure(config, parts), store)
        times: dict[int, list[float]] = {p: [] for p in PARTICIPANTS}
        memory = []
        for _ in range(1 + ROUNDS.value):  # the first traces
            for participants, loop in loops.items():
                start = time.perf_counter()
                loop.run_round()
                times[participants].append((time.perf_counter() - start) / participants * 1e3)
            memory.append(megabytes())
    print(f"{'participants':>12} {'ms a client':>12} {'middle half':>15}")
    for participants, taken in times.items():
        low, median, high = np.percentile(taken[1:], [25, 50, 75])
        print(f"{participants:>12} {median:>12.2f} {low:>7.2f}-{high:>7.2f}")
    print(f"memory: {memory[1]:.0f} MB after a counted round of each, {memory[-1]:.0f} MB after {ROUNDS.value}")


if __name__ == "__main__":
    app.run(main)
