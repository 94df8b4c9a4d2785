"""The tables of methods: names, recognition, baselines, drawing, and that nothing else names a method."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

from experiments import methods
from experiments.experiment_config import ExperimentConfig
from experiments.methods import ALGORITHMS, METHODS, NEUTRAL, Algorithm, algorithm_named, method_of
from experiments.presets import load_preset
from experiments.settings import Settings

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


def test_a_row_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method's hyperparameters and refusals come from its row."""
    row = Algorithm(
        "mine", "Mine", "tff_fen:build_fed_dyn", hyperparameters=("top_k",),
        refusals=((lambda c: c.l1 > 1, "l1 must be at most 1 for algorithm 'mine', found {l1}."),),
    )  # fmt: skip
    monkeypatch.setitem(ALGORITHMS, "mine", row)
    assert method_of(ExperimentConfig(algorithm="mine").row(), Settings()).title == "Mine"
    with pytest.raises(ValueError, match="l1 must be at most 1 for algorithm 'mine', found 2"):
        ExperimentConfig(algorithm="mine", l1=2.0)


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
