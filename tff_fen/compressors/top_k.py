"""Top-k: the elements of largest magnitude, and zeros elsewhere."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tff_fen import measurements
from tff_fen.compressors.compressor import Compressed
from tff_fen.compressors.vectors import as_message, check_share, largest, zeros_but_at


@dataclasses.dataclass(frozen=True)
class TopK:
    """Sends the `ceil(share * d)` elements of largest magnitude as they are; biased, so mostly with error feedback.

    The places of the elements cost what a codec needs for the gaps between them.

    Attributes:
      share: of the elements, in (0, 1].
    """

    share: float

    def __post_init__(self) -> None:
        check_share("TopK.share", self.share)

    @property
    def name(self) -> str:
        return f"top_k:{self.share!r}"

    @property
    def sends_steps(self) -> bool:
        return False

    def compress(self, message: Any, seed: tf.Tensor) -> Compressed:
        del seed
        vector = measurements.flatten(message)
        places, values = largest(vector, self.share)
        return Compressed(as_message(zeros_but_at(places, values, vector), message), None)
