"""--output on somebody else's folder: nothing is written elsewhere, and nothing is waited for."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from experiments.experiment_config import ExperimentConfig
from experiments.files import UnreadableFileError
from experiments.histogram import EDGES
from experiments.output import Folder
from experiments.plan import PlannedRun
from experiments.releases import Releases
from experiments.run import run_all
from tests.support.experiments import Experiments
from tff_fen.program.records import Record
from tff_fen.program.store import DamagedStoreError

DP = (
    "--task=digits --algorithm=fed_avg --rounds=1 --num_clients=4 --sampling=uniform:2 --epochs=1 --quiet --noplots "
    "--aggregator=dp"
)
RECORDS = [Record({"round": number, "accuracy": 0.5}, {}) for number in (1, 2)]
FILES = ("config.json", "metrics.csv", "summary.json", "updates.csv", "weights.npz")


@pytest.fixture
def precious(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "precious"
    file.write_text("1\n2\n")
    return file


def traps(precious: pathlib.Path) -> dict[str, Callable[[pathlib.Path], Any]]:
    return {"link": lambda path: path.symlink_to(precious), "pipe": os.mkfifo}


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_list_of_releases_that_is_no_file_is_refused(
    precious: pathlib.Path, tmp_path: pathlib.Path, kind: str
) -> None:
    path = tmp_path / "releases"
    traps(precious)[kind](path)
    with pytest.raises(UnreadableFileError, match=r"releases is (a symbolic link|no plain file)"):
        Releases(path, 2)
    path.unlink()
    releases = Releases(path, 0)
    traps(precious)[kind](path)  # put there meanwhile
    with pytest.raises(UnreadableFileError):
        releases.add(3)
    assert precious.read_text() == "1\n2\n"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_stands_for_a_result_is_replaced(precious: pathlib.Path, tmp_path: pathlib.Path, kind: str) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    events = "events.out.tfevents.1.host"
    for name in (*FILES, events):
        traps(precious)[kind](path / name)
    folder = Folder(path)
    folder.claim(ExperimentConfig(l2=0.1), {"data": "abc"}, None, 0)
    folder.start(RECORDS[:1])
    folder.add(RECORDS[1])
    assert folder.earlier_summary() == {}
    folder.finish({"rounds": 2}, b"weights", Record(RECORDS[1].row, {"histogram": [1] * (len(EDGES) + 2)}))
    assert precious.read_text() == "1\n2\n"
    assert all((path / name).is_file() and not (path / name).is_symlink() for name in FILES)
    assert not os.path.lexists(path / events)
    (path / "metrics.csv").unlink()
    traps(precious)[kind](path / "metrics.csv")  # put there meanwhile
    for row in ({"round": 3, "accuracy": 0.5}, {"round": 3, "accuracy": 0.5, "new": 1}):
        with pytest.raises(UnreadableFileError):
            folder.add(Record(row, {}))
    assert precious.read_text() == "1\n2\n"


@pytest.mark.parametrize(
    "change",
    [
        {"config": None}, {"config": []}, {"config": {"algorithm": []}}, {"data": None}, {"commit": 3},
        {"versions": [1]}, {"numerics": "x"}, {"resolved": [1]},
    ],
    ids=str,
)  # fmt: skip
def test_a_header_that_is_none_is_named_with_its_store(tmp_path: pathlib.Path, change: dict[str, Any]) -> None:
    header = json.loads(Folder(tmp_path).claim(ExperimentConfig(l2=0.1), {"data": "abc"}, None, 0)) | change
    with pytest.raises(DamagedStoreError, match=rf"{tmp_path / 'store'} is damaged: its header must be a JSON object"):
        Folder(tmp_path).claim(ExperimentConfig(l2=0.1), {"data": "abcd"}, json.dumps(header).encode(), 1)


@pytest.mark.parametrize("header", [b"{}", b"[" * 100_000, b"[]", b"\xff", b"", b'{"config": {}, "data": "abc"}'])
def test_a_header_of_anything_is_named_with_its_store(tmp_path: pathlib.Path, header: bytes) -> None:
    with pytest.raises(DamagedStoreError, match=rf"{tmp_path / 'store'} is damaged: its header must be a JSON object"):
        Folder(tmp_path).claim(ExperimentConfig(l2=0.1), {"data": "abc"}, header, 1)


@pytest.mark.parametrize("change", [{"accuracy": "0.5"}, {"loss": 2**63}, {"loss": "x"}])
def test_a_record_with_a_text_is_named_with_its_store(tmp_path: pathlib.Path, change: dict[str, Any]) -> None:
    record = Record(RECORDS[1].row | change, {})
    (name,) = change
    with pytest.raises(DamagedStoreError, match=f"{tmp_path / 'store'} is damaged: of round 2, {name} is no number"):
        Folder(tmp_path).start([record])


def test_a_store_elsewhere_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "store").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnreadableFileError, match="store is a symbolic link, which is not followed"):
        Folder(tmp_path / "folder")
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_a_run_of_a_grid_elsewhere_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "one").symlink_to(tmp_path / "elsewhere")
    runs = [PlannedRun(name, ExperimentConfig(l2=0.1), {"preset": None, "assumed": []}) for name in ("one", "two")]
    with pytest.raises(SystemExit, match="out/one is a symbolic link, which is not followed"):
        run_all(runs, str(tmp_path / "out"), quiet=True)
    assert not [*(tmp_path / "elsewhere").iterdir()]


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000, b"\xff\xfe", b"[]", b'{"numerics_changed": 3}', b'{"numerics_changed": [3]}',
        b'{"numerics_changed": [{"after_round": 1}]}', b'{"numerics_changed": {"a": 1}}',
    ],
)  # fmt: skip
def test_a_config_that_is_none_is_written_anew(tmp_path: pathlib.Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    Folder(tmp_path).claim(ExperimentConfig(l2=0.1), {"data": "abc"}, None, 0)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["config"]["l2"] == 0.1 and "numerics_changed" not in written


@pytest.mark.long
def test_the_command_ends_with_one_line(precious: pathlib.Path, tmp_path: pathlib.Path) -> None:
    experiments = Experiments(tmp_path / "stderr", DP)
    try:
        for name, kind in (("releases", "pipe"), ("releases", "link"), ("store/lock", "link"), ("store", "link")):
            folder = tmp_path / f"{name}-{kind}".replace("/", "-")
            (folder / name).parent.mkdir(parents=True)
            traps(precious)[kind](folder / name)
            experiments.start(f"--output={folder}")
            code, errors = experiments.wait()
            assert code != 0 and "Traceback" not in errors and str(folder / name) in errors, errors
            assert precious.read_text() == "1\n2\n"
    finally:
        experiments.close()
