"""The tables of methods: names, recognition, baselines, drawing, and that nothing else names a method."""

from __future__ import annotations

import ast
import dataclasses
import json
import pathlib
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tff_fen
from experiments import methods, run_command  # noqa: F401  the latter defines the flags
from experiments.config_file import Asked, plan, read_config
from experiments.experiment_config import ExperimentConfig
from experiments.foreign import keywords_of, load_function
from experiments.listing import list_algorithms
from experiments.methods import ALGORITHMS, METHODS, NEUTRAL, Algorithm, algorithm_named, method_of
from experiments.naming import folder_name
from experiments.plan import PlannedRun, plan_runs
from experiments.presets import load_preset
from experiments.report.commands import command_of
from experiments.report.groups import group_runs
from experiments.report.read import find_runs
from experiments.run import run_all
from experiments.settings import FIELDS, Settings
from experiments.values import Value
from tasks.data_sets.sources import Places
from tff_fen.algorithms.fed_avg import build_algorithm

ROOT = pathlib.Path(__file__).parents[2]
TITLES = {
    "fed_avg": "FedAvg", "fed_prox": "FedProx", "algorithm_1": "Algorithm 1", "threshold_1": "Algorithm 1, l1 = 0",
    "proximal_1": "Algorithm 1, proximal", "scaffold": "SCAFFOLD", "algorithm_2": "Algorithm 2",
    "threshold_2": "Algorithm 2, l1 = 0", "proximal_2": "Algorithm 2, proximal", "fed_dyn": "FedDyn",
    "algorithm_3": "Algorithm 3", "threshold_3": "Algorithm 3, l1 = 0", "proximal_3": "Algorithm 3, proximal",
}  # fmt: skip


def test_thirteen_methods_in_their_order() -> None:
    assert [(key, method.title) for key, method in METHODS.items()] == list(TITLES.items())


def test_a_presets_method_is_recognised_from_its_values() -> None:
    for key in METHODS:
        for place in ("digits/iid", "cifar10/iid", "shakespeare/natural"):
            config = ExperimentConfig(**load_preset(f"{place}/{key}").values)
            assert method_of(config.row(), config).key == key


def test_what_a_method_is_compared_with() -> None:
    found = {key: method.baseline.key for key, method in METHODS.items() if method.baseline}
    assert found == {
        f"{variant}_{n}": baseline
        for n, baseline in ((1, "fed_prox"), (2, "scaffold"), (3, "fed_dyn"))
        for variant in ("algorithm", "threshold", "proximal")
    }
    assert {key for key, method in METHODS.items() if method.is_sparse} == set(found)
    assert METHODS["fed_prox"].paper_entropy == "theta" and METHODS["fed_dyn"].paper_entropy == "delta"
    assert METHODS["algorithm_2"].paper_entropy == "delta", "though that of its plain algorithm is of models"


def test_a_method_without_a_style_is_drawn_neutrally() -> None:
    own = algorithm_named("my.module:build_my_algorithm")
    assert own.title == "My algorithm" and algorithm_named("my.module:build_my_algorithm", "MINE").title == "MINE"
    for settings, key, title in (
        (Settings(), "my_algorithm", "My algorithm"),
        (Settings(l2=0.1), "my_algorithm", "My algorithm"),
        (Settings(l1=0.1, threshold=0.1), "my_algorithm_elastic_net", "My algorithm, elastic net"),
        (Settings(threshold=0.1), "my_algorithm_threshold", "My algorithm, l1 = 0"),
        (Settings(l1=0.1, l1_step="proximal"), "my_algorithm_proximal", "My algorithm, proximal"),
    ):
        method = method_of(own, settings)
        assert (method.key, method.title, method.colours) == (key, title, NEUTRAL)
        assert method.variant.line
    assert METHODS["fed_avg"].colours == NEUTRAL != METHODS["fed_prox"].colours


def build_toy(
    model: Any,
    elastic_net: tff_fen.ElasticNet,
    local_training: tff_fen.LocalTraining,
    *,
    momentum: float,
    nesterov: bool,
    kind: str,
    aggregator: Any = None,
    codec: Any = None,
    compressor: Any = None,
    error_feedback: bool = False,
    release_messages: bool = False,
    measurements: bool = True,
) -> tff_fen.StatefulClientProcess:
    """FedAvg whose server moves by `1 - momentum` of the way, twice that with `nesterov`."""
    BUILT.append((momentum, nesterov, kind))
    algorithm = build_algorithm(aggregator, None)
    factor = (1 - momentum) * (2 if nesterov else 1)

    def move(theta: Any, aggregate: Any) -> Any:
        moved = algorithm.move(theta, aggregate)
        return tf.nest.map_structure(lambda t, m: t + factor * (m - t), theta, moved)

    return tff_fen.compose_process(
        tff_fen.Trainer(model, elastic_net, local_training), algorithm._replace(move=move),
        uplink=tff_fen.Uplink({"delta": elastic_net.threshold}, compressor, codec, error_feedback),
        measurements=measurements, release_messages=release_messages,
    )  # fmt: skip


