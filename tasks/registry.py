"""Tasks by name: the data sets of the paper, digits and synthetic, each with its model and its preprocessing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tasks import models, splits
from tasks.augmentations import AUGMENTATIONS
from tasks.data_sets import cifar, digits, emnist, mnist, shakespeare, sources, synthetic
from tasks.task import Clients, Task, build_task
from tff_fen.checks import check_integer, check_name, check_number

# TFF's ClientData holds an id for each of them, and Bernoulli sampling draws a number.
_MOST_CLIENTS = 10_000_000


class TaskRequest(NamedTuple):
    """What is asked of a task; see `load_task`."""

    split: splits.SplitRule
    num_clients: int
    size_sigma: float
    seed: int
    places: sources.Places
    alpha: float
    beta: float


class _Kind(NamedTuple):
    """A task by name.

    Attributes:
      load: returns clients and test set.
      build_keras_model: `(*, initializer, seed) -> model`.
      batch_size: the paper's.
      splits: the names of the splits it can have, the default first.
      num_clients: the number of clients of each of these by default.
      augmentations: names of what may be done to its training images.
      training_set: `(places) -> name` of the training set that is loaded, where there are several.
    """

    load: Callable[[TaskRequest], tuple[Clients, tuple[np.ndarray, np.ndarray]]]
    build_keras_model: Callable[..., tf.keras.Model]
    batch_size: int
    splits: tuple[str, ...]
    num_clients: tuple[int, ...]
    augmentations: tuple[str, ...] = ("none",)
    training_set: Callable[[sources.Places], str] | None = None


def task_names() -> list[str]:
    """Returns the names that `load_task` knows."""
    return list(_KINDS)


def load_task(
    name: str,
    *,
    split: str | None = None,
    num_clients: int | None = None,
    size_sigma: float = 0.0,
    seed: int = 0,
    initializer: str = "keras",
    augment: str = "none",
    places: sources.Places | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Task:
    """Returns a task, its data fetched if need be.

    Args:
      name: `mnist`, `emnist_letters`, `cifar10`, `cifar100`, `shakespeare`, `digits` or `synthetic`.
      split: `iid`, `dirichlet:ALPHA`, `shards:NUMBER`, or `natural` (Shakespeare's roles, synthetic
        clients); by default `iid`, for synthetic `natural`.
      num_clients: m; by default 100, 20 for digits, 11 for Shakespeare's `iid`.
      size_sigma: of the lognormal distribution of the clients' sizes, 0 for equal ones.
      seed: of the split and of the initial weights.
      initializer: of the model, `keras` or `torch`.
      augment: what is done to training images before each step: `none`, or `flip_crop` for CIFAR.
      places: the user's data and cache folders.
      alpha: of synthetic(alpha, beta).
      beta: likewise.

    Raises:
      ValueError, TypeError: for arguments that are wrong or do not fit together.
      DataUnavailableError: if the data cannot be had.
    """
    kind, rule, num_clients = _check_arguments(name, split, num_clients, size_sigma, seed, initializer, augment)
    request = TaskRequest(rule, num_clients, size_sigma, seed, places or sources.Places(), alpha, beta)
    clients, test = kind.load(request)
    build_keras_model = functools.partial(kind.build_keras_model, initializer=initializer, seed=seed)
    training_set = find_training_set(name, request.places)
    return build_task(
        name,
        clients,
        test,
        build_keras_model,
        kind.batch_size,
        training_set=training_set,
        augment=AUGMENTATIONS[augment],
    )


def find_training_set(name: str, places: sources.Places) -> str | None:
    """Returns which training set `load_task` gives where a data set has several, else `None`; loads nothing."""
    kind = _KINDS[name]
    return None if kind.training_set is None else kind.training_set(places)


def default_split(name: str) -> str:
    """Returns the split of a task where none is asked for."""
    return _KINDS[name].splits[0]


def check_task(name: str, **arguments: Any) -> None:
    """Raises if arguments of `load_task` are wrong or do not fit together, as far as that shows without the data."""
    _check_arguments(name, **arguments)


def _check_arguments(
    name: str,
    split: str | None,
    num_clients: int | None,
    size_sigma: float,
    seed: int,
    initializer: str,
    augment: str,
) -> tuple[_Kind, splits.SplitRule, int]:
    """Returns the task's kind, its split and the number of its clients."""
    check_name("task", name, _KINDS)
    kind = _KINDS[name]
    rule = splits.parse_split(kind.splits[0] if split is None else split)
    check_name(f"split of task {name!r}", rule.name, kind.splits)
    if num_clients is None:
        num_clients = kind.num_clients[kind.splits.index(rule.name)]
    check_integer("num_clients", num_clients, 1, _MOST_CLIENTS)
    check_number("size_sigma", size_sigma, 0.0)
    check_integer("seed", seed, 0)
    check_name("initializer", initializer, models.INITIALIZERS)
    check_name("augment", augment, AUGMENTATIONS)
    check_name(f"augment of task {name!r}", augment, kind.augmentations)
    if size_sigma and name in ("shakespeare", "synthetic"):
        raise ValueError(f"size_sigma must be 0 for task {name!r}, whose sizes are given, found {size_sigma!r}.")
    return kind, rule, num_clients


