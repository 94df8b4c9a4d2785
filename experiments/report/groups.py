"""Runs put together: what was trained on (`Scenario`), by what (`method`, differences), and over seeds (`Group`)."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import presets
from experiments.files import file_name
from experiments.methods import METHODS, Method
from experiments.report.read import Run
from experiments.settings import Settings, parse_sampling

DATA_SETS = {
    "mnist": "MNIST",
    "emnist_letters": "EMNIST-L",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "shakespeare": "Shakespeare",
    "digits": "digits",
    "synthetic": "synthetic",
}
# These say where a run takes place or how it is looked at, not what is compared.
_NOT_COMPARED = {
    "task", "split", "num_clients", "size_sigma", "alpha", "beta", "sampling", "seed", "rounds", "evaluate_every",
    "also_count", "algorithm", "client_measurements", "per_client_metrics",
}  # fmt: skip


class Scenario(NamedTuple):
    """What is trained on: runs with the same one can be compared."""

    task: str
    split: str
    num_clients: int
    sampling: str
    size_sigma: float
    alpha: float
    beta: float
    task_title: str | None = None
    training_set: str = ""

    @property
    def slug(self) -> str:
        """For names of files."""
        parts = [
            self.task,
            *([self.training_set] if self.training_set else []),
            self.split,
            *([] if self.sampling == "bernoulli:0.1" else [self.sampling]),
        ]
        parts += [f"sigma{self.size_sigma:g}"] if self.size_sigma else []
        parts += [f"{self.alpha:g}_{self.beta:g}"] if self.task == "synthetic" else []
        return file_name("-".join(parts).replace(":", "_") + f"-{self.num_clients}")

    @property
    def title(self) -> str:
        """For headings."""
        kind, amount = parse_sampling(self.sampling)
        share = f"{100 * amount:g} % of {self.num_clients} clients per round"
        share = share if kind == "bernoulli" else f"{amount} of {self.num_clients} clients per round"
        sigma = f", sizes lognormal ({self.size_sigma:g})" if self.size_sigma else ""
        synthetic = f" ({self.alpha:g}, {self.beta:g})" if self.task == "synthetic" else ""
        task = self.task_title or DATA_SETS.get(self.task, self.task)
        task += f" ({self.training_set} training set)" if self.training_set else ""
        return f"{task}{synthetic}, {split_title(self.split)}, {share}{sigma}"


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in their seed alone, with equally many rounds done.

    Attributes:
      runs: one a seed.
      scenario: what they were trained on.
      method: the algorithm with its variant.
      differences: values other than those of the paper's cell for that method, by field.
      planned: rounds of the preset, or those asked for where there is none.
      same: names of folders that hold a run of these once more, in an original folder and an exported one, say.
      apart: what tells it from another group of its scenario that is the same but for this.
    """

    runs: tuple[Run, ...]
    scenario: Scenario
    method: Method
    differences: dict[str, Any]
    planned: int
    same: tuple[str, ...] = ()
    apart: str = ""

    @property
    def first(self) -> Run:
        """Stands for all where only seeds differ."""
        return self.runs[0]

    @property
    def rounds(self) -> int:
        """Rounds done."""
        return self.first.rounds

    @property
    def label(self) -> str:
        """The method, how it differs from the paper's, and what tells it apart."""
        return ", ".join(filter(None, [label_of(self.method, self.differences), self.apart]))

    @property
    def truncation(self) -> str:
        """A remark if fewer rounds are done than planned, else nothing."""
        return f"truncated: {self.rounds} of {self.planned} rounds" if self.is_truncated else ""

    @property
    def full_label(self) -> str:
        """The label with that remark."""
        return self.label + (f" [{self.truncation}]" if self.truncation else "")

    @property
    def is_truncated(self) -> bool:
        """Whether fewer rounds are done than planned."""
        return self.rounds < self.planned

    def mean(self, quantity: Callable[[Run], float]) -> float:
        """Over the seeds; not finite if one of them is not."""
        with np.errstate(all="ignore"):
            return float(np.mean([quantity(run) for run in self.runs]))

    def spread(self, quantity: Callable[[Run], float]) -> float | None:
        """Standard deviation over the seeds, not finite if one of them is not; `None` for a single one."""
        with np.errstate(all="ignore"):
            return float(np.std([quantity(run) for run in self.runs], ddof=1)) if len(self.runs) > 1 else None


def format_value(value: Any) -> str:
    """A value as one would write it in a flag."""
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return repr(value) if isinstance(value, float) and float(short) != value else short


def label_of(method: Method, values: Mapping[str, Any]) -> str:
    """A method's title, and settings by name: hyperparameters of the algorithm's own as if each were one."""
    texts = {name: format_value(value) for name, value in values.items()}
    listed = [
        text.replace(",", ", ") if name == "hyperparameters" else f"{name}={text}"
        for name, text in texts.items()
        if text or name != "hyperparameters"
    ]
    return method.title + (f" ({', '.join(listed)})" if listed else "")


