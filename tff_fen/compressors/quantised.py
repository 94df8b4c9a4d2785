"""Elements rounded to multiples of a step."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import tensorflow as tf

from tff_fen.checks import check_number
from tff_fen.entropy_coding.message import INTEGERS, MessageForm, check_vector
from tff_fen.entropy_coding.numbers import CodecError

# Up to here q * step / step rounds to q in float32 (two roundings of 2^-24 each stay below half a step).
MAX_STEPS = 2**22


@dataclasses.dataclass(frozen=True)
class QuantisedCodec(MessageForm):
    """Rounds to multiples of `step`: `q = rint(x / step)`, decoded as `q * step`, in float32, without -0.0.

    What was decoded is encoded again to the same bytes: up to 2^22 steps, beyond which values are refused.
    `decode` takes the step from the message, unless it is told which to expect.

    Attributes:
      step: > 0, used as float32; an error of at most `step / 2` a parameter.
    """

    step: float = 0.01

    FORM = 2
    FAMILY = INTEGERS

    def __post_init__(self) -> None:
        check_number("QuantisedCodec.step", self.step, 0.0, open_low=True)
        with np.errstate(over="ignore"):
            step = np.float32(self.step)
        if not (np.isfinite(step) and step > 0):
            raise ValueError(f"QuantisedCodec.step must be a finite number > 0 in float32, found {self.step!r}.")

    @property
    def name(self) -> str:
        return f"quantised:{self.step!r}"

    def apply(self, vector: np.ndarray) -> np.ndarray:
        return self._steps(check_vector(vector)) * np.float32(self.step) + np.float32(0)  # -0.0 + 0.0 is 0.0.

    def as_received(self, x: tf.Tensor) -> tf.Tensor:
        steps = tf.round(x / tf.constant(self.step, tf.float32))
        rounded = steps * tf.constant(self.step, tf.float32)
        return tf.where(tf.abs(steps) <= float(self.max_steps), rounded, math.inf)

    @property
    def max_steps(self) -> int:
        """The largest |q| that is encoded."""
        return _most_steps(self._step())

    def _step(self) -> np.float32:
        return np.float32(self.step)

    def _steps(self, vector: np.ndarray) -> np.ndarray:
        """float32[n] of whole numbers."""
        step, most = self._step(), self.max_steps
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.rint(vector / step)
        # Written so that NaN, which passes through max and min, is refused.
        if steps.size and not (steps.max() <= most and steps.min() >= -most):
            bad = int(np.argmin(np.abs(steps) <= most))
            raise ValueError(
                f"{self} cannot hold vector[{bad}] = {vector[bad]}; values must be finite and at most {most} steps. "
                "Clip the update, take a larger step, or LosslessCodec()."
            )
        return steps

    def _nonzeros(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        steps = self._steps(vector)
        places = np.flatnonzero(steps != 0)
        signed = steps[places].astype(np.int32)
        # 1, -1, 2, -2, ... as 0, 1, 2, 3, ...
        return places, (2 * np.abs(signed) - 2 + (signed < 0)).astype(np.uint32)

    def _values(self, numbers: np.ndarray, step: np.float32) -> np.ndarray:
        most = _most_steps(step)
        magnitude = (numbers >> np.uint32(1)) + np.uint32(1)
        if magnitude.max() > most:
            raise CodecError(f"Message has a value of {magnitude.max()} steps of {step}; {most} is the most.")
        return np.where(numbers & np.uint32(1), -magnitude.astype(np.int64), magnitude).astype(np.float32) * step


def _most_steps(step: np.float32) -> int:
    """The largest |q| that is encoded: q * step is finite, and gives q again."""
    return int(min(MAX_STEPS, float(np.finfo(np.float32).max) / float(step)))
