"""The cells of the paper's tables by name, and the runs of a command."""

from __future__ import annotations

import re

import pytest

from experiments import listing, presets
from experiments.experiment_config import ExperimentConfig
from experiments.methods import PAPER_SET
from experiments.plan import folders_of, plan_runs
from tasks.registry import task_names


def test_presets_have_the_papers_values() -> None:
    names = presets.preset_names()
    # 13 methods: digits once; four data sets of three splits and one of two, with a tenth and with all clients.
    assert len(names) == 13 * (1 + 2 * (4 * 3 + 2)) == len(set(names))
    for name in names:
        ExperimentConfig(**presets.load_preset(name).values)
    preset = presets.load_preset("mnist/dirichlet_0.3/algorithm_3")
    values = preset.values
    assert (values["l1"], values["l2"], values["threshold"]) == (1e-4, 0.05, 5e-3)
    assert (values["task"], values["split"], values["algorithm"]) == ("mnist", "dirichlet:0.3", "fed_dyn")
    assert (values["rounds"], values["batch_size"], values["sampling"]) == (100, 10, "bernoulli:0.1")
    assert set(preset.assumed) == {
        "learning_rate", "lr_decay", "epochs", "weight_decay", "clip_norm", "initializer", "size_sigma"
    }  # fmt: skip
    assert presets.load_preset("cifar100/iid/algorithm_1/all").values["sampling"] == "bernoulli:1"
    fed_prox = presets.load_preset("shakespeare/natural/fed_prox").values
    assert fed_prox["l2"] == 1e-4 and "l1" not in fed_prox and "threshold" not in fed_prox
    assert fed_prox.get("augment") is None and values.get("augment") is None
    for name in ("cifar10", "cifar100"):
        cifar = presets.load_preset(f"{name}/dirichlet_0.6/fed_dyn/all")
        assert cifar.values["augment"] == "flip_crop" and "augment" in cifar.assumed
    ablation = presets.load_preset("mnist/iid/threshold_3").values
    assert (ablation["l1"], ablation["threshold"]) == (0.0, 5e-3)
    proximal = presets.load_preset("mnist/iid/proximal_3").values
    assert (proximal["l1"], proximal["threshold"], proximal["l1_step"]) == (1e-4, 0.0, "proximal")
    with pytest.raises(ValueError, match="Did you mean 'mnist/iid/algorithm_3'"):
        presets.load_preset("mnist/iid/algorithm3")


def test_patterns_and_sets_give_several_presets() -> None:
    assert presets.expand_presets("mnist/iid/fed_dyn") == ["mnist/iid/fed_dyn"]
    assert presets.expand_presets("*/iid/fed_avg/all")[:2] == [
        "mnist/iid/fed_avg/all",
        "emnist_letters/iid/fed_avg/all",
    ]
    assert presets.expand_presets("digits/iid/threshold_?") == [f"digits/iid/threshold_{n}" for n in (1, 2, 3)]
    paper = presets.expand_presets("mnist/*/paper")
    assert paper == [f"mnist/{s}/{m}" for s in ("iid", "dirichlet_0.6", "dirichlet_0.3") for m in PAPER_SET]
    assert presets.expand_presets("shakespeare/*/paper/all")[-1] == "shakespeare/natural/proximal_3/all"
    for wrong in ("mnist", "mnist/iid", "mnist/iid/papers", "nowhere/*/paper", "mnist/iid/*/some", ""):
        with pytest.raises(ValueError, match=f"preset must be DATA SET.* found '{wrong.replace('*', '.')}'"):
            presets.expand_presets(wrong)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("cifar10/iid/algoritm_3", "cifar10/iid/algorithm_3"),  # not mnist's, though it is the first in the list
        ("cifar_10/dirichlet0.3/feddyn/al", "cifar10/dirichlet_0.3/fed_dyn/all"),
        ("mnist/*/papers", "mnist/*/paper"),
        ("digits/iid/fed_dyn/all", "digits/iid/fed_dyn"),
        ("shakespeare/naturl/scafold", "shakespeare/natural/scaffold"),
    ],
)
def test_the_nearest_preset_is_of_the_data_set_that_was_named(wrong: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"Did you mean '{re.escape(meant)}'"):
        presets.expand_presets(wrong)
    assert presets.expand_presets(meant)


@pytest.mark.parametrize(
    ("explicit", "grid", "expected", "name"),
    [
        ({}, [], ("fed_dyn", 1e-4, 0.05, 5e-3), "digits-algorithm_3"),
        ({"task": "cifar100"}, [], ("fed_dyn", 1e-4, 0.01, 1e-3), "cifar100-algorithm_3"),
        ({"task": "synthetic"}, [], ("fed_dyn", 1e-4, 0.05, 5e-3), "synthetic-algorithm_3"),
        ({"l1": 1e-3}, [], ("fed_dyn", 1e-3, 0.05, 5e-3), "digits-algorithm_3"),
        ({"l1": 0.0, "threshold": 0.0}, [], ("fed_dyn", 0.0, 0.05, 0.0), "digits-fed_dyn"),
        ({}, ["l1=1e-3"], ("fed_dyn", 1e-3, 0.05, 5e-3), "digits-algorithm_3 l1=0.001"),
        # An algorithm that is named is the plain one, as ever.
        ({"algorithm": "fed_dyn"}, [], ("fed_dyn", 0.0, 0.05, 0.0), "digits-fed_dyn"),
        ({"algorithm": "fed_dyn", "l2": 0.1}, [], ("fed_dyn", 0.0, 0.1, 0.0), "digits-fed_dyn"),
        ({"algorithm": "scaffold"}, [], ("scaffold", 0.0, 0.0, 0.0), "digits-scaffold"),
        ({}, ["algorithm=fed_avg"], ("fed_avg", 0.0, 0.0, 0.0), "digits-fed_avg algorithm=fed_avg"),
    ],
)
def test_what_is_trained_where_no_preset_is_named(explicit, grid, expected, name) -> None:
    (run,) = plan_runs(None, grid, explicit)
    config = run.config
    assert ((config.algorithm, config.l1, config.l2, config.threshold), run.name) == (expected, name)


def test_a_needed_penalty_that_is_set_to_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="l2 must be > 0 for algorithm 'fed_dyn'"):
        plan_runs(None, [], {"l2": 0.0})


def test_all_names_of_lists_are_known() -> None:
    """The lists are written out, since what they list imports TensorFlow."""
    assert set(listing.TASKS) == set(task_names())
    for name, make in listing.LISTS.items():
        assert len(make().splitlines()) > 3, name


def test_a_pattern_is_a_grid() -> None:
    runs = plan_runs("digits/iid/proximal_*", ["seed=0,1"], {"rounds": 3})
    assert [run.name for run in runs] == [f"digits-iid-proximal_{n} seed={s}" for s in (0, 1) for n in (1, 2, 3)]
    assert all(run.config.rounds == 3 and "rounds" not in run.about["assumed"] for run in runs)
    folder, paths = folders_of(runs, None)
    assert str(paths[0]) == "out/grid-digits-iid-proximal_1/digits-iid-proximal_1_seed=0" and paths[0].parent == folder
    for preset, grid, explicit in (("a", ["preset=b"], {}), (None, ["l1=1"], {"l1": 2.0})):
        with pytest.raises(ValueError, match=r"--grid and --.* both give"):
            plan_runs(preset, grid, explicit)
