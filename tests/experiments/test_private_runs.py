"""Experiments with differential privacy: what is in their folders, what they have spent, and that no key is there."""

from __future__ import annotations

import contextlib
import csv
import json
import lzma
import pathlib
import re
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from experiments.experiment_config import ExperimentConfig
from experiments.privacy import PrivacyAccountant
from experiments.progress import Progress, print_table
from experiments.releases import Releases
from experiments.report.groups import group_runs
from experiments.report.read import find_runs
from experiments.report.tables import dp_table
from experiments.settings import AGGREGATORS, Settings
from tests.support.experiments import Experiments
from tff_fen.program.sampling import sample_uniform
from tff_fen.program.store import SqliteStore

FIXTURE = pathlib.Path(__file__).parent / "fixtures" / "before_releases" / "dp"
COMMON = (
    "--task=synthetic --num_clients=8 --sampling=uniform:4 --epochs=2 --learning_rate=0.05 --quiet --noplots"
)  # fmt: skip
DP = (
    "--algorithm=fed_dyn --l1=1e-4 --l2=0.05 --threshold=1e-3 --aggregator=dp --dp_noise_multiplier=2.0 "
    "--dp_second_clip=3.0"
)  # fmt: skip
PUBLIC = {
    "round", "client_work/train/participants", "downlink_bytes", "dp_epsilon", "dp_releases", "accuracy", "test_loss",
    "average_accuracy", "average_test_loss", "seconds",
}  # fmt: skip


@pytest.fixture(scope="module")
def experiments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiments]:
    running = Experiments(tmp_path_factory.mktemp("errors") / "stderr", COMMON)
    yield running
    running.close()


