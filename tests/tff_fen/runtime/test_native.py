"""TFF's workers end with the process that started them, whoever set them up."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import uuid

import psutil

from tests.support import new_process
from tff_fen.runtime.ray import watchdog

MARK = "TFF_FEN_TEST_NATIVE"
# TFF makes a context of its own at import, and its worker at the first computation: nothing here asks for either.
SCRIPT = """
import sys
import numpy as np
import tensorflow_federated as tff
import tff_fen
print("ray" in sys.modules)
print(tff.tensorflow.computation(lambda x: x + 1, np.int32)(6))
import psutil
print([child.name() for child in psutil.Process().children()])
"""


def test_a_script_that_sets_no_context_leaves_no_worker(tmp_path: pathlib.Path) -> None:
    """Nor does the import of the package import Ray."""
    mark = uuid.uuid4().hex
    # To a file: a worker that is left would hold a pipe open.
    with (tmp_path / "output").open("w+") as output:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=new_process.ROOT, stdout=output, stderr=subprocess.STDOUT, timeout=180,
            check=False, env={**os.environ, MARK: mark, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )  # fmt: skip
        output.seek(0)
        lines = output.read().splitlines()
    left = [psutil.Process(pid) for pid in watchdog.marked_processes(f"{MARK}={mark}".encode())]
    names = [process.name() for process in left]
    for process in left:
        process.kill()
    assert done.returncode == 0, lines
    assert lines[-3:] == ["False", "7", "['worker_binary']"] and not names
