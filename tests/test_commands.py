"""The scripts as a user runs them: their output, their errors, and nothing left behind."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
import tensorflow as tf

import tff_fen
from tasks.registry import load_task

ROOT = pathlib.Path(__file__).parent.parent
MARK = "TFF_FEN_TEST_PROCESS"


def run(*arguments: str, timeout: float = 180.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False,
        env={**os.environ, MARK: str(os.getpid())},
    )  # fmt: skip


def workers() -> set[psutil.Process]:
    """TFF's workers that descend from a command that this test process has started."""
    found = set()
    for process in psutil.process_iter(["name"]):
        with contextlib.suppress(psutil.Error):
            if process.info["name"] == "worker_binary" and process.environ().get(MARK) == str(os.getpid()):
                found.add(process)
    return found


def test_run_experiment_compares_runs_and_leaves_no_worker(tmp_path: pathlib.Path) -> None:
    before = workers()
    # capture_output waits for the pipe to close: a worker that outlived the script would keep it open.
    done = run(
        "run_experiment.py", "--grid=preset=digits/iid/fed_prox,digits/iid/algorithm_1", "--rounds=2",
        f"--output={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    table = done.stdout.splitlines()[1:4]
    assert table[0].split()[:3] == ["run", "rounds", "accuracy"]
    assert [line.split()[0] for line in table[1:]] == ["digits-iid-fed_prox", "digits-iid-algorithm_1"]
    dense, sparse = (int(line.split()[3].replace(",", "")) for line in table[1:])
    assert 0 < sparse < dense
    assert "round 2/2 accuracy" in done.stderr, "progress"
    assert workers() <= before
    files = {path.name for path in (tmp_path / "digits-iid-algorithm_1").iterdir()}
    assert {"config.json", "metrics.csv", "summary.json", "weights.npz", "store", "accuracy.png"} <= files
    assert json.loads((tmp_path / "summary.json").read_text())["digits-iid-fed_prox"]["rounds"] == 2


def test_run_experiment_takes_a_flag_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "my.flags").write_text("--preset=digits/iid/algorithm_3\n--rounds=1\n--quiet\n--noplots\n")
    done = run(
        "run_experiment.py",
        f"--flagfile={tmp_path / 'my.flags'}",
        "--l1=1e-3",
        "--export",
        f"--output={tmp_path / 'out'}",
    )
    assert done.returncode == 0, done.stderr
    assert "round" not in done.stderr, "quiet"
    content = json.loads((tmp_path / "out" / "config.json").read_text())
    assert content["config"]["l1"] == 1e-3 and content["config"]["l2"] == 0.05, "flags win over the preset"
    assert "l1" not in content["assumed"] and content["preset"] == "digits/iid/algorithm_3"
    # What it exports is the model of the table, here the mean of the participants' models.
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    model = tf.keras.models.load_model(tmp_path / "out" / "model.keras")
    test = load_task("digits").test
    assert model.evaluate(*test, verbose=0)[1] == pytest.approx(summary["average_accuracy"], abs=1e-6)
    assert f"{summary['average_accuracy']:.2%}" in done.stdout and summary["average_accuracy"] != summary["accuracy"]
    for name, accuracy in (("average", "average_accuracy"), ("server", "accuracy")):
        tff_fen.load_weights(tmp_path / "out" / "weights.npz", name).assign_weights_to(model)
        assert model.evaluate(*test, verbose=0)[1] == pytest.approx(summary[accuracy], abs=1e-6)
    with (tmp_path / "out" / "metrics.csv").open() as file:
        assert summary["seconds"] == pytest.approx(sum(float(row["seconds"]) for row in csv.DictReader(file)), abs=0.06)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--sampling=uniform:21", "number of clients in sampling must be an integer from 1 to 20, found 21"),
        ("--task=minst", "found 'minst'. Did you mean 'mnist'?"),
        ("--grid=l1=1,2 --l1=3", "--grid and --l1 both give 'l1'"),
        ("--grid=preset=digits/iid/fed_avg --preset=digits/iid/fed_dyn", "--grid and --preset both give 'preset'"),
        ("--grid=l1=1e-4,-1", "l1 must be a finite number >= 0, found -1.0"),
        ("--runtime=gpu", "runtime must be one of"),
        ("--ray_address=auto", "ray_address=auto has no effect: it is for --runtime=ray"),
        (
            "--task=synthetic --num_clients=10000000",
            "sampling='bernoulli:0.1' of 10,000,000 clients takes about 1,000,000 in a round, whose data",
        ),
        ("--runtime=ray --ray_address=127.0.0.1:1", "found '127.0.0.1:1', where there is none"),
        ("--no_such_flag", "--no_such_flag is no flag. --help lists the flags."),
        ("stray", "unknown arguments: stray"),
    ],
)
def test_run_experiment_refuses_before_any_work(arguments: str, message: str, tmp_path: pathlib.Path) -> None:
    output = tmp_path / "out"
    done = run("run_experiment.py", "--l2=0.1", *arguments.split(), f"--output={output}")
    assert done.returncode != 0 and message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr and not output.exists()


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


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["benchmarks.fed_prox_sign"], "|w - theta| tff_fen"),
        (["benchmarks.theorem", "--runs=1", "--rounds=2"], "holds"),
        (["benchmarks.drift", "--rounds=5"], "Algorithm 3"),
        (["benchmarks.population", "--rounds=3"], "1000 clients"),
        (["benchmarks.accounting", "--rounds=4", "--preset=digits/iid/algorithm_3"], "counting bytes"),
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


def test_stopping_at_once_leaves_no_worker_though_one_computes() -> None:
    """TFF's thread that computes starts a worker in place of the one that was ended."""
    script = """
        import gc, threading, time
        import numpy as np, tensorflow_federated as tff
        import tff_fen
        from experiments import command_line

        tff_fen.runtime.set_native_context(ignore_interrupts=True)
        compute = tff.federated_computation(lambda: tff.federated_value(np.int32(7), tff.SERVER))
        calls = []

        def go_on():
            while True:
                try:
                    calls.append(compute())
                except Exception:
                    pass

        context = tff.framework.get_context_stack().current

        def thread():
            with tff.framework.get_context_stack().install(context):
                go_on()

        threading.Thread(target=thread, daemon=True).start()
        while len(calls) < 3:
            time.sleep(0.01)
        gc.collect = lambda: time.sleep(1)  # as after a real run: time for a new worker
        command_line.stop_at_once()
        """
    before = workers()
    done = run("-c", textwrap.dedent(script), timeout=120)
    assert done.returncode == 130 and "Traceback" not in done.stderr, done.stderr
    assert workers() <= before


def test_reap_kills_what_a_command_leaves() -> None:
    leaves = "import subprocess, sys; p = subprocess.Popen(['sleep', '1000']); print(p.pid); sys.exit(5)"
    done = run("tools/reap.py", sys.executable, "-c", leaves, timeout=30)
    assert done.returncode == 5
    assert not psutil.pid_exists(int(done.stdout))
