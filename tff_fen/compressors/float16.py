"""Elements rounded to half precision."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tff_fen.entropy_coding.message import MessageForm, check_vector
from tff_fen.entropy_coding.numbers import CodecError
from tff_fen.entropy_coding.symbols import High


@dataclasses.dataclass(frozen=True)
class Float16Codec(MessageForm):
    """Rounds to half precision, to even at a tie; what rounds to zero is +0.0. Values beyond 65504 are refused."""

    FORM = 1
    FAMILY = tuple(High(shift) for shift in (4, 6, 8, 9, 11))

    @property
    def name(self) -> str:
        return "float16"

    def apply(self, vector: np.ndarray) -> np.ndarray:
        return self._halves(check_vector(vector), None).astype(np.float32) + np.float32(0)  # -0.0 + 0.0 is 0.0.

    def as_received(self, x: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.cast(x, tf.float16), tf.float32)

    def _halves(self, values: np.ndarray, places: np.ndarray | None) -> np.ndarray:
        with np.errstate(over="ignore"):
            halves = values.astype(np.float16)
        finite = np.isfinite(halves)
        if not finite.all():
            bad = int(np.argmin(finite))
            raise ValueError(
                f"{self} cannot hold vector[{bad if places is None else places[bad]}] = {values[bad]}; values must be "
                "finite and round to at most 65504. Clip the update, or take LosslessCodec()."
            )
        return halves

    def _nonzeros(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        places = np.flatnonzero(vector != 0)
        bits = self._halves(vector[places], places).view(np.uint16)
        kept = (bits & np.uint16(0x7FFF)) != 0
        if not kept.all():
            places, bits = places[kept], bits[kept]
        wide = bits.astype(np.uint32)
        return places, ((wide << np.uint32(1)) & np.uint32(0xFFFF)) | (wide >> np.uint32(15))  # The sign comes last.

    def _values(self, numbers: np.ndarray, step: np.float32) -> np.ndarray:
        magnitude = numbers >> np.uint32(1)
        if magnitude.min() < 1 or magnitude.max() >= 0x7C00:
            raise CodecError("Message has a number among its non-zeros that is no finite half other than zero.")
        bits = magnitude | ((numbers & np.uint32(1)) << np.uint32(15))
        return bits.astype(np.uint16).view(np.float16).astype(np.float32)
