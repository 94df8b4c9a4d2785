"""Experiments that are killed, interrupted, damaged or run twice: what is there afterwards, bit for bit."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from tests.support.experiments import ROOT, Experiments
from tests.support.results import exact_rows
from tff_fen.program.store import SqliteStore

# On one core: they share what an uninterrupted run gives, and measure how long it takes.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("resume")]

ROUNDS = 8
# Few parameters and little data: what is tested here is when a process ends, not what it learns.
COMMON = f"--task=digits --num_clients=12 --rounds={ROUNDS} --epochs=1 --noplots --quiet --sampling=bernoulli:0.3"
EXPERIMENTS = {
    "fed_avg": "--algorithm=fed_avg --l1=1e-4 --l2=1e-3 --threshold=2e-3 --top_k=0.2",
    "scaffold": "--algorithm=scaffold --l1=1e-4 --threshold=2e-3 --uplink=quantised:0.001",
    "fed_dyn": "--algorithm=fed_dyn --l1=1e-4 --l2=0.1 --threshold=2e-3 --lr_decay=0.9",
}


@pytest.fixture(scope="module")
def experiments(tmp_path_factory) -> Iterator[Experiments]:
    running = Experiments(tmp_path_factory.mktemp("errors") / "stderr", COMMON)
    yield running
    running.close()


@pytest.fixture(scope="module")
def finished(experiments: Experiments, tmp_path_factory) -> dict[str, tuple[pathlib.Path, float]]:
    """An uninterrupted run of each, and how long it took."""
    folders = {}
    for name, arguments in EXPERIMENTS.items():
        folder = tmp_path_factory.mktemp("whole") / name
        start = time.monotonic()
        experiments.run(f"{arguments} --output={folder}")
        folders[name] = (folder, time.monotonic() - start)
    return folders


def states(folder: pathlib.Path) -> dict[int, bytes | None]:
    with SqliteStore(folder / "store") as store:
        ids = list(store.client_ids())
        return dict(zip(ids, store.read_clients(ids), strict=True))


def assert_same(folder: pathlib.Path, expected: pathlib.Path) -> None:
    """`metrics.csv`, the final weights and all client states, to the bit."""
    assert exact_rows(folder / "metrics.csv") == exact_rows(expected / "metrics.csv")
    with np.load(folder / "weights.npz") as mine, np.load(expected / "weights.npz") as theirs:
        assert mine.files == theirs.files
        for name in mine.files:
            assert mine[name].tobytes() == theirs[name].tobytes()
    found, wanted = states(folder), states(expected)
    assert found == wanted and len(found) > 5


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_killed_seven_times_and_resumed(
    name: str, experiments: Experiments, finished: dict[str, tuple[pathlib.Path, float]], tmp_path: pathlib.Path
) -> None:
    """Three algorithms, seven instants each: 21 kills, drawn over the whole length of a run."""
    expected, seconds = finished[name]
    arguments = f"{EXPERIMENTS[name]} --output={tmp_path / 'run'}"
    rng = np.random.default_rng(int.from_bytes(os.urandom(4), "little"))
    killed, instants = 0, []
    while killed < 7:
        pid = experiments.start(arguments)
        instants.append(float(rng.uniform(0.15, 0.75) * seconds))
        time.sleep(instants[-1])
        if experiments.kill(pid):
            killed += 1
        else:  # it had ended: its end must be right too, and the next one starts anew
            assert_same(tmp_path / "run", expected)
            shutil.rmtree(tmp_path / "run")
    experiments.run(arguments)
    assert_same(tmp_path / "run", expected)
    with (tmp_path / "run" / "metrics.csv").open() as file:
        timed = sum(float(row["seconds"]) for row in csv.DictReader(file))
    summed = json.loads((tmp_path / "run" / "summary.json").read_text())["seconds"]
    assert summed == pytest.approx(timed, abs=0.06), "of all processes, not of the last"
    print(f"{name}: killed after {', '.join(f'{t:.2f}' for t in instants)} s of {seconds:.2f} s")


def test_the_same_command_again_changes_nothing(experiments, finished, tmp_path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished["fed_dyn"][0], folder)
    experiments.run(f"{EXPERIMENTS['fed_dyn']} --output={folder}")
    assert_same(folder, finished["fed_dyn"][0])


def test_files_that_disagree_with_the_store_are_written_anew(experiments, finished, tmp_path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished["scaffold"][0], folder)
    lines = (folder / "metrics.csv").read_text().splitlines(keepends=True)
    (folder / "metrics.csv").write_text("".join([*lines[:4], lines[4][:20]]))  # as if killed while writing a line
    (folder / "weights.npz").unlink()
    (folder / "updates.csv").unlink()
    (folder / "summary.json").write_text("{")
    experiments.run(f"{EXPERIMENTS['scaffold']} --output={folder}")
    assert_same(folder, finished["scaffold"][0])
    assert json.loads((folder / "summary.json").read_text())["rounds"] == ROUNDS
    assert (folder / "updates.csv").read_bytes() == (finished["scaffold"][0] / "updates.csv").read_bytes()


def test_a_damaged_round_is_named_and_repeated(experiments, finished, tmp_path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished["fed_dyn"][0], folder)
    with contextlib.closing(sqlite3.connect(folder / "store" / "rounds.sqlite")) as database:
        (content,) = database.execute("SELECT checkpoint FROM rounds WHERE round = ?", (ROUNDS,)).fetchone()
        (blob,) = database.execute("SELECT content FROM contents WHERE id = ?", (content,)).fetchone()
        damaged = blob[:-100] + bytes([blob[-100] ^ 1]) + blob[-99:]
        database.execute("UPDATE contents SET content = ? WHERE id = ?", (damaged, content))
        database.commit()
    experiments.start(f"{EXPERIMENTS['fed_dyn']} --output={folder}")
    code, errors = experiments.wait()
    assert code == 0 and f"Round {ROUNDS} in" in errors and "damaged" in errors and "checkpoint" in errors
    assert_same(folder, finished["fed_dyn"][0])


def test_a_store_that_is_no_database_stops_the_run(experiments, finished, tmp_path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished["fed_dyn"][0], folder)
    (folder / "store" / "rounds.sqlite").write_bytes(b"no database" * 1000)
    experiments.start(f"{EXPERIMENTS['fed_dyn']} --output={folder}")
    code, errors = experiments.wait()
    assert code == 1 and "rounds.sqlite is damaged" in errors and "Traceback" not in errors


def test_other_flags_are_refused_with_the_difference(experiments, finished) -> None:
    before = {path: path.read_bytes() for path in finished["fed_avg"][0].glob("*.*")}
    experiments.start(f"{EXPERIMENTS['fed_avg']} --threshold=0.5 --seed=3 --output={finished['fed_avg'][0]}")
    code, errors = experiments.wait()
    assert code == 1 and "threshold: 0.002 there, 0.5 asked" in errors and "seed: 0 there, 3 asked" in errors
    assert "l1" not in errors and "Traceback" not in errors
    assert {path: path.read_bytes() for path in finished["fed_avg"][0].glob("*.*")} == before


def test_other_numerics_are_refused_unless_allowed(finished, tmp_path) -> None:
    """Without oneDNN TensorFlow adds in another order."""
    folder = tmp_path / "run"
    shutil.copytree(finished["fed_dyn"][0], folder)
    before = {path: path.read_bytes() for path in folder.glob("*.*")}
    began = json.loads((folder / "config.json").read_text())["numerics"]["onednn"]
    other = {"True": "0", "False": "1"}[began]

    def go_on(*more: str) -> subprocess.CompletedProcess[str]:
        arguments = [*COMMON.split(), *EXPERIMENTS["fed_dyn"].split(), f"--rounds={ROUNDS + 1}", f"--output={folder}"]
        return subprocess.run(
            [sys.executable, "run_experiment.py", *arguments, *more],
            cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
            env=os.environ | {"TF_ENABLE_ONEDNN_OPTS": other},
        )  # fmt: skip

    refused = go_on()
    now = str(began != "True")
    assert refused.returncode == 1 and f"\n  onednn: began with {began}, now {now}\n" in refused.stderr
    assert "--allow_other_numerics" in refused.stderr and "Traceback" not in refused.stderr
    assert {path: path.read_bytes() for path in folder.glob("*.*")} == before
    allowed = go_on("--allow_other_numerics")
    assert allowed.returncode == 0, allowed.stderr
    assert f"onednn: began with {began}, now {now}" in allowed.stderr
    assert len(exact_rows(folder / "metrics.csv")) == ROUNDS + 1
    changes = json.loads((folder / "config.json").read_text())["numerics_changed"]
    assert changes == [{"after_round": ROUNDS, "values": {"onednn": now}}]


def test_more_rounds_go_on(experiments, finished, tmp_path) -> None:
    shutil.copytree(finished["fed_dyn"][0], tmp_path / "longer")
    for folder in ("longer", "anew"):
        experiments.run(f"{EXPERIMENTS['fed_dyn']} --rounds={ROUNDS + 2} --output={tmp_path / folder}")
    assert_same(tmp_path / "longer", tmp_path / "anew")
    with (tmp_path / "longer" / "metrics.csv").open() as file:
        assert [int(row["round"]) for row in csv.DictReader(file)] == list(range(1, ROUNDS + 3))


def start_long(experiments: Experiments, folder: pathlib.Path) -> int:
    """Starts an experiment without end and waits until it has done two rounds."""
    pid = experiments.start(f"{EXPERIMENTS['fed_dyn']} --rounds=100000 --output={folder}")
    end = time.monotonic() + 120
    while time.monotonic() < end:
        file = folder / "metrics.csv"
        if file.exists() and file.read_text().count("\n") >= 3:
            return pid
        time.sleep(0.1)
    raise AssertionError("no round in two minutes")


def test_two_processes_and_an_interrupt(experiments: Experiments, tmp_path: pathlib.Path) -> None:
    """The second is refused; Ctrl-C finishes the round, saves, and says how to go on; what is saved is right."""
    pid = start_long(experiments, tmp_path / "run")
    second = subprocess.run(
        [sys.executable, "run_experiment.py", *COMMON.split(), *EXPERIMENTS["fed_dyn"].split(),
         f"--output={tmp_path / 'run'}"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert second.returncode == 1 and f"is open in process {pid}" in second.stderr
    # As a terminal does it: to the whole group, TFF's worker included.
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        process.send_signal(signal.SIGINT)
    code, errors = experiments.wait()
    assert code == 1 and "all finished rounds are saved. Run the same command to go on" in errors
    assert "Traceback" not in errors
    done = (tmp_path / "run" / "metrics.csv").read_text().count("\n") - 1
    for folder in ("run", "anew"):
        experiments.run(f"{EXPERIMENTS['fed_dyn']} --rounds={done + 1} --output={tmp_path / folder}")
    assert_same(tmp_path / "run", tmp_path / "anew")


def test_a_full_disk_stops_with_a_message_and_loses_nothing(finished, tmp_path) -> None:
    """A limit on the size of files stands for the disk: the system refuses to write beyond it."""
    folder = tmp_path / "run"
    shutil.copytree(finished["fed_dyn"][0], folder)
    limit = (folder / "store" / "rounds.sqlite").stat().st_size // 1024
    arguments = f"{COMMON} {EXPERIMENTS['fed_dyn']} --rounds={ROUNDS + 30} --output={folder}"
    done = subprocess.run(
        ["bash", "-c", f"trap '' XFSZ; ulimit -f {limit}; exec {sys.executable} run_experiment.py {arguments}"],
        cwd=ROOT, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "The disk does not take more" in done.stderr and "are safe" in done.stderr
    assert "Traceback" not in done.stderr
    with SqliteStore(folder / "store") as store:
        latest = store.latest()
        assert latest is not None and latest.number >= ROUNDS
