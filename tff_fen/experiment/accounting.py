"""What a round costs on the wire, in bytes really encoded: uplink, downlink and control variates apart."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import dp_accounting
import numpy as np
import tensorflow as tf

from tff_fen.codec import Codec, LosslessCodec
from tff_fen.experiment.algorithms import Aggregation
from tff_fen.experiment.config import ExperimentConfig, parse_sampling

# Magnitudes of updates in half decades: below 10^-8, ..., above 10.
HISTOGRAM_EDGES = 10.0 ** np.arange(-8.0, 1.5, 0.25)

# Orders of the Renyi divergence that are tried: mostly whole ones, which cost a tenth of others. More can only lower
# epsilon, and hardly do.
_ORDERS = [1.25, 1.5, 1.75, 2.5, 3.5, *range(2, 65), 80, 128, 256, 512]


class MessageMismatchError(Exception):
    """What was decoded is not what the server aggregated."""


def flatten(structure: Any) -> np.ndarray:
    """Returns all elements as one float32 vector; -0.0 is 0.0, which nobody sends."""
    return np.concatenate([np.ravel(x) for x in tf.nest.flatten(structure)]) + np.float32(0)


class Accountant:
    """Counts the bytes of messages."""

    def __init__(self, config: ExperimentConfig, aggregation: Aggregation) -> None:
        self._codec = config.codec()
        self._counted = {codec.name: codec for codec in config.counted_codecs()}
        self._message_bytes = aggregation.message_bytes

    def count_uplink(self, messages: list[Any]) -> tuple[dict[str, int], np.ndarray]:
        """Counts what clients sent.

        Args:
          messages: of a round, as `process.next` gives them back.

        Returns:
          The columns (`uplink_bytes`, `uplink_control_bytes` for SCAFFOLD, and those of further
          codecs), and a histogram of the magnitudes of all elements of the deltas: zeros, and
          those between `HISTOGRAM_EDGES`.
        """
        counts: dict[str, int] = collections.OrderedDict(uplink_bytes=0)
        histogram = np.zeros(len(HISTOGRAM_EDGES) + 2, np.int64)
        for sent in messages:
            parts = sent.message if isinstance(sent.message, Mapping) else {"delta": sent.message}
            for name, part in parts.items():
                vector, tensors = flatten(part), len(tf.nest.flatten(part))
                prefix = "uplink" if name == "delta" else f"uplink_{name}"
                sizes = {f"{prefix}_bytes": self._as_sent(vector, tensors)}
                sizes |= {f"{prefix}_bytes_{key}": len(c.encode(vector)) for key, c in self._counted.items()}
                for key, size in sizes.items():
                    counts[key] = counts.get(key, 0) + size
                if name == "delta":
                    histogram += magnitude_histogram(vector)
        return counts, histogram

    def count_downlink(self, weights: Any, shared: Any | None, participants: int) -> dict[str, int]:
        """Counts what the server sends to each participant: the model and, for SCAFFOLD, c; lossless.

        Args:
          weights: the trainable weights that were broadcast.
          shared: c, or `None`.
          participants: how many got them.
        """
        counts = collections.OrderedDict(downlink_bytes=participants * len(LosslessCodec().encode(flatten(weights))))
        if shared is not None:
            counts["downlink_control_bytes"] = participants * len(LosslessCodec().encode(flatten(shared)))
        return counts

    def _as_sent(self, vector: np.ndarray, tensors: int) -> int:
        if self._message_bytes is not None:
            return self._message_bytes(vector.size, tensors)
        codec: Codec = self._codec or LosslessCodec()
        message = codec.encode(vector)
        if self._codec is not None and not np.array_equal(codec.decode(message), vector):
            raise MessageMismatchError(
                f"A message of {vector.size} elements through codec {codec.name!r} was decoded to other numbers than "
                "the server aggregated. This is a defect of the package; please report it with the configuration."
            )
        return len(message)


def magnitude_histogram(vector: np.ndarray) -> np.ndarray:
    """Returns counts [zeros, below the first edge, between edges..., above the last], int64."""
    magnitudes = np.abs(vector[vector != 0])
    places = np.searchsorted(HISTOGRAM_EDGES, magnitudes, side="right")
    counts = np.bincount(places, minlength=len(HISTOGRAM_EDGES) + 1)
    return np.concatenate([[vector.size - magnitudes.size], counts])


class PrivacyAccountant:
    """(epsilon, delta) spent after so many rounds, by Renyi accounting.

    With Bernoulli sampling each round is a Poisson-subsampled Gaussian mechanism (neighbours
    differ by one client's presence). Uniform sampling of a fixed number has another notion of
    neighbours; it is accounted for as if all clients took part, which is safe.
    """

    def __init__(self, config: ExperimentConfig) -> None:
        gaussian = dp_accounting.GaussianDpEvent(config.dp_noise_multiplier)
        name, value = parse_sampling(config.sampling)
        self._event = dp_accounting.PoissonSampledDpEvent(value, gaussian) if name == "bernoulli" else gaussian
        self._delta = config.dp_delta

    def epsilon(self, rounds: int) -> float:
        """Returns epsilon after `rounds` rounds."""
        accountant = dp_accounting.rdp.RdpAccountant(_ORDERS)
        accountant.compose(self._event, rounds)
        return float(accountant.get_epsilon(self._delta))
