"""The same rounds of CNN work on Ray with one worker and with two.

    python -m benchmarks.ray_scaling [--rounds=15]

10 clients of 500 images of 32 x 32 x 3, 1 epoch, batch 50, the paper's CNN; Algorithm 3 complete, with client states
and measurements: the `cifar` workload of `benchmarks.runtimes`. Both contenders have their workers on one cluster of
this machine, one thread a worker; the rounds are interleaved, so that a slow spell of the machine hits both. In
process, with one and two threads, beside them: what sending things to other processes costs. Figures are medians with
the range of the middle half; the first two rounds of each are not counted.
"""

from __future__ import annotations

import os

import numpy as np
from absl import app, flags

import tff_fen
from benchmarks import local_training, runtimes
from tff_fen.runtime.ray.cluster import start_local_cluster

_WORKERS = (1, 2)


def main(argv: list[str]) -> None:
    del argv
    in_process = {
        f"in process, {n} at once": tff_fen.runtime.create_inprocess_context(max_concurrent_clients=n) for n in _WORKERS
    }
    # Room for both contenders: workers that are not at work take no time.
    start_local_cluster(sum(_WORKERS))
    on_ray = {f"Ray, {n} workers": tff_fen.runtime.create_ray_context(num_workers=n) for n in _WORKERS}
    workload = runtimes.cifar()
    contexts = {**on_ray, **in_process}
    times = runtimes.seconds(
        {name: runtimes.on(context, lambda: runtimes.algorithm_3(workload)) for name, context in contexts.items()},
        flags.FLAGS.rounds,
    )
    runtimes.report(f"cifar, Algorithm 3, a round, {len(os.sched_getaffinity(0))} cores", times, "Ray, 1 workers")
    one, two = (np.array(times[f"Ray, {n} workers"].wall) for n in _WORKERS)
    low, middle, high = np.percentile(one / two, [25, 50, 75])
    print(f"\n2 workers against 1, round by round: {middle:.2f} times as fast ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    local_training.define_flags()
    app.run(main)
