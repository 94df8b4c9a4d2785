"""The cells of the paper's tables by name, `mnist/dirichlet_0.3/algorithm_3`, as values of an experiment.

A name is `data set/split/method`, with `/all` at the end for the tables in which all clients take part in every
round. Each part may be a pattern, and the method the name of a set (`SETS`): `mnist/*/paper` is all that `make paper`
trains. lambda_1, lambda_2 and epsilon are the paper's (`paper/hyperparameters.csv`), as are rounds and batch sizes.
Learning rate, epochs, weight decay, clipping, initial weights and what is done to CIFAR's training images are not in
the paper: they are those of FedDyn's public code. Of the clients' sizes the paper only says that they are lognormal;
equal ones are those of FedDyn's tables. `Preset.assumed` names all of these.
"""

from __future__ import annotations

import csv
import fnmatch
import functools
import pathlib
from collections.abc import Collection
from typing import Any, NamedTuple, NoReturn

from experiments.methods import EXAMPLE, METHODS, PAPER_SET
from experiments.values import nearest

PAPER = pathlib.Path(__file__).parent / "paper"
SETS = {"paper": PAPER_SET}
"""Names for several methods."""

_DATA_SETS = {
    "mnist": ("MNIST", 100, 10),
    "emnist_letters": ("EMNIST-L", 200, 50),
    "cifar10": ("CIFAR-10", 200, 50),
    "cifar100": ("CIFAR-100", 500, 50),
    "shakespeare": ("Shakespeare", 100, 20),
}
_LABEL_SPLITS = {"iid": "iid", "dirichlet_0.6": "dirichlet:0.6", "dirichlet_0.3": "dirichlet:0.3"}
_SPLITS = {"shakespeare": {"iid": "iid", "natural": "natural"}}

_ASSUMED: dict[str, Any] = {
    "learning_rate": 0.1, "lr_decay": 1.0, "epochs": 5, "weight_decay": 1e-3, "clip_norm": 10.0, "initializer": "torch",
    "size_sigma": 0.0,
}  # fmt: skip
_ASSUMED_OF: dict[str, dict[str, Any]] = {name: {"augment": "flip_crop"} for name in ("cifar10", "cifar100")}
# The small task that comes with an installed package; not in the paper. Its penalties: digits_hyperparameters.csv.
_DIGITS: dict[str, Any] = {
    "task": "digits", "split": "iid", "rounds": 30, "sampling": "uniform:10", "batch_size": 10, "epochs": 5,
    "learning_rate": 0.1, "initializer": "keras",
}  # fmt: skip


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
    names = []
    for task, splits in splits_by_task().items():
        shares = ("", "/all") if task in _DATA_SETS else ("",)
        names += [f"{task}/{split}/{method}{share}" for split in splits for method in METHODS for share in shares]
    return names


def example_preset(task: str) -> str:
    """Returns the name of a preset on a data set, for commands that are shown as examples."""
    return f"{task}/iid/{EXAMPLE}"


def example_values(task: str | None) -> dict[str, Any]:
    """Returns algorithm and penalties of the example's method: the paper's for this data set, else those for digits."""
    method = METHODS[EXAMPLE]
    dataset = _DATA_SETS[task][0] if task in _DATA_SETS else _DIGITS["task"]
    penalties = _penalties()[dataset, method.title]
    return {"algorithm": method.algorithm.key, **penalties}


def splits_by_task() -> dict[str, list[str]]:
    """Returns the data sets that have presets, each with the names of its splits."""
    return {"digits": ["iid"], **{task: list(_SPLITS.get(task, _LABEL_SPLITS)) for task in _DATA_SETS}}


def expand_presets(name: str) -> list[str]:
    """Returns the presets that a name stands for: itself, or those that its patterns and its set of methods give.

    Raises:
      ValueError: if there is none; the message names the nearest.
    """
    found = _expand(name)
    if not found:
        _refuse(name)
    return found


def load_preset(name: str) -> Preset:
    """Returns the values of a cell; raises a `ValueError` that names the nearest for one that is not known."""
    if name not in preset_names():
        _refuse(name)
    task, split, key, *share = name.split("/")
    method = METHODS[key]
    row, changes = method.tuned_as.title, method.variant.changes or {}
    if task == _DIGITS["task"]:
        values = {**_DIGITS, "algorithm": method.algorithm.key, **_penalties().get((task, row), {}), **changes}
        return Preset(values, tuple(values))
    dataset, rounds, batch_size = _DATA_SETS[task]
    assumed = _ASSUMED | _ASSUMED_OF.get(task, {})
    values = {
        "task": task,
        "split": _SPLITS.get(task, _LABEL_SPLITS)[split],
        "rounds": rounds,
        "batch_size": batch_size,
        "sampling": "bernoulli:1" if share else "bernoulli:0.1",
        "algorithm": method.algorithm.key,
        **assumed,
        **_penalties().get((dataset, row), {}),
        **changes,
    }
    return Preset(values, tuple(assumed))


def _expand(name: str) -> list[str]:
    parts = name.split("/")
    methods = SETS.get(parts[2], ()) if len(parts) > 2 else ()
    wanted = [*parts[:2], "*", *parts[3:]] if methods else parts
    places: dict[tuple[str, ...], list[str]] = {}
    for preset in preset_names():
        task, split, method, *share = there = preset.split("/")
        fits = len(there) == len(wanted) and all(map(fnmatch.fnmatchcase, there, wanted))
        if fits and (not methods or method in methods):
            places.setdefault((task, split, *share), []).append(preset)
    if methods:
        for found in places.values():
            found.sort(key=lambda preset: methods.index(preset.split("/")[2]))
    return [preset for found in places.values() for preset in found]


def _refuse(name: str) -> NoReturn:
    """Raises a `ValueError` that names the nearest preset: of the data set that was meant, in the split that was."""
    task, split, method, *share = [*name.split("/"), "", ""][: max(3, name.count("/") + 1)]
    meant_task = _meant(task, splits_by_task())
    splits = splits_by_task().get(meant_task, list(_LABEL_SPLITS))
    meant = "/".join([meant_task, _meant(split, splits), _meant(method, [*METHODS, *SETS])])
    advice = [f" Did you mean {known!r}?" for known in ([f"{meant}/all"] if share else []) + [meant] if _expand(known)]
    raise ValueError(
        "preset must be DATA SET/SPLIT/METHOD, as in "
        f"{example_preset(meant_task or 'mnist')!r}, found {name!r}.{''.join(advice[:1])} --list=presets shows all."
    )


def _meant(part: str, known: Collection[str]) -> str:
    """The name nearest to a part, or the part itself where it is a pattern that fits; empty if there is none."""
    return part if fnmatch.filter(known, part) else next(iter(nearest(part, known)), "")


@functools.cache
def _penalties() -> dict[tuple[str, str], dict[str, float]]:
    """l1, l2 and threshold by data set and method, the paper's and ours; what a method does not have is left out."""
    names = {"lambda1": "l1", "lambda2": "l2", "epsilon": "threshold"}
    return {
        (row["dataset"], row["method"]): {names[key]: float(row[key]) for key in names if row[key]}
        for path in (PAPER / "hyperparameters.csv", PAPER.parent / "digits_hyperparameters.csv")
        for row in csv.DictReader(path.read_text().splitlines())
    }
