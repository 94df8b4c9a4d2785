"""The parts of the page, each with what it shows, the commands that made it, or a sentence on what is missing."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence

import numpy as np

from experiments import methods
from experiments.columns import DRIFT, EPSILON
from experiments.methods import ELASTIC_NET, PROXIMAL_STEP, Method
from experiments.report import figures, page, paper, tables, texts
from experiments.report.commands import commands_of, data_flags
from experiments.report.drawing import Draw, render
from experiments.report.groups import Group, Scenario, by_scenario, compared_values, main_groups
from experiments.report.page import Section

SplitCounts = Callable[[Group], np.ndarray | str]
"""Examples by client and class of a scenario, or why they cannot be had."""


class Builder:
    """Makes the sections, and keeps the pictures for files of their own."""

    def __init__(self, groups: Sequence[Group], report_command: str, split_counts: SplitCounts | None) -> None:
        """Initializes the builder.

        Args:
          groups: all there are.
          report_command: the command that makes the report.
          split_counts: for pictures of the splits, `None` for none.
        """
        self._groups, self._command, self._split_counts = groups, report_command, split_counts
        self._scenarios = by_scenario(groups)
        self.pictures: dict[str, bytes] = {}

    def sections(self) -> list[Section]:
        """Returns all sections, in the order of the page."""
        cells = paper.read_cells()
        return [
            self._short(),
            *(self._paper_table(number, [cell for cell in cells if cell.table == number]) for number in (2, 3, 4)),
            self._hyperparameters(),
            self._accuracy(),
            self._updates(),
            self._l1(),
            self._pareto(),
            self._splits(),
            self._drift(),
            self._privacy(),
            self._all_runs(),
        ]

    def _short(self) -> Section:
        table = tables.short_table(self._groups)
        return Section("short", "In short", [page.paragraph(texts.SHORT), table or _missing(texts.NO_PAIR)])

    def _paper_table(self, number: int, cells: Sequence[paper.Cell]) -> Section:
        title, text = texts.PAPER_TABLES[number]
        section = Section(f"table-{number}", title, [page.paragraph(text)])
        comparisons = paper.compare(cells, self._groups)
        if comparisons:
            made_by = self._made_by([item.group for item in comparisons])
            section.parts += [tables.paper_table(comparisons), page.paragraph(texts.ACCURACIES, "soft"), made_by]
        missing = tables.missing_cells(cells, comparisons)
        section.parts += [_missing(missing)] if missing else []
        return section

    def _hyperparameters(self) -> Section:
        table = tables.hyperparameter_table(self._groups)
        section = Section("table-5", "Table 5: hyperparameters")
        if table:
            section.parts += [table, page.paragraph(texts.HYPERPARAMETERS, "soft"), page.commands([self._command])]
        return _or_missing(section, texts.NO_HYPERPARAMETERS)

    def _accuracy(self) -> Section:
        section = Section("figure-1", "Figure 1: accuracy by round, and by megabytes sent")
        for scenario, groups in self._scenarios.items():
            shown = [group for group in main_groups(groups) if np.isfinite(group.first.accuracies).any()]
            if shown:
                caption = texts.FIGURE_1 + (texts.SHADED if _several_seeds(shown) else "")
                self._figure(section, scenario, "figure_1", figures.draw_accuracy(shown), shown, caption)
        return _or_missing(section, texts.NO_FIGURE_1)

    def _updates(self) -> Section:
        section = Section("figure-2", "Figure 2: distribution of the updates")
        without: list[str] = []
        for scenario, groups in self._scenarios.items():
            found = {group.method.key: group for group in reversed(main_groups(groups))}
            own = [key for key in reversed(found) if key not in methods.METHODS]
            wanted = [found[key] for key in (*methods.FIGURE_2, *own) if key in found]
            shown = [group for group in wanted if group.first.updates]
            without += [group.first.name for group in wanted if not group.first.updates]
            if shown:
                self._figure(section, scenario, "figure_2", figures.draw_updates(shown), shown, texts.FIGURE_2)
        if without:
            section.parts.append(_missing(texts.NO_UPDATES.format(runs=", ".join(without))))
        return _or_missing(section, texts.NO_FIGURE_2)

    def _l1(self) -> Section:
        section = Section("l1", "What l1 does, and what the threshold does")
        for scenario, groups in self._scenarios.items():
            for studies in l1_studies(groups):
                shown = list(dict.fromkeys(group for study in studies for group in study.groups))
                algorithm = studies[0].method.algorithm
                name = f"l1_{algorithm.number or algorithm.key}"
                table = tables.l1_table(shown)
                self._figure(section, scenario, name, figures.draw_l1(studies), shown, texts.L1, table)
        return _or_missing(section, texts.NO_L1)

    def _pareto(self) -> Section:
        section = Section("pareto", "Accuracy against bytes")
        for scenario, groups in self._scenarios.items():
            shown = [g for g in groups if np.isfinite([(run.accuracy, run.bytes_sent) for run in g.runs]).all()]
            if len(shown) > 1:
                caption = texts.PARETO + (texts.BARS if _several_seeds(shown) else "")
                table = tables.pareto_table(shown)
                self._figure(section, scenario, "pareto", figures.draw_pareto(shown), shown, caption, table)
        return _or_missing(section, texts.NO_PARETO)

    def _splits(self) -> Section:
        section = Section("splits", "Splits: clients by classes")
        if self._split_counts is None:
            return _or_missing(section, texts.NO_SPLITS)
        drawn = set()
        for scenario, groups in self._scenarios.items():
            split = scenario._replace(sampling="")  # who takes part in a round makes no other split
            if split in drawn:
                continue
            drawn.add(split)
            seed = groups[0].first.config.seed
            command = _split_command(scenario, seed)
            counts = self._split_counts(groups[0])
            if isinstance(counts, str):
                section.parts.append(_missing(f"{scenario.title}: {counts} With the data, `{command}` draws it."))
            else:
                caption = texts.SPLIT.format(
                    examples=counts.sum(), classes=counts.shape[1], clients=len(counts), seed=seed
                )
                draw = figures.draw_split(counts)
                self._figure(section, scenario, "split", draw, [], caption, commands=[command])
        return section

    def _drift(self) -> Section:
        section = Section("drift", "Drift")
        for scenario, groups in self._scenarios.items():
            shown = [group for group in main_groups(groups) if DRIFT.name in group.first.table]
            if shown:
                self._figure(section, scenario, "drift", figures.draw_drift(shown), shown, texts.DRIFT, small=True)
        return _or_missing(section, texts.NO_DRIFT)

    def _privacy(self) -> Section:
        section = Section("privacy", "Privacy spent")
        for scenario, groups in self._scenarios.items():
            shown = [group for group in groups if EPSILON.name in group.first.table]
            if shown:
                draw, table = figures.draw_epsilon(shown), tables.dp_table(shown)
                self._figure(section, scenario, "dp", draw, shown, texts.PRIVACY, table, small=True)
        return _or_missing(section, texts.NO_PRIVACY)

    def _all_runs(self) -> Section:
        table = tables.all_runs_table(self._groups)
        parts = [table, page.paragraph(texts.ALL_RUNS, "soft"), page.commands([self._command])]
        return Section("runs", "All runs", parts)

    def _figure(
        self, section: Section, scenario: Scenario, name: str, draw: Draw, groups: Sequence[Group],
        caption: str, table: str = "", commands: Sequence[str] = (), small: bool = False,
    ) -> None:  # fmt: skip
        picture = render(draw)
        stem = f"{name}-{scenario.slug}"
        again = sum(file.startswith(f"{stem}.") or file.startswith(f"{stem}+") for file in self.pictures)
        file = f"{stem}+{again}.png" if again else f"{stem}.png"
        self.pictures[file] = picture.light
        alt = f"{section.title}. {scenario.title}." + (f" {_alt(groups)}" if groups else "")
        section.parts += [
            page.heading(scenario.title), page.figure(picture, alt, caption, small), table,
            page.commands([*commands, self._command]) if commands else self._made_by(groups),
        ]  # fmt: skip

    def _made_by(self, groups: Sequence[Group]) -> str:
        runs = list(dict.fromkeys(run.name for group in groups for run in group.runs))
        by_name = {run.name: run for group in groups for run in group.runs}
        return page.commands([*commands_of([by_name[name] for name in runs]), self._command])


def l1_studies(groups: Sequence[Group]) -> list[list[figures.Study]]:
    """Returns, for each picture, lines of runs of a scenario that differ in l1 alone, one of them of two runs or more.

    Lines of a picture differ in threshold and kind of l1 step. Without l1 both kinds of step are the same.
    """
    pictures: dict[object, list[Group]] = collections.defaultdict(list)
    for group in groups:
        rest = [item for item in compared_values(group.first) if item[0] not in ("l1", "threshold", "l1_step")]
        pictures[group.first.config.algorithm, tuple(rest), group.rounds].append(group)
    found = []
    for members in pictures.values():
        algorithm = members[0].method.algorithm
        studies = []
        for threshold in sorted({group.first.config.threshold for group in members}):
            alike = [group for group in members if group.first.config.threshold == threshold]
            for step in ("subgradient", "proximal"):
                line = [g for g in alike if g.first.config.l1 == 0 or g.first.config.l1_step == step]
                if any(group.first.config.l1 for group in line):
                    text = f"{step}, " + (f"threshold {threshold:g}" if threshold else "no threshold")
                    method = Method(algorithm, ELASTIC_NET if step == "subgradient" else PROXIMAL_STEP)
                    line.sort(key=lambda g: g.first.config.l1)
                    studies.append(figures.Study(f"{Method(algorithm, ELASTIC_NET).title}, {text}", method, line))
        if any(len(study.groups) > 1 for study in studies):
            found.append(studies)
    return found


def _missing(text: str) -> str:
    return page.paragraph(text, "missing")


def _or_missing(section: Section, text: str) -> Section:
    """The section, with a sentence on what is missing if it has nothing else."""
    section.parts = section.parts or [_missing(text)]
    return section


def _several_seeds(groups: Sequence[Group]) -> bool:
    return any(len(group.runs) > 1 for group in groups)


def _alt(groups: Sequence[Group]) -> str:
    """What a picture shows, for those who do not see it: the ends of its curves."""
    ends = [
        f"{g.full_label}: {100 * g.mean(lambda r: r.accuracy):.2f} % after {g.mean(figures.megabytes_sent):.1f} MB"
        for g in groups
    ]
    return "At the end " + "; ".join(ends) + "."


def _split_command(scenario: Scenario, seed: int) -> str:
    given = {"task": scenario.task, "split": scenario.split, "num_clients": scenario.num_clients}
    given |= {"size_sigma": f"{scenario.size_sigma:g}"} if scenario.size_sigma else {}
    given |= {"alpha": scenario.alpha, "beta": scenario.beta} if scenario.task == "synthetic" else {}
    given |= {"seed": seed} if seed else {}
    given |= data_flags(scenario.training_set)
    return " ".join(["python -m experiments.show_split", *(f"--{name}={value}" for name, value in given.items())])
