"""Every bit of every element, at the entropy of the elements."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tff_fen.entropy_coding.message import MessageForm, check_vector
from tff_fen.entropy_coding.numbers import CodecError
from tff_fen.entropy_coding.symbols import Float32


@dataclasses.dataclass(frozen=True)
class LosslessCodec(MessageForm):
    """Every bit of every float32: NaN payloads, infinities and the sign of zero too."""

    FORM = 0
    FAMILY = (Float32(2, True), Float32(0, True), Float32(2, False), Float32(0, False))

    @property
    def name(self) -> str:
        return "lossless"

    def apply(self, vector: np.ndarray) -> np.ndarray:
        return check_vector(vector).copy()

    def as_received(self, x: tf.Tensor) -> tf.Tensor:
        return x

    def _nonzeros(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bits = vector.view(np.uint32)  # -0.0 is not zero here.
        places = np.flatnonzero(bits != 0)
        return places, bits[places]

    def _values(self, numbers: np.ndarray, step: np.float32) -> np.ndarray:
        if not numbers.all():
            raise CodecError("Message has a zero among its non-zeros.")
        return numbers.view(np.float32)
