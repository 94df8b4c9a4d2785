"""The scripts as a user runs them: their output, their errors, and nothing left behind."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from tasks import digits

ROOT = pathlib.Path(__file__).parent.parent


def run(*arguments: str, timeout: float = 180.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )


def workers() -> set[psutil.Process]:
    return {p for p in psutil.process_iter(["name"]) if p.info["name"] == "worker_binary"}


def test_run_experiment_ends_with_its_table_and_leaves_no_worker() -> None:
    before = workers()
    # capture_output waits for the pipe to close: a worker that outlived the script would keep it open.
    done = run("run_experiment.py", "--rounds=2", "--clients=4", "--clients_per_round=2")
    assert done.returncode == 0, done.stderr
    table = done.stdout.splitlines()[-5:]
    assert table[0].split() == ["method", "test", "accuracy", "non-zeros", "sent", "times", "fewer"]
    names = [line.split("  ")[0] for line in table[1:]]
    assert names == ["FedProx", "Algorithm 1", "threshold alone", "proximal l1 alone"]
    dense, sparse, *_ = (int(line.split("%")[1].split()[0].replace(",", "")) for line in table[1:])
    assert 0 < sparse < dense
    assert "100%" in done.stderr, "the progress bar"
    assert workers() <= before


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--l1=-1", "ElasticNet.l1 must be a finite number >= 0, found -1.0"),
        ("--l1=nan", "ElasticNet.l1 must be a finite number >= 0, found nan"),
        ("--learning_rate=0", "LocalTraining.learning_rate must be a finite number > 0, found 0.0"),
        ("--clients_per_round=21", "--clients_per_round must be at most --clients"),
        ("--clients=5000", "num_clients must be an integer from 1 to 1400, found 5000"),
        ("--l1_step=prox", "value should be one of <subgradient|proximal>"),
        ("--rounds=0", "rounds"),
        ("--no_such_flag", "Unknown command line flag 'no_such_flag'"),
        ("stray", "unknown arguments: stray"),
    ],
)
def test_run_experiment_refuses_bad_flags_before_any_work(flag: str, message: str) -> None:
    done = run("run_experiment.py", flag)
    assert done.returncode != 0 and message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert "round/s" not in done.stderr


def test_a_failing_script_leaves_no_worker_either() -> None:
    before = workers()
    script = (
        "import numpy as np, tensorflow_federated as tff, tff_fen\n"
        "tff_fen.runtime.set_native_context()\n"
        "assert tff.federated_computation(lambda: tff.federated_value(np.int32(7), tff.SERVER))() == 7\n"
        "raise SystemExit(3)\n"
    )
    start = time.monotonic()
    done = run("-c", script)
    assert done.returncode == 3 and "Exception ignored" not in done.stderr
    assert workers() <= before
    assert time.monotonic() - start < 120


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["benchmarks.fed_prox_sign"], "|w - theta| tff_fen"),
        (["benchmarks.theorem", "--runs=1", "--rounds=2"], "holds"),
        (["benchmarks.drift", "--rounds=5"], "Algorithm 3"),
        (["benchmarks.population", "--rounds=3"], "1000 clients"),
    ],
)
def test_benchmark_commands_run(command: list[str], expected: str) -> None:
    done = run("-m", *command)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_a_script_ends_where_sigint_is_ignored() -> None:
    """As in a shell's background job, whose children inherit that: TFF would wait for its worker for ever."""
    script = (
        "import numpy as np, tensorflow_federated as tff, tff_fen\n"
        "tff.federated_computation(lambda: tff.federated_value(np.int32(7), tff.SERVER))()\n"
    )
    command = f"trap '' INT; exec {sys.executable} -c '{script}'"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "Exception ignored" not in done.stderr


def test_reap_kills_what_a_command_leaves() -> None:
    leaves = "import subprocess, sys; p = subprocess.Popen(['sleep', '1000']); print(p.pid); sys.exit(5)"
    done = run("tools/reap.py", sys.executable, "-c", leaves, timeout=30)
    assert done.returncode == 5
    assert not psutil.pid_exists(int(done.stdout))


def test_digits_are_split_whole_and_reproducibly() -> None:
    first, again, other = digits.load(7, seed=1), digits.load(7, seed=1), digits.load(7, seed=2)
    sizes = [len(y) for _, y in first.clients]
    assert sum(sizes) == 1400 and max(sizes) - min(sizes) <= 1 and len(first.test[1]) == 397
    rows = np.concatenate([x for x, _ in first.clients] + [first.test[0]])
    from sklearn import datasets

    original = datasets.load_digits().data.astype(np.float32) / 16.0
    np.testing.assert_array_equal(np.sort(rows.sum(1)), np.sort(original.sum(1)))
    np.testing.assert_array_equal(first.clients[3][0], again.clients[3][0])
    assert np.any(first.clients[3][0][:50] != other.clients[3][0][:50])
