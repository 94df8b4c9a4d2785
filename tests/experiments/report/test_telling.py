"""Which runs are drawn and told apart, what the page says first, and axes that say no more than is measured."""

from __future__ import annotations

import itertools
import pathlib
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.axes import accuracy_span, at_least, whole_numbers
from experiments.histogram import drawn_edges, lowest_sent
from experiments.report.drawing import Look, number_points
from experiments.report.figures import draw_accuracy, draw_l1, draw_pareto, front_of, updates_of
from experiments.report.groups import Group, group_runs
from experiments.report.read import find_runs
from experiments.report.sections import l1_studies
from experiments.report.telling import MOST, into_pictures, tell_apart
from experiments.report.verdict import verdict
from tests.support.fake_results import write_run


def groups_in(folder: pathlib.Path) -> list[Group]:
    return group_runs(find_runs([folder]))


def test_a_sweep_is_drawn_whole(tmp_path: pathlib.Path) -> None:
    """Four values of l1, three seeds each: one picture of four curves, each with what differs from its preset."""
    for l1, seed in itertools.product((0.0, 1e-4, 1e-3, 1e-2), range(3)):
        write_run(tmp_path / f"l1={l1},seed={seed}", "mnist/iid/algorithm_3", l1=l1, seed=seed)
    (picture,) = into_pictures(groups_in(tmp_path))
    labels = ["Algorithm 3", "Algorithm 3 (l1=0.001)", "Algorithm 3 (l1=0.01)", "Algorithm 3, l1 = 0"]
    assert [len(group.runs) for group in picture] == [3] * 4 and [group.full_label for group in picture] == labels
    assert len({(shown.colours, shown.marker) for shown in tell_apart(picture)}) == 4
    drawn = draw_accuracy(picture)(Look(False, "#000000", False))
    assert [line.get_label() for line in drawn.axes[0].lines] == labels
    plt.close(drawn)


def test_many_groups_are_all_in_some_picture(tmp_path: pathlib.Path) -> None:
    for i, (l1, rate) in enumerate(itertools.product((1e-4, 1e-3, 1e-2), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6))):
        write_run(tmp_path / str(i), "mnist/iid/algorithm_3", rounds=3, participants=30, l1=l1, learning_rate=rate)
    write_run(tmp_path / "dense", "mnist/iid/fed_dyn")
    write_run(tmp_path / "short", "mnist/iid/fed_dyn", rounds=5, participants=50)
    groups = groups_in(tmp_path)
    pictures = into_pictures(groups)
    assert sorted(map(id, itertools.chain(*pictures))) == sorted(map(id, groups)), "each once"
    assert all(len(picture) <= MOST for picture in pictures)
    assert {group.label for group in pictures[0]} == {"FedDyn", "Algorithm 3"}, "the paper's values first"
    for picture in pictures:
        assert len({group.full_label for group in picture}) == len(picture)


def test_thresholds_of_an_l1_study_look_different(tmp_path: pathlib.Path) -> None:
    for i, (l1, threshold) in enumerate(itertools.product((0.0, 1e-3), (0.002, 0.005, 0.01))):
        write_run(tmp_path / str(i), "mnist/iid/algorithm_3", l1=l1, threshold=threshold)
    (studies,) = l1_studies(groups_in(tmp_path))
    drawn = draw_l1(studies)(Look(False, "#000000", False))
    lines = [drawn.axes[0].containers[i][0] for i in range(len(studies))]
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == len(studies) == 3
    plt.close(drawn)


def test_truncated_runs_are_on_no_front(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "whole", "mnist/iid/fed_dyn", size=2_000_000)
    write_run(tmp_path / "short", "mnist/iid/algorithm_3", rounds=5, participants=50, accuracy=0.99)
    groups = groups_in(tmp_path)
    assert [groups[i].method.key for i in front_of(groups)] == ["fed_dyn"]


def test_updates_are_of_all_seeds(tmp_path: pathlib.Path) -> None:
    for seed in range(3):
        write_run(tmp_path / str(seed), "mnist/iid/fed_dyn", seed=seed)
    (group,) = groups_in(tmp_path)
    updates = updates_of(group)
    assert updates is not None and updates.zeros == 2700 and updates.counts.sum() == 3 * 2100


