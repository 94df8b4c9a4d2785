"""All values that decide an experiment's numbers, in one frozen and validated object."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from tff_fen.checks import check_integer, check_name, check_number
from tff_fen.codec import Codec, parse_codec
from tff_fen.config import L1_STEPS, ElasticNet, LocalTraining

ALGORITHMS = ("fed_avg", "scaffold", "fed_dyn")
AGGREGATORS = ("mean", "dp", "compression", "robust", "secure")
SAMPLINGS = ("bernoulli", "uniform")


def _field(group: str, default: Any, text: str, kind: type, choices: tuple[str, ...] = ()) -> Any:
    """A field and what the command line says of it; `kind` is the type of its flag."""
    return dataclasses.field(default=default, metadata=dict(group=group, text=text, kind=kind, choices=choices))


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
    """What is trained, on what, how, and how it is counted.

    Each field is a flag of `run_experiment.py`, whose text is in the field's metadata. A value of
    `None` means the task's own.
    """

    task: str = _field("task", "digits", "The data set.", str)
    split: str | None = _field("task", None, "iid, dirichlet:ALPHA, shards:NUMBER or natural.", str)
    num_clients: int | None = _field("task", None, "m, clients in the population.", int)
    size_sigma: float = _field("task", 0.0, "Of the lognormal distribution of the clients' sizes; 0: equal.", float)
    alpha: float = _field("task", 1.0, "Of synthetic(alpha, beta).", float)
    beta: float = _field("task", 1.0, "Of synthetic(alpha, beta).", float)
    initializer: str = _field("task", "keras", "Initial weights as Keras or PyTorch (torch) draws them.", str)
    seed: int = _field("task", 0, "Of split, initial weights, client sampling and shuffling.", int)

    algorithm: str = _field("algorithm", "fed_dyn", "What the elastic net is added to.", str, ALGORITHMS)
    l1: float = _field("algorithm", 0.0, "lambda_1; 0 for the plain method.", float)
    l2: float = _field("algorithm", 0.0, "lambda_2; > 0 for fed_dyn.", float)
    threshold: float = _field("algorithm", 0.0, "epsilon: changes up to this are not sent.", float)
    l1_step: str = _field("algorithm", "subgradient", "Kind of l1 step.", str, L1_STEPS)
    top_k: float | None = _field("algorithm", None, "Share of the elements sent, with error feedback (fed_avg).", float)
    server_learning_rate: float = _field("algorithm", 1.0, "eta_g of scaffold.", float)
    control_threshold: float = _field("algorithm", 0.0, "Control changes up to this are not sent (scaffold).", float)

    learning_rate: float = _field("local training", 0.1, "Clients' learning rate.", float)
    lr_decay: float = _field("local training", 1.0, "Factor on the learning rate after each round.", float)
    epochs: int = _field("local training", 5, "Passes over a client's data a round.", int)
    batch_size: int | None = _field("local training", None, "Examples a step.", int)
    weight_decay: float = _field("local training", 0.0, "Of the local steps.", float)
    clip_norm: float | None = _field("local training", None, "Bound of a step's gradient norm.", float)

    rounds: int = _field("rounds", 30, "Rounds in all; a finished experiment goes on if there are more.", int)
    sampling: str = _field("rounds", "bernoulli:0.1", "bernoulli:PROBABILITY of each client, or uniform:NUMBER.", str)
    evaluate_every: int = _field("rounds", 1, "Rounds between evaluations on the test set; the last one counts.", int)

    aggregator: str = _field("aggregation", "mean", "TFF's aggregator inside.", str, AGGREGATORS)
    dp_noise_multiplier: float = _field("aggregation", 1.0, "Of a round, both releases together (dp).", float)
    dp_clip: float = _field("aggregation", 1.0, "Norm bound of a client's delta (dp).", float)
    dp_second_clip: float = _field("aggregation", 1.0, "Norm bound of its signs or control change (dp).", float)
    dp_delta: float = _field("aggregation", 1e-5, "delta of (epsilon, delta) (dp).", float)
    dp_test_seed: int | None = _field(
        "aggregation", None, "For tests alone: noise that can be repeated, and so taken off again (dp).", int
    )
    compression_bits: int = _field("aggregation", 8, "Bits an element (compression).", int)
    uplink: str | None = _field(
        "aggregation", None, "Train through a codec: lossless, float16 or quantised:STEP; unset only counts.", str
    )
    also_count: str = _field("aggregation", "", "More codecs to count the bytes of, by commas.", str)

    def __post_init__(self) -> None:
        self.elastic_net()
        self.local_training(batch_size=1)
        self.codec()
        self.counted_codecs()
        check_name("algorithm", self.algorithm, ALGORITHMS)
        check_name("aggregator", self.aggregator, AGGREGATORS)
        parse_sampling(self.sampling)
        for name in ("rounds", "evaluate_every"):
            check_integer(name, getattr(self, name), 1)
        check_integer("seed", self.seed, 0)
        check_integer("compression_bits", self.compression_bits, 1, 16)
        for name in ("server_learning_rate", "dp_noise_multiplier", "dp_clip", "dp_second_clip", "dp_delta"):
            check_number(name, getattr(self, name), 0.0, open_low=True)
        check_number("control_threshold", self.control_threshold, 0.0)
        if self.dp_test_seed is not None:
            check_integer("dp_test_seed", self.dp_test_seed, 0, 2**30 - 1)
        for name, (needs, text) in _ONLY_WITH.items():
            if getattr(self, name) != _DEFAULTS[name] and not needs(self):
                raise ValueError(f"{name}={getattr(self, name)!r} has no effect: it is for {text}. Unset it.")
        for clash, text in _CLASHES:
            if clash(self):
                raise ValueError(text.format(**dataclasses.asdict(self)))

    def elastic_net(self) -> ElasticNet:
        """The penalties."""
        return ElasticNet(self.l1, self.l2, self.threshold, self.l1_step)

    def local_training(self, batch_size: int) -> LocalTraining:
        """The local steps; `batch_size` is the task's, for where none is set."""
        return LocalTraining(
            self.learning_rate,
            epochs=self.epochs,
            batch_size=self.batch_size if self.batch_size is not None else batch_size,
            lr_decay=self.lr_decay,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            seed=self.seed,
        )

    def num_releases(self) -> int:
        """How many aggregates of each client leave the aggregators in a round."""
        return 2 if self.algorithm == "scaffold" or (self.algorithm == "fed_dyn" and self.l1) else 1

    def codec(self) -> Codec | None:
        """What messages go through, if anything."""
        return None if self.uplink is None else parse_codec(self.uplink)

    def counted_codecs(self) -> list[Codec]:
        """Those whose bytes are only counted."""
        return [parse_codec(name) for name in self.also_count.split(",") if name]

    def to_json(self) -> str:
        """All values, in the order of the fields."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    def differences(self, other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Returns `{field: (here, there)}` for what differs, but for `rounds`, which may be raised later."""
        here = json.loads(self.to_json())
        names = [*here, *(name for name in other if name not in here)]
        return {
            name: (here.get(name), other.get(name))
            for name in names
            if name != "rounds" and here.get(name) != other.get(name)
        }


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(ExperimentConfig)}