def split_title(split: str) -> str:
    """A split's name for readers."""
    name, _, amount = split.partition(":")
    return {"iid": "IID", "dirichlet": f"Dirichlet {amount}", "shards": f"{amount} shards a client",
            "natural": "natural (by role)"}.get(name, split)  # fmt: skip


def scenario_of(run: Run) -> Scenario:
    """Returns what a run was trained on."""
    c = run.config
    return Scenario(
        c.task, run.split, run.num_clients, c.sampling, c.size_sigma, c.alpha, c.beta, run.task_title, run.training_set
    )


def planned_rounds(run: Run) -> int:
    """Returns the rounds of the run's preset; without one, those asked for."""
    if run.preset in presets.preset_names():
        return presets.load_preset(run.preset).values["rounds"]
    return run.config.rounds


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Puts runs that differ in their seed alone together; in the order of scenarios and methods."""
    found: dict[Any, list[Run]] = collections.defaultdict(list)
    for run in runs:
        found[scenario_of(run), compared_values(run), run.config.algorithm, run.rounds, planned_rounds(run)].append(run)
    groups = []
    for (scenario, _, _, _, planned), members in found.items():
        # The same numbers twice are the same run.
        distinct = {(run.config.seed, *_lasting(run)): run for run in reversed(members)}
        same = tuple(run.name for run in members if run not in distinct.values())
        by_seed = sorted(distinct.values(), key=lambda run: (run.config.seed, run.name))
        groups.append(Group(tuple(by_seed), scenario, members[0].method, _differences(members[0]), planned, same))
    groups = [group for members in by_scenario(groups).values() for group in _told_apart(members)]
    tasks, methods = [*DATA_SETS], [*METHODS, *dict.fromkeys(g.method.key for g in groups)]
    return sorted(
        groups,
        key=lambda g: (
            tasks.index(g.scenario.task) if g.scenario.task in tasks else len(tasks),
            g.scenario.sampling,
            _split_rank(g.scenario.split),
            g.scenario,
            methods.index(g.method.key),
            len(g.differences),
            g.label,
            -g.rounds,
        ),
    )


def _told_apart(groups: Sequence[Group]) -> list[Group]:
    """Groups of a scenario with labels of their own: by rounds, by a user's function, or by folder if need be."""
    told = list(groups)
    for difference in (
        lambda group: f"{group.rounds} rounds",
        lambda group: group.first.config.algorithm,
        lambda group: group.first.name,
    ):
        count = collections.Counter(group.full_label for group in told)
        told = [
            dataclasses.replace(group, apart=", ".join(filter(None, [group.apart, difference(group)])))
            if count[group.full_label] > 1
            else group
            for group in told
        ]
    return told


def by_scenario(groups: Sequence[Group]) -> dict[Scenario, list[Group]]:
    """Returns the groups of each scenario."""
    found: dict[Scenario, list[Group]] = collections.defaultdict(list)
    for group in groups:
        found[group.scenario].append(group)
    return dict(found)


def main_groups(groups: Sequence[Group]) -> list[Group]:
    """Of a scenario: those with the paper's values, or all where none has them; each with the most rounds done."""
    chosen = [group for group in groups if not group.differences] or list(groups)
    longest: dict[str, Group] = {}
    for group in chosen:
        label = label_of(group.method, group.differences)
        if label not in longest or group.rounds > longest[label].rounds:
            longest[label] = group
    return list(longest.values())


def _lasting(run: Run) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value) for name, value in run.summary.items() if name != "seconds")


def _split_rank(split: str) -> tuple[int, float]:
    name, _, amount = split.partition(":")
    try:
        return (0 if name == "iid" else 1, -float(amount or 0))
    except ValueError:  # of a user's own task it may be anything
        return (2, 0.0)


def compared_values(run: Run) -> tuple[tuple[str, Any], ...]:
    """Returns a run's values by field, but for those that say where it takes place or how it is looked at."""
    values = dataclasses.asdict(run.config) | {"batch_size": run.batch_size}
    if values["uplink"] == "lossless":  # the same numbers and the same bytes as without a codec
        values["uplink"] = None
    return tuple((name, value) for name, value in values.items() if name not in _NOT_COMPARED)


def _differences(run: Run) -> dict[str, Any]:
    usual = _usual_values(run.config.task, run.split, run.method.key) or {}
    reference = dataclasses.asdict(Settings(**usual))
    return {name: value for name, value in compared_values(run) if value != reference[name]
            and not (name == "batch_size" and reference[name] is None)
            and not (name == "l1_step" and run.config.l1 == 0)}  # fmt: skip


@functools.cache
def _usual_values(task: str, split: str, method: str) -> dict[str, Any] | None:
    """The values of the paper's cell for a method; `None` if there is none."""
    for place in (split.replace(":", "_"), "iid"):
        if f"{task}/{place}/{method}" in presets.preset_names():
            return presets.load_preset(f"{task}/{place}/{method}").values
    return None