@pytest.mark.parametrize(
    ("threshold", "uplink", "lowest"),
    [
        (0.0, None, 0.0), (0.005, None, 0.005), (0.005, "lossless", 0.005), (0.005, "quantised:0.015", 0.015),
        (0.005, "quantised:0.004", 0.004), (0.005, "quantised", 0.01), (0.0, "quantised:0.01", 0.0),
    ],
)  # fmt: skip
def test_the_smallest_that_is_sent(threshold: float, uplink: str | None, lowest: float) -> None:
    assert lowest_sent(threshold, uplink) == pytest.approx(lowest)


def test_the_bin_of_the_threshold_begins_at_it() -> None:
    lower, upper = np.array([0.0, 1e-3, 1e-2, 1e-1]), np.array([1e-3, 1e-2, 1e-1, np.inf])
    edges = drawn_edges(lower, upper, np.array([0, 5, 3, 1]), 0.005)
    assert edges == pytest.approx([1e-4, 0.005, 1e-2, 1e-1, 1.0])
    below = drawn_edges(lower, upper, np.array([1, 5, 3, 1]), 0.005)
    assert below == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1, 1.0]), "there are some below: nothing is claimed"


def test_axes_of_accuracy_are_wider_than_chance() -> None:
    assert accuracy_span(0.97, 397) == pytest.approx(6.85, abs=0.01) and accuracy_span(0.98, 10_000) == pytest.approx(
        1.12
    )
    figure, ax = plt.subplots()
    ax.plot([1, 2, 3], [97.0, 98.26, 97.5])  # five test images of 397
    at_least(ax, accuracy_span(0.97, 397))
    low, high = ax.get_ylim()
    assert high - low == pytest.approx(6.85, abs=0.01) and low < 97.0 and high > 98.26
    whole_numbers(ax)
    assert all(float(tick).is_integer() for tick in ax.get_xticks())
    plt.close(figure)


def test_numbers_are_not_on_error_bars() -> None:
    figure, ax = plt.subplots()
    ax.set(xlim=(0, 10), ylim=(0, 10))
    bars = [(5.0, y) for y in np.linspace(3, 7, 41)]
    number_points(ax, {0: (5.0, 5.0)}, bars)
    (text,) = ax.texts
    x, y = text.get_position()
    assert abs(x) >= 11 or not 3 <= 5 + y / 72 * 100 / (ax.bbox.height / 10) <= 7
    plt.close(figure)


def test_numbers_are_not_on_the_front(tmp_path: pathlib.Path) -> None:
    for i in range(6):
        write_run(
            tmp_path / str(i), "mnist/iid/algorithm_3", l1=1e-4 * (i + 1), accuracy=0.97 + 0.002 * i,
            size=1_000_000 * 2**i,
        )  # fmt: skip
    drawn = draw_pareto(groups_in(tmp_path))(Look(False, "#000000", False))
    ax = drawn.axes[0]
    (front,) = [line for line in ax.lines if line.get_label() == "Pareto front"]
    corners = ax.transData.transform(np.asarray(front.get_xydata()))
    assert len(corners) == len(ax.texts) == 6
    texts: list[Any] = list(ax.texts)
    for number in texts:
        x, y = ax.transData.transform(number.xy) + np.array(number.get_position()) * drawn.dpi / 72
        # The line above or below the number, or beyond its ends.
        beside = np.interp(x, corners[:, 0], corners[:, 1], left=np.inf, right=np.inf)
        assert abs(beside - y) > 8, number.get_text()
    plt.close(drawn)


def test_the_verdict(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "dense", "mnist/iid/fed_dyn", size=8_000_000, accuracy=0.983)
    write_run(tmp_path / "sparse", "mnist/iid/algorithm_3", size=800_000, accuracy=0.982)
    assert verdict(groups_in(tmp_path)) == (
        "MNIST, IID, 10 % of 100 clients per round: Algorithm 3 sends 10.0 times fewer bytes than FedDyn, at 98.20 % "
        "accuracy against 98.30 % after 100 rounds (-0.10 points, no more than the 0.37 that chance explains)."
    )
    write_run(tmp_path / "alone" / "a", "mnist/iid/algorithm_1", size=500_000, accuracy=0.9)
    assert "Algorithm 1 reaches 90.00 % accuracy with 50 MB sent in 100 rounds." in verdict(
        groups_in(tmp_path / "alone")
    )
