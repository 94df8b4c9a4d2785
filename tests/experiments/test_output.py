"""The files of an experiment's folder."""

from __future__ import annotations

import asyncio
import csv
import dataclasses
import importlib.metadata
import json
import pathlib
import subprocess
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from experiments import plots
from experiments.experiment_config import ExperimentConfig
from experiments.histogram import EDGES
from experiments.output import ConfigMismatchError, Folder
from experiments.summary import summarize, untimed_seconds
from tff_fen.program.records import Record


def records() -> list[Record]:
    made = []
    for t in range(1, 4):
        row: dict[str, Any] = {"round": t, "uplink_bytes": 100 * t, "downlink_bytes": 1000}
        row |= {f"client_work/train/{m}/entropy_trunc": 0.1 * t for m in ("delta", "theta")}
        row |= {"client_work/train/delta/non_zeros": 10, "client_work/train/delta/non_zero_share": 0.1}
        row |= {"client_work/train/contributing_clients": 2, "client_work/train/loss": 1 / 3}
        row |= {"accuracy": None if t == 2 else 0.5 + 0.1 * t, "test_loss": None if t == 2 else 1.0}
        histogram = [50, *[t] * (len(EDGES) + 1)]
        made.append(Record(row, {"histogram": histogram}))
    return made


def test_the_folder(tmp_path: pathlib.Path) -> None:
    config = ExperimentConfig(l2=0.1)
    folder = Folder(tmp_path)
    about = {"preset": "x", "assumed": ["l2"], "data": "abc"}
    header = folder.claim(config, about, None, 0)
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["config"]["l2"] == 0.1 and content["assumed"] == ["l2"] and content["versions"]["tensorflow"]
    # What is in the store counts, whatever became of the file.
    (tmp_path / "config.json").unlink()
    assert folder.claim(dataclasses.replace(config, rounds=99), about, header, 3) == header
    assert json.loads((tmp_path / "config.json").read_text())["config"]["rounds"] == 99
    for other, data, done, message in [
        (dataclasses.replace(config, l1=0.5), "abc", 0, r"l1: 0.0 there, 0.5 asked"),
        (config, "xyz", 0, "data: 'abc' there, 'xyz' asked"),
        (dataclasses.replace(config, rounds=2), "abc", 3, "rounds: '3 done' there, 2 asked"),
    ]:
        with pytest.raises(ConfigMismatchError, match=message):
            folder.claim(other, about | {"data": data}, header, done)
    for there, asked in (("pool", "official"), ("official", "pool")):
        stored = folder.claim(config, about | {"resolved": {"training_set": there}}, None, 0)
        with pytest.raises(ConfigMismatchError, match=f"training_set: '{there}' there, '{asked}' asked"):
            folder.claim(config, about | {"data": "xyz", "resolved": {"training_set": asked}}, stored, 0)
    own = asyncio.new_event_loop()
    asyncio.set_event_loop(own)
    folder.start(records()[:1])
    for record in records()[1:]:
        folder.add(record)
    assert asyncio.get_event_loop() is own, "the thread's event loop, which TFF's training loops use, stays"
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["round"] for row in rows] == ["1", "2", "3"]
    assert rows[0]["client_work/train/loss"] == "0.3333333333333333" and rows[1]["accuracy"] == ""
    whole = (tmp_path / "metrics.csv").read_bytes()
    again = Folder(tmp_path)
    again.start(records())
    assert (tmp_path / "metrics.csv").read_bytes() == whole, "line by line or at once: the same file"
    events = list(tmp_path.glob("events.out.tfevents.*"))
    assert len(events) == 1
    found = [
        (event.step, value.tag)
        for event in tf.compat.v1.train.summary_iterator(str(events[0]))
        for value in event.summary.value
    ]
    assert (3, "uplink_bytes") in found and (2, "accuracy") not in found
    weights = b"what weights_to_bytes returned"
    Folder(tmp_path).finish({"rounds": 3}, weights, records()[-1])
    assert (tmp_path / "weights.npz").read_bytes() == weights
    lines = (tmp_path / "updates.csv").read_text().splitlines()
    second, last = EDGES[[1, -1]]
    assert lines[:4] == ["lower,upper,count", "0.0,0.0,50", "0.0,1e-08,3", f"1e-08,{second},3"]
    assert lines[-1] == f"{last},inf,3" and len(lines) == 2 + len(EDGES) + 1
    Folder(tmp_path / "none").path.mkdir()
    Folder(tmp_path / "none").finish({"rounds": 0}, weights, None)
    assert not (tmp_path / "none" / "updates.csv").exists()


