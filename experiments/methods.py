"""The methods: algorithms times variants. Whoever adds a method adds a row here, and nothing else.

A method is an `Algorithm` with a `Variant` of its penalties: Algorithm 3 is FedDyn with the elastic net. Config,
presets, accounting, run and report read these tables; no other module knows a method's name. The module imports no
TensorFlow, so that a report starts at once: builders are names, `"module:function"`, the form in which a user names
an algorithm of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from experiments.foreign import is_foreign, readable
from experiments.values import Value


class Penalties(Protocol):
    """What a variant is recognised from."""

    @property
    def l1(self) -> float: ...

    @property
    def l2(self) -> float: ...

    @property
    def threshold(self) -> float: ...

    @property
    def l1_step(self) -> str: ...


class Colours(NamedTuple):
    """Of lines and points, on light and on dark paper."""

    light: str
    dark: str


NEUTRAL = Colours("#6b7280", "#a3adb8")
"""Of a method that has no colours of its own."""


@dataclasses.dataclass(frozen=True, eq=False)
class Algorithm:
    """What the elastic net is added to.

    Attributes:
      key: its name on the command line.
      title: its name for readers.
      builder: `"module:function"`; it is called with those of the experiment's keywords that its signature has.
      number: of the paper's algorithm that adds the elastic net to it; `None` if the paper has none.
      colours: of all its variants.
      hyperparameters: its own, by the builder's keyword, which `--hyperparameters=NAME=VALUE,...` gives.
      settings: fields of `Settings`, with flags of their own, that are keywords of the builder as well, and have no
        effect elsewhere.
      refusals: what it cannot work with, and the sentence to say; `{field}` is a value found.
      needs: settings that it cannot do without, as they are where a command gives none.
      messages: what each client sends, as `process.messages` tells it.
      second_aggregator: the builder's keyword for the aggregator of a second aggregate.
      releases_second: whether a second aggregate of each client leaves the aggregators, given the penalties.
      paper_entropy: what the paper's entropies of the plain algorithm are of, `theta` or `delta`.
      names: key and title of variants that have names of their own, by the variant's key.
    """

    key: str
    title: str
    builder: str
    number: int | None = None
    colours: Colours = NEUTRAL
    hyperparameters: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    settings: tuple[str, ...] = ()
    refusals: tuple[tuple[Callable[[Any], bool], str], ...] = ()
    needs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    messages: tuple[str, ...] = ("delta",)
    second_aggregator: str | None = None
    releases_second: Callable[[Penalties], bool] = lambda penalties: False
    paper_entropy: str = "delta"
    names: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Variant:
    """Which of the penalties are on.

    Attributes:
      key: its name.
      stands_for: whether it is what these penalties come to.
      numbered: key and title where the paper numbers the algorithm.
      unnumbered: key and title elsewhere.
      only_named: whether it exists only for algorithms that name it; elsewhere it is the plain one.
      changes: settings that make it from those of the elastic net, for an ablation; else `None`.
      baselines: what it is compared with, the first of these variants that the algorithm has.
      line: style of a curve.
      width: of a curve.
    """

    key: str
    stands_for: Callable[[Penalties], bool]
    numbered: tuple[str, str]
    unnumbered: tuple[str, str]
    only_named: bool = False
    changes: Mapping[str, Any] | None = None
    baselines: tuple[str, ...] = ()
    line: str = "--"
    width: float = 1.3


# The last that stands for the penalties is taken.
PLAIN = Variant("plain", lambda p: not p.l1 and not p.threshold, ("{key}", "{title}"), ("{key}", "{title}"))
PROXIMAL_TERM = Variant(
    "proximal_term",
    lambda p: not p.l1 and not p.threshold and p.l2 > 0,
    ("{key}_proximal_term", "{title}, proximal term"),
    ("{key}_proximal_term", "{title}, proximal term"),
    only_named=True,
)
ELASTIC_NET = Variant(
    "elastic_net",
    lambda p: p.l1 > 0 and not (p.l1_step == "proximal" and not p.threshold),
    ("algorithm_{number}", "Algorithm {number}"),
    ("{key}_elastic_net", "{title}, elastic net"),
    baselines=("proximal_term", "plain"),
    line="-",
    width=1.8,
)
THRESHOLD_ONLY = Variant(
    "threshold",
    lambda p: not p.l1 and p.threshold > 0,
    ("threshold_{number}", "Algorithm {number}, l1 = 0"),
    ("{key}_threshold", "{title}, l1 = 0"),
    changes={"l1": 0.0},
    baselines=("proximal_term", "plain"),
    line=":",
)
PROXIMAL_STEP = Variant(
    "proximal",
    lambda p: p.l1 > 0 and p.l1_step == "proximal" and not p.threshold,
    ("proximal_{number}", "Algorithm {number}, proximal"),
    ("{key}_proximal", "{title}, proximal"),
    changes={"threshold": 0.0, "l1_step": "proximal"},
    baselines=("proximal_term", "plain"),
    line="-.",
)
VARIANTS = (PLAIN, PROXIMAL_TERM, ELASTIC_NET, THRESHOLD_ONLY, PROXIMAL_STEP)

ALGORITHMS = {
    algorithm.key: algorithm
    for algorithm in (
        Algorithm(
            "fed_avg",
            "FedAvg",
            "tff_fen:build_fed_avg_clients",
            number=1,
            colours=Colours("#0072b2", "#5bb3f0"),
            settings=("top_k",),
            paper_entropy="theta",
            names={PROXIMAL_TERM.key: ("fed_prox", "FedProx")},
        ),
        Algorithm(
            "scaffold",
            "SCAFFOLD",
            "tff_fen:build_scaffold",
            number=2,
            colours=Colours("#00805c", "#35c796"),
            settings=("server_learning_rate", "control_threshold"),
            messages=("delta", "control"),
            second_aggregator="control_aggregator",
            releases_second=lambda penalties: True,
            paper_entropy="theta",
        ),
        Algorithm(
            "fed_dyn",
            "FedDyn",
            "tff_fen:build_fed_dyn",
            number=3,
            colours=Colours("#d1480f", "#ff8a50"),
            refusals=(
                (
                    lambda settings: not settings.l2,
                    "l2 must be > 0 for algorithm 'fed_dyn', which divides by it, found {l2}. Set --l2=0.05, say.",
                ),
            ),
            needs={"l2": 0.05},
            second_aggregator="sign_aggregator",
            releases_second=lambda penalties: penalties.l1 > 0,
        ),
    )
}
DEFAULT_ALGORITHM = "fed_dyn"


class Method(NamedTuple):
    """An algorithm with a variant of its penalties."""

    algorithm: Algorithm
    variant: Variant

    @property
    def key(self) -> str:
        """Its name in presets and in files."""
        return self._name(0)

    @property
    def title(self) -> str:
        """Its name for readers."""
        return self._name(1)

    @property
    def colours(self) -> Colours:
        """The algorithm's; neutral if a variant of it, and not the plain one, is what others are compared with."""
        return NEUTRAL if self.variant is PLAIN and self.algorithm.names else self.algorithm.colours

    @property
    def is_sparse(self) -> bool:
        """Whether its penalties make zeros."""
        return bool(self.variant.baselines)

    @property
    def baseline(self) -> Method | None:
        """What it is compared with; `None` for a baseline itself."""
        there = {method.variant.key: method for method in methods_of(self.algorithm)}
        return next((there[key] for key in self.variant.baselines if key in there), None)

    @property
    def tuned_as(self) -> Method:
        """The method whose penalties it takes, before the variant's changes: of an ablation the elastic net."""
        return self if self.variant.changes is None else Method(self.algorithm, ELASTIC_NET)

    @property
    def paper_entropy(self) -> str:
        """What the paper's entropies of it are of, `theta` or `delta`."""
        return "delta" if self.is_sparse else self.algorithm.paper_entropy

    def _name(self, place: int) -> str:
        if self.variant.key in self.algorithm.names:
            return self.algorithm.names[self.variant.key][place]
        names = self.variant.unnumbered if self.algorithm.number is None else self.variant.numbered
        a = self.algorithm
        return names[place].format(key=a.key, title=a.title, number=a.number)


