"""What a peer and `benchmarks.bench_peers` say to each other, one line of JSON each.

The peer takes round 1, compiling as it goes, and says so:

    {"versions": "torch 2.13.0", "digest": "5f0c...", "loss": 1.0634, "seconds": 3.2}

with the digest of its arrays and the mean loss of the round's local steps. Then, for each line that it reads, it takes
a round and answers `{"seconds": 0.43, "loss": 0.9821}`. It ends when there is nothing more to read.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks.peers import workloads


def parser() -> argparse.ArgumentParser:
    """Of a peer's command line."""
    result = argparse.ArgumentParser()
    result.add_argument("--workload", choices=list(workloads.WORKLOADS), required=True)
    return result


class Turns:
    """The rounds as they are asked for: `wait()` before each, `done(loss)` after it.

    A framework that has its own loop calls both from within; others call `serve`.
    """

    def __init__(self, workload: workloads.Workload, packages: Sequence[str]) -> None:
        """Initializes the turns.

        Args:
          workload: what the peer trains.
          packages: whose versions are told.
        """
        self._digest: str | None = workload.digest()
        self._versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
        # Libraries print; only answers go where answers are read.
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._start = 0.0

    def wait(self) -> bool:
        """Returns when a round is asked for; False if none will be any more."""
        wanted = self._digest is not None or bool(sys.stdin.readline())
        self._start = time.perf_counter()
        return wanted

    def done(self, loss: float) -> None:
        """Says that the round has been taken, with the mean loss of its local steps."""
        answer: dict[str, object] = {"seconds": time.perf_counter() - self._start, "loss": float(loss)}
        if self._digest is not None:
            answer |= {"versions": self._versions, "digest": self._digest}
            self._digest = None
        print(json.dumps(answer), file=self._answers, flush=True)


def serve(workload: workloads.Workload, packages: Sequence[str], run_round: Callable[[], float]) -> None:
    """Takes rounds as they are asked for; `run_round` returns the mean loss of the local steps."""
    turns = Turns(workload, packages)
    while turns.wait():
        turns.done(run_round())
