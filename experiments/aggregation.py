"""The aggregators of an experiment by name, and what goes over the wire with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow_federated as tff

import tff_fen
from experiments.experiment_config import ExperimentConfig


class Aggregation(NamedTuple):
    """The factories of an experiment, and what goes over the wire with them.

    Attributes:
      first: of the main message; `None` for the exact mean.
      second: of the second aggregate, where an algorithm releases two.
      message_bytes: bytes of a message of d elements in some tensors, `(d, tensors) -> bytes`; `None`
        where the codec decides.
    """

    first: Any = None
    second: Any = None
    message_bytes: Callable[[int, int], int] | None = None


def build_aggregation(config: ExperimentConfig, expected_clients: float) -> Aggregation:
    """Builds the aggregators; `expected_clients` is the mean number of participants."""
    return _AGGREGATIONS[config.aggregator](config, expected_clients)


def _build_dp(config: ExperimentConfig, expected_clients: float) -> Aggregation:
    if config.row().releases_second(config):
        pair = tff_fen.build_dp_pair(
            config.dp_noise_multiplier,
            expected_clients,
            config.dp_clip,
            config.dp_second_clip,
            test_seed=config.dp_test_seed,
        )
        return Aggregation(*pair)
    factory = tff_fen.build_dp_factory(
        config.dp_noise_multiplier, expected_clients, config.dp_clip, test_seed=config.dp_test_seed
    )
    return Aggregation(factory)


def _build_compression(config: ExperimentConfig, expected_clients: float) -> Aggregation:
    del expected_clients
    bits = config.compression_bits
    encoded = tff.aggregators.EncodedSumFactory.quantize_above_threshold(quantization_bits=bits, threshold=1)
    # Each tensor goes with its smallest and largest value.
    return Aggregation(
        tff.aggregators.MeanFactory(encoded), message_bytes=lambda size, tensors: -(-size * bits // 8) + 8 * tensors
    )


_AGGREGATIONS: dict[str, Callable[[ExperimentConfig, float], Aggregation]] = {
    "mean": lambda config, expected: Aggregation(),
    "dp": _build_dp,
    "compression": _build_compression,
    "robust": lambda config, expected: Aggregation(tff.learning.robust_aggregator()),
    # What is masked has no zeros left: every element is sent, as an integer of the modulus.
    "secure": lambda config, expected: Aggregation(
        tff.learning.secure_aggregator(), message_bytes=lambda size, tensors: 4 * size
    ),
}
