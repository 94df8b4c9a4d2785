"""The scripts as a user runs them: their output, their errors, and nothing left behind."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time

import psutil
import pytest

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
    done = run("run_experiment.py", "--rounds=2", "--num_clients=4", "--clients_per_round=2")
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
        ("--clients_per_round=21", "clients_per_round must be an integer from 1 to 20, found 21"),
        ("--num_clients=5000", "num_examples must be an integer >= 5000, found 1400"),
        ("--task=minst", "found 'minst'. Did you mean 'mnist'?"),
        ("--split=dirichlet", "split 'dirichlet' needs a number, as in 'dirichlet:0.3'"),
        ("--split=natural", "split of task 'digits' must be one of 'iid', 'dirichlet', 'shards', found 'natural'"),
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