# Fields that mean something only together with others: a value that would be ignored is refused.
_ONLY_WITH: dict[str, tuple[Callable[[ExperimentConfig], bool], str]] = {
    **dict.fromkeys(
        ("dp_noise_multiplier", "dp_clip", "dp_delta", "dp_test_seed"),
        (lambda c: c.aggregator == "dp", "aggregator 'dp'"),
    ),
    "dp_second_clip": (
        lambda c: c.aggregator == "dp" and c.num_releases() == 2,
        "aggregator 'dp' with scaffold, or with fed_dyn and l1 > 0",
    ),
    "compression_bits": (lambda c: c.aggregator == "compression", "aggregator 'compression'"),
    "alpha": (lambda c: c.task == "synthetic", "task 'synthetic'"),
    "beta": (lambda c: c.task == "synthetic", "task 'synthetic'"),
    "top_k": (lambda c: c.algorithm == "fed_avg", "algorithm 'fed_avg'"),
    "control_threshold": (lambda c: c.algorithm == "scaffold", "algorithm 'scaffold'"),
    "server_learning_rate": (lambda c: c.algorithm == "scaffold", "algorithm 'scaffold'"),
}

# Combinations that cannot work, each with what to say: found before any work starts.
_CLASHES = (
    (
        lambda c: c.algorithm == "fed_dyn" and not c.l2,
        "l2 must be > 0 for algorithm 'fed_dyn', which divides by it, found {l2}. Set --l2=0.05, say.",
    ),
    (
        lambda c: c.top_k is not None and not 0.0 < c.top_k <= 1.0,
        "top_k must be a share in (0, 1], found {top_k}.",
    ),
    (
        lambda c: c.uplink is not None and c.aggregator in ("compression", "secure"),
        "uplink={uplink!r} and aggregator={aggregator!r} are two ways to encode a message. Take one of them.",
    ),
    (
        lambda c: c.aggregator == "dp" and c.dp_delta >= 1.0,
        "dp_delta must be < 1, found {dp_delta}.",
    ),
)  # type: tuple[tuple[Any, str], ...]


def parse_sampling(text: str) -> tuple[str, float]:
    """Returns `("bernoulli", probability)` or `("uniform", number of clients)`."""
    name, _, number = text.partition(":")
    check_name("sampling", name, SAMPLINGS)
    try:
        value = float(number) if name == "bernoulli" else int(number)
    except ValueError:
        raise ValueError(f"sampling must be 'bernoulli:0.1' or 'uniform:10', say, found {text!r}.") from None
    if name == "uniform":
        check_integer("number of clients in sampling", value, 1)
    else:
        check_number("probability in sampling", value, 0.0, open_low=True)
        if value > 1.0:
            raise ValueError(f"probability in sampling must be at most 1, found {text!r}.")
    return name, value
