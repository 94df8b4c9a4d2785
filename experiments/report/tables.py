"""The tables of a report."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments import columns
from experiments.methods import ELASTIC_NET
from experiments.report import page, paper
from experiments.report.commands import command_of
from experiments.report.figures import front_of, megabytes_sent
from experiments.report.groups import DATA_SETS, Group, by_scenario, compared_values, format_value, split_title
from experiments.report.html import NOTHING, Content, Html, element, join
from experiments.report.read import Run

# Of Table 5: the field, its column, and the paper's column.
_PENALTIES = (("l1", "lambda1"), ("l2", "lambda2"), ("threshold", "epsilon"))
_QUANTILES = (10, 25, 50, 75, 90)
_MORE = ("learning_rate", "lr_decay", "epochs", "weight_decay", "clip_norm", "initializer", "size_sigma", "augment")


def with_spread(group: Group, quantity: Callable[[Run], float], digits: int, unit: float = 1.0) -> str:
    """A mean times `unit`, with its standard deviation where there are several seeds; of small ones two digits."""
    mean, spread = group.mean(quantity), group.spread(quantity)
    if not math.isfinite(mean):
        return "-"
    decimals = max(digits, 1 - math.floor(math.log10(abs(unit * mean)))) if mean else digits
    return f"{unit * mean:,.{decimals}f}" + ("" if spread is None else f" ± {unit * spread:,.{decimals}f}")


def accuracy(group: Group) -> str:
    """In per cent."""
    return with_spread(group, lambda run: 100 * run.accuracy, 2)


def name_of(group: Group, label: str | None = None) -> Html:
    """The label, and in how far the runs are truncated."""
    mark = [element("br"), element("span", group.truncation, class_="warn")] if group.truncation else []
    return join([group.label if label is None else label, *mark])


def fewer(a: float, b: float) -> str:
    """How many times fewer b is than a."""
    return f"{a / b:.2f}" if a and b and math.isfinite(a / b) else "-"


def pairs_of(groups: Sequence[Group]) -> list[tuple[Group, Group]]:
    """Returns each group with an elastic net beside the group without that it is to be compared with.

    That has equally many rounds, and the same values but for the penalties and the codec.
    """
    found = []
    for members in by_scenario(groups).values():
        for group in members:
            if group.method.variant is ELASTIC_NET and group.method.baseline:
                alike = [other for other in members if _is_baseline(other, group)]
                # Of several the one with the same l2, or with that of the paper.
                alike.sort(key=lambda other: (other.first.config.l2 != group.first.config.l2, len(other.differences)))
                found += [(group, alike[0])] if alike else []
    return found


def _is_baseline(other: Group, group: Group) -> bool:
    there, here = (
        [item for item in compared_values(g.first) if item[0] not in ("l1", "l2", "threshold", "l1_step", "uplink")]
        for g in (other, group)
    )
    plain = other.first.config.uplink in (None, "lossless")
    alike = other.method == group.method.baseline and other.rounds == group.rounds
    return alike and plain and there == here


def short_table(groups: Sequence[Group]) -> Html:
    """Each algorithm with the elastic net against what it was added to; nothing if there is no such pair."""
    rows: list[Sequence[Content] | str] = []
    for scenario, pairs in itertools.groupby(pairs_of(groups), key=lambda pair: pair[0].scenario):
        listed = [*pairs]
        rows.append(scenario.title)
        for b, a in listed:
            rows.append([
                name_of(b), a.label,
                fewer(a.mean(lambda r: r.non_zeros), b.mean(lambda r: r.non_zeros)),
                fewer(a.mean(megabytes_sent), b.mean(megabytes_sent)),
                accuracy(b), accuracy(a),
                f"{100 * (b.mean(lambda r: r.accuracy) - a.mean(lambda r: r.accuracy)):+.2f}",
            ])  # fmt: skip
    header = ["method", "against", "times fewer non-zeros", "times fewer bytes", "accuracy, %", "against, %", "points"]
    return page.table(header, rows, (0, 1)) if rows else NOTHING


def paper_table(comparisons: Sequence[paper.Comparison]) -> Html:
    """Figures of one of Tables 2 to 4 beside this project's, with notes."""
    notes = page.Notes()
    rows: list[Sequence[Content] | str] = []
    place = None
    for item in comparisons:
        cell, group = item.cell, item.group
        if (cell.data_set, cell.split) != place:
            place = (cell.data_set, cell.split)
            rows.append(f"{cell.data_set}, {split_title(cell.split.replace('_', ':'))}, {cell.rounds} rounds")
        scale = 100.0 if cell.table == 2 else 1.0
        equal: list[Content] = [" ", element("span", "as printed", class_="good")] if cell.agrees(item.here) else []
        digits = 1 if cell.table == 2 else 3
        ratio: Content = "-" if item.ratio is None else join([f"{item.ratio:.3f}", *equal])
        rows.append([
            name_of(group, cell.name), cell.printed, with_spread(group, cell.here, 2), ratio,
            f"{scale * cell.scale:.{digits}f}", with_spread(group, cell.scale_here, digits, scale),
            accuracy(group), notes.marks(item.notes),
        ])  # fmt: skip
    what = "share, %" if comparisons[0].cell.table == 2 else "per round"
    header = ["method", "paper", "here", "here / paper", f"{what}: paper", f"{what}: here", "accuracy here, %", "notes"]
    return join([page.table(header, rows), notes.html()])


