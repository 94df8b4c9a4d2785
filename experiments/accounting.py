"""What a round costs on the wire, in bytes really encoded: uplink, downlink and control variates apart."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

import dp_accounting
import numpy as np
import tensorflow as tf
from absl import logging

from experiments.experiment_config import ExperimentConfig
from experiments.methods import Aggregation
from tff_fen.codec import Codec, LosslessCodec

# Magnitudes of updates in quarters of a decade, from 10^-8 on.
HISTOGRAM_EDGES = 10.0 ** np.arange(-8.0, 1.5, 0.25)

SENT_COLUMNS = ("uplink_bytes", "uplink_control_bytes", "uplink_sign_bytes")
"""What clients sent, in the columns of a round."""


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
        # FedDyn's signs follow from delta, unless the server never sees a client's delta.
        self._sends_signs = (
            config.algorithm == "fed_dyn" and config.num_releases() == 2 and aggregation.message_bytes is not None
        )

    def count_uplink(self, messages: list[Any]) -> tuple[dict[str, int | None], np.ndarray]:
        """Counts what clients sent.

        Args:
          messages: of a round, as `process.next` gives them back.

        Returns:
          The columns (`uplink_bytes`, `uplink_control_bytes` for SCAFFOLD, `uplink_sign_bytes` where
          FedDyn's signs are a message of their own, and those of further codecs, `None` where
          one cannot hold a value), and a histogram of the magnitudes of all elements of the
          deltas: zeros, and those between `HISTOGRAM_EDGES`.
        """
        counts: dict[str, int | None] = collections.OrderedDict(uplink_bytes=0)
        histogram = np.zeros(len(HISTOGRAM_EDGES) + 2, np.int64)
        for sent in messages:
            parts = sent.message if isinstance(sent.message, Mapping) else {"delta": sent.message}
            for name, part in parts.items():
                vector, tensors = flatten(part), len(tf.nest.flatten(part))
                prefix = "uplink" if name == "delta" else f"uplink_{name}"
                sizes: dict[str, int | None] = {f"{prefix}_bytes": self._as_sent(vector, tensors)}
                if self._sends_signs:
                    sizes["uplink_sign_bytes"] = sizes["uplink_bytes"]
                sizes |= {f"{prefix}_bytes_{key}": _size_or_none(c, vector) for key, c in self._counted.items()}
                for key, size in sizes.items():
                    so_far = counts.get(key, 0)
                    counts[key] = None if size is None or so_far is None else so_far + size
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


def _size_or_none(codec: Codec, vector: np.ndarray) -> int | None:
    try:
        return len(codec.encode(vector))
    except ValueError as error:
        logging.log_first_n(logging.WARNING, "Bytes of codec %s are left out: %s", 1, codec.name, error)
        return None


def magnitude_histogram(vector: np.ndarray) -> np.ndarray:
    """Returns counts [zeros, below the first edge, between edges..., above the last], int64."""
    magnitudes = np.abs(vector[vector != 0])
    places = np.searchsorted(HISTOGRAM_EDGES, magnitudes, side="right")
    counts = np.bincount(places, minlength=len(HISTOGRAM_EDGES) + 1)
    return np.concatenate([[vector.size - magnitudes.size], counts])


class PrivacyAccountant:
    """(epsilon, delta) spent after so many rounds, by Renyi accounting; neighbours differ by one client's presence.

    Who takes part is a function of the published seed, so that sampling hides nobody: what is
    spent is what the client of most rounds has spent, a Gaussian mechanism for each of them.
    """

    def __init__(self, config: ExperimentConfig, sample: Callable[[int], np.ndarray]) -> None:
        """Initializes the accountant.

        Args:
          config: of the experiment.
          sample: `(round -> client ids)`, who takes part.
        """
        self._event = dp_accounting.GaussianDpEvent(config.dp_noise_multiplier)
        self._delta = config.dp_delta
        self._sample = sample
        self._rounds_of: collections.Counter[int] = collections.Counter()
        self._counted = 0

    def epsilon(self, rounds: int) -> float:
        """Returns epsilon after `rounds` rounds; they may not be fewer than last time."""
        for t in range(self._counted, rounds):
            self._rounds_of.update(int(k) for k in self._sample(t))
        self._counted = rounds
        accountant = dp_accounting.rdp.RdpAccountant()
        accountant.compose(self._event, max(self._rounds_of.values()))
        return float(accountant.get_epsilon(self._delta))
