"""The paper's Tables 2 to 5 and the runs that belong to their cells, with what explains a difference."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Callable, Sequence

from experiments import presets
from experiments.methods import METHODS, Method
from experiments.report.groups import DATA_SETS, Group, format_value
from experiments.report.read import Run
from experiments.settings import parse_sampling

# d as the paper counts it; `python -m experiments.dense_counts` derives it from the models.
PAPER_SIZES = {"MNIST": 199_210, "EMNIST-L": 89_610, "CIFAR-10": 797_962, "CIFAR-100": 815_332, "Shakespeare": 133_520}
# The paper's names of methods are the titles here.
_BY_TITLE = {method.title: method for method in METHODS.values()}
_TABLES = {("nonzeros_1e7", 0.1): 2, ("entropy_cumulative", 0.1): 3, ("entropy_cumulative", 1.0): 4}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A figure of the paper.

    Attributes:
      table: 2, 3 or 4.
      data_set, split, name: as the paper names them, `name` the method; the split as in names of presets.
      rounds: it was summed over.
      participation: share of the clients in a round.
      printed: the figure, as it is printed.
      dense: what the method would send without zeros, from the same row of Table 2: the figure of the first dense
        method that sends as many messages.
      one_message: the figure there of the first dense method with one message.
    """

    table: int
    data_set: str
    split: str
    name: str
    rounds: int
    participation: float
    printed: str
    dense: str | None
    one_message: str | None

    @property
    def value(self) -> float:
        """The figure."""
        return float(self.printed)

    @property
    def method(self) -> Method:
        """The method; the paper's name may say in brackets what an entropy is of, `FedX (theta sent)`."""
        return _BY_TITLE[self.name.partition(" (")[0]]

    @property
    def message(self) -> str:
        """What an entropy is of, `theta` or `delta`."""
        said = self.name.partition(" (")[2].removesuffix(" sent)")
        return said or self.method.paper_entropy

    @property
    def preset(self) -> str:
        """The name of the cell's preset."""
        task = next(task for task, title in DATA_SETS.items() if title == self.data_set)
        return f"{task}/{self.split}/{self.method.key}" + ("/all" if self.participation == 1.0 else "")

    @property
    def scale(self) -> float:
        """A figure that does not grow with the rounds: share of non-zeros, or entropy of a round."""
        return self.value / float(self.dense) if self.table == 2 and self.dense else self.value / self.rounds

    def here(self, run: Run) -> float:
        """The same figure of a run."""
        return run.non_zeros / 1e7 if self.table == 2 else run.summary[f"entropy_{self.message}_sum"]

    def scale_here(self, run: Run) -> float:
        """`scale` of a run."""
        return run.non_zero_share if self.table == 2 else self.here(run) / run.rounds

    def agrees(self, figure: float) -> bool:
        """Whether a figure is the paper's, rounded to as many digits as that is printed with."""
        return f"{figure:.{len(self.printed.partition('.')[2])}f}" == self.printed


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A figure of the paper, the runs it is to be compared with, and what explains a difference."""

    cell: Cell
    group: Group
    notes: tuple[str, ...]

    @property
    def here(self) -> float:
        """The figure, mean over seeds."""
        return self.group.mean(self.cell.here)

    @property
    def ratio(self) -> float | None:
        """Of this project's figure to the paper's; `None` if that is not finite, or if other data have influence."""
        known = math.isfinite(self.here) and (is_papers_data(self.group) or _is_dense(self.group))
        return self.here / self.cell.value if known else None


def read_cells() -> list[Cell]:
    """Returns all figures of Tables 2 to 4."""
    with (presets.PAPER / "tables.csv").open() as file:
        rows = list(csv.DictReader(file))
    # A method without zeros sends all there is.
    dense = {(r["split"], r["dataset"], r["method"]): r["value"] for r in rows if r["quantity"] == "nonzeros_1e7"}
    cells = []
    for row in rows:
        share = float(row["participation"])
        place = (row["split"], row["dataset"])
        messages = len(_BY_TITLE[row["method"].partition(" (")[0]].algorithm.messages)
        cells.append(
            Cell(
                table=_TABLES[row["quantity"], share],
                data_set=row["dataset"],
                split=row["split"],
                name=row["method"],
                rounds=int(row["rounds"]),
                participation=share,
                printed=row["value"],
                dense=dense[*place, dense_method(messages).title] if share == 0.1 else None,
                one_message=dense[*place, dense_method(1).title] if share == 0.1 else None,
            )
        )
    # The paper's order is by split; beside runs, which are few, data sets are easier to find.
    return sorted(cells, key=lambda cell: [*DATA_SETS.values()].index(cell.data_set))


def dense_method(messages: int) -> Method:
    """Returns the first of the paper's methods without zeros whose clients send so many messages."""
    baselines = (method.baseline for method in METHODS.values() if method.is_sparse)
    return next(m for m in baselines if m is not None and len(m.algorithm.messages) == messages)