def hyperparameter_table(groups: Sequence[Group]) -> Html:
    """Table 5's values as they were used, with * at what the paper does not give; nothing without its methods."""
    published = paper.read_hyperparameters()
    rows: list[Sequence[Content] | str] = []
    seen: set[tuple[str, ...]] = set()
    for group in groups:
        data_set, run = DATA_SETS.get(group.scenario.task, ""), group.first
        known = (data_set, group.method.key) in published or not group.method.is_sparse
        if not known or data_set not in paper.PAPER_SIZES or set(group.differences) - set(_MORE):
            continue
        values = dataclasses.asdict(run.config)
        printed = published.get((data_set, group.method.key), {})
        cells = [data_set, group.method.title]
        for field, column in _PENALTIES:
            there = printed.get(column, "")
            cells.append(_penalty(values[field], there))
        cells.append(str(run.batch_size))
        cells += [format_value(values[name]) + ("*" if name in run.assumed else "") for name in _MORE]
        if tuple(cells) not in seen:
            seen.add(tuple(cells))
            rows.append(cells)
    more = [name.replace("_", " ") for name in _MORE]
    header = ["data set", "method", "λ₁ (l1)", "λ₂ (l2)", "ε (threshold)", "batch", *more]
    return page.table(header, rows, (0, 1)) if rows else NOTHING


def _penalty(value: float, printed: str) -> str:
    if not printed:
        return "-" if not value else format_value(value)
    return format_value(value) + ("" if float(printed) == value else f" (paper {printed})")


def l1_table(groups: Sequence[Group]) -> Html:
    """Accuracy and sparsity by lambda_1."""
    rows: list[Sequence[Content] | str] = [
        [
            name_of(group), format_value(group.first.config.l1), format_value(group.first.config.threshold),
            accuracy(group), with_spread(group, lambda r: 100 * r.non_zero_share, 2),
            with_spread(group, lambda r: r.non_zeros / 1e7, 3), with_spread(group, megabytes_sent, 2),
        ]
        for group in groups
    ]  # fmt: skip
    header = ["runs", "l1", "threshold", "accuracy, %", "non-zeros, %", "non-zeros, 10⁷", "MB sent"]
    return page.table(header, rows)


def pareto_table(groups: Sequence[Group]) -> Html:
    """The points of the Pareto picture, by their numbers."""
    front = set(front_of(groups))
    rows: list[Sequence[Content] | str] = [
        [
            str(i + 1), name_of(group), "yes" if i in front else "", with_spread(group, megabytes_sent, 2),
            fewer(group.mean(lambda r: r.dense_bytes), group.mean(lambda r: r.bytes_sent)), accuracy(group),
            str(len(group.runs)),
        ]
        for i, group in enumerate(groups)
    ]  # fmt: skip
    header = ["no.", "runs", "on the front", "MB sent", "times fewer than float32", "accuracy, %", "seeds"]
    return page.table(header, rows, (1, 2))


def clients_table(groups: Sequence[Group]) -> Html:
    """What single clients come to: accuracies of the worst and of quantiles, bytes, share of rounds."""
    header = ["Method", "Clients", "Worst 10 %", *(f"{q} %" for q in _QUANTILES), "kB sent, median", "Share of rounds"]
    rows: list[Sequence[Content] | str] = []
    for scenario, members in by_scenario(groups).items():
        rows.append(scenario.title)
        for group in members:
            for run in (run for run in group.runs if run.clients):
                rows.append([f"{group.label}, seed {run.config.seed}", *_clients_row(run.clients or {})])
    return page.table(header, rows)


