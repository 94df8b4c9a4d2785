"""What a compressor is: it makes a message cheaper, and says what the server will hold."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

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