def _load_images(
    load: Callable[[sources.Places], sources.Arrays],
    normalization: tuple[tuple[float, ...], tuple[float, ...]] | None,
    max_pixel: float,
    request: TaskRequest,
) -> tuple[Clients, tuple[np.ndarray, np.ndarray]]:
    """Returns clients that share the pixels of a data set, and turn their own into floats when they are asked for.

    Args:
      load: returns the data set.
      normalization: mean and standard deviation of the pixels, scaled to [0, 1]: one, or one a
        colour; `None` for those of the training pixels.
      max_pixel: what counts as 1.
      request: what is asked for.
    """
    arrays = load(request.places)
    pixels, labels = arrays["x_train"], arrays["y_train"].astype(np.int32)
    check_integer("num_clients", request.num_clients, 1, len(labels))
    if normalization is None:
        scaled = pixels.astype(np.float64) / max_pixel
        normalization = ((float(scaled.mean()),), (float(scaled.std()),))
    mean, deviation = (np.array(part, np.float32) for part in normalization)

    def normalize(pixels: np.ndarray) -> np.ndarray:
        return (pixels.astype(np.float32) / np.float32(max_pixel) - mean) / deviation

    split = splits.split_labels(request.split, labels, request.num_clients, sigma=request.size_sigma, seed=request.seed)
    clients = Clients(len(split), lambda k: (normalize(pixels[split[k]]), labels[split[k]]))
    return clients, (normalize(arrays["x_test"]), arrays["y_test"].astype(np.int32))


def _load_shakespeare(request: TaskRequest) -> tuple[Clients, tuple[np.ndarray, np.ndarray]]:
    roles = shakespeare.load(request.places)
    split = {"natural": shakespeare.split_natural, "iid": shakespeare.split_iid}[request.split.name]
    clients, test = split(roles, request.num_clients, request.seed)
    return Clients(len(clients), lambda k: clients[k].read(roles)), test.read(roles)


def _load_synthetic(request: TaskRequest) -> tuple[Clients, tuple[np.ndarray, np.ndarray]]:
    population = synthetic.Synthetic(request.num_clients, request.alpha, request.beta, request.seed)
    return Clients(request.num_clients, population.client), population.test()


_LABELLED = ("iid", "dirichlet", "shards")
# Means and deviations are those of FedDyn's code.
_CIFAR10 = ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))
_PHOTOGRAPHS = ("none", "flip_crop")
_CIFAR100 = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))

_KINDS = {
    "mnist": _Kind(
        functools.partial(_load_images, mnist.load, ((0.1307,), (0.3081,)), 255.0),
        functools.partial(models.build_mlp, 784, 200, 10),
        10,
        _LABELLED,
        (100, 100, 100),
    ),
    "emnist_letters": _Kind(
        functools.partial(_load_images, emnist.load, None, 255.0),
        functools.partial(models.build_mlp, 784, 100, 10),
        50,
        _LABELLED,
        (100, 100, 100),
        training_set=emnist.training_set,
    ),
    "cifar10": _Kind(
        functools.partial(_load_images, functools.partial(cifar.load, "cifar10"), _CIFAR10, 255.0),
        functools.partial(models.build_cnn, 10),
        50,
        _LABELLED,
        (100, 100, 100),
        _PHOTOGRAPHS,
    ),
    "cifar100": _Kind(
        functools.partial(_load_images, functools.partial(cifar.load, "cifar100"), _CIFAR100, 255.0),
        functools.partial(models.build_cnn, 100),
        50,
        _LABELLED,
        (100, 100, 100),
        _PHOTOGRAPHS,
    ),
    "shakespeare": _Kind(_load_shakespeare, models.build_lstm, 20, ("iid", "natural"), (11, 100)),
    "digits": _Kind(
        functools.partial(_load_images, digits.load, ((0.0,), (1.0,)), 16.0),
        functools.partial(models.build_mlp, 64, 50, 10),
        10,
        _LABELLED,
        (20, 20, 20),
    ),
    "synthetic": _Kind(
        _load_synthetic,
        functools.partial(models.build_softmax_regression, synthetic.NUM_INPUTS, synthetic.NUM_CLASSES),
        10,
        ("natural",),
        (100,),
    ),
}
