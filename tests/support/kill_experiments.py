"""Starts experiments that can be killed at any instant, without importing TensorFlow anew each time.

    python -m tests.support.kill_experiments    then, on standard input, a command line of run_experiment.py a line

With a file's name as argument, noise takes its keys from there. Each line is run in a forked child; its process id
goes to standard output at once, and its exit code when it has ended (minus the signal if it was killed). Nothing of
TensorFlow runs in this process, so that a fork is clean.
"""

from __future__ import annotations

import os
import shlex
import sys

import experiments.prepare
import experiments.run  # noqa: F401  imports TensorFlow once for all
from experiments import command_line, run_command
from tff_fen.aggregators import noise


def main() -> None:
    noise.SOURCE = sys.argv[1] if len(sys.argv) > 1 else noise.SOURCE
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            sys.argv = ["run_experiment.py", *shlex.split(line)]
            command_line.run(run_command.main, "")
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
