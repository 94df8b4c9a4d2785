"""Folders that are damaged or come from somebody else: named and left out, and nothing of them runs or is written."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import pathlib
import re
import tracemalloc
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from experiments.files import UnreadableFileError, file_name, read_regular, write_whole
from experiments.listing import TASKS
from experiments.report import page, read
from experiments.report.drawing import Picture
from experiments.report.groups import group_runs
from experiments.report.html import Html, element, join, legible
from experiments.report.read import search
from experiments.report.sections import Builder
from experiments.report.stored import ReportError
from experiments.report_splits import count_split
from tasks import registry
from tasks.data_sets import sources, synthetic
from tasks.splits import parse_split
from tests.support.fake_results import write_run

SCRIPT = "<script>alert(1)</script>"


def config(name: str, value: Any) -> Callable[[pathlib.Path], None]:
    """Another value in config.json; `a.b` is within an object."""

    def change(folder: pathlib.Path) -> None:
        content = json.loads((folder / "config.json").read_text())
        place, *path = name.split(".")
        inner = content
        while path:
            inner, (place, *path) = inner[place], path
        inner[place] = value
        (folder / "config.json").write_text(json.dumps(content))

    return change


def cell(column: str, value: str, number: int = 3) -> Callable[[pathlib.Path], None]:
    """Another value in the third or another round of metrics.csv."""

    def change(folder: pathlib.Path) -> None:
        with (folder / "metrics.csv").open(newline="") as file:
            rows = [*csv.reader(file)]
        rows[number][rows[0].index(column)] = value
        with (folder / "metrics.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)

    return change


def content(file: str, text: str | bytes) -> Callable[[pathlib.Path], None]:
    def change(folder: pathlib.Path) -> None:
        (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())

    return change


def instead(file: str, make: Callable[[pathlib.Path], Any]) -> Callable[[pathlib.Path], None]:
    def change(folder: pathlib.Path) -> None:
        (folder / file).unlink()
        make(folder / file)

    return change


NON_ZEROS = "client_work/train/delta/non_zeros"
BINS = "lower,upper,count\n0.0,0.0,9\n"
# What is done to a folder, and what is said of it.
MALFORMED: dict[str, tuple[Callable[[pathlib.Path], None], str]] = {
    "config is a pipe": (instead("config.json", os.mkfifo), "config.json is no plain file"),
    "metrics are a pipe": (instead("metrics.csv", os.mkfifo), "metrics.csv is no plain file"),
    "summary is a pipe": (instead("summary.json", os.mkfifo), "summary.json is no plain file"),
    "updates are a pipe": (instead("updates.csv", os.mkfifo), "updates.csv is no plain file"),
    "config is a folder": (instead("config.json", lambda p: p.mkdir()), "config.json is no plain file"),
    "config is a device": (instead("config.json", lambda p: p.symlink_to("/dev/zero")), "is a symbolic link"),
    "metrics are a link": (instead("metrics.csv", lambda p: p.symlink_to("/etc/passwd")), "is a symbolic link"),
    "summary is a dead link": (instead("summary.json", lambda p: p.symlink_to("nowhere")), "is a symbolic link"),
    "config is missing": (instead("config.json", lambda p: None), "config.json is missing"),
    "config is empty": (content("config.json", ""), "it is not JSON"),
    "config is binary": (content("config.json", b"\xff\xfe\x00"), "it is not UTF-8"),
    "config is too large": (content("config.json", " " * (2**20 + 1)), "more than 1,048,576"),
    "config is deep": (content("config.json", "[" * 100_000), "it is not JSON"),
    "config has a huge number": (content("config.json", '{"config": ' + "9" * 5000 + "}"), "it is not JSON"),
    "config is a list": (content("config.json", "[]"), "an object is expected, found list"),
    "settings are a list": (config("config", []), "config must be an object, found []"),
    "settings are missing": (config("config", None), "config must be an object, found None"),
    "a setting is of another kind": (config("config.l1", "0.1"), "l1 must be"),
    "a setting is no number": (config("config.l2", float("nan")), "l2 must be"),
    "a setting is out of range": (config("config.rounds", 0), "rounds must be"),
    "a setting is too large for a float": (config("config.l1", 10**400), "is damaged"),
    "a setting is a list": (config("config.seed", [0]), "seed must be"),
    "a setting is unknown": (config("config.spin", 1), "spin=1 is no setting"),
    "initializer is a script": (config("config.initializer", SCRIPT), "initializer must"),
    "algorithm is unknown": (config("config.algorithm", "fed_x"), "algorithm must be one of fed_avg"),
    "algorithm is a script": (config("config.algorithm", f"{SCRIPT}:a"), "algorithm must fit"),
    "task has a path in it": (config("config.task", "../../x"), "task must fit"),
    "task is a number": (config("config.task", 3), "task must be"),
    "task is unknown": (config("config.task", "nonexistent"), "task must be one of 'mnist'"),
    "split is unknown": (config("config.split", "nonsense"), "split must fit"),
    "split's number is none": (config("config.split", "dirichlet:nan"), "split must fit"),
    "clients are too many": (config("config.num_clients", 10**8), "num_clients must be from 1 to 1e+07"),
    "clients are asked to be none": (config("config.num_clients", 0), "num_clients must be from 1"),
    "alpha is too large": (config("config.alpha", 1e300), "alpha must be from 0 to 1e+06"),
    "beta is negative": (config("config.beta", -1.0), "beta must be from 0"),
    "sampling is unknown": (config("config.sampling", "all:1"), "sampling must be"),
    "sampling is no number": (config("config.sampling", "bernoulli:x"), "sampling must be"),
    "nobody is sampled": (config("config.sampling", "uniform:0"), "sampling must be"),
    "codec has no step": (config("config.uplink", "quantised:e"), "uplink must fit"),
    "codec's step is 0": (config("config.uplink", "quantised:0"), "uplink must"),
    "aggregator is unknown": (config("config.aggregator", "sum"), "aggregator must"),
    "l1 step is unknown": (config("config.l1_step", "big"), "l1_step must"),
    "text controls a terminal": (config("config.hyperparameters", "\x1b[2J"), "printable"),
    "text is half a character": (config("config.hyperparameters", "\ud800"), "printable"),
    "text turns its direction": (config("preset", "a\u202eb"), "preset must be a line"),
    "text is long": (config("config.hyperparameters", "a" * 5000), "at most 1000"),
    "preset is an object": (config("preset", {}), "preset must be a line"),
    "assumed is a text": (config("assumed", "l1"), "assumed must be a list"),
    "assumed is unknown": (config("assumed", [SCRIPT]), "assumed must be a list"),
    "title is a list": (config("task", []), "task must be a line"),
    "parameters are negative": (config("parameters", -1), "parameters must be an integer >= 1"),
    "parameters are a float": (config("parameters", 1.5), "parameters must be an integer"),
    "what the task made is missing": (config("resolved", None), "resolved must be an object"),
    "clients are none": (config("resolved.num_clients", 0), "resolved.num_clients must be an integer >= 1"),
    "split is a list": (config("resolved.split", ["iid"]), "resolved.split must be a line"),
    "test set is empty": (config("resolved.test_examples", 0), "resolved.test_examples must be an integer >= 1"),
    "metrics are empty": (content("metrics.csv", ""), "has no round yet"),
    "metrics are binary": (content("metrics.csv", b"\x00\xff"), "it is not UTF-8"),
    "metrics have a zero byte": (content("metrics.csv", "round,accuracy\n1,\x00\n"), "metrics.csv"),
    "metrics have a long field": (content("metrics.csv", "round\n" + "1" * 200_000), "metrics.csv is damaged"),
    "metrics name a column twice": (content("metrics.csv", "round,round\n1,1\n"), "the names of its columns"),
    "metrics have many rows": (content("metrics.csv", "round,accuracy\n" + ",\n" * 2**19), "more than 300,000 rows"),
    "metrics have many cells": (
        content("metrics.csv", ",".join(map(str, range(5000))) + "\n" + ("," * 4999 + "\n") * 2100), "10,000,000 cells",
    ),
    "a round is missing": (cell("round", "7"), "line 4 is of round 7"),
    "a cell is a script": (cell(NON_ZEROS, SCRIPT), f"'{SCRIPT}' in column"),
    "a count is negative": (cell(NON_ZEROS, "-5"), "-5 in column"),
    "a count is no number": (cell(NON_ZEROS, "nan"), "nan in column"),
    "a count is infinite": (cell("uplink_bytes", "inf"), "inf in column"),
    "a count is huge": (cell("uplink_bytes", "9" * 300), "in column 'uplink_bytes'"),
    "accuracy is above 1": (cell("accuracy", "1.5"), "1.5 in column 'accuracy'"),
    "summary is not JSON": (content("summary.json", "{"), "it is not JSON"),
    "summary has no rounds": (content("summary.json", "{}"), "'rounds' is missing"),
    "summary has more rounds": (content("summary.json", '{"rounds": 101}'), "has 100 rounds, summary.json says 101"),
    "summary's accuracy is a text": (
        content("summary.json", '{"rounds": 100, "accuracy": "<b>"}'), "accuracy must be a number from 0 to 1",
    ),
    "summary's seconds are infinite": (
        content("summary.json", '{"rounds": 100, "accuracy": 1, "seconds": Infinity}'), "seconds must be",
    ),
    "updates lack a column": (content("updates.csv", "lower,upper\n0,0\n0,1\n1,2\n"), "lower, upper, count"),
    "updates have one bin": (content("updates.csv", f"{BINS}0,1,2\n"), "some rows are expected"),
    "updates overlap": (content("updates.csv", f"{BINS}0,1,2\n0.5,2,3\n"), "where the one before it ends"),
    "updates go down": (content("updates.csv", f"{BINS}0,1,2\n1,0.5,3\n"), "where the one before it ends"),
    "updates are negative": (content("updates.csv", f"{BINS}0,1,-2\n1,2,3\n"), "-2 in column 'count'"),
    "updates lack a count": (content("updates.csv", f"{BINS}0,1,\n1,2,3\n"), "a count is missing"),
}  # fmt: skip


def test_a_folder_without_memory_for_it_is_left_out(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "good", "mnist/iid/fed_avg", rounds=3)
    write_run(tmp_path / "large", "mnist/iid/fed_avg", rounds=3)

    def read_or_fail(path: pathlib.Path, *arguments: Any) -> read.Run:
        if path.name == "large":
            raise MemoryError
        return read_run(path, *arguments)

    read_run = read.read_run
    monkeypatch.setattr(read, "read_run", read_or_fail)
    [run], [left_out] = search([tmp_path])
    assert run.name == "good" and left_out.path == tmp_path / "large" and "no memory for it" in left_out.reason


def summary(name: str, value: Any) -> Callable[[pathlib.Path], None]:
    """Another value in summary.json."""

    def change(folder: pathlib.Path) -> None:
        values = json.loads((folder / "summary.json").read_text()) | {name: value}
        (folder / "summary.json").write_text(json.dumps(values))

    return change


@pytest.mark.parametrize(
    ("change", "preset", "changes"),
    [
        (cell("client_work/train/delta/entropy_trunc", "nan"), "mnist/iid/algorithm_3", {}),
        (cell("client_work/train/delta/entropy_trunc", "inf"), "mnist/iid/algorithm_3", {}),
        (cell("dp_epsilon", "", 100), "mnist/iid/fed_avg", {"aggregator": "dp", "dp_noise_multiplier": 1.0}),
        (cell("dp_epsilon", "inf", 100), "mnist/iid/fed_avg", {"aggregator": "dp", "dp_noise_multiplier": 1.0}),
        (config("task", "x"), "mnist/iid/algorithm_3", {}),
        (summary("average_accuracy", 0.5), "mnist/iid/fed_avg", {}),
    ],
    ids=["nan", "inf", "no epsilon", "inf epsilon", "title", "another accuracy"],
)
def test_a_folder_with_odd_numbers_is_drawn_beside_a_good_one(
    undrawn: None, tmp_path: pathlib.Path, change: Callable[[pathlib.Path], None], preset: str, changes: dict[str, Any]
) -> None:
    """A seed that diverged, say."""
    write_run(tmp_path / "good", preset, seed=1, **changes)
    folder = write_run(tmp_path / "odd", preset, **changes)
    change(folder)
    runs, left_out = search([tmp_path])
    assert len(runs) == 2 and not left_out
    builder = Builder(group_runs(runs), "python make_report.py x", None)
    content = page.build_page("title", builder.lead(), builder.sections(), builder.end(left_out))
    assert "odd" in content and "nan" not in " ".join(ET.fromstring(content.partition("\n")[2]).itertext())


def test_an_accuracy_that_is_missing_is_named(tmp_path: pathlib.Path) -> None:
    folder = write_run(tmp_path / "run", "mnist/iid/fed_dyn", rounds=3)
    cell("average_accuracy", "")(folder)
    _, [left_out] = search([tmp_path])
    assert f"{folder / 'metrics.csv'} is damaged: round 3 has no average_accuracy" in left_out.reason


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = write_run(tmp_path_factory.mktemp("pristine") / "run", "mnist/iid/algorithm_3", share=0.1)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_malformed_folders_are_named_and_the_rest_is_read(pristine: dict[str, bytes], tmp_path: pathlib.Path) -> None:
    for name, (change, _) in [("good", (lambda folder: None, "")), *MALFORMED.items()]:
        folder = tmp_path / name
        folder.mkdir()
        for file, text in pristine.items():
            (folder / file).write_bytes(text)
        change(folder)
    runs, left_out = search([tmp_path])
    assert [run.name for run in runs] == ["good"]
    reasons = {item.path.name: item.reason for item in left_out}
    assert reasons.keys() == MALFORMED.keys()
    for name, (_, said) in MALFORMED.items():
        assert said in reasons[name] and str(tmp_path / name) in reasons[name], (name, reasons[name])
        assert re.search("Run the experiment's command again|Wait for", reasons[name]), "says what to do"
        assert len(reasons[name]) < 600 + len(str(tmp_path))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without the seconds that pictures take."""
    monkeypatch.setattr("experiments.report.sections.render", lambda draw: Picture(b"", b"", b"", b""))