def compare(cells: Sequence[Cell], groups: Sequence[Group]) -> list[Comparison]:
    """Returns the comparisons that can be made."""
    return [
        Comparison(cell, group, tuple(note for rule in RULES if (note := rule(cell, group))))
        for cell in cells
        for group in groups
        if belongs(group, cell)
    ]


def belongs(group: Group, cell: Cell) -> bool:
    """Whether runs have the cell's values, but for the rounds and for those that the paper does not give."""
    scenario = group.scenario
    task, split = cell.preset.split("/")[:2]
    return (
        group.method.key == cell.method.key
        and (scenario.task, scenario.split.replace(":", "_")) == (task, split)
        and parse_sampling(scenario.sampling) == ("bernoulli", cell.participation)
        and group.first.config.num_clients is None
        and set(group.differences) <= set(presets.load_preset(cell.preset).assumed)
    )


def is_papers_data(group: Group) -> bool:
    """Whether runs were trained on the paper's images; one that says nothing had no others to choose from."""
    return group.scenario.training_set in ("", "official")


# --- why a figure differs: each rule looks at the runs, and says nothing where it does not apply


def _rounds(cell: Cell, group: Group) -> str | None:
    if group.rounds == cell.rounds:
        return None
    kind = "truncated" if group.rounds < cell.rounds else "longer"
    what = "shares of non-zeros" if cell.table == 2 else "entropies of a round"
    return f"{kind}: {group.rounds} of {cell.rounds} rounds. Sums cannot be compared; {what} can."


def _data(cell: Cell, group: Group) -> str | None:
    if is_papers_data(group):
        return None
    return f"Trained on the {group.scenario.training_set} training set, not on the paper's images of {cell.data_set}."


def _messages(cell: Cell, group: Group) -> str | None:
    if len(cell.method.algorithm.messages) == 1:
        return None
    first, second = cell.method.algorithm.messages
    if cell.table == 2:
        sent, changes = (_mean_of(group, f"non_zeros_{name}") / 1e7 for name in (first, second))
        return f"Two messages a client: updates {sent:.2f}, changes of {second} variates {changes:.2f}."
    return f"Of one message; that of the changes of {second} variates is {_entropy(group, second):.2f}."


def _dense(cell: Cell, group: Group) -> str | None:
    if cell.table != 2 or not _is_dense(group):
        return None
    messages = len(cell.method.algorithm.messages)
    sums = sorted({run.summary["participants"] for run in group.runs})
    elements = sum(run.dense_elements for run in group.runs)
    zeros = elements - sum(run.non_zeros for run in group.runs)
    counted = f"{messages} x {group.first.parameters:,} parameters x {' or '.join(f'{n:,}' for n in sums)} participants"
    text = f"{zeros:,} of {elements:,} elements are zero: {counted} over {group.rounds} rounds."
    low, high = _participants_by(cell, cell.printed, messages)
    if group.rounds == cell.rounds and not cell.agrees(group.mean(cell.here)) and math.floor(high) < math.ceil(low):
        text += f" No whole number of participants gives the paper's {cell.printed}."
    return text


