"""The values of an experiment as plain data: what flags, `config.json` and reports have in common.

`Settings` knows each value's kind and range, and reads what earlier versions have stored; `ExperimentConfig` adds what
does not fit together. Neither imports TensorFlow, so that a mistake on the command line is told at once.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Self

from experiments.compression import forms_of
from experiments.foreign import is_foreign
from experiments.hyperparameters import format_hyperparameters, parse_hyperparameters
from experiments.methods import DEFAULT_ALGORITHM, Algorithm, algorithm_named
from experiments.values import L1_STEPS, Value, check_name

AGGREGATORS = ("mean", "dp", "compression", "robust", "secure")
SAMPLINGS = ("bernoulli", "uniform")
RUNTIMES = ("inprocess", "native", "ray")
INITIALIZERS = ("keras", "torch")
AUGMENTATIONS = ("none", "flip_crop")
GROUPS = ("experiment", "task", "algorithm", "penalties", "training", "communication", "output")
"""Of flags in `--help`, and of tables in a file of settings."""
# The library's bound of seeds, epochs and batch sizes.
_MOST = 2**31 - 1
CLIENT_MEASUREMENTS = ("auto", "on", "off")
_PRIVATE = ("dp", "secure")


def _field(group: str, *args: Any, **kwargs: Any) -> Any:
    """A field, with its `Value` and what the command line says of it."""
    value = Value(*args, **kwargs)
    return dataclasses.field(default=value.default, metadata={"group": group, "value": value})


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is trained, on what, how, and how it is counted.

    Each field is a flag of `run_experiment.py`, whose text is in the field's metadata. A value of
    `None` means the task's own.
    """

    task: str = _field("task", "digits", "The data set, or MODULE:FUNCTION that returns a task.", str)
    split: str | None = _field("task", None, "iid, dirichlet:ALPHA, shards:NUMBER or natural.", str)
    num_clients: int | None = _field("task", None, "m, clients in the population.", int)
    size_sigma: float = _field("task", 0.0, "Of the lognormal distribution of the clients' sizes; 0: equal.", float)
    alpha: float = _field("task", 1.0, "Of synthetic(alpha, beta).", float)
    beta: float = _field("task", 1.0, "Of synthetic(alpha, beta).", float)
    initializer: str = _field(
        "task", "keras", "Initial weights as Keras or PyTorch draws them.", str, choices=INITIALIZERS
    )
    augment: str = _field(
        "task", "none", "What is done to training images before each step.", str, choices=AUGMENTATIONS
    )
    seed: int = _field("task", 0, "Of split, initial weights, client sampling and shuffling.", int, low=0, high=_MOST)

    algorithm: str = _field(
        "algorithm", DEFAULT_ALGORITHM, "What the elastic net is added to, or MODULE:FUNCTION that builds it.", str
    )
    server_learning_rate: float = _field("algorithm", 1.0, "eta_g, the server's step size.", float, above=0.0)
    hyperparameters: str = _field("algorithm", "", "NAME=VALUE,...: those of the algorithm, or of your builder.", str)

    l1: float = _field("penalties", 0.0, "lambda_1, the weight of the l1 penalty.", float, low=0.0)
    l2: float = _field("penalties", 0.0, "lambda_2, the weight of the l2 penalty.", float, low=0.0)
    threshold: float = _field("penalties", 0.0, "epsilon: changes up to this are not sent.", float, low=0.0)
    l1_step: str = _field("penalties", "subgradient", "Kind of l1 step.", str, choices=L1_STEPS)
    control_threshold: float = _field("penalties", 0.0, "Control changes up to this are not sent.", float, low=0.0)

    rounds: int = _field("training", 30, "Rounds in all; a finished experiment goes on if there are more.", int, low=1)
    sampling: str = _field("training", "bernoulli:0.1", "bernoulli:PROBABILITY of each client, or uniform:NUMBER.", str)
    learning_rate: float = _field("training", 0.1, "Clients' learning rate.", float, above=0.0)
    lr_decay: float = _field("training", 1.0, "Factor on the learning rate after each round.", float, above=0.0)
    epochs: int = _field("training", 5, "Passes over a client's data per round.", int, low=1, high=_MOST)
    batch_size: int | None = _field("training", None, "Examples per step.", int, low=1, high=_MOST)
    weight_decay: float = _field("training", 0.0, "Of the local steps.", float, low=0.0)
    clip_norm: float | None = _field("training", None, "Bound of a step's gradient norm.", float, above=0.0)
    xla: bool = _field(
        "training", False, "Compile the local loop by XLA, for GPUs; rounds otherwise than without.", bool
    )
    evaluate_every: int = _field(
        "training", 1, "Rounds between evaluations on the test set; the last one counts.", int, low=1
    )

    aggregator: str = _field("communication", "mean", "TFF's aggregator inside.", str, choices=AGGREGATORS)
    dp_noise_multiplier: float = _field(
        "communication", 1.0, "Of a round, both releases together (dp).", float, above=0.0
    )
    dp_clip: float = _field("communication", 1.0, "Norm bound of a client's delta (dp).", float, above=0.0)
    dp_second_clip: float = _field(
        "communication", 1.0, "Norm bound of its signs or control change (dp).", float, above=0.0
    )
    dp_delta: float = _field("communication", 1e-5, "delta of (epsilon, delta) (dp).", float, above=0.0)
    dp_test_seed: int | None = _field(
        "communication", None, "For tests alone: noise that can be repeated, and so taken off again (dp).", int,
        low=0, high=2**30 - 1,
    )  # fmt: skip
    compression_bits: int = _field("communication", 8, "Bits per element (compression).", int, low=1, high=16)
    uplink: str | None = _field(
        "communication", None, f"Train through a codec: {forms_of('uplink')}; unset only counts.", str
    )
    compressor: str | None = _field(
        "communication", None,
        f"{forms_of('compressor')}; or {forms_of('threshold')} or a codec, as by flags of their own.",
        str,
    )  # fmt: skip
    error_feedback: bool = _field(
        "communication", False, "Keep what was not sent in the client's state, and send it with its next message.", bool
    )
    also_count: str = _field("communication", "", "More codecs to count the bytes of, by commas.", str)
    top_k: float | None = _field(
        "communication", None, "Share of the elements sent, with error feedback.", float, above=0, high=1
    )
    client_measurements: str = _field(
        "communication", "auto", "Exact losses, non-zeros, norms, bytes of clients; auto: not with dp and secure.", str,
        choices=CLIENT_MEASUREMENTS,
    )  # fmt: skip
    per_client_metrics: bool = _field(
        "output", False, "Write loss, accuracy, bytes and share of rounds of each client to clients.csv.", bool
    )

    @property
    def measures_clients(self) -> bool:
        """Whether what clients computed and sent is measured and written down."""
        return self.client_measurements == "on" or (
            self.client_measurements == "auto" and self.aggregator not in _PRIVATE
        )

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        """Returns the settings that a `config.json` holds, of this or of an earlier version.

        A field that is not there has its default. One that is no longer known is passed over if its value switches
        it off.

        Raises:
          ValueError, TypeError: for a value that is none of its field's, or a field that is not known and is on.
        """
        for name, value in stored.items():
            if name not in FIELDS and not _is_off(value):
                raise ValueError(f"{name}={value!r} is no setting of this version")
        found = cls(**{name: value for name, value in stored.items() if name in FIELDS})
        found.check_values()
        parse_sampling(found.sampling)
        return found

    def check_values(self) -> None:
        """Raises a `ValueError` or `TypeError` unless each value is of its field's kind and in its range."""
        for name, value in VALUES.items():
            value.check(name, getattr(self, name))

    def row(self, title: str | None = None) -> Algorithm:
        """The algorithm's row; `title` is that of a user's own algorithm."""
        return algorithm_named(self.algorithm, title)

    def own_hyperparameters(self) -> dict[str, Any]:
        """All hyperparameters that the algorithm's row declares, by name; raises a `ValueError` for what cannot be.

        A user's own algorithm has no row: only its builder tells them.
        """
        if is_foreign(self.algorithm):
            return {}
        return parse_hyperparameters(self.hyperparameters, self.row().hyperparameters, f"algorithm {self.algorithm!r}")

    def with_shown_hyperparameters(self) -> Self:
        """The same with `hyperparameters` as runs are compared and named by: without those that are the default."""
        if is_foreign(self.algorithm):
            return self
        usual = self.row().hyperparameters
        changed = {name: value for name, value in self.own_hyperparameters().items() if value != usual[name].default}
        return dataclasses.replace(self, hyperparameters=format_hyperparameters(changed))

    def stored(self) -> dict[str, Any]:
        """All values as a folder keeps them: every hyperparameter, so that they mean the same when defaults change."""
        values = dataclasses.asdict(self)
        return values | {"hyperparameters": _all_hyperparameters(self.algorithm, self.hyperparameters)}

    def to_json(self) -> str:
        """The stored values, in the order of the fields."""
        return json.dumps(self.stored(), indent=2)

    def differences(self, stored: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Returns `{field: (here, there)}` for what differs from stored values, but for `rounds`, which may be raised.

        As in `from_stored`, what is not stored has its default, and what is not known counts only if it is on.
        """
        here = json.loads(self.to_json())
        there: dict[str, Any] = {name: field.default for name, field in FIELDS.items()} | dict(stored)
        there["hyperparameters"] = _all_hyperparameters(there["algorithm"], there["hyperparameters"])
        return {
            name: (here.get(name), value)
            for name, value in there.items()
            if name != "rounds" and here.get(name) != value and (name in FIELDS or not _is_off(value))
        }


FIELDS = {field.name: field for field in dataclasses.fields(Settings)}
"""The fields by name."""
VALUES: dict[str, Value] = {name: field.metadata["value"] for name, field in FIELDS.items()}
"""What each may be."""


def _all_hyperparameters(algorithm: str, text: str) -> str:
    """The text with the defaults of the algorithm's row; as it is where that cannot be."""
    try:
        values = Settings(algorithm=algorithm, hyperparameters=text).own_hyperparameters()
    except (KeyError, ValueError):  # of another version, or damaged
        return text
    return format_hyperparameters(values) if values else text


def check_sampling(text: str) -> None:
    """Raises unless the text is a kind of sampling and its number is in range."""
    check_name("sampling", text.partition(":")[0], SAMPLINGS)
    name, amount = parse_sampling(text)
    if name == "uniform" and amount < 1:
        raise ValueError(f"number of clients in sampling must be an integer >= 1, found {text!r}.")
    if name == "bernoulli" and not 0.0 < amount <= 1.0:
        raise ValueError(f"probability in sampling must be a number in (0, 1], found {text!r}.")


def parse_sampling(text: str) -> tuple[str, float]:
    """Returns `("bernoulli", probability)` or `("uniform", number of clients)`, as they are written."""
    name, _, number = text.partition(":")
    try:
        return name, int(number) if name == "uniform" else float(number)
    except ValueError:
        raise ValueError(f"sampling must be 'bernoulli:0.1' or 'uniform:10', say, found {text!r}.") from None


def _is_off(value: Any) -> bool:
    """Whether a value of a field that is not known means that there is nothing of it."""
    return value is None or value is False or value in ("", 0)