@pytest.fixture(scope="module")
def finished(experiments: Experiments, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("dp") / "run"
    experiments.run(f"{DP} --rounds=3 --output={folder}")
    return folder


def rows(folder: pathlib.Path) -> list[dict[str, Any]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def weights(folder: pathlib.Path) -> np.ndarray:
    with np.load(folder / "weights.npz") as arrays:
        return np.concatenate([np.ravel(arrays[name]) for name in arrays.files])


def epsilon(*released: int) -> float:
    accountant = PrivacyAccountant(2.0, 1e-5, lambda t: sample_uniform(t, 8, 4, 0))
    for number in released:
        accountant.count(number)
    return accountant.epsilon()


def damage(folder: pathlib.Path, number: int) -> None:
    """Makes the checkpoint of a round and of all after it unreadable."""
    with contextlib.closing(sqlite3.connect(folder / "store" / "rounds.sqlite")) as database:
        database.execute("UPDATE rounds SET digest = zeroblob(16) WHERE round >= ?", (number,))
        database.commit()


# What is in the folder.


def test_a_private_run_writes_nothing_exact_of_its_clients(experiments, finished, tmp_path) -> None:
    experiments.run(f"--algorithm=fed_avg --aggregator=dp --rounds=2 --output={tmp_path / 'fed_avg'}")
    experiments.run(f"{DP} --client_measurements=on --rounds=2 --output={tmp_path / 'measured'}")
    assert set(rows(finished)[0]) == PUBLIC
    assert set(rows(tmp_path / "fed_avg")[0]) == {name for name in PUBLIC if not name.startswith("average_")}
    assert not (finished / "updates.csv").exists()
    with SqliteStore(finished / "store") as store:
        *_, (_, newest) = store.metrics()
    assert set(json.loads(newest)) == {"row"} and set(json.loads(newest)["row"]) == PUBLIC
    measured = rows(tmp_path / "measured")[0]
    assert {"uplink_bytes", "client_work/train/loss", "client_work/train/delta/norm"} <= set(measured)
    assert (tmp_path / "measured" / "updates.csv").exists()
    shutil.copytree(finished, tmp_path / "private")
    for run in find_runs([tmp_path]):
        table = dp_table(group_runs([run])).content
        assert ("updates only" in table) == (run.name == "measured"), run.name
        assert ("yes, without store/" in table) == (run.name != "measured"), run.name


def test_a_secure_run_writes_nothing_exact_of_its_clients(experiments, tmp_path, capsys) -> None:
    folder = tmp_path / "secure"
    experiments.run(f"--algorithm=fed_avg --aggregator=secure --rounds=2 --output={folder}")
    of_dp = {name for name in PUBLIC if name.startswith("dp_")}
    assert set(rows(folder)[0]) == {name for name in PUBLIC - of_dp if not name.startswith("average_")}
    assert not (folder / "updates.csv").exists() and not (folder / "clients.csv").exists()
    summary = json.loads((folder / "summary.json").read_text())
    assert not [name for name in summary if "non_zeros" in name or "entropy" in name or name == "dense_elements"]
    (run,) = find_runs([folder])
    assert not run.measures_clients and np.isnan(run.non_zeros) and np.isnan(run.bytes_sent)
    print_table({"secure": summary})
    assert re.search(r"secure +2 +[\d.]+% +not measured +- +- +-$", capsys.readouterr().out, re.MULTILINE)


def test_progress_shows_no_bytes_where_none_are_counted(capsys) -> None:
    for counted, sent in (({"downlink_bytes": 10**7}, "-"), ({"uplink_bytes": 10**7}, "10.00 MB")):
        with Progress("run", 0, 1, 0, quiet=False) as progress:
            progress.show({"round": 1, "accuracy": 0.5, **counted})
        assert capsys.readouterr().err.endswith(f" accuracy 50.00% loss - sent {sent}\n")


def test_the_store_is_its_owners(finished) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (finished / "store").iterdir()}
    assert modes == dict.fromkeys(modes, 0o600) and "rounds.sqlite" in modes
    assert stat.S_IMODE((finished / "store").stat().st_mode) == 0o700


# Keys.


@pytest.mark.long
def test_processes_and_resumed_runs_share_no_key(experiments, finished, tmp_path) -> None:
    """Forked processes, which would share any generator that was seeded before; the same command on the same folder."""
    for name in ("again", "resumed", "resumed again"):
        if name != "again":
            shutil.copytree(finished, tmp_path / name)
            (tmp_path / name / "weights.npz").unlink()
        rounds = 3 if name == "again" else 4
        experiments.run(f"{DP} --rounds={rounds} '--output={tmp_path / name}'")
    assert np.all(weights(tmp_path / "again") != weights(finished))
    assert np.all(weights(tmp_path / "resumed") != weights(tmp_path / "resumed again"))


@pytest.mark.long
def test_no_key_is_in_the_folder_or_the_log(tmp_path: pathlib.Path) -> None:
    key = np.random.default_rng(5).permutation(np.arange(100, 200, dtype=np.uint8))[:32].tobytes()
    (tmp_path / "source").write_bytes(key)
    running = Experiments(tmp_path / "errors", COMMON, source=tmp_path / "source")
    try:
        for folder in ("one", "two"):
            running.run(f"{DP} --rounds=2 --output={tmp_path / folder}")
    finally:
        running.close()
    np.testing.assert_array_equal(weights(tmp_path / "one"), weights(tmp_path / "two"), "the key was the file's")
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "source"]
    assert len(written) > 12
    for path in written:
        content = path.read_bytes()
        for start in range(0, 32, 8):
            part = key[start : start + 8]
            assert part not in content and part.hex().encode() not in content.lower(), path


# Releases.


