"""Which groups share a picture, and how a reader tells them apart: by label, colour, line and marker."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import NamedTuple

from experiments.methods import Colours
from experiments.report.groups import Group

MOST = 8
"""Groups in a picture."""

PALETTE = (
    Colours("#d1480f", "#ff8a50"), Colours("#0072b2", "#5bb3f0"), Colours("#00805c", "#35c796"),
    Colours("#8e3fb0", "#cf94ea"), Colours("#9a6b00", "#e3b341"), Colours("#c2185b", "#ff80ab"),
    Colours("#4e5d6c", "#b6c2cf"), Colours("#7a4a2b", "#cfa07f"),
)  # fmt: skip
"""For what has no colours of its own, or shares them with another in a picture."""
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")


class Shown(NamedTuple):
    """A group in a picture.

    Attributes:
      group: itself.
      label: what no other one of the picture has.
      colours: of its curve.
      line: style of it.
      width: of it.
      marker: `None` where colour and line tell enough.
    """

    group: Group
    label: str
    colours: Colours
    line: str
    width: float
    marker: str | None


def into_pictures(groups: Sequence[Group]) -> list[list[Group]]:
    """Returns all groups of a scenario, in lists that fit into a picture each.

    Where they do not fit into one, those with the paper's values come first, and then, for each algorithm, those that
    differ from them in the same values.
    """
    if len(groups) <= MOST:
        return [list(groups)] if groups else []
    families: dict[object, list[Group]] = collections.defaultdict(list)
    for group in sorted(groups, key=lambda g: bool(g.differences)):
        families[(group.method.algorithm.key, *group.differences) if group.differences else None].append(group)
    pictures: list[list[Group]] = []
    for family in families.values():
        if pictures and len(pictures[-1]) + len(family) <= MOST and pictures[-1][0].differences:
            pictures[-1] += family
        else:
            count = -(-len(family) // MOST)  # parts of about the same size
            pictures += [family[len(family) * i // count : len(family) * (i + 1) // count] for i in range(count)]
    return pictures


def tell_apart(groups: Sequence[Group]) -> list[Shown]:
    """Returns how groups look in a picture: as their methods do where no two look alike, else each in its own way."""
    looks = [(group.method.colours, group.method.variant.line) for group in groups]
    if len(set(looks)) == len(looks):
        return [
            Shown(g, g.full_label, colours, line, g.method.variant.width, None)
            for g, (colours, line) in zip(groups, looks, strict=True)
        ]
    return [
        Shown(
            g,
            g.full_label,
            PALETTE[i % len(PALETTE)],
            ("-", "--")[i // len(PALETTE) % 2],
            1.5,
            MARKERS[i % len(MARKERS)],
        )
        for i, g in enumerate(groups)
    ]
