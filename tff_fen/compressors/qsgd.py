"""QSGD's quantiser (Alistarh et al., "QSGD", NeurIPS 2017), which FedPAQ (Reisizadeh et al., AISTATS 2020) sends."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tff_fen import measurements
from tff_fen.checks import check_integer
from tff_fen.compressors.compressor import Compressed
from tff_fen.compressors.quantised import MAX_STEPS
from tff_fen.compressors.vectors import as_message


@dataclasses.dataclass(frozen=True)
class Qsgd:
    """Rounds to multiples of `|v|/s` at random, so that the mean is v.

        Q(v)_i = |v| sign(v_i) l/s      with probability 1 - (|v_i| s/|v| - l),  l = floor(|v_i| s/|v|)
                 |v| sign(v_i) (l+1)/s  else

    |v| is the norm of the whole message. It goes with the integers, as the step |v|/s.

    Attributes:
      levels: s >= 1.
    """

    levels: int

    def __post_init__(self) -> None:
        check_integer("Qsgd.levels", self.levels, 1, MAX_STEPS // 2)

    @property
    def name(self) -> str:
        return f"qsgd:{self.levels}"

    @property
    def sends_steps(self) -> bool:
        return True

    def compress(self, message: Any, seed: tf.Tensor) -> Compressed:
        v = measurements.flatten(message)
        norm = tf.norm(v)
        step = tf.where(norm > 0.0, norm / float(self.levels), 1.0)
        exact = tf.abs(v) / step
        lower = tf.floor(exact)
        draw = tf.random.stateless_uniform(tf.shape(v), seed, alg="philox")
        steps = tf.sign(v) * (lower + tf.cast(draw < exact - lower, tf.float32))
        return Compressed(as_message(steps * step, message), step)