@pytest.mark.long
def test_each_release_is_counted(experiments, finished, tmp_path) -> None:
    """A run that was stopped and resumed has spent what one in a piece has; one that was rolled back more."""
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    experiments.run(f"{DP} --rounds=4 --output={folder}")
    whole = [float(row["dp_epsilon"]) for row in rows(folder)]
    assert whole == [epsilon(*range(1, n + 1)) for n in (1, 2, 3, 4)]
    assert [row["dp_releases"] for row in rows(folder)] == ["1", "2", "3", "4"]
    damage(folder, 3)
    experiments.run(f"{DP} --rounds=5 --output={folder}")
    found = rows(folder)
    assert [float(row["dp_epsilon"]) for row in found[:2]] == whole[:2]
    assert [float(row["dp_epsilon"]) for row in found[2:]] == [
        epsilon(1, 2, 3, 4, 3), epsilon(1, 2, 3, 4, 3, 4), epsilon(1, 2, 3, 4, 3, 4, 5)
    ]  # fmt: skip
    assert [row["dp_releases"] for row in found] == ["1", "2", "5", "6", "7"] and "dp_lower_bound" not in found[0]
    assert "≥" not in dp_table(group_runs(find_runs([folder]))).content
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["dp_epsilon"] == float(found[-1]["dp_epsilon"]) > epsilon(1, 2, 3, 4, 5)
    (folder / "releases").unlink()
    experiments.run(f"{DP} --rounds=6 --output={folder}")
    assert rows(folder)[-1]["dp_lower_bound"] == "1" and "≥" in dp_table(group_runs(find_runs([folder]))).content


def test_a_list_that_was_cut(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "releases"
    for number in (1, 2, 2, 3):
        Releases(path).add(number)
    assert Releases(path, 3).rounds == [1, 2, 2, 3] and Releases(path, 3).complete
    content = path.read_text()
    path.write_text(content + "4")  # ended while it was written: nothing was committed
    assert Releases(path, 3).rounds == [1, 2, 2, 3] and Releases(path, 3).complete
    path.write_text(content[:2])
    assert (Releases(path, 3).rounds, Releases(path, 3).complete) == ([1, 2, 3], False)
    assert not Releases(path, 3).complete, "it stays a lower bound"
    path.write_text("1\n\x00\x00\n3\n")
    assert (sorted(Releases(path, 3).rounds), Releases(path, 3).complete) == ([1, 2, 3], False)
    path.unlink()
    assert Releases(path, 0).complete and Releases().rounds == []


def test_a_folder_of_an_earlier_version(experiments, tmp_path) -> None:
    """It goes on measuring, as it was begun; what it has spent is a lower bound."""
    folder = tmp_path / "old"
    (folder / "store").mkdir(parents=True)
    (folder / "store" / "rounds.sqlite").write_bytes(lzma.decompress((FIXTURE / "rounds.sqlite.xz").read_bytes()))
    for file in ("config.json", "metrics.csv", "summary.json", "updates.csv"):
        shutil.copy(FIXTURE / file, folder / file)
    assert "updates only" in dp_table(group_runs(find_runs([folder]))).content
    before = rows(folder)
    experiments.run(f"{DP} --rounds=5 --output={folder}")
    found = rows(folder)
    assert [{name: row[name] for name in before[0]} for row in found[:3]] == before
    assert all(float(row["uplink_bytes"]) > 0 and row["client_work/train/loss"] for row in found)
    assert [float(row["dp_epsilon"]) for row in found] == [epsilon(*range(1, n + 1)) for n in (1, 2, 3, 4, 5)]
    assert [row["dp_lower_bound"] for row in found] == ["", "", "", "1", "1"]
    table = dp_table(group_runs(find_runs([folder]))).content
    assert "updates only" in table and "≥" in table


def test_who_is_measured() -> None:
    """What the others aggregate is in the clear anyway."""
    measured = [name for name in AGGREGATORS if Settings(aggregator=name).measures_clients]
    assert set(AGGREGATORS) - set(measured) == {"dp", "secure"}
    assert Settings(aggregator="secure", client_measurements="on").measures_clients
    assert not Settings(client_measurements="off").measures_clients
    with pytest.raises(ValueError, match="client_measurements"):
        ExperimentConfig(client_measurements="yes")
