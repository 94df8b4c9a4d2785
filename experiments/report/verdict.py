"""What the runs come to in one sentence, and whose curves stand beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.report.figures import megabytes_sent
from experiments.report.groups import Group
from experiments.report.tables import pairs_of
from experiments.report.telling import into_pictures


def lead_groups(groups: Sequence[Group]) -> list[Group]:
    """Returns the groups of the first picture: those of the scenario that the verdict is on."""
    pairs = [pair for pair in pairs_of(groups) if all(map(is_measured, pair))]
    measured = [group for group in groups if is_measured(group)]
    if not measured:
        return []
    scenario = pairs[0][0].scenario if pairs else measured[0].scenario
    shown = [group for group in measured if group.scenario == scenario]
    return into_pictures(shown)[0]


def is_measured(group: Group) -> bool:
    """Whether accuracy and bytes of all runs are known."""
    return all(math.isfinite(run.accuracy) and math.isfinite(run.bytes_sent) for run in group.runs)


def verdict(groups: Sequence[Group]) -> str:
    """Returns the sentence.

    It is on what the first picture shows. There it is on the pair, of an algorithm with the elastic net and without it,
    that saves most bytes among those that lose no accuracy which chance would not explain; where all lose some, on that
    which loses least. Without pairs it is on the most accurate group, and on one that sends least at about the same
    accuracy.
    """
    shown = lead_groups(groups)
    pairs = [pair for pair in pairs_of(groups) if set(pair) <= {*shown}]
    if pairs:
        scenario = pairs[0][0].scenario
        equal = [pair for pair in pairs if is_as_accurate(*pair)]
        sparse, dense = max(equal, key=_saving) if equal else max(pairs, key=_gain)
        return (
            f"{scenario.title}: {sparse.full_label} sends {_saving((sparse, dense)):.1f} times fewer bytes than "
            f"{dense.full_label}, at {_percent(sparse)} accuracy against {_percent(dense)} after "
            f"{sparse.rounds} rounds ({_difference(sparse, dense)})."
        )
    if not shown:
        return "No run has both its accuracy and its bytes yet."
    best = max(shown, key=_accuracy)
    text = f"{best.scenario.title}: {best.full_label} reaches {_percent(best)} accuracy with {_megabytes(best)} sent"
    cheapest = min((g for g in shown if is_as_accurate(g, best)), key=lambda g: g.mean(megabytes_sent))
    if cheapest is best:
        return f"{text} in {best.rounds} rounds" + (", the best of what is here." if len(shown) > 1 else ".")
    return (
        f"{text}; {cheapest.full_label} {_percent(cheapest)} with {_megabytes(cheapest)}, "
        f"{_saving((cheapest, best)):.1f} times fewer ({_difference(cheapest, best)})."
    )


def is_as_accurate(group: Group, other: Group) -> bool:
    """Whether a group is no less accurate than another, but for what chance explains."""
    return _gain((group, other)) >= -2 * _uncertainty(group, other)


def _difference(group: Group, other: Group) -> str:
    gain, chance = 100 * _gain((group, other)), 200 * _uncertainty(group, other)
    within = "no more than" if abs(gain) <= chance else "more than"
    return f"{gain:+.2f} points, {within} the {chance:.2f} that chance explains"


def _uncertainty(group: Group, other: Group) -> float:
    """A standard error of the difference of two accuracies: of the seeds, or of the test set where that is more."""
    variance = 0.0
    for g in (group, other):
        p, spread = _accuracy(g), g.spread(lambda run: run.accuracy)
        of_seeds = 0.0 if spread is None else spread**2 / len(g.runs)
        # Where the size of the test set is not known, the smallest of the paper's data sets.
        of_test = max(p * (1 - p), 0.0) / (g.first.test_examples or 10_000)
        variance += max(of_seeds, of_test)
    return math.sqrt(variance)


def _saving(pair: tuple[Group, Group]) -> float:
    return pair[1].mean(megabytes_sent) / max(pair[0].mean(megabytes_sent), 1e-9)


def _gain(pair: tuple[Group, Group]) -> float:
    return _accuracy(pair[0]) - _accuracy(pair[1])


def _accuracy(group: Group) -> float:
    return group.mean(lambda run: run.accuracy)


def _percent(group: Group) -> str:
    spread = group.spread(lambda run: 100 * run.accuracy)
    return f"{100 * _accuracy(group):.2f}" + (f" ± {spread:.2f} %" if spread is not None else " %")


def _megabytes(group: Group) -> str:
    return f"{group.mean(megabytes_sent):.3g} MB"