def methods_of(algorithm: Algorithm) -> list[Method]:
    """Returns an algorithm with each of its variants."""
    return [Method(algorithm, v) for v in VARIANTS if not v.only_named or v.key in algorithm.names]


METHODS = {method.key: method for algorithm in ALGORITHMS.values() for method in methods_of(algorithm)}
"""All methods of the tables, by key."""

PAPER_SET = (
    "fed_prox", "scaffold", "fed_dyn", "algorithm_1", "algorithm_2", "algorithm_3", "threshold_3", "proximal_3",
)  # fmt: skip
"""What `make paper` trains: the paper's methods, and what the threshold and l1 each do alone."""
FIGURE_2 = ("fed_dyn", "algorithm_2", "algorithm_3")
"""The methods of the paper's Figure 2."""
EXAMPLE = "algorithm_3"
"""The method of commands that are shown as examples."""


def method_of(algorithm: Algorithm, penalties: Penalties) -> Method:
    """Returns the method that an algorithm is with these penalties."""
    return [method for method in methods_of(algorithm) if method.variant.stands_for(penalties)][-1]


def algorithm_named(name: str, title: str | None = None) -> Algorithm:
    """Returns a row of the table, or one for a user's `module:function`, which is not imported.

    Args:
      name: of the algorithm.
      title: of a user's own; by default made from the function's name.
    """
    if not is_foreign(name):
        return ALGORITHMS[name]
    key = name.rpartition(":")[2].removeprefix("build_")
    return Algorithm(key, title or readable(key), name)
