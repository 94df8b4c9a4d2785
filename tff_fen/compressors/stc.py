"""Sparse ternary compression (Sattler et al., "Robust and Communication-Efficient Federated Learning", TNNLS 2020)."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tff_fen import measurements
from tff_fen.compressors.compressor import Compressed
from tff_fen.compressors.vectors import as_message, check_share, largest, zeros_but_at


@dataclasses.dataclass(frozen=True)
class Stc:
    """Sends the signs of the elements of largest magnitude, and one magnitude for all of them.

        STC(v)_i = mu sign(v_i) for the ceil(p d) elements of largest magnitude, 0 else;  mu their mean magnitude

    Sattler et al. use it with error feedback.

    Attributes:
      share: p, of the elements, in (0, 1].
    """

    share: float

    def __post_init__(self) -> None:
        check_share("Stc.share", self.share)

    @property
    def name(self) -> str:
        return f"stc:{self.share!r}"

    @property
    def sends_steps(self) -> bool:
        return True

    def compress(self, message: Any, seed: tf.Tensor) -> Compressed:
        del seed
        v = measurements.flatten(message)
        places, values = largest(v, self.share)
        mean = tf.reduce_mean(tf.abs(values))
        mu = tf.where(tf.equal(mean, 0.0), 1.0, mean)
        return Compressed(as_message(zeros_but_at(places, mu * tf.sign(values), v), message), mu)
