"""The settings of an experiment that can be run: they fit together, and give the library's objects they stand for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from experiments.compression import compression_of
from experiments.foreign import is_foreign
from experiments.hyperparameters import merge_hyperparameters
from experiments.methods import ALGORITHMS
from experiments.settings import FIELDS, VALUES, Settings, check_sampling
from experiments.values import check_name, convert

if TYPE_CHECKING:  # else where it is needed: the library imports TensorFlow, and mistakes are told before that
    from tff_fen.codec import Codec, Compressor
    from tff_fen.config import ElasticNet, LocalTraining


@dataclasses.dataclass(frozen=True)
class ExperimentConfig(Settings):
    """`Settings` that fit together; raises a `ValueError` or `TypeError` that names what does not.

    What only the library can tell, `check_library` finds.
    """

    def __post_init__(self) -> None:
        self.check_values()
        if not is_foreign(self.algorithm):
            check_name("algorithm", self.algorithm, ALGORITHMS)
        check_sampling(self.sampling)
        for name, (needs, text) in _ONLY_WITH.items():
            if getattr(self, name) != FIELDS[name].default and not needs(self):
                raise ValueError(f"{name}={getattr(self, name)!r} has no effect: it is for {text}. Unset it.")
        values = dataclasses.asdict(self) | self.own_hyperparameters()
        for clash, text in (*_CLASHES, *self.row().refusals):
            if clash(self):
                raise ValueError(text.format(**values))

    def check_library(self) -> None:
        """Raises what the library's own checks of these values raise; imports TensorFlow."""
        self.elastic_net()
        self.local_training(batch_size=1)
        self.codec()
        self.build_compressor()
        self.counted_codecs()

    def elastic_net(self) -> ElasticNet:
        """The penalties."""
        from tff_fen.config import ElasticNet

        return ElasticNet(self.l1, self.l2, self.threshold, self.l1_step)

    def local_training(self, batch_size: int, augment: Callable[[Any, Any], Any] | None = None) -> LocalTraining:
        """The local steps; `batch_size` is the task's, for where none is set, and so is the augmentation."""
        from tff_fen.config import LocalTraining

        return LocalTraining(
            self.learning_rate,
            epochs=self.epochs,
            batch_size=self.batch_size if self.batch_size is not None else batch_size,
            lr_decay=self.lr_decay,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            seed=self.seed,
            augment=augment,
            xla=self.xla,
        )

    def codec(self) -> Codec | None:
        """What messages go through, if anything."""
        from tff_fen.codec import parse_codec

        return None if self.uplink is None else parse_codec(self.uplink)

    def build_compressor(self) -> Compressor | None:
        """What makes messages cheaper before the codec, if anything."""
        from tff_fen.codec import parse_compressor

        return None if self.compressor is None else parse_compressor(self.compressor)

    def counted_codecs(self) -> list[Codec]:
        """Those whose bytes are only counted."""
        from tff_fen.codec import parse_codec

        return [parse_codec(name) for name in self.also_count.split(",") if name]


def build_config(*layers: Mapping[str, Any]) -> ExperimentConfig:
    """Returns the configuration of these values, later layers over earlier ones; of hyperparameters each by itself."""
    merged: dict[str, Any] = {"hyperparameters": ""}
    for layer in layers:
        own = layer.get("hyperparameters")
        earlier = merged["hyperparameters"]
        merged |= layer
        merged["hyperparameters"] = earlier if own is None else merge_hyperparameters(earlier, own)
    return ExperimentConfig(**_by_their_own_flags(merged)).with_shown_hyperparameters()