def test_metrics_are_written_by_the_names_of_their_columns(tmp_path: pathlib.Path) -> None:
    """A version that measures more, or in another order, goes on with an old folder."""
    folder = Folder(tmp_path)
    folder.start([Record({"round": 1, "a": 10, "b": 20}, {})])
    folder.add(Record({"round": 2, "b": 21, "a": 11}, {}))
    folder.add(Record({"round": 3, "new": 32, "b": 22}, {}))
    folder.add(Record({"round": 4, "new": 33, "b": 23, "a": 13}, {}))
    whole = "round,a,b,new\r\n1,10,20,\r\n2,11,21,\r\n3,,22,32\r\n4,13,23,33\r\n"
    assert (tmp_path / "metrics.csv").read_bytes().decode() == whole
    Folder(tmp_path).start([Record({"round": 1, "b": 20}, {}), Record({"round": 2, "c": 3, "b": 21}, {})])
    assert (tmp_path / "metrics.csv").read_bytes().decode() == "round,b,c\r\n1,20,\r\n2,21,3\r\n"


def test_the_commit_is_that_of_the_source(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    monkeypatch.chdir(tmp_path)
    header = Folder(tmp_path).claim(ExperimentConfig(l2=0.1), {"data": "abc"}, None, 0)
    commit = json.loads(header)["commit"]
    assert commit is None if done.returncode else commit.removesuffix("-dirty") == done.stdout.strip()


def test_summary() -> None:
    summary = summarize([record.row for record in records()], {"accuracy": 0.75}, 100)
    assert summary["rounds"] == 3 and summary["participants"] == 6 and summary["uplink_bytes"] == 600
    assert summary["non_zeros"] == 30 and summary["dense_elements"] == 600
    assert summary["accuracy"] == 0.75 and summary["best_accuracy"] == 0.8
    assert summary["entropy_delta_sum"] == pytest.approx(0.6)
    assert summarize([], {}, 100) == {"rounds": 0}


def test_seconds_are_summed_over_all_processes_of_a_run(tmp_path: pathlib.Path) -> None:
    rows = [record.row for record in records()]
    timed = [{**row, "seconds": 1.5 + t} for t, row in enumerate(rows)]
    evaluation = {"accuracy": 0.75}
    assert summarize(timed, evaluation, 100, untimed_seconds(timed, {"rounds": 2, "seconds": 99.0}))["seconds"] == 7.5
    # Two rounds of version 0.1, which knew their sum alone; then others, stopped once in between.
    mixed = [*rows[:2], timed[2]]
    first = summarize(rows[:2], evaluation, 100, untimed_seconds(rows[:2], {"rounds": 2, "seconds": 13.6}))
    assert first["seconds"] == 13.6, "the same command again, which has nothing to do"
    second = summarize(mixed, evaluation, 100, untimed_seconds(mixed, first))
    assert second["seconds"] == 17.1
    assert summarize(mixed, evaluation, 100, untimed_seconds(mixed, second))["seconds"] == 17.1
    assert untimed_seconds(mixed, {}) == 0.0
    (tmp_path / "summary.json").write_text("{")
    assert Folder(tmp_path).earlier_summary() == {} == Folder(tmp_path / "none").earlier_summary()


def test_plots(tmp_path: pathlib.Path) -> None:
    pictures = plots.draw(records())
    assert sorted(pictures) == ["accuracy.png", "entropy.png", "non_zeros.png", "updates.png"]
    for name, content in pictures.items():
        (tmp_path / name).write_bytes(content)
        image = np.asarray(Image.open(tmp_path / name).convert("RGB"))
        assert min(image.shape[:2]) > 300 and len(np.unique(image.reshape(-1, 3), axis=0)) > 10, name
    assert plots.draw([]) == {}


def test_a_store_that_went_back_is_noticed_by_the_rows(tmp_path: pathlib.Path, caplog: Any) -> None:
    made = records()
    folder = Folder(tmp_path)
    folder.start(made)
    Folder(tmp_path).start(made)
    assert "went back" not in caplog.text
    Folder(tmp_path).start(made[:1])
    assert "metrics.csv has 3 rounds, the store 1: the store went back. Rounds from 2 on" in caplog.text
    caplog.clear()
    Folder(tmp_path).start(made[:1])
    assert not caplog.text


def test_other_numerics_are_refused_unless_allowed(tmp_path: pathlib.Path, caplog: Any, monkeypatch: Any) -> None:
    config, about, file = ExperimentConfig(l2=0.1), {"data": "abc"}, tmp_path / "config.json"
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    header = Folder(tmp_path).claim(config, about, None, 0)
    begun = file.read_bytes()
    recorded = json.loads(begun)["numerics"]
    assert recorded["onednn"] in ("True", "False") and recorded["environment"] == "nothing" and recorded["runtime"]
    Folder(tmp_path).claim(config, about, header, 1)
    assert not caplog.text and file.read_bytes() == begun, "nothing differs"
    monkeypatch.setattr("tff_fen.runtime.devices.uses_onednn", lambda: "other")
    monkeypatch.setenv("XLA_FLAGS", "--xla_x")
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9" if name == "llvmlite" else version(name))
    with pytest.raises(ConfigMismatchError) as refused:
        Folder(tmp_path).claim(config, about, header, 1)
    lines = str(refused.value).splitlines()
    assert lines[1:-1] == [
        f"  llvmlite: began with {version('llvmlite')}, now 9.9",
        f"  onednn: began with {recorded['onednn']}, now other",
        "  environment: began with nothing, now XLA_FLAGS=--xla_x",
    ]
    assert "--allow_other_numerics" in lines[-1] and file.read_bytes() == begun
    for done in (1, 2):
        assert Folder(tmp_path).claim(config, about, header, done, allow_other_numerics=True) == header
    assert f"onednn: began with {recorded['onednn']}, now other" in caplog.text
    changed = {"llvmlite": "9.9", "onednn": "other", "environment": "XLA_FLAGS=--xla_x"}
    content = json.loads(file.read_bytes())
    assert content["numerics"] == recorded, "what it began with stays"
    assert content["numerics_changed"] == [{"after_round": 1, "values": changed}]
    with pytest.raises(ConfigMismatchError, match="llvmlite"):  # Allowed once is not allowed for ever.
        Folder(tmp_path).claim(config, about, header, 3)
    monkeypatch.undo()
    Folder(tmp_path).claim(config, about, header, 5)
    assert json.loads(file.read_bytes())["numerics_changed"][1:] == [{"after_round": 5, "values": {}}]


def test_another_commit_is_only_told(tmp_path: pathlib.Path, caplog: Any, monkeypatch: Any) -> None:
    config, about = ExperimentConfig(l2=0.1), {"data": "abc"}
    header = Folder(tmp_path).claim(config, about, None, 0)
    monkeypatch.setattr("experiments.output._commit", lambda: "feed")
    assert Folder(tmp_path).claim(config, about, header, 1) == header
    assert f"began with commit {json.loads(header)['commit']}, now feed: bits may differ" in caplog.text


def test_a_folder_of_a_version_that_recorded_less_goes_on(tmp_path: pathlib.Path, caplog: Any) -> None:
    config, about = ExperimentConfig(l2=0.1), {"data": "abc"}
    old = json.loads(Folder(tmp_path).claim(config, about, None, 0))
    del old["numerics"], old["versions"]["llvmlite"]
    Folder(tmp_path).claim(config, about, json.dumps(old).encode(), 1)
    assert "did not record llvmlite, runtime, instructions, caches, onednn" in caplog.text
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["numerics"] is None and "numerics_changed" not in content
    old["versions"]["numpy"] = "1.0"
    with pytest.raises(ConfigMismatchError, match=r"numpy: began with 1\.0, now"):
        Folder(tmp_path).claim(config, about, json.dumps(old).encode(), 1)
