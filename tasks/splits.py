"""Splits by name: `iid`, `dirichlet:ALPHA`, `shards`, `shards:NUMBER`, `natural`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tasks import partition
from tff_fen.checks import check_integer, check_name, check_number


class SplitRule(NamedTuple):
    """A kind of split and its number: `dirichlet` and alpha, `shards` and shards per client."""

    name: str
    argument: float | None = None

    def __str__(self) -> str:
        return self.name if self.argument is None else f"{self.name}:{self.argument:g}"


class _Kind(NamedTuple):
    """How the number after the colon is read, what it is where there is none, and how to split."""

    parse: Callable[[str], float] | None
    default: float | None
    split: Callable[[np.ndarray, int, float, float, int], partition.Split] | None


def _iid(labels: np.ndarray, num_clients: int, argument: float, sigma: float, seed: int) -> partition.Split:
    return partition.split_iid(labels, num_clients, sigma=sigma, seed=seed)


def _dirichlet(labels: np.ndarray, num_clients: int, argument: float, sigma: float, seed: int) -> partition.Split:
    return partition.split_dirichlet(labels, num_clients, argument, sigma=sigma, seed=seed)


def _shards(labels: np.ndarray, num_clients: int, argument: float, sigma: float, seed: int) -> partition.Split:
    if sigma:
        raise ValueError(f"size_sigma must be 0 with shards, which are all of one size, found {sigma!r}.")
    return partition.split_shards(labels, num_clients, int(argument), seed=seed)


_KINDS = {
    "iid": _Kind(None, None, _iid),
    "dirichlet": _Kind(float, None, _dirichlet),
    "shards": _Kind(int, 2, _shards),
    "natural": _Kind(None, None, None),
}


def parse_split(text: str) -> SplitRule:
    """Returns the rule that a text such as `dirichlet:0.3` names."""
    name, colon, number = text.partition(":")
    check_name("split", name, _KINDS)
    kind = _KINDS[name]
    if kind.parse is None:
        if colon:
            raise ValueError(f"split {name!r} takes no number, found {text!r}.")
        return SplitRule(name)
    if not colon:
        if kind.default is None:
            raise ValueError(f"split {name!r} needs a number, as in '{name}:0.3', found {text!r}.")
        return SplitRule(name, kind.default)
    try:
        argument = kind.parse(number)
    except ValueError as error:
        raise ValueError(f"split {name!r} needs a number after the colon, found {text!r}.") from error
    if kind.parse is int:
        check_integer(f"number of split {name!r}", argument, 1)
    else:
        check_number(f"number of split {name!r}", argument, 0.0, open_low=True)
    return SplitRule(name, argument)


def split_labels(
    rule: SplitRule, labels: np.ndarray, num_clients: int, *, sigma: float = 0.0, seed: int = 0
) -> partition.Split:
    """Splits a labelled data set; see `partition` for the kinds."""
    split = _KINDS[rule.name].split
    if split is None:
        raise ValueError(f"split {rule.name!r} is for data that have clients by nature, not for labelled examples.")
    return split(labels, num_clients, rule.argument or 0.0, sigma, seed)