def test_a_hostile_folder_plants_nothing_in_the_page(undrawn: None, tmp_path: pathlib.Path) -> None:
    """All that may be any text, in a run that is read: names of folders, titles, splits, keywords of a builder."""
    bad = f"\"'>{SCRIPT}<img src=x onerror=alert(1)> $\\frac{{"
    folder = write_run(tmp_path / "<b>&`x`" / "-rf; $(id)", "mnist/iid/algorithm_3")
    for name, value in {
        "config.algorithm": "own:build", "config.task": "own:load",
        "method": {"algorithm": bad}, "task": bad, "config.hyperparameters": bad,
        "config.split": bad, "resolved.split": f"../../../../etc/x:{bad}", "preset": bad,
    }.items():  # fmt: skip
        config(name, value)(folder)
    runs, left_out = search([tmp_path])
    assert len(runs) == 1 and not left_out
    builder = Builder(group_runs(runs), "python make_report.py 'x'", lambda group: "no data.")
    content = page.build_page("title", builder.lead(), builder.sections(), builder.end(left_out))
    root = ET.fromstring(content.removeprefix("<!DOCTYPE html>\n"))
    used = {tag.tag for tag in root.iter()}
    assert not used & {"script", "b", "iframe", "object", "link", "form"}
    assert not [name for tag in root.iter() for name in tag.attrib if name.startswith("on")]
    assert {image.get("src", "")[:22] for image in root.iter("img")} == {"data:image/png;base64,"}
    assert SCRIPT in " ".join(root.itertext()), "shown as what it is"
    assert all(re.fullmatch(r"[A-Za-z0-9_.,=:+-]+", name) for name in builder.pictures)
    commands = [line for pre in root.iter("pre") for line in pre.itertext() if " run_experiment.py" in line]
    assert commands and all(f"'--output=PATH/TO/{tmp_path.name}/<b>&`x`/-rf; $(id)'" in line for line in commands)