def _clients_row(clients: Mapping[str, np.ndarray]) -> list[str]:
    accuracies = np.sort(100 * clients["accuracy"][np.isfinite(clients["accuracy"])])
    if not len(accuracies):
        return [str(len(clients["client"])), *["-"] * (3 + len(_QUANTILES))]
    worst = accuracies[: max(1, len(accuracies) // 10)].mean()
    kilobytes, shares = clients["uplink_bytes"] / 1e3, clients["share_of_rounds"]
    known = bool(np.isfinite(kilobytes).all())
    return [
        f"{len(clients['client']):,}", f"{worst:.2f}", *(f"{np.percentile(accuracies, q):.2f}" for q in _QUANTILES),
        f"{np.median(kilobytes):,.1f} (most {kilobytes.max():,.1f})" if known else "-",
        f"{shares.min():.2f} to {shares.max():.2f}",
    ]  # fmt: skip


def dp_table(groups: Sequence[Group]) -> Html:
    """What privacy was spent for which accuracy."""
    rows: list[Sequence[Content] | str] = []
    for group in groups:
        c = group.first.config
        least = "≥ " if any(columns.LOWER_BOUND.name in run.summary for run in group.runs) else ""
        rows.append([
            name_of(group), format_value(c.dp_noise_multiplier), format_value(c.dp_clip), format_value(c.dp_delta),
            least + with_spread(group, lambda r: r.summary.get(columns.EPSILON.name, math.nan), 3), accuracy(group),
            _private(group),
        ])  # fmt: skip
    header = ["runs", "noise multiplier", "clip", "delta", "epsilon", "accuracy, %", "private"]
    return page.table(header, rows, (0, 6))


def _private(group: Group) -> str:
    """What of the runs is private."""
    if group.first.config.dp_test_seed is not None:
        return "no: its noise can be repeated"
    if any(run.measures_clients for run in group.runs):
        return "updates only: the folder has exact measurements of clients"
    return "yes, without store/"


def all_runs_table(groups: Sequence[Group]) -> Html:
    """Every run, with its command."""
    rows: list[Sequence[Content] | str] = []
    for scenario, members in by_scenario(groups).items():
        rows.append(scenario.title)
        for group in members:
            for run in group.runs:
                counted = [
                    f"{codec}: {value / 1e6:,.2f}"
                    for name, value in run.summary.items() if (codec := columns.codec_of(name)) is not None
                ]  # fmt: skip
                rows.append([
                    name_of(group), run.name, str(run.config.seed), str(run.rounds),
                    "-" if math.isnan(run.accuracy) else f"{100 * run.accuracy:.2f}", 
                    "-" if math.isnan(run.non_zeros) else f"{run.non_zeros:,}",
                    fewer(run.dense_elements, run.non_zeros), _megabytes(run),
                    fewer(run.dense_bytes, run.bytes_sent), "; ".join(counted),
                    element("code", command_of(run)),
                ])  # fmt: skip
    header = [
        "method", "folder", "seed", "rounds", "accuracy, %", "non-zeros", "times fewer", "MB sent", "times fewer",
        "MB, only counted", "command",
    ]  # fmt: skip
    return page.table(header, rows, (0, 1, 9, 10))


def _megabytes(run: Run) -> str:
    return "-" if math.isnan(run.bytes_sent) else f"{run.bytes_sent / 1e6:,.2f}"


def missing_cells(cells: Sequence[paper.Cell], comparisons: Sequence[paper.Comparison]) -> str:
    """A sentence on the cells of a table for which there is no run; empty if there are all."""
    found = {item.cell for item in comparisons}
    missing: dict[str, list[str]] = {}
    for cell in cells:
        if cell not in found:
            place = f"{cell.data_set} {split_title(cell.split.replace('_', ':'))}"
            missing.setdefault(place, []).append(cell.name)
    # Places that lack the same methods are named together.
    together: dict[tuple[str, ...], list[str]] = {}
    for place, methods in missing.items():
        together.setdefault(tuple(methods), []).append(place)
    listed = "; ".join(f"{', '.join(places)} ({', '.join(methods)})" for methods, places in together.items())
    example = next((cell.preset for cell in cells if cell not in found), "")
    if not listed:
        return ""
    return f"No runs for {listed}. Each is made by a command as `python run_experiment.py --preset={example}`."