def _by_their_own_flags(values: dict[str, Any]) -> dict[str, Any]:
    """`compressor=threshold:EPSILON` or a codec as the field that it is another name for."""
    name: Any = values.get("compressor")
    row = compression_of(name) if isinstance(name, str) else None
    if row is None or row.setting == "compressor":
        return values
    field = row.setting
    if values.get(field) not in (None, FIELDS[field].default):
        raise ValueError(f"compressor={name!r} and {field}={values[field]!r} are two values of one setting. Set one.")
    try:
        kind = VALUES[field].kind
        value = name if kind is str else convert(kind, name.partition(":")[2])
    except ValueError:
        raise ValueError(f"compressor must be {row.form!r}, found {name!r}.") from None
    return {**values, "compressor": None, field: value}


def _rounds(compressor: str | None) -> bool:
    row = compression_of(compressor)
    return row is not None and row.rounds


def _only_with_algorithms(name: str) -> tuple[Callable[[ExperimentConfig], bool], str]:
    keys = [key for key, row in ALGORITHMS.items() if name in row.settings]
    return lambda config: name in config.row().settings, " or ".join(f"algorithm {key!r}" for key in keys)


# Fields that mean something only together with others: a value that would be ignored is refused.
_ONLY_WITH: dict[str, tuple[Callable[[ExperimentConfig], bool], str]] = {
    **dict.fromkeys(
        ("dp_noise_multiplier", "dp_clip", "dp_delta", "dp_test_seed"),
        (lambda c: c.aggregator == "dp", "aggregator 'dp'"),
    ),
    "dp_second_clip": (
        lambda c: c.aggregator == "dp" and c.row().releases_second(c),
        "aggregator 'dp' with an algorithm that releases two aggregates of each client",
    ),
    "compression_bits": (lambda c: c.aggregator == "compression", "aggregator 'compression'"),
    "alpha": (lambda c: c.task == "synthetic", "task 'synthetic'"),
    "beta": (lambda c: c.task == "synthetic", "task 'synthetic'"),
    "augment": (
        lambda c: c.task in ("cifar10", "cifar100") or is_foreign(c.task),
        "tasks of photographs, 'cifar10' and 'cifar100'",
    ),
    "hyperparameters": (
        lambda c: is_foreign(c.algorithm) or bool(c.row().hyperparameters),
        "an algorithm of your own, --algorithm=MODULE:FUNCTION, or one that has some, see --list=algorithms",
    ),
    **{name: _only_with_algorithms(name) for row in ALGORITHMS.values() for name in row.settings},
}

# Combinations that cannot work, each with what to say: found before any work starts.
_CLASHES: tuple[tuple[Callable[[ExperimentConfig], bool], str], ...] = (
    (
        lambda c: c.uplink is not None and c.aggregator in ("compression", "secure"),
        "uplink={uplink!r} and aggregator={aggregator!r} are two ways to encode a message. Take one of them.",
    ),
    (
        lambda c: c.compressor is not None and c.aggregator in ("compression", "secure"),
        "compressor={compressor!r} and aggregator={aggregator!r} are two ways to encode a message. Take one of them.",
    ),
    (
        lambda c: c.compressor is not None and c.top_k is not None,
        "compressor={compressor!r} and top_k={top_k} are two compressors. Take one of them.",
    ),
    (
        lambda c: _rounds(c.compressor) and c.uplink not in (None, "lossless"),
        "compressor={compressor!r} and uplink={uplink!r} are two ways to round a message. Take one of them.",
    ),
    (
        lambda c: c.error_feedback and not (c.threshold or c.top_k or c.compressor or c.uplink),
        "error_feedback=True has no effect: all of a message is sent. Set --compressor=top_k:0.1, say, or unset it.",
    ),
    (
        lambda c: c.per_client_metrics and not c.measures_clients,
        "per_client_metrics=True writes what aggregator={aggregator!r} hides of single clients. Unset it, or set "
        "--client_measurements=on if this is a simulation that may see it.",
    ),
    (
        lambda c: c.xla and c.augment != "none",
        "xla=True does not go with augment={augment!r}: XLA draws other random numbers. Set --augment=none or --noxla.",
    ),
    (
        lambda c: c.aggregator == "dp" and c.dp_delta >= 1.0,
        "dp_delta must be < 1, found {dp_delta}.",
    ),
)
