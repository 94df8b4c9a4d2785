"""The cells of the paper's tables by name, `mnist/dirichlet_0.3/algorithm_3`, as values of an experiment.

A name is `data set/split/method`, with `/all` at the end for the tables in which all clients
take part in every round. lambda_1, lambda_2 and epsilon are the paper's (`paper/hyperparameters.csv`), as
are rounds and batch sizes. Learning rate, epochs, weight decay, clipping and initial weights are not
in the paper: they are those of FedDyn's public code. Of the clients' sizes the paper only says that
they are lognormal; equal ones are those of FedDyn's tables. `Preset.assumed` names all of these.
"""

from __future__ import annotations

import csv
import functools
import pathlib
from typing import Any, NamedTuple

from tff_fen.checks import check_name

PAPER = pathlib.Path(__file__).parent / "paper"

_DATA_SETS = {
    "mnist": ("MNIST", 100, 10),
    "emnist_letters": ("EMNIST-L", 200, 50),
    "cifar10": ("CIFAR-10", 200, 50),
    "cifar100": ("CIFAR-100", 500, 50),
    "shakespeare": ("Shakespeare", 100, 20),
}
_LABEL_SPLITS = {"iid": "iid", "dirichlet_0.6": "dirichlet:0.6", "dirichlet_0.3": "dirichlet:0.3"}
_SPLITS = {"shakespeare": {"iid": "iid", "natural": "natural"}}

# A method's row in the paper's table of hyperparameters, what it is added to, and what is changed.
_METHODS: dict[str, tuple[str | None, str, dict[str, Any]]] = {
    "fed_avg": (None, "fed_avg", {}),
    "fed_prox": ("FedProx", "fed_avg", {}),
    "algorithm_1": ("Algorithm 1", "fed_avg", {}),
    "scaffold": (None, "scaffold", {}),
    "algorithm_2": ("Algorithm 2", "scaffold", {}),
    "fed_dyn": ("FedDyn", "fed_dyn", {}),
    "algorithm_3": ("Algorithm 3", "fed_dyn", {}),
    # Ablations: what the threshold does without l1, and l1 (by proximal steps, which give zeros) without the threshold.
    "threshold_1": ("Algorithm 1", "fed_avg", {"l1": 0.0}),
    "proximal_1": ("Algorithm 1", "fed_avg", {"threshold": 0.0, "l1_step": "proximal"}),
    "threshold_3": ("Algorithm 3", "fed_dyn", {"l1": 0.0}),
    "proximal_3": ("Algorithm 3", "fed_dyn", {"threshold": 0.0, "l1_step": "proximal"}),
}
_ASSUMED: dict[str, Any] = {
    "learning_rate": 0.1, "lr_decay": 1.0, "epochs": 5, "weight_decay": 1e-3, "clip_norm": 10.0, "initializer": "torch",
    "size_sigma": 0.0,
}  # fmt: skip
# The small task that comes with an installed package; not in the paper.
_DIGITS = {
    "task": "digits", "split": "iid", "rounds": 30, "sampling": "uniform:10", "batch_size": 10, "epochs": 5,
    "learning_rate": 0.1, "initializer": "keras",
}  # fmt: skip
_DIGITS_PENALTIES = {
    "FedProx": {"l2": 1e-4},
    "Algorithm 1": {"l1": 1e-4, "l2": 1e-4, "threshold": 5e-3},
    "Algorithm 2": {"l1": 1e-4, "l2": 0.0, "threshold": 5e-3},
    "FedDyn": {"l2": 0.05},
    "Algorithm 3": {"l1": 1e-4, "l2": 0.05, "threshold": 5e-3},
}


class Preset(NamedTuple):
    """Values of an experiment.

    Attributes:
      values: by the names of the fields of `ExperimentConfig`.
      assumed: those that the paper does not give.
    """

    values: dict[str, Any]
    assumed: tuple[str, ...]


def preset_names() -> list[str]:
    """Returns all names."""
    names = [f"digits/iid/{method}" for method in _METHODS]
    for task in _DATA_SETS:
        for split in _SPLITS.get(task, _LABEL_SPLITS):
            names += [f"{task}/{split}/{method}{share}" for method in _METHODS for share in ("", "/all")]
    return names


def load_preset(name: str) -> Preset:
    """Returns the values of a cell; raises a `ValueError` that names the nearest for one that is not known."""
    check_name("preset", name, preset_names())
    task, split, method, *share = name.split("/")
    row, algorithm, changes = _METHODS[method]
    if task == "digits":
        values = {**_DIGITS, "algorithm": algorithm, **_DIGITS_PENALTIES.get(row or "", {}), **changes}
        return Preset(values, tuple(values))
    dataset, rounds, batch_size = _DATA_SETS[task]
    values = {
        "task": task,
        "split": _SPLITS.get(task, _LABEL_SPLITS)[split],
        "rounds": rounds,
        "batch_size": batch_size,
        "sampling": "bernoulli:1" if share else "bernoulli:0.1",
        "algorithm": algorithm,
        **_ASSUMED,
        **({} if row is None else _penalties()[dataset, row]),
        **changes,
    }
    return Preset(values, tuple(_ASSUMED))


@functools.cache
def _penalties() -> dict[tuple[str, str], dict[str, float]]:
    """The paper's table: l1, l2 and threshold by data set and method; what a method does not have is left out."""
    names = {"lambda1": "l1", "lambda2": "l2", "epsilon": "threshold"}
    with (PAPER / "hyperparameters.csv").open() as file:
        return {
            (row["dataset"], row["method"]): {names[key]: float(row[key]) for key in names if row[key]}
            for row in csv.DictReader(file)
        }
