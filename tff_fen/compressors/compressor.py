"""What a compressor and a codec are: the one makes a message cheaper, the other encodes it; both say what arrives."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf


class Compressed(NamedTuple):
    """A message after a compressor.

    Attributes:
      message: what the server gets, in float32.
      step: float32 scalar of which every element is a whole multiple, and which is sent with the integers;
        `None` where the elements are sent as they are.
    """

    message: Any
    step: tf.Tensor | None


class Compressor(Protocol):
    """Makes a message cheaper; a frozen dataclass with the paper's symbols as fields."""

    @property
    def name(self) -> str:
        """What `parse_compressor` makes this compressor from."""

    @property
    def sends_steps(self) -> bool:
        """Whether the message goes as whole multiples of a step, which `QuantisedCodec(step)` then encodes."""

    def compress(self, message: Any, seed: tf.Tensor) -> Compressed:
        """Returns what the server gets of a structure of float32 tensors; TensorFlow code.

        Args:
          message: what the client wants to send.
          seed: int32[2], of this message alone, for compressors that draw random numbers.
        """


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
