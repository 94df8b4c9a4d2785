"""The parts of the page, each with what it shows, the commands that made it, and what it does not show and why."""

from __future__ import annotations

import collections
import shlex
from collections.abc import Callable, Sequence

import numpy as np

from experiments.columns import DRIFT, EPSILON
from experiments.methods import ELASTIC_NET, PROXIMAL_STEP, Method
from experiments.report import figures, page, paper, tables, texts
from experiments.report.commands import commands_of, data_flags
from experiments.report.drawing import Draw, render
from experiments.report.groups import Group, Scenario, by_scenario, compared_values, format_value
from experiments.report.html import NOTHING, Html
from experiments.report.page import Section
from experiments.report.read import LeftOut
from experiments.report.telling import into_pictures
from experiments.report.verdict import is_measured, lead_groups, verdict

SplitCounts = Callable[[Group], np.ndarray | str]
"""Examples by client and class of a scenario, or why they cannot be had."""


class Builder:
    """Makes the parts of the page, and keeps the pictures for files of their own."""

    def __init__(self, groups: Sequence[Group], report_command: str, split_counts: SplitCounts | None) -> None:
        """Initializes the builder.

        Args:
          groups: all there are, at least one.
          report_command: the command that makes the report.
          split_counts: for pictures of the splits, `None` for none.
        """
        self._groups, self._command, self._split_counts = groups, report_command, split_counts
        self._scenarios = by_scenario(groups)
        self._nothing: list[str] = []
        self.pictures: dict[str, bytes] = {}

    def lead(self) -> list[Html]:
        """Returns what is seen first: the verdict, and the picture that shows it."""
        parts = [page.paragraph(verdict(self._groups), "verdict")]
        groups = lead_groups(self._groups)
        if groups:
            picture = render(figures.draw_lead(groups))
            self.pictures["main.png"] = picture.light
            parts.append(page.figure(picture, f"{groups[0].scenario.title}. {_alt(groups)}", texts.LEAD))
        runs = sum(len(group.runs) for group in self._groups)
        return [*parts, page.paragraph(texts.INTRODUCTION.format(runs=runs), "soft")]

    def sections(self) -> list[Section]:
        """Returns all sections, in the order of the page; those for which there are no runs are empty."""
        cells = paper.read_cells()
        return [
            self._short(),
            self._accuracy(),
            self._pareto(),
            self._l1(),
            self._updates(),
            *(self._paper_table(number, [cell for cell in cells if cell.table == number]) for number in (2, 3, 4)),
            self._hyperparameters(),
            self._drift(),
            self._clients(),
            self._privacy(),
            self._splits(),
            self._all_runs(),
        ]

    def end(self, left_out: Sequence[LeftOut]) -> list[Html]:
        """Returns what the report does not show and why; called after `sections`."""
        twice = [texts.TWICE.format(name=name) for group in self._groups for name in group.same]
        parts = [page.paragraph(texts.UNREADABLE, "missing"), page.listing([why for _, why in left_out])]
        parts = (parts if left_out else []) + ([page.listing(twice)] if twice else [])
        if self._nothing:
            parts.append(page.paragraph(f"There are no runs for: {'; '.join(self._nothing)}.", "missing"))
        return parts

    def _short(self) -> Section:
        section = Section("short", "In short")
        paired = tables.pairs_of(self._groups)
        if paired:
            section.parts = [page.paragraph(texts.SHORT), tables.short_table(self._groups)]
            have = {group for group, _ in paired}
            alone = [g for g in self._groups if g.method.variant is ELASTIC_NET and g not in have]
            if alone:
                names = "; ".join(f"{g.scenario.title}: {g.full_label}" for g in alone)
                section.parts.append(page.paragraph(texts.NOT_PAIRED.format(count=len(alone), names=names), "missing"))
        return self._or_nothing(section, texts.NO_PAIR)

    def _paper_table(self, number: int, cells: Sequence[paper.Cell]) -> Section:
        title, text = texts.PAPER_TABLES[number]
        section = Section(f"table-{number}", title)
        comparisons = paper.compare(cells, self._groups)
        missing = tables.missing_cells(cells, comparisons)
        if comparisons:
            made_by = self._made_by([item.group for item in comparisons])
            table = tables.paper_table(comparisons)
            section.parts = [page.paragraph(text), table, page.paragraph(texts.ACCURACIES, "soft"), made_by]
            section.parts += [page.paragraph(missing, "missing")] if missing else []
        example = cells[0].preset if cells else ""
        return self._or_nothing(section, f"its settings, as `python run_experiment.py --preset={example}` makes them")

    def _hyperparameters(self) -> Section:
        table = tables.hyperparameter_table(self._groups)
        section = Section("table-5", "Table 5: hyperparameters")
        if table != NOTHING:
            section.parts = [table, page.paragraph(texts.HYPERPARAMETERS, "soft"), page.commands([self._command])]
        return self._or_nothing(section, texts.NO_HYPERPARAMETERS)

    def _accuracy(self) -> Section:
        section = Section("figure-1", "Figure 1: accuracy by round, and by megabytes sent")
        self._curves(
            section, "figure_1", figures.draw_accuracy, lambda g: bool(np.isfinite(g.first.accuracies).any()),
            texts.FIGURE_1, texts.NOT_EVALUATED,
        )  # fmt: skip
        return self._or_nothing(section, texts.NO_FIGURE_1)

    def _updates(self) -> Section:
        section = Section("figure-2", "Figure 2: distribution of the updates")
        self._curves(
            section, "figure_2", figures.draw_updates, lambda g: figures.updates_of(g) is not None,
            texts.FIGURE_2, texts.NO_UPDATES,
        )  # fmt: skip
        return self._or_nothing(section, texts.NO_FIGURE_2)

    def _l1(self) -> Section:
        section = Section("l1", "What l1 does, and what the threshold does")
        for scenario, groups in self._scenarios.items():
            drawn: list[Group] = []
            for studies in l1_studies(groups):
                shown = list(dict.fromkeys(group for study in studies for group in study.groups))
                algorithm = studies[0].method.algorithm
                name = f"l1_{algorithm.number or algorithm.key}"
                table = tables.l1_table(shown)
                self._figure(section, scenario, name, figures.draw_l1(studies), shown, texts.L1, table)
                drawn += shown
            alike = {group.method.algorithm.key for group in drawn}
            candidates = [g for g in groups if g.method.algorithm.key in alike and g.first.config.l1]
            _name_absent(section, candidates, drawn, texts.NO_OTHER_L1)
        return self._or_nothing(section, texts.NO_L1)

    def _pareto(self) -> Section:
        section = Section("pareto", "Accuracy against bytes")
        for scenario, groups in self._scenarios.items():
            shown = [group for group in groups if is_measured(group)]
            if len(shown) > 1:
                caption = texts.PARETO + (texts.BARS if _several_seeds(shown) else "")
                table = tables.pareto_table(shown)
                self._figure(section, scenario, "pareto", figures.draw_pareto(shown), shown, caption, table)
                _name_absent(section, groups, shown, texts.NOT_MEASURED)
        return self._or_nothing(section, texts.NO_PARETO)

    def _splits(self) -> Section:
        section = Section("splits", "Splits: clients by classes")
        if self._split_counts is None:
            return self._or_nothing(section, texts.NO_SPLITS)
        drawn = set()
        for scenario, groups in self._scenarios.items():
            seeds = sorted({run.config.seed for group in groups for run in group.runs})
            split = scenario._replace(sampling="")  # who takes part in a round makes no other split
            if split in drawn:
                continue
            drawn.add(split)
            command = _split_command(scenario, seeds[0])
            counts = self._split_counts(groups[0])
            if isinstance(counts, str):
                text = f"{scenario.title}: {counts.replace('COMMAND', command)}"
                section.parts.append(page.paragraph(text, "missing"))
                continue
            caption = texts.SPLIT.format(
                examples=counts.sum(), classes=counts.shape[1], clients=len(counts), seed=seeds[0]
            )
            if len(seeds) > 1:
                caption += f" Those of seeds {', '.join(map(str, seeds[1:]))} are not drawn: they are of the same kind."
            draw = figures.draw_split(counts)
            self._figure(section, scenario, "split", draw, [], caption, commands=[command])
        return section

    def _drift(self) -> Section:
        section = Section("drift", "Drift")
        self._curves(
            section, "drift", figures.draw_drift, lambda g: all(DRIFT.name in run.table for run in g.runs),
            texts.DRIFT, texts.NOT_CORRECTED,
        )  # fmt: skip
        return self._or_nothing(section, texts.NO_DRIFT)

    def _clients(self) -> Section:
        section = Section("clients", "Single clients")
        shown = [group for group in self._groups if any(run.clients for run in group.runs)]
        if shown:
            section.parts = [page.paragraph(texts.CLIENTS), tables.clients_table(shown), self._made_by(shown)]
        return self._or_nothing(section, texts.NO_CLIENTS)

    def _privacy(self) -> Section:
        section = Section("privacy", "Privacy spent")
        for scenario, groups in self._scenarios.items():
            private = [group for group in groups if all(EPSILON.name in run.table for run in group.runs)]
            for shown in into_pictures(private):
                draw, table = figures.draw_epsilon(shown), tables.dp_table(shown)
                self._figure(section, scenario, "dp", draw, shown, texts.PRIVACY, table, small=True)
        return self._or_nothing(section, texts.NO_PRIVACY)

    def _all_runs(self) -> Section:
        table = tables.all_runs_table(self._groups)
        parts = [table, page.paragraph(texts.ALL_RUNS, "soft"), page.commands([self._command])]
        return Section("runs", "All runs", parts)

    def _curves(
        self, section: Section, name: str, draw: Callable[[Sequence[Group]], Draw], has: Callable[[Group], bool],
        caption: str, why: str,
    ) -> None:  # fmt: skip
        """Draws every group that has what a picture shows, in as many pictures as it takes, and names the others."""
        for scenario, groups in self._scenarios.items():
            shown = [group for group in groups if has(group)]
            for part in into_pictures(shown):
                text = caption + (texts.SHADED if _several_seeds(part) and name != "figure_2" else "")
                self._figure(section, scenario, name, draw(part), part, text)
            if shown:
                _name_absent(section, groups, shown, why)

    def _figure(
        self, section: Section, scenario: Scenario, name: str, draw: Draw, groups: Sequence[Group],
        caption: str, table: Html = NOTHING, commands: Sequence[str] = (), small: bool = False,
    ) -> None:  # fmt: skip
        picture = render(draw)
        stem = f"{name}-{scenario.slug}"
        again = sum(file.startswith(f"{stem}.") or file.startswith(f"{stem}+") for file in self.pictures)
        file = f"{stem}+{again}.png" if again else f"{stem}.png"
        self.pictures[file] = picture.light
        alt = f"{section.title}. {scenario.title}." + (f" {_alt(groups)}" if groups else "")
        section.parts += [
            page.heading(scenario.title + (f" ({again + 1})" if again else "")),
            page.figure(picture, alt, caption, small), table,
            page.commands([*commands, self._command]) if commands else self._made_by(groups),
        ]  # fmt: skip

    def _made_by(self, groups: Sequence[Group]) -> Html:
        runs = {run.name: run for group in groups for run in group.runs}
        return page.commands([*commands_of(list(runs.values())), self._command])

    def _or_nothing(self, section: Section, needed: str) -> Section:
        """The section; if it is empty, what it needs is named at the end of the page."""
        if not section.parts:
            self._nothing.append(f"{section.title} ({needed})")
        return section


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
                    text = f"{step}, " + (f"threshold {format_value(threshold)}" if threshold else "no threshold")
                    method = Method(algorithm, ELASTIC_NET if step == "subgradient" else PROXIMAL_STEP)
                    line.sort(key=lambda g: g.first.config.l1)
                    label = f"{Method(algorithm, ELASTIC_NET).title}, {text}"
                    studies.append(figures.Study(label, method, line))
        if any(len(study.groups) > 1 for study in studies):
            found.append(studies)
    return found


def _name_absent(section: Section, groups: Sequence[Group], shown: Sequence[Group], why: str) -> None:
    """Says which groups of a scenario are in none of its pictures."""
    absent = [group.full_label for group in groups if group not in shown]
    if absent:
        section.parts.append(page.paragraph(f"Not drawn, since {why}: {'; '.join(absent)}.", "missing"))


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
    given: dict[str, object] = {"task": scenario.task, "split": scenario.split, "num_clients": scenario.num_clients}
    given |= {"size_sigma": f"{scenario.size_sigma:g}"} if scenario.size_sigma else {}
    given |= {"alpha": scenario.alpha, "beta": scenario.beta} if scenario.task == "synthetic" else {}
    given |= {"seed": seed} if seed else {}
    given |= data_flags(scenario.training_set)
    return shlex.join(
        ["python", "-m", "experiments.show_split", *(f"--{name}={value}" for name, value in given.items())]
    )
