"""Runs code in a process of its own: for what is set once a process, such as TensorFlow's threads and devices, and for
what may end the process or never end."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_python(code: str, timeout: float = 120.0) -> str:
    """Returns what the code prints; fails with its errors if it does, or takes longer."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True, timeout=timeout,
        check=False, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
