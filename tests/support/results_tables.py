"""The tables of docs/results.md made of the committed results; `python -m tests.support.results_tables` prints them."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from experiments.methods import METHODS, PAPER_SET
from experiments.report.figures import megabytes_sent
from experiments.report.groups import DATA_SETS, Group, group_runs, split_title
from experiments.report.paper import Cell, read_cells
from experiments.report.read import Run, find_runs

RESULTS = pathlib.Path(__file__).parents[2] / "results"
SPLITS = {"iid": "iid", "dirichlet_0.6": "dirichlet:0.6", "dirichlet_0.3": "dirichlet:0.3"}


def read(*folders: str) -> list[Group]:
    """The runs in some folders of `results/`, put together over seeds."""
    return group_runs(find_runs([RESULTS / folder for folder in folders]))


def mnist_cells(split: str) -> dict[str, Cell]:
    """MNIST's row of the paper's Table 2 by method."""
    return {c.method.key: c for c in read_cells() if (c.table, c.data_set, c.split) == (2, "MNIST", split)}


def accuracy(group: Group) -> float:
    """Mean over the seeds."""
    return group.mean(lambda run: run.accuracy)


def non_zeros(group: Group) -> float:
    """Mean over the seeds."""
    return group.mean(lambda run: run.summary["non_zeros"])


def times_fewer(run: Run) -> float:
    """Bytes, than all elements as float32."""
    return run.dense_bytes / run.bytes_sent


def mnist(split: str) -> list[str]:
    """Accuracy and what is sent on a split of MNIST; non-zeros in 10^7, with the paper's."""
    printed = {method: cell.printed for method, cell in mnist_cells(split).items()}
    groups = {g.method.key: g for g in read("mnist") if g.scenario.split == SPLITS[split] and not g.differences}
    lines = [f"{split_title(SPLITS[split]):<24} accuracy non-zeros  paper      MB  fewer"]
    for method in PAPER_SET:
        counts = f"{non_zeros(groups[method]) / 1e7:9.2f} {printed.get(method, ''):>6}"
        lines.append(f"{METHODS[method].title:<24} {_row(groups[method], counts, 1)}")
    return lines


def seeds() -> list[str]:
    """Means over three seeds, and standard deviations."""
    lines = [f"{'':<42} {'accuracy':>14} {'MB':>7} {'times fewer':>14}"]
    for group in read("seeds"):
        name = f"{group.method.title}, {group.first.config.uplink or 'lossless'}"
        percent = f"{_spread(group, lambda r: 100 * r.accuracy)} %"
        lines.append(f"{name:<42} {percent:>14} {group.mean(megabytes_sent):7.2f} {_spread(group, times_fewer):>14}")
    return lines


def truncated() -> list[str]:
    """The other data sets, as many rounds as were done."""
    lines = [f"{'':<50} rounds accuracy non-zeros      MB  fewer"]
    for group in read("cifar10", "cifar100", "shakespeare"):
        name = f"{DATA_SETS[group.scenario.task]}, {split_title(group.scenario.split)}: {group.method.title}"
        lines.append(f"{name:<50} {group.rounds:6} {_row(group, f'{non_zeros(group) / 1e7:9.3f}', 2)}")
    return lines


def baselines() -> list[str]:
    """Other ways to send less on MNIST, IID, and other settings of Algorithm 3; the most accurate first."""
    groups = sorted(read("pareto", "l1", "threshold"), key=lambda group: -accuracy(group))
    lines = [f"{'':<52} accuracy non-zeros      MB  fewer"]
    return lines + [f"{group.label:<52} {_row(group, f'{non_zeros(group) / 1e7:9.2f}', 1)}" for group in groups]


def tables() -> dict[str, list[str]]:
    """All of them, by name."""
    found = {f"mnist {split}": mnist(split) for split in SPLITS}
    return found | {"seeds": seeds(), "truncated": truncated(), "baselines": baselines()}


def _row(group: Group, counts: str, digits: int) -> str:
    """Accuracy, what was counted, megabytes with so many digits, times fewer."""
    return f"{accuracy(group):8.2%} {counts} {group.mean(megabytes_sent):7.{digits}f} {group.mean(times_fewer):6.2f}"


def _spread(group: Group, quantity: Callable[[Run], float]) -> str:
    return f"{group.mean(quantity):.2f} ({group.spread(quantity):.2f})"


if __name__ == "__main__":
    for lines in tables().values():
        print("\n".join(f"    {line}" for line in lines), end="\n\n")
