"""Files of settings: what they say, who wins, what is refused, and that a run's own file repeats it."""

from __future__ import annotations

import os
import pathlib
import tomllib

import pytest

from experiments import run_command  # noqa: F401  defines the flags
from experiments.config_file import Asked, format_config, plan, read_config
from experiments.experiment_config import ExperimentConfig
from experiments.plan import PlannedRun, plan_runs
from experiments.settings import FIELDS


def read(text: str, folder: pathlib.Path) -> Asked:
    (folder / "my.toml").write_text(text)
    return read_config(str(folder / "my.toml"))


def one(command: Asked, file: Asked) -> PlannedRun:
    (run,) = plan(command, file)
    return run


def test_a_file_is_read(tmp_path: pathlib.Path) -> None:
    file = read(
        'preset = "digits/iid/algorithm_3"\nseed = 3\n[penalties]\nl1 = 1\n[output]\nplots = false\n'
        '[grid]\nl2 = [1e-2, 0.1]\nalgorithm = ["fed_dyn"]\n',
        tmp_path,
    )
    assert file.preset == "digits/iid/algorithm_3" and file.values == {"seed": 3, "l1": 1.0}
    assert isinstance(file.values["l1"], float), "as the flag reads it"
    assert file.grid == ["l2=0.01,0.1", "algorithm=fed_dyn"] and file.others == {"plots": False}


def test_a_file_may_be_a_link_and_is_never_waited_for(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real.toml").write_text("seed = 3")
    (tmp_path / "link.toml").symlink_to("real.toml")
    assert read_config(str(tmp_path / "link.toml")).values == {"seed": 3}
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "large.toml").write_text("#" * (2**20 + 1))
    for name, error in (("pipe", "is no plain file"), ("large", "more than 1,048,576"), ("none", "is missing")):
        path = tmp_path / f"{name}.toml"
        with pytest.raises(ValueError, match=rf"--config={path} cannot be read: .*{error}"):
            read_config(str(path))


def test_the_command_line_wins() -> None:
    file = Asked("digits/iid/algorithm_3", ["seed=0,1"], {"l1": 0.5, "rounds": 7})
    runs = plan(Asked(), file)
    assert [(run.config.seed, run.config.l1, run.config.threshold) for run in runs] == [(0, 0.5, 5e-3), (1, 0.5, 5e-3)]
    assert one(Asked(values={"seed": 4, "l1": 0.1}), file).config.l1 == 0.1
    # A preset on the command line wins over the file's values, which are those of another.
    run = one(Asked(preset="digits/iid/algorithm_1", values={"seed": 0}), file)
    assert (run.config.algorithm, run.config.l1, run.config.rounds) == ("fed_avg", 1e-4, 30)
    runs = plan(Asked(grid=["preset=digits/iid/algorithm_1,digits/iid/fed_dyn"]), file)
    assert [(run.config.l1, run.config.l2) for run in runs] == [(1e-4, 1e-4), (0.5, 0.05)], "fed_dyn's has no l1"
    assert [run.config.l1 for run in plan(Asked(grid=["l1=1,2"]), file)] == [1.0, 2.0]
    assert len(plan(Asked(preset="digits/iid/fed_avg"), file)) == 2, "the file's grid stays"
    runs = plan(Asked(), Asked(None, ["preset=digits/iid/*"], {"rounds": 2}))
    assert len(runs) == 13 and all(run.config.rounds == 2 for run in runs)


@pytest.mark.parametrize(
    ("preset", "explicit"),
    [
        ("mnist/dirichlet_0.3/algorithm_3", {"learning_rate": 0.05, "rounds": 3}),
        ("cifar10/iid/fed_prox/all", {}),
        (None, {"algorithm": "scaffold", "l1": 1e-3, "threshold": 1e-3, "uplink": "quantised:0.01"}),
        (None, {}),
        (None, {"task": 'my"module:load', "algorithm": "m:f", "hyperparameters": "a=1,b=é"}),
    ],
)
def test_a_runs_own_file_repeats_it(preset, explicit, tmp_path: pathlib.Path) -> None:
    (run,) = plan_runs(preset, [], explicit)
    text = format_config(run.config, run.about["preset"])
    again = one(Asked(), read(text, tmp_path))
    assert again.config == run.config and again.config.to_json() == run.config.to_json()
    assert again.about == run.about, "preset, and what is assumed"
    if "algorithm" not in explicit:
        assert again.name == run.name
    # It means the same when defaults change: all values are in it.
    tables = [value for value in tomllib.loads(text).values() if isinstance(value, dict)]
    stored = {name for table in tables for name in table}
    assert stored == {name for name in FIELDS if getattr(run.config, name) is not None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[penalties]\nl3 = 1", "my.toml: l3 in [penalties] is no flag. Did you mean 'l2'?"),
        ("tresh = 1", "my.toml: tresh is no flag. Did you mean 'threshold'?"),
        ("[task]\nl1 = 1", "my.toml: l1 in [task] is in the wrong table. It belongs to [penalties]."),
        ("[penalty]\nl1 = 1", "my.toml: table must be one of"),
        ('[penalties]\nl1 = "1"', "my.toml: l1 in [penalties] must be a number, found '1'."),
        ("[penalties]\nl1 = true", "l1 in [penalties] must be a number, found True."),
        ("rounds = 2.5", "rounds must be an integer, found 2.5."),
        ("quiet = 1", "quiet must be true or false, found 1."),
        ("task = 1", "task must be a text in quotes, found 1."),
        ("l1 = 1\n[penalties]\nl1 = 2", "l1 in [penalties] is given twice."),
        ("[grid]\nl1 = 1", "l1 in [grid] must be a list of values"),
        ("grid = 3", "grid must be a table of lists"),
        ("config = 'x'", "config is no flag."),
        ("task = digits", "my.toml is no TOML: "),
        ("[penalties.l1]\na = 1", "l1 in [penalties] must be a number, found {'a': 1}."),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(text: str, message: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError) as found:
        read(text, tmp_path)
    assert message in str(found.value)


def test_values_that_cannot_be_are_found_as_those_of_flags_are() -> None:
    with pytest.raises(ValueError, match="epochs must be an integer from 1"):
        plan(Asked(), Asked(values={"epochs": 0}))
    with pytest.raises(ValueError, match="Did you mean 'mnist/iid/fed_dyn'"):
        plan(Asked(), Asked(preset="mnist/iid/feddyn"))


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", "folder"])
def test_a_file_that_cannot_be_read(content, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "my.toml"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"--config=.*my.toml cannot be read: .* Give a TOML file."):
        read_config(str(path))


def test_every_value_has_a_table() -> None:
    assert ExperimentConfig(l2=0.1).l2 == 0.1
    text = format_config(ExperimentConfig(l2=0.1), None)
    assert [line for line in text.splitlines() if line.startswith("[")] == [
        "[task]", "[algorithm]", "[penalties]", "[training]", "[communication]", "[output]",
    ]  # fmt: skip
