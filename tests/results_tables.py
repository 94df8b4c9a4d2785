"""The tables of README.md that are made of the committed results: `python -m tests.results_tables` prints them."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from report.groups import DATA_SETS, METHODS, Group, group_runs, split_title
from report.paper import read_cells
from report.read import Run, find_runs

RESULTS = pathlib.Path(__file__).parent.parent / "results"
MNIST_METHODS = [
    "fed_prox", "scaffold", "fed_dyn", "algorithm_1", "algorithm_2", "algorithm_3", "threshold_3", "proximal_3",
]  # fmt: skip


def read(*folders: str) -> list[Group]:
    """The runs in some folders of `results/`, put together over seeds."""
    return group_runs(find_runs([RESULTS / folder for folder in folders]))


def sent_bytes(run: Run) -> float:
    """Uplink, control changes too."""
    return run.summary["uplink_bytes"] + run.summary.get("uplink_control_bytes", 0)


def times_fewer(run: Run) -> float:
    """Than all elements as float32."""
    return 4 * run.summary["dense_elements"] / sent_bytes(run)


def mnist(split: str) -> list[str]:
    """Accuracy and what is sent on a split of MNIST; non-zeros in 10^7, with the paper's."""
    printed = {c.key: c.printed for c in read_cells() if (c.table, c.data_set, c.split) == (2, "MNIST", split)}
    groups = {g.method: g for g in read("mnist") if g.scenario.split == split.replace("_", ":") and not g.differences}
    title = split_title(split.replace("_", ":"))
    lines = [f"{title:<24} accuracy non-zeros  paper      MB  fewer"]
    for method in MNIST_METHODS:
        group = groups[method]
        mean = group.mean
        lines.append(
            f"{METHODS[method]:<24} {mean(lambda r: r.accuracy):>8.2%} {mean(_non_zeros) / 1e7:9.2f} "
            f"{printed.get(method, ''):>6} {mean(sent_bytes) / 1e6:7.1f} {mean(times_fewer):6.2f}"
        )
    return lines


def seeds() -> list[str]:
    """Means over three seeds, and standard deviations."""
    lines = [f"{'':<42} {'accuracy':>14} {'MB':>7} {'times fewer':>14}"]
    for group in read("seeds"):
        codec = group.first.config.uplink or "lossless"
        name = f"{METHODS[group.method]}, {codec}"
        accuracy = f"{_spread(group, lambda r: 100 * r.accuracy)} %"
        sent = group.mean(sent_bytes) / 1e6
        lines.append(f"{name:<42} {accuracy:>14} {sent:7.2f} {_spread(group, times_fewer):>14}")
    return lines


def truncated() -> list[str]:
    """The other data sets, as many rounds as were done."""
    lines = [f"{'':<50} rounds accuracy non-zeros      MB  fewer"]
    for group in read("cifar10", "cifar100", "shakespeare"):
        name = f"{DATA_SETS[group.scenario.task]}, {split_title(group.scenario.split)}: {METHODS[group.method]}"
        lines.append(
            f"{name:<50} {group.rounds:6} {group.mean(lambda r: r.accuracy):>8.2%} "
            f"{group.mean(_non_zeros) / 1e7:9.3f} {group.mean(sent_bytes) / 1e6:7.2f} {group.mean(times_fewer):6.2f}"
        )
    return lines


def baselines() -> list[str]:
    """Other ways to send less on MNIST, IID, and other settings of Algorithm 3; the most accurate first."""
    lines = [f"{'':<52} accuracy      MB   fewer"]
    for group in sorted(read("pareto", "l1", "threshold"), key=lambda g: -g.mean(lambda r: r.accuracy)):
        lines.append(
            f"{group.label:<52} {group.mean(lambda r: r.accuracy):>8.2%} {group.mean(sent_bytes) / 1e6:7.1f} "
            f"{group.mean(times_fewer):7.2f}"
        )
    return lines


def _non_zeros(run: Run) -> float:
    return run.summary["non_zeros"]


def _spread(group: Group, quantity: Callable[[Run], float]) -> str:
    return f"{group.mean(quantity):.2f} ({group.spread(quantity):.2f})"


def tables() -> dict[str, list[str]]:
    """All of them, by name."""
    found = {f"mnist {split}": mnist(split) for split in ("iid", "dirichlet_0.6", "dirichlet_0.3")}
    return found | {"seeds": seeds(), "truncated": truncated(), "baselines": baselines()}


if __name__ == "__main__":
    for lines in tables().values():
        print("\n".join(f"    {line}" for line in lines), end="\n\n")