def _which_entropy(cell: Cell, group: Group) -> str | None:
    if cell.table == 2 or cell.message == "delta":
        return None
    theta, delta = _entropy(group, "theta"), _entropy(group, "delta")
    return f"Of local models, as the paper has it for this method; of the updates it is {delta:.2f}, " + (
        f"{theta / delta:.1f} times less." if 0 < delta < theta else "not less."
    )


def _size(cell: Cell, group: Group) -> str | None:
    here, there = group.first.parameters, PAPER_SIZES[cell.data_set]
    if here == there:
        return None
    why = "; PyTorch's LSTM has two bias vectors a gate, Keras's one" if cell.data_set == "Shakespeare" else ""
    return f"The model has {here:,} parameters, the paper's {there:,}{why}: a factor of {here / there:.4f}."


def _participants(cell: Cell, group: Group) -> str | None:
    """The paper's dense figures tell how many took part: other seeds draw others."""
    if cell.table != 2 or group.rounds != cell.rounds or not cell.one_message:
        return None
    low, high = _participants_by(cell, cell.one_message, 1)
    here = _mean_of(group, "participants")
    if low <= here <= high:
        return None
    there = f"the paper's {dense_method(1).title} in Table 2 has {low:,.1f} to {high:,.1f}"
    return f"{here:,.1f} participants over all rounds; {there}."


def _participants_by(cell: Cell, printed: str, messages: int) -> tuple[float, float]:
    """Between how many took part, if so many non-zeros as are printed are all elements of all messages."""
    slack = 0.5 * 10.0 ** -len(printed.partition(".")[2])
    unit = 1e7 / (PAPER_SIZES[cell.data_set] * messages)
    return (float(printed) - slack) * unit, (float(printed) + slack) * unit


def _changed(cell: Cell, group: Group) -> str | None:
    usual = presets.load_preset(cell.preset).values
    changed = dict(group.differences)
    if group.scenario.size_sigma != usual["size_sigma"]:
        changed["size_sigma"] = group.scenario.size_sigma
    listed = ", ".join(f"{n} = {format_value(v)} instead of {format_value(usual[n])}" for n, v in changed.items())
    return f"Of what the paper does not give: {listed}." if listed else None


def _assumed(cell: Cell, group: Group) -> str | None:
    if not group.first.assumed or cell.agrees(group.mean(cell.here)) or (cell.table == 2 and _is_dense(group)):
        return None
    names = ", ".join(group.first.assumed)
    return f"Not in the paper, assumed here, and of influence on how large updates are: {names}."


def _seeds(cell: Cell, group: Group) -> str | None:
    seeds = [str(run.config.seed) for run in group.runs]
    return f"Mean and standard deviation over seeds {', '.join(seeds)}." if len(seeds) > 1 else None


RULES: tuple[Callable[[Cell, Group], str | None], ...] = (
    _rounds, _data, _seeds, _dense, _messages, _which_entropy, _size, _participants, _changed, _assumed,
)  # fmt: skip


def _entropy(group: Group, message: str) -> float:
    return _mean_of(group, f"entropy_{message}_sum")


def _is_dense(group: Group) -> bool:
    """Whether next to nothing of what is sent is zero: an element of a sum of floats may be, by chance."""
    return all(run.non_zero_share > 1 - 1e-6 for run in group.runs)


def _mean_of(group: Group, name: str) -> float:
    return group.mean(lambda run: run.summary[name])


def read_hyperparameters() -> dict[tuple[str, str], dict[str, str]]:
    """Returns Table 5: lambda1, lambda2 and epsilon as they are printed, by data set and key of `METHODS`."""
    with (presets.PAPER / "hyperparameters.csv").open() as file:
        return {(row["dataset"], _BY_TITLE[row["method"]].key): row for row in csv.DictReader(file)}