BUILT: list[tuple[float, bool, str]] = []
TOY = Algorithm(
    "toy", "Toy", f"{__name__}:build_toy",
    hyperparameters={
        "momentum": Value(0.5, "Of the server's steps.", float, low=0, below=1),
        "nesterov": Value(False, "Whether it looks ahead.", bool),
        "kind": Value("plain", "Of server.", str, choices=("plain", "fancy")),
    },
    refusals=(
        (lambda c: c.l1 > 1, "l1 must be at most 1 for algorithm 'toy', found {l1}."),
        (
            lambda c: c.own_hyperparameters()["nesterov"] and not c.own_hyperparameters()["momentum"],
            "nesterov={nesterov} has no effect with momentum={momentum}. Unset it.",
        ),
    ),
)  # fmt: skip


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the table, and nothing else."""
    monkeypatch.setitem(ALGORITHMS, "toy", TOY)
    monkeypatch.setattr("experiments.loading._places", lambda: Places(None, None))  # flags are not parsed here
    BUILT.clear()


def planned(own: str | None, *grid: str, file: dict[str, Any] | None = None, **explicit: Any) -> list[PlannedRun]:
    """What a command asks for, as it is planned before TensorFlow is imported."""
    given = {"algorithm": "toy", "rounds": 2, "num_clients": 4, "sampling": "uniform:2", "epochs": 1} | explicit
    return plan_runs(None, grid, given | ({} if own is None else {"hyperparameters": own}), file)


def test_a_row_is_enough(toy: None, tmp_path: pathlib.Path) -> None:
    """From the command line to the report, by way of a run and its resume."""
    runs = planned("nesterov=true", "hyperparameters=momentum=0.5,momentum=0.90")
    names = [f"digits-toy hyperparameters=momentum={momentum}" for momentum in ("0.5", "0.90")]
    assert [run.name for run in runs] == names
    assert [run.config.hyperparameters for run in runs] == ["nesterov=true", "momentum=0.9,nesterov=true"]
    command: dict[str, Any] = dict(quiet=True, plots=False)
    for rounds in (1, 2):
        asked = [run._replace(config=dataclasses.replace(run.config, rounds=rounds)) for run in runs]
        run_all(asked, str(tmp_path), **command)
    assert BUILT == 2 * [(0.5, True, "plain"), (0.9, True, "plain")]
    (whole,) = planned("momentum=0.9,nesterov=true")
    run_all([whole], str(tmp_path / "whole"), **command)

    # The hyperparameter has its effect, however it was given, and through a resume.
    folders = [tmp_path / folder_name(name) for name in names]
    weights = []
    for folder in (*folders, tmp_path / "whole"):
        with np.load(folder / "weights.npz") as found:
            weights.append([found[name].tobytes() for name in found.files])
    assert weights[0] != weights[1] == weights[2]

    # All of them are kept, and the file of settings repeats the run.
    stored = [json.loads((folder / "config.json").read_text())["config"]["hyperparameters"] for folder in folders]
    assert stored == [f"momentum={momentum},nesterov=true,kind=plain" for momentum in (0.5, 0.9)]
    file = read_config(str(folders[1] / "experiment.toml"))
    assert [run.config for run in plan(Asked(), file)] == [runs[1].config]
    (changed,) = plan(Asked(values={"hyperparameters": "kind=fancy"}), file)
    assert changed.config.hyperparameters == "momentum=0.9,nesterov=true,kind=fancy"

    # A default that is spelt out is the same experiment, another value another one.
    same, other = planned("kind=plain,nesterov=true,momentum=0.9") + planned("momentum=0.9")
    run_all([same], str(tmp_path / "whole"), **command)
    with pytest.raises(SystemExit, match=r"nesterov=true,kind=plain' there, 'momentum=0.9,nesterov=false,kind=plain'"):
        run_all([other], str(tmp_path / "whole"), **command)

    groups = group_runs(find_runs([tmp_path]))
    assert [group.label for group in groups] == [
        "Toy (momentum=0.9, nesterov=true, epochs=1)", "Toy (nesterov=true, epochs=1)",
    ]  # fmt: skip
    assert [len(group.runs) + len(group.same) for group in groups] == [2, 1]
    assert "--hyperparameters=momentum=0.9,nesterov=true" in command_of(groups[0].first)
    assert "Toy; also takes --hyperparameters=momentum=0.5 (Of the server's steps.)" in list_algorithms()


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("momentun=1", "of algorithm 'toy' must be one of 'momentum', 'nesterov', 'kind', found 'momentun'. Did you"),
        ("momentum=1", "hyperparameter momentum of algorithm 'toy' must be a finite number >= 0 and < 1, found 1.0"),
        ("momentum=high", "momentum of algorithm 'toy' must be a finite number >= 0 and < 1, found 'high'"),
        ("momentum", "momentum of algorithm 'toy' must be a finite number >= 0 and < 1, found ''"),
        ("nesterov=perhaps", "nesterov of algorithm 'toy' must be true or false, found 'perhaps'"),
        ("kind=odd", "kind of algorithm 'toy' must be one of 'plain', 'fancy', found 'odd'"),
        ("momentum=0.1,momentum=0.2", "gives 'momentum' twice"),
        ("momentum=0,nesterov=true", "nesterov=True has no effect with momentum=0.0. Unset it."),
    ],
)  # fmt: skip
def test_a_hyperparameter_that_cannot_be_is_told_before_tensorflow_is_there(toy: None, own: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        planned(own)


def test_hyperparameters_join_one_by_one(toy: None) -> None:
    (run,) = planned("momentum=0.1", file={"hyperparameters": "kind=fancy,momentum=0.2"})
    assert run.config.hyperparameters == "momentum=0.1,kind=fancy"
    (run,) = planned("", file={"hyperparameters": "kind=fancy"})
    assert run.config.hyperparameters == "", "an empty text takes all away"
    grid = planned(None, "hyperparameters=momentum=0.1,momentum=0.2", "hyperparameters=kind=plain,kind=fancy")
    assert [run.config.hyperparameters for run in grid] == [
        "momentum=0.1", "momentum=0.1,kind=fancy", "momentum=0.2", "momentum=0.2,kind=fancy",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="gives 'momentum' twice"):
        planned("momentum=0.1", "hyperparameters=momentum=0.1,momentum=0.2")


def test_a_rows_refusals(toy: None) -> None:
    with pytest.raises(ValueError, match="l1 must be at most 1 for algorithm 'toy', found 2"):
        planned(None, l1=2.0)


def test_a_folder_without_a_hyperparameter_has_its_default(toy: None) -> None:
    (config,) = (run.config for run in planned("nesterov=true"))
    stored = json.loads(config.to_json())
    assert stored["hyperparameters"] == "momentum=0.5,nesterov=true,kind=plain"
    assert config.differences(stored | {"hyperparameters": "nesterov=true"}) == {}, "made before there was momentum"
    assert Settings.from_stored(stored).with_shown_hyperparameters().hyperparameters == "nesterov=true"
    different = config.differences(stored | {"hyperparameters": "nesterov=true,gone=1"})
    assert different == {"hyperparameters": (stored["hyperparameters"], "nesterov=true,gone=1")}
    del stored["hyperparameters"]
    assert [*config.differences(stored)] == ["hyperparameters"]


def test_builders_take_what_their_rows_declare() -> None:
    for row in ALGORITHMS.values():
        keywords = keywords_of(load_function("algorithm", row.builder))
        assert {*row.hyperparameters, *row.settings} <= {*keywords} and {*row.settings} <= {*FIELDS}
        for name, value in row.hyperparameters.items():
            value.check(name, value.default)


def names_in(path: pathlib.Path) -> set[str]:
    """The methods that a module names in its texts, but for docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]
    names = [*METHODS, *(method.title for method in METHODS.values()), *(f"build_{key}" for key in ALGORITHMS)]
    return {name for name in names for text in texts if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)}


def test_no_other_module_names_a_method() -> None:
    modules = [*(ROOT / "experiments").rglob("*.py"), *(ROOT / "tasks").rglob("*.py"), *ROOT.glob("*.py")]
    naming = {path.relative_to(ROOT).as_posix() for path in modules if names_in(path)}
    assert naming == {"experiments/methods.py"}
    makefile = (ROOT / "Makefile").read_text()
    assert not [name for name in METHODS if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", makefile)]


def test_what_other_modules_take_from_the_tables_is_there() -> None:
    assert set(methods.PAPER_SET) | set(methods.FIGURE_2) | {methods.EXAMPLE} <= set(METHODS)
    assert methods.DEFAULT_ALGORITHM in ALGORITHMS
