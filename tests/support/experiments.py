"""Experiments in processes that can be killed: forked children of one process that has TensorFlow imported."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

import psutil

ROOT = pathlib.Path(__file__).parents[2]


class Experiments:
    """Runs command lines of run_experiment.py."""

    def __init__(
        self, errors: pathlib.Path, common: str, modules: pathlib.Path | None = None, source: pathlib.Path | None = None
    ) -> None:
        """Starts the parent.

        Args:
          errors: the file to which standard error goes.
          common: arguments that all command lines have.
          modules: a folder with modules of a user.
          source: where noise takes its keys from, instead of the operating system.
        """
        self._common = common
        self._errors = errors.open("a+")
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kill_experiments", *([str(source)] if source else [])],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env=os.environ | ({"PYTHONPATH": str(modules)} if modules else {}),
        )  # fmt: skip

    def start(self, arguments: str) -> int:
        """Starts an experiment and returns its process id."""
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._errors.truncate(0)
        self._parent.stdin.write(f"{self._common} {arguments}\n")
        self._parent.stdin.flush()
        return int(self._parent.stdout.readline())

    def wait(self) -> tuple[int, str]:
        """Waits for the experiment; returns its exit code and what it wrote to standard error."""
        assert self._parent.stdout is not None
        while True:
            line = self._parent.stdout.readline().strip()
            if line.lstrip("-").isdigit():
                return int(line), pathlib.Path(self._errors.name).read_text().replace("\0", "")
            assert line or self._parent.poll() is None, "the parent of the experiments has ended"

    def run(self, arguments: str) -> None:
        """Runs an experiment to its end."""
        self.start(arguments)
        code, errors = self.wait()
        assert code == 0, errors

    def kill(self, pid: int) -> bool:
        """Kills an experiment (and the worker that TFF started for it); returns whether it was still running."""
        workers = []
        with contextlib.suppress(psutil.NoSuchProcess):
            workers = psutil.Process(pid).children(recursive=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        code, errors = self.wait()
        assert code in (0, -signal.SIGKILL), errors
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        return code != 0

    def close(self) -> None:
        """Ends the parent."""
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        self._parent.wait(timeout=30)
        self._errors.close()
