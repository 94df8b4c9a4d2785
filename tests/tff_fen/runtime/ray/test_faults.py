"""Scripts on the Ray runtime as a user runs them: nodes that are lost, and nothing left behind however they end."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import uuid

import pytest

from tests.support import ray_processes
from tests.support.results import exact_rows

# On one core, one after the other: each starts a cluster of its own.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray")]

SCRIPT = """
import pathlib, sys, tempfile, time
import tff_fen
from tests.support import ray_processes
tff_fen.runtime.set_ray_context(num_workers=2)
run = ray_processes.fed_dyn(pathlib.Path(sys.argv[2]) if sys.argv[2:] else None)
print("ready", flush=True)
run()
print("done", flush=True)
if sys.argv[1] == "raise":
    raise SystemExit(3)
"""


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder for temporary files, with a name as short as Ray needs."""
    folder = pathlib.Path("/tmp", f"t{uuid.uuid4().hex[:6]}")
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def assert_nothing_left(mark: str, temporary: pathlib.Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while ray_processes.left(mark) or any(temporary.glob("ray*")):
        assert time.monotonic() < deadline, (ray_processes.left(mark), list(temporary.iterdir()))
        time.sleep(0.05)
    shutil.rmtree(temporary)


@pytest.mark.parametrize("ending, code", [("return", 0), ("raise", 3)])
def test_nothing_is_left_after_the_end(ending: str, code: int, temporary: pathlib.Path) -> None:
    mark = uuid.uuid4().hex
    process = ray_processes.start(SCRIPT, mark, ending)
    output, errors = process.communicate(timeout=180)
    assert process.returncode == code and "done" in output, errors
    # The pipes of the script are closed only when nobody holds them any more, and by then all is gone.
    assert_nothing_left(mark, temporary, 0.0)


def test_nothing_is_left_after_ctrl_c(temporary: pathlib.Path, tmp_path: pathlib.Path) -> None:
    mark = uuid.uuid4().hex
    process = ray_processes.start(SCRIPT, mark, "return", str(tmp_path))
    ray_processes.await_started(tmp_path, 2)
    assert len(ray_processes.left(mark)) > 5, "the mark is on all of Ray's processes"
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and "KeyboardInterrupt" in errors and "done" not in output
    assert_nothing_left(mark, temporary, 0.0)


def test_nothing_is_left_after_kill_9(temporary: pathlib.Path, tmp_path: pathlib.Path) -> None:
    mark = uuid.uuid4().hex
    process = ray_processes.start(SCRIPT, mark, "return", str(tmp_path))
    ray_processes.await_started(tmp_path, 2)
    process.kill()
    process.communicate(timeout=60)
    assert_nothing_left(mark, temporary, 10.0)


def test_a_node_killed_in_mid_round_changes_no_bit(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.ray_nodes", str(tmp_path)],
        cwd=ray_processes.ROOT, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "the same bits" in done.stdout, done.stderr


def test_ctrl_c_finishes_the_round_of_an_experiment(tmp_path: pathlib.Path) -> None:
    """In a terminal it reaches Ray's processes too."""
    errors = tmp_path / "errors"
    with errors.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "run_experiment.py", "--preset=digits/iid/algorithm_3", "--rounds=100000", "--noplots",
             "--runtime=ray", f"--output={tmp_path / 'out'}"],
            cwd=ray_processes.ROOT, stdout=subprocess.DEVNULL, stderr=stream, start_new_session=True,
        )  # fmt: skip
    ray_processes.await_true(lambda: "round 1/" in errors.read_text() or process.poll() is not None, 120)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(60)
    assert "Interrupted; all finished rounds are saved." in errors.read_text()


def test_an_experiment_on_ray_has_the_bits_of_one_in_process(tmp_path: pathlib.Path) -> None:
    for runtime in ("ray", "inprocess"):
        done = subprocess.run(
            [sys.executable, "run_experiment.py", "--preset=digits/iid/algorithm_3", "--rounds=2", "--noplots",
             f"--runtime={runtime}", f"--output={tmp_path / runtime}"],
            cwd=ray_processes.ROOT, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    ray, here = (tmp_path / name / "metrics.csv" for name in ("ray", "inprocess"))
    assert exact_rows(ray) == exact_rows(here)