def test_the_page_forbids_scripts_and_knows_its_style(undrawn: None) -> None:
    content = page.build_page("<title>", [], [], [])
    root = ET.fromstring(content.removeprefix("<!DOCTYPE html>\n"))
    first = next(meta for meta in root.iter("meta") if meta.get("http-equiv"))
    policy = first.get("content", "")
    style = next(root.iter("style")).text or ""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; img-src data:;") and f"style-src 'sha256-{digest}'" in policy
    assert not re.search(r'\sstyle="', content), "which the policy would not apply"
    head = next(root.iter("head"))
    assert [*head].index(first) < [tag.tag for tag in head].index("style")


def test_html_cannot_be_taken_for_text_nor_text_for_html() -> None:
    piece = element("a", "<x>", Html("<br/>"), href='"&', class_=None, tabindex=0)
    assert piece.content == '<a href="&quot;&amp;" tabindex="0">&lt;x&gt;<br/></a>'
    assert element("td").content == "<td></td>" and element("br").content == "<br/>"
    with pytest.raises(TypeError, match="put together by"):
        f"{piece}"
    with pytest.raises(TypeError):
        "".join([piece])  # type: ignore[list-item]
    assert join(["a\x00\ud800\u202e\x1b", "\n"]).content == "a\ufffd\ufffd\ufffd\ufffd\n"
    assert legible("a\nb") == "a\ufffdb"


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Those of the flags, which are not parsed in a test."""
    cache = sources.Places(cache_dir=tmp_path_factory.mktemp("cache"))
    monkeypatch.setattr("experiments.loading._places", lambda: cache)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_clients": 5000}, "num_clients must be an integer from 1 to 1400, found 5000"),
        ({"num_clients": 10_000_000}, "10,000,000 clients, 10,000 are the most"),
        ({"task": "synthetic", "num_clients": 5_000_000}, "5,000,000 clients, 10,000 are the most"),
        ({"split": "natural"}, "split of task 'digits' must be one of 'iid', 'dirichlet', 'shards'"),
        ({"split": "dirichlet:0"}, "number of split 'dirichlet' must be"),
        ({"split": "shards:100000000"}, "shards"),
        ({"task": "synthetic", "split": None, "size_sigma": 1.0}, "size_sigma must be 0 for task 'synthetic'"),
    ],
)
def test_a_split_that_cannot_be_is_no_picture_and_the_rest_is_drawn(
    undrawn: None, places: None, tmp_path: pathlib.Path, changes: dict[str, Any], reason: str
) -> None:
    """With the real function, which deals the data out as the folder says."""
    folder = write_run(tmp_path / "run", "digits/iid/algorithm_3")
    for name, value in changes.items():
        config(f"config.{name}", value)(folder)
    runs, left_out = search([tmp_path])
    assert len(runs) == 1 and not left_out
    builder = Builder(group_runs(runs), "python make_report.py x", count_split)
    content = page.build_page("title", builder.lead(), builder.sections(), builder.end(left_out))
    text = " ".join(ET.fromstring(content.removeprefix("<!DOCTYPE html>\n")).itertext())
    assert "no picture: " in text and reason in text and not [name for name in builder.pictures if "split" in name]


def test_a_lack_of_memory_is_no_picture(places: None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    write_run(tmp_path / "run", "digits/iid/algorithm_3")
    (group,) = group_runs(search([tmp_path])[0])
    assert isinstance(count_split(group), np.ndarray)
    monkeypatch.setattr("experiments.loading.count_labels", fail)
    assert count_split(group) == "no picture: there is no memory for it."


def test_a_configuration_is_held_to_what_tasks_take() -> None:
    """The report's own lists, which need no TensorFlow, and the registry's."""
    assert [*TASKS] == registry.task_names()
    for text in ("iid", "natural", "shards", "shards:2", "dirichlet:0.3", "dirichlet:1e-3", "dirichlet:100"):
        assert re.fullmatch(read._SPLITS, text) and parse_split(text)
    for text in ("", "iid:1", "shards:0", "shards:x", "dirichlet", "dirichlet:nan", "dirichlet:-1", "dirichlet:inf"):
        assert not re.fullmatch(read._SPLITS, text)
        with pytest.raises(ValueError, match="split"):
            parse_split(text)
    assert read._RANGES["num_clients"] == (1, registry._MOST_CLIENTS)
    assert read._RANGES["alpha"] == read._RANGES["beta"] == (0, synthetic._MOST_DEVIATION)


# --- files


def test_what_is_written_follows_no_link(tmp_path: pathlib.Path) -> None:
    target, file = tmp_path / "target", tmp_path / "report.html"
    target.write_text("mine")
    (tmp_path / ".report.html.new").symlink_to(target)
    file.symlink_to(target)
    write_whole(file, b"new")
    assert target.read_text() == "mine" and file.read_bytes() == b"new" and not file.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"target", "report.html", ".report.html.new"}
    assert file.stat().st_mode & 0o777 == 0o666 & ~current_umask(), "as other new files"
    file.chmod(0o640)
    write_whole(file, b"newer")
    assert file.stat().st_mode & 0o777 == 0o640, "as it was"


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_lock_of_a_data_set_follows_no_link(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "mnist.lock").symlink_to(target)
    with pytest.raises(sources.DataUnavailableError, match="cache"):
        sources.load("mnist", [], None, sources.Places(cache_dir=tmp_path))
    assert target.read_text() == "mine"


def test_reading_waits_for_nobody(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"12345")
    for name, message in (("pipe", "no plain file"), ("large", "5 bytes, more than 4"), ("none", "is missing")):
        with pytest.raises(UnreadableFileError, match=message):
            read_regular(tmp_path / name, 4)


def test_a_small_file_takes_little_memory_whatever_is_allowed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "small").write_bytes(b"12345")
    tracemalloc.start()
    try:
        assert read_regular(tmp_path / "small", 2**32) == b"12345"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_names_of_files_stay_in_their_folder_and_apart() -> None:
    assert file_name("mnist-iid-algorithm_3_l1=1e-06,uplink=quantised:0.01") == (
        "mnist-iid-algorithm_3_l1=1e-06,uplink=quantised:0.01"
    )
    names = [
        file_name(text) for text in ("../../x", "/x", "x/", "", ".", "..", "a" * 300, "a" * 301, "é", "ü", "\ud800")
    ]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[\w,=:+-][\w.,=:+-]{0,200}|-[0-9a-f]{8}", name, re.ASCII) for name in names), names


def test_a_folder_with_nothing_to_read_is_refused(pristine: dict[str, bytes], tmp_path: pathlib.Path) -> None:
    with pytest.raises(ReportError, match="No run found"):
        search([tmp_path])
