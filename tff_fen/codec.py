"""The codecs by name: what rounds a message, and the bytes that would really be sent.

    codec = parse_codec("quantised:0.01")
    message = codec.encode(vector)              # len(message) bytes go over the wire
    codec.decode(message)                       # float32[n], the same bits as codec.apply(vector)
    codec.decode(message, length=n, step=codec.step, finite=True)  # of a sender who may be hostile

Each codec has two halves in one file of `compressors`: `as_received`, TensorFlow code for a client's graph, which
cannot hold an entropy coder, and `encode`, `decode`, the bytes. Both round alike, so that client, server and decoder
have the same numbers.
"""

from __future__ import annotations

import difflib
from typing import Protocol

import numpy as np
import tensorflow as tf

from tff_fen.checks import check_type
from tff_fen.compressors.float16 import Float16Codec
from tff_fen.compressors.lossless import LosslessCodec
from tff_fen.compressors.quantised import QuantisedCodec
from tff_fen.entropy_coding.numbers import CodecError

__all__ = ["CODECS", "Codec", "CodecError", "Float16Codec", "LosslessCodec", "QuantisedCodec", "parse_codec"]


class Codec(Protocol):
    """Encodes a float32 vector, any length up to 2^31, as bytes."""

    @property
    def name(self) -> str:
        """What `parse_codec` makes this codec from."""

    @property
    def step(self) -> float | None:
        """What values are multiples of; `None` where messages bring no step."""

    def encode(self, vector: np.ndarray) -> bytes:
        """float32[n] to a message; raises if the form cannot hold a value."""

    def decode(
        self, message: bytes, *, length: int | None = None, step: float | None = None, finite: bool = False
    ) -> np.ndarray:
        """A message of this form to float32[n]; raises `CodecError` for anything else.

        With `length` given, time and memory are bounded by it, whatever the message holds. `step` is the one that is
        expected, `finite` refuses NaN and infinities.
        """

    def apply(self, vector: np.ndarray) -> np.ndarray:
        """What `decode(encode(vector))` returns, without the bytes."""

    def as_received(self, x: tf.Tensor) -> tf.Tensor:
        """What the server gets of a tensor; infinite where `encode` would refuse a value."""


_KNOWN: dict[str, type[LosslessCodec] | type[Float16Codec] | type[QuantisedCodec]] = {
    "lossless": LosslessCodec,
    "float16": Float16Codec,
    "quantised": QuantisedCodec,
}
CODECS = tuple(_KNOWN.values())


def parse_codec(name: str) -> Codec:
    """The codec of a name: "lossless", "float16", "quantised" (step 0.01) or "quantised:STEP"."""
    check_type("codec", name, str, "Take 'lossless', 'float16' or 'quantised:0.01'.")
    kind, colon, step = name.partition(":")
    if kind not in _KNOWN:
        nearest = difflib.get_close_matches(kind, _KNOWN, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"codec must be 'lossless', 'float16', 'quantised' or 'quantised:STEP', found {name!r}. "
            f"Did you mean {nearest!r}?"
        )
    if not colon:
        return _KNOWN[kind]()
    if kind != "quantised":
        raise ValueError(f"codec {kind!r} takes no step, found {name!r}. Take {kind!r}, or 'quantised:STEP'.")
    try:
        number = float(step)
    except ValueError:
        raise ValueError(f"codec must be 'quantised:STEP' with a number > 0 as STEP, found {name!r}.") from None
    return QuantisedCodec(number)
