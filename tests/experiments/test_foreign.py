"""A user's own algorithm and data set: the page's FedADMM and breast cancer, run, killed, resumed and reported."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from experiments.build import KEYWORDS, build_process, check_algorithm, describe_method
from experiments.experiment_config import ExperimentConfig
from experiments.foreign import call_with, hyperparameters_of, load_function, title_of
from experiments.hyperparameters import parse_hyperparameters
from experiments.loading import ASKED, check_task_of, split_of
from experiments.report.groups import group_runs
from experiments.report.read import find_runs
from tests.support.experiments import ROOT, Experiments
from tests.support.results import exact_rows

PAGE = (ROOT / "docs" / "extending.md").read_text()
BLOCK = re.compile(r"^```python\n# my_methods.py\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ROUNDS = 12


def command_of(script: str) -> list[str]:
    """The page's command, without the interpreter."""
    (line,) = re.findall(rf"^    python ({script} .*my_methods.*|{script} out/mine)$", PAGE, re.MULTILINE)
    return shlex.split(line)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder outside the project with the file that the page tells a reader to write."""
    folder = tmp_path_factory.mktemp("modules")
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == 3
    (folder / "my_methods.py").write_text("\n".join(blocks))
    return folder


@pytest.fixture(scope="module")
def experiments(modules: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiments]:
    running = Experiments(tmp_path_factory.mktemp("errors") / "stderr", "--quiet --noplots", modules)
    yield running
    running.close()


@pytest.mark.long
def test_run_kill_resume_and_report(experiments: Experiments, modules: pathlib.Path, tmp_path: pathlib.Path) -> None:
    arguments = " ".join(a for a in command_of("run_experiment.py")[1:] if not a.startswith("--output"))
    whole, killed = tmp_path / "results" / "whole", tmp_path / "results" / "killed"
    experiments.run(f"{arguments} --rounds={ROUNDS} --output={whole}")
    pid = experiments.start(f"{arguments} --rounds={ROUNDS} --output={killed}")
    end = time.monotonic() + 120
    while not ((killed / "metrics.csv").exists() and (killed / "metrics.csv").read_text().count("\n") >= 3):
        assert time.monotonic() < end, "no round in two minutes"
        time.sleep(0.01)
    assert experiments.kill(pid), "killed before its end"
    experiments.run(f"{arguments} --rounds={ROUNDS} --output={killed}")
    assert exact_rows(killed / "metrics.csv") == exact_rows(whole / "metrics.csv")
    with np.load(killed / "weights.npz") as mine, np.load(whole / "weights.npz") as theirs:
        assert all(mine[name].tobytes() == theirs[name].tobytes() for name in theirs.files)
    # The report, where the user's module cannot be imported.
    done = subprocess.run(
        [sys.executable, ROOT / "make_report.py", str(whole), f"--output={tmp_path / 'report'}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report" / "report.html").read_text()
    assert "FedADMM" in page and "Breast cancer, Dirichlet 0.5, 5 of 10 clients per round" in page
    assert "--algorithm=my_methods:build_fed_admm" in page and "--hyperparameters=step=0.9" in page
    assert "a data set of your own, which a report does not load" in page
    (run,) = find_runs([whole])
    assert run.accuracy > 0.9 and run.bytes_sent > 0 and run.method.title == "FedADMM"


def test_without_messages_a_run_has_no_bytes_and_its_report_a_dash(
    experiments: Experiments, modules: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (modules / "silent.py").write_text(
        "from my_methods import build_fed_admm, load_breast_cancer\n"
        "def build_silent(model, elastic_net, local_training, *, num_clients):\n"
        "    return build_fed_admm(model, elastic_net, local_training, num_clients=num_clients)\n"
    )
    arguments = (
        "--algorithm=silent:build_silent --task=silent:load_breast_cancer --sampling=uniform:5 --rounds=1 --l2=1"
    )
    experiments.run(f"{arguments} --output={tmp_path / 'run'}")
    (run,) = find_runs([tmp_path])
    assert not [name for name in run.table if name.startswith("uplink")] and "downlink_bytes" in run.table
    assert np.isnan(run.bytes_sent) and run.summary["non_zeros"] > 0 and run.method.title == "Silent"
    done = subprocess.run(
        [sys.executable, ROOT / "make_report.py", str(tmp_path / "run"), f"--output={tmp_path / 'report'}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    experiments.start(f"{arguments} --uplink=float16 --output={tmp_path / 'other'}")
    code, errors = experiments.wait()
    assert code != 0 and "uplink='float16' has no effect: build_silent takes no keyword 'codec'" in errors
    assert not (tmp_path / "other").exists()


# --- keywords


@pytest.mark.parametrize(("function", "keywords"), [("builder", KEYWORDS), ("loader", (*ASKED, "places"))])
def test_the_page_names_all_keywords(function: str, keywords: tuple[str, ...]) -> None:
    (listed,) = re.findall(rf"^- Your {function} is called with (.*?)\. A flag", PAGE, re.DOTALL | re.MULTILINE)
    assert re.findall(r"`(\w+)`", listed) == [*keywords]


def build(
    *, a: int, b: float = 0.5, c: bool = False, d: str = "x", e: float | None = None, model: object = None
) -> dict:
    """Stands for a builder."""
    return dict(a=a, b=b, c=c, d=d, e=e, model=model)


def build_by_default(f=3, g=None) -> None:
    """Without annotations."""


def parse(function: Callable[..., Any], text: str) -> dict[str, Any]:
    return parse_hyperparameters(text, hyperparameters_of(function, ["model"]), function.__name__)


def test_hyperparameters_have_the_types_of_the_signature() -> None:
    values = parse(build, "a=3,b=2,c=true,d=7,e=0.1")
    assert values == {"a": 3, "b": 2.0, "c": True, "d": "7", "e": 0.1}
    assert [type(value) for value in values.values()] == [int, float, bool, str, float]
    assert parse(build_by_default, "f=4") == {"f": 4, "g": None}
    assert call_with(build, {**values, "model": 1, "unknown": 2}) == {**values, "model": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1,rho=2", "hyperparameter of build must be one of 'a', 'b', 'c', 'd', 'e', found 'rho'"),
        ("a=1,model=2", "found 'model'"),
        ("a=1,b=much", "hyperparameter b of build must be a finite number, found 'much'"),
        ("a=1.5", "hyperparameter a of build must be an integer, found '1.5'"),
        ("a=1,c=yes", "hyperparameter c of build must be true or false, found 'yes'"),
        ("a=1,a=2", "gives 'a' twice"),
        ("b=1", "build needs 'a', which has no default"),
    ],
)
def test_hyperparameters_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(build, text)
    with pytest.raises(ValueError, match="hyperparameter g of build_by_default cannot be given"):
        parse(build_by_default, "g=4")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:build", "algorithm='no_such_module:build' cannot be imported: No module named"),
        ("json:build", "module 'json' has no function 'build'"),
        ("json:__name__", "module 'json' has no function '__name__'"),
        (":build", "cannot be imported"),
    ],
)
def test_functions_that_are_not_there(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_function("algorithm", name)


def test_titles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert title_of(build_by_default, "build_") == "By default"
    monkeypatch.setattr(sys.modules[__name__], "TITLES", {"build_by_default": "Mine"}, raising=False)
    assert title_of(build_by_default, "build_") == "Mine"
    config = ExperimentConfig(algorithm=f"{__name__}:build_by_default", l1=0.1, threshold=0.1)
    assert describe_method(config) == {
        "key": "by_default_elastic_net", "title": "Mine, elastic net", "algorithm": "Mine", "variant": "elastic_net",
    }  # fmt: skip


def load_own(num_clients: int = 3, split: str = "natural") -> object:
    """Stands for a loader."""
    return object()


def load_needy(path: str) -> object:
    """Needs what no flag gives."""
    return object()


def test_what_a_users_functions_do_not_take_is_refused() -> None:
    own = ExperimentConfig(algorithm=f"{__name__}:build_by_default", task=f"{__name__}:load_own")
    check_algorithm(own)
    check_task_of(dataclasses.replace(own, num_clients=5, seed=4))
    assert split_of(own) == "natural" and split_of(dataclasses.replace(own, split="iid")) == "iid"
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"l1": 0.1}, "l1=0.1 has no effect: build_by_default takes no keyword 'elastic_net'"),
        ({"aggregator": "robust"}, "aggregator='robust' has no effect"),
        ({"hyperparameters": "z=1"}, "hyperparameter of build_by_default must be one of 'f', 'g'"),
    )
    for change, message in refused:
        with pytest.raises(ValueError, match=message):
            check_algorithm(dataclasses.replace(own, **change))
    with pytest.raises(ValueError, match=r"size_sigma=0.5 has no effect: load_own takes no keyword 'size_sigma'"):
        check_task_of(dataclasses.replace(own, size_sigma=0.5))
    with pytest.raises(ValueError, match="needs 'path', which has no default"):
        check_task_of(dataclasses.replace(own, task=f"{__name__}:load_needy"))
    with pytest.raises(ValueError, match="hyperparameters='a=1' has no effect: it is for an algorithm of your own"):
        ExperimentConfig(l2=0.1, hyperparameters="a=1")
    with pytest.raises(ValueError, match=r"top_k=0.1 has no effect: it is for algorithm 'fed_avg'"):
        dataclasses.replace(own, top_k=0.1)


def test_a_builder_must_return_a_process() -> None:
    own = ExperimentConfig(algorithm=f"{__name__}:build", hyperparameters="a=1")
    aggregation = type("Aggregation", (), {"first": None, "second": None})()
    with pytest.raises(TypeError, match=r"must return a tff_fen.StatefulClientProcess, found dict"):
        build_process(own, None, own.local_training(10), 3, aggregation)


def test_a_foreign_run_is_a_group_of_its_own(tmp_path: pathlib.Path) -> None:
    """Whatever a folder says of its method, the report draws it."""
    for name, title in (("one", "One"), ("two", "Two")):
        folder = tmp_path / name
        folder.mkdir()
        about: dict[str, Any] = {
            "config": {"algorithm": f"m:build_{name}", "task": "m:load_t", "l1": 0.1, "rounds": 1},
            "preset": None, "assumed": [], "parameters": 10, "task": "T",
            "resolved": {"num_clients": 5, "batch_size": 1, "split": "own"},
            "method": {"key": name, "title": title, "algorithm": title, "variant": "elastic_net"},
        }  # fmt: skip
        (folder / "config.json").write_text(json.dumps(about))
        (folder / "metrics.csv").write_text("round,accuracy\n1,0.5\n")
    groups = group_runs(find_runs([tmp_path]))
    assert [group.method.title for group in groups] == ["One, elastic net", "Two, elastic net"]
    assert groups[0].scenario.title.startswith("T, own, 10 % of 5 clients")
