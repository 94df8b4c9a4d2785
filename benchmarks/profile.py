"""Where the time of an in-process round goes: TensorFlow's operations by time, beside those of the floor.

    python -m benchmarks.profile [--workload=mnist|cifar]

Two clients of a workload of `benchmarks.runtimes`, one after the other, one epoch: a round of Algorithm 3 in process,
and the bare floor, each traced by TensorFlow's profiler after two rounds to warm up. `outside` is what is not in any
operation: TensorFlow's dispatch, the runtime's own Python, and the tracing itself. In process it also has the training
loop where that has one thread (`passes/one_thread.py`), as TensorFlow does not trace its operations; so there
is a table of the same round with TensorFlow's usual executor, too. The floor of a convolutional model may have a
MaxPoolGrad (slow) in place of a _MklNativeMaxPoolGrad: see `tff_fen/runtime/passes/pooling.py`.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import tempfile
import time
from typing import NamedTuple
from unittest import mock

import tensorflow as tf
from absl import app, flags
from tensorflow.core.profiler.protobuf import xplane_pb2

import tff_fen
from benchmarks import runtimes
from tff_fen.runtime.passes import fusing, stages

WORKLOAD = flags.DEFINE_enum("workload", "mnist", ["mnist", "cifar"], "Whose clients to trace.")
ROWS = flags.DEFINE_integer("rows", 12, "How many operations to list.", lower_bound=1)
_WARM_UP = 2


class Profile(NamedTuple):
    """A traced round: milliseconds by the clock, and of each kind of operation with how often it ran."""

    wall: float
    milliseconds: collections.Counter[str]
    calls: collections.Counter[str]


def trace(run: runtimes.Run) -> Profile:
    """Runs it a few times and traces the last."""
    for _ in range(_WARM_UP):
        run()
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        start = time.perf_counter()
        run()
        wall = time.perf_counter() - start
        tf.profiler.experimental.stop()
        (file,) = pathlib.Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(file.read_bytes())
    milliseconds: collections.Counter[str] = collections.Counter()
    calls: collections.Counter[str] = collections.Counter()
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                # Operations are called "node:Operation"; the rest are spans around them.
                name = plane.event_metadata[event.metadata_id].name
                _, colon, operation = name.rpartition(":")
                if colon and operation and "::" not in name and " " not in operation:
                    milliseconds[operation] += event.duration_ps / 1e9
                    calls[operation] += 1
    return Profile(wall * 1e3, milliseconds, calls)


def report(title: str, profile: Profile) -> None:
    """Prints the largest shares."""
    inside = sum(profile.milliseconds.values())
    print(f"\n{title:38} {'ms':>8} {'share':>7} {'calls':>7}      {profile.wall:.1f} ms in all")
    for operation, spent in profile.milliseconds.most_common(ROWS.value):
        print(f"{operation:38} {spent:8.1f} {spent / profile.wall:7.1%} {profile.calls[operation]:7}")
    others = inside - sum(spent for _, spent in profile.milliseconds.most_common(ROWS.value))
    print(f"{'other operations':38} {others:8.1f} {others / profile.wall:7.1%}")
    print(f"{'outside':38} {profile.wall - inside:8.1f} {(profile.wall - inside) / profile.wall:7.1%}")


def main(argv: list[str]) -> None:
    del argv
    context = tff_fen.runtime.create_inprocess_context(max_concurrent_clients=1)
    workload = {"mnist": runtimes.mnist, "cifar": runtimes.cifar}[WORKLOAD.value]()
    workload = workload._replace(
        clients=workload.clients[:2], training=dataclasses.replace(workload.training, epochs=1)
    )
    report("in process", trace(runtimes.on(context, lambda: runtimes.algorithm_3(workload))))
    with mock.patch.object(stages, "BEFORE_OPTIMISER", (fusing.keep_calls,)):
        report("with the usual executor", trace(runtimes.on(context, lambda: runtimes.algorithm_3(workload))))
    report("floor", trace(runtimes.floor(workload, threads=1)))


if __name__ == "__main__":
    app.run(main)
