"""What the documents claim of the committed results, from their CSVs."""

from __future__ import annotations

import pathlib

import pytest

from experiments.report.groups import Group
from experiments.report.paper import belongs
from tests.support.results_tables import RESULTS, SPLITS, accuracy, mnist_cells, non_zeros, read, tables, times_fewer

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "results.md"

pytestmark = pytest.mark.skipif(
    not (RESULTS / "mnist").is_dir(),
    reason="no results are committed yet: `python make_report.py out/paper --export=results` writes them",
)


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    return read("mnist")


def find(groups: list[Group], split: str, method: str) -> Group:
    """The full run of a cell, with the paper's and the assumed values; the test fails if there is none."""
    cell = mnist_cells(split)[method]
    if not any(g.scenario.task == "mnist" and g.scenario.split == SPLITS[split] for g in groups):
        pytest.skip(f"no runs of MNIST's split {split} are committed; `make paper-mnist` makes them")
    found = [g for g in groups if belongs(g, cell) and not g.differences and g.rounds == cell.rounds]
    assert len(found) == 1, f"results/mnist has {len(found)} full runs of {cell.preset}, one is needed"
    return found[0]


@pytest.mark.parametrize("method", ["fed_prox", "fed_dyn"])
@pytest.mark.parametrize("split", SPLITS)
def test_dense_baselines_send_what_the_paper_prints(groups: list[Group], split: str, method: str) -> None:
    here = non_zeros(find(groups, split, method)) / 1e7
    cell = mnist_cells(split)[method]
    assert cell.agrees(here), f"{here} is not {cell.printed} to its last digit"


def test_algorithm_3_is_as_accurate_as_fed_dyn_and_sends_far_less(groups: list[Group]) -> None:
    sparse, dense = (find(groups, "iid", method) for method in ("algorithm_3", "fed_dyn"))
    assert all("average_accuracy" in run.summary for run in (*sparse.runs, *dense.runs))
    assert accuracy(sparse) >= 0.98
    assert accuracy(sparse) >= accuracy(dense) - 0.002
    assert non_zeros(dense) / non_zeros(sparse) >= 7.9, "the paper's factor"


@pytest.mark.parametrize("split", SPLITS)
def test_the_methods_are_ordered_as_in_the_paper(groups: list[Group], split: str) -> None:
    """By non-zeros; methods with the same figure in the paper may come in any order."""
    published = {method: cell.value for method, cell in mnist_cells(split).items()}
    here = {method: non_zeros(find(groups, split, method)) for method in published}
    for fewer in published:
        for more in published:
            if published[fewer] < published[more]:
                assert here[fewer] < here[more], f"{fewer} sends {here[fewer]:,.0f}, {more} {here[more]:,.0f}"


def test_three_seeds_send_far_fewer_bytes_at_the_same_accuracy() -> None:
    """Against FedDyn that sends float32, of the same seeds: losslessly, and trained through the quantised codec."""
    by_codec: dict[tuple[str, str | None], Group] = {}
    for group in read("seeds"):
        assert sorted(run.config.seed for run in group.runs) == [0, 1, 2]
        assert all(run.rounds == 100 for run in group.runs)
        by_codec[group.method.key, group.first.config.uplink] = group
    dense = by_codec["fed_dyn", None]
    for codec, factor in ((None, 9), ("quantised:0.015", 60)):
        sparse = by_codec["algorithm_3", codec]
        assert accuracy(sparse) >= accuracy(dense) - 0.002
        for run in sparse.runs:
            assert times_fewer(run) >= factor


def test_the_tables_of_the_page_are_those_of_the_results() -> None:
    lines = [line.strip() for line in PAGE.read_text().splitlines()]
    for name, table in tables().items():
        for row in table:
            assert row.strip() in lines, f"{name}: {row!r}; `python -m tests.support.results_tables` prints all tables"


def test_what_the_page_says_of_l1_and_the_quantiser() -> None:
    l1 = {g.first.config.l1: g for g in read("l1/subgradient")}
    sent = [l1[value].mean(lambda run: run.bytes_sent) for value in (1e-5, 1e-3, 1e-2)]
    assert sent == sorted(sent, reverse=True)
    assert accuracy(l1[1e-2]) < accuracy(l1[1e-3]) < accuracy(l1[1e-5])
    (quantised,) = [g for g in read("pareto") if g.first.config.uplink == "quantised:0.015"]
    assert quantised.method.key == "fed_dyn" and quantised.mean(times_fewer) > 80


@pytest.mark.parametrize("task", ["cifar10", "cifar100", "shakespeare"])
def test_other_data_sets_have_ten_rounds_of_fed_dyn_and_algorithm_3(task: str) -> None:
    found = {g.method.key: g for g in read(task)}
    assert set(found) == {"fed_dyn", "algorithm_3"}
    for group in found.values():
        assert group.rounds >= 10 and group.truncation
        (run,) = group.runs
        assert run.accuracy > 2 * {"cifar10": 0.1, "cifar100": 0.01, "shakespeare": 0.1}[task]
