"""Folders that were made before the modules moved into rooms: they open, go on to the same bits, and join a report.

`fixtures/before_rooms` holds three rounds of each algorithm as version 0.1 left them (the store compressed, no
pictures), and what six rounds without a stop came to there. `made_on.json` says which machine that was, by a digest
that `python -m tests.support.plain_training` prints: a machine with the same one must get the same bits.
"""

from __future__ import annotations

import csv
import json
import lzma
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import tff_fen
from experiments.report.groups import group_runs
from experiments.report.read import find_runs
from tests.support import plain_training
from tests.support.experiments import Experiments
from tests.support.results import exact_rows

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "before_rooms"
MADE_ON = json.loads((FIXTURES / "made_on.json").read_text())
COMMON = (
    "--task=synthetic --num_clients=8 --sampling=uniform:4 --epochs=2 --learning_rate=0.05 --quiet --noplots"
)  # fmt: skip
ARGUMENTS = {
    "fed_dyn": "--algorithm=fed_dyn --l1=1e-4 --l2=0.05 --threshold=1e-3 --uplink=quantised:0.001 --also_count=float16",
    "scaffold": "--algorithm=scaffold --l1=1e-4 --threshold=1e-3 --control_threshold=1e-4 --server_learning_rate=0.9",
    "fed_avg": "--algorithm=fed_avg --top_k=0.2 --l2=1e-3",
}


@pytest.fixture(scope="module")
def experiments(tmp_path_factory) -> Iterator[Experiments]:
    running = Experiments(tmp_path_factory.mktemp("errors") / "stderr", COMMON)
    yield running
    running.close()


def unpack(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Puts a folder together as it was."""
    (folder / "store").mkdir(parents=True)
    content = lzma.decompress((FIXTURES / name / "rounds.sqlite.xz").read_bytes())
    (folder / "store" / "rounds.sqlite").write_bytes(content)
    for file in ("config.json", "metrics.csv", "summary.json", "updates.csv"):
        shutil.copy(FIXTURES / name / file, folder / file)
    return folder


def rows(path: pathlib.Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Resumed(NamedTuple):
    """An old folder that has gone on to its sixth round.

    Attributes:
      name: of the fixture.
      folder: the folder.
      found, expected: the rows of its `metrics.csv`, and those of a run without a stop.
      weights, expected_weights: the server models after the last round.
    """

    name: str
    folder: pathlib.Path
    found: list[dict[str, str]]
    expected: list[dict[str, str]]
    weights: list[np.ndarray]
    expected_weights: list[np.ndarray]


@pytest.fixture(scope="module", params=ARGUMENTS)
def resumed(request: pytest.FixtureRequest, experiments: Experiments, tmp_path_factory) -> Resumed:
    fixture = FIXTURES / request.param
    folder = unpack(request.param, tmp_path_factory.mktemp(request.param) / "old")
    experiments.run(f"{ARGUMENTS[request.param]} --rounds=6 --output={folder}")
    with np.load(fixture / "whole_weights.npz") as file:
        expected_weights = [file[key] for key in file.files]
    weights = tff_fen.load_weights(folder / "weights.npz", "server").trainable
    rows_of = exact_rows(folder / "metrics.csv"), exact_rows(fixture / "whole_metrics.csv")
    return Resumed(request.param, folder, *rows_of, list(weights), expected_weights)


def test_an_old_folder_goes_on_to_the_bits_of_a_run_without_a_stop(resumed: Resumed) -> None:
    if plain_training.digest() != MADE_ON["digest"]:
        pytest.skip(f"this machine rounds otherwise than that of the fixture ({MADE_ON['machine']})")
    assert resumed.found == resumed.expected
    assert [a.tobytes() for a in resumed.weights] == [b.tobytes() for b in resumed.expected_weights]


def test_an_old_folder_goes_on_on_any_machine(resumed: Resumed) -> None:
    """To rounding; and what was done stays as it is."""
    found, expected = resumed.found, resumed.expected
    assert [list(row) for row in found] == [list(row) for row in expected], "columns and rounds"
    assert found[:3] == expected[:3]
    for a, b in zip(found[3:], expected[3:], strict=True):
        for column in a:
            assert float(a[column]) == pytest.approx(float(b[column]), rel=1e-2, abs=1e-4), column
    for array, wanted in zip(resumed.weights, resumed.expected_weights, strict=True):
        np.testing.assert_allclose(array, wanted, atol=1e-4)


def test_seconds_are_counted_from_here_on(resumed: Resumed) -> None:
    """They are not known of rounds of an earlier version."""
    seconds = [row["seconds"] for row in rows(resumed.folder / "metrics.csv")]
    assert seconds[:3] == ["", "", ""]
    timed, summary = sum(map(float, seconds[3:])), json.loads((resumed.folder / "summary.json").read_text())
    before = json.loads((FIXTURES / resumed.name / "summary.json").read_text())
    assert summary["seconds"] == pytest.approx(before["seconds"] + timed, abs=0.06) and timed > 0


def test_old_folders_and_new_ones_are_in_one_report(experiments: Experiments, tmp_path: pathlib.Path) -> None:
    for name in ARGUMENTS:
        folder = unpack(name, tmp_path / f"old-{name}")
        stored = json.loads((folder / "config.json").read_text())["config"]
        assert "hyperparameters" not in stored, "a field that is newer than the folder"
    experiments.run(f"{ARGUMENTS['fed_dyn']} --rounds=3 --seed=1 --output={tmp_path / 'new'}")
    groups = {group.method.title: group for group in group_runs(find_runs([tmp_path]))}
    assert set(groups) == {"Algorithm 3", "Algorithm 2", "FedProx"}
    assert [run.config.seed for run in groups["Algorithm 3"].runs] == [0, 1], "old and new are one group"


def test_other_values_are_still_refused(experiments: Experiments, tmp_path: pathlib.Path) -> None:
    folder = unpack("fed_avg", tmp_path / "old")
    before = (folder / "config.json").read_bytes()
    experiments.start(f"{ARGUMENTS['fed_avg']} --l1=0.5 --output={folder}")
    code, errors = experiments.wait()
    assert code == 1 and "l1: 0.0 there, 0.5 asked" in errors and "hyperparameters" not in errors
    assert (folder / "config.json").read_bytes() == before
