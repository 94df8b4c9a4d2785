"""A flattened model update as the bytes that would really be sent, and back.

    codec = parse_codec("quantised:0.01")
    message = codec.encode(vector)              # len(message) bytes go over the wire
    codec.decode(message)                       # float32[n], the same bits as codec.apply(vector)

The non-zeros' places are sent as the gaps between them, at the entropy of the gaps. A geometric law of the gaps would
cost as much as n tosses of a coin; the gaps' own histogram costs no more, and less if non-zeros cluster. A message:

    b"FE", version, form     4 bytes
    length, non-zeros        varints
    step                     4 bytes, float32 little-endian; the quantised form only
    gaps, values             sections of `entropy_coding`; none if there are no non-zeros
    zeros                    until the bytes so far are 1/1024 of the non-zeros, if they are fewer
    checksum                 4 bytes, CRC-32 of all before

The zero bytes let a reader refuse a false number of non-zeros before it sets memory aside for them.
"""

from __future__ import annotations

import abc
import dataclasses
import difflib
import math
import struct
import zlib
from typing import ClassVar, Protocol

import numpy as np

from tff_fen.checks import check_number, check_type
from tff_fen.entropy_coding.numbers import CodecError, Reader, changes, decode_numbers, encode_numbers, varint
from tff_fen.entropy_coding.symbols import Float32, High, Leading, Split

__all__ = ["Codec", "CodecError", "Float16Codec", "LosslessCodec", "QuantisedCodec", "parse_codec"]

MAGIC = b"FE"
VERSION = 1
# All zeros are a few bytes whatever their number: a message can ask for this much memory (times four bytes), not more.
MAX_PARAMETERS = 2**31
MAX_NONZEROS_PER_BYTE = 1024
# Up to here q * step / step rounds to q in float32 (two roundings of 2^-24 each stay below half a step).
MAX_STEPS = 2**22

INTEGERS: tuple[Split, ...] = tuple(Leading(bits) for bits in (11, 7, 4, 2))


class Codec(Protocol):
    """Encodes a float32 vector, any length up to 2^31, as bytes."""

    @property
    def name(self) -> str:
        """What `parse_codec` makes this codec from."""

    def encode(self, vector: np.ndarray) -> bytes:
        """float32[n] to a message; raises if the form cannot hold a value."""

    def decode(self, message: bytes) -> np.ndarray:
        """A message of this form to float32[n]; raises `CodecError` for anything else."""

    def apply(self, vector: np.ndarray) -> np.ndarray:
        """What `decode(encode(vector))` returns, without the bytes."""


class _Form(abc.ABC):
    """The message around the values of the non-zeros; each form says how they become `uint32` numbers and back."""

    FORM: ClassVar[int]
    FAMILY: ClassVar[tuple[Split, ...]]

    @property
    @abc.abstractmethod
    def name(self) -> str: ...

    @abc.abstractmethod
    def _nonzeros(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places (int64[k], ascending) and numbers (uint32[k]) of what is not zero once encoded."""

    @abc.abstractmethod
    def _values(self, numbers: np.ndarray, step: np.float32) -> np.ndarray:
        """float32[k] from the numbers of a message; raises `CodecError` for numbers that `_nonzeros` never gives."""

    def _step(self) -> np.float32 | None:
        return None

    def encode(self, vector: np.ndarray) -> bytes:
        places, numbers = self._nonzeros(_check_vector(vector))
        step = self._step()
        body = MAGIC + bytes([VERSION, self.FORM]) + varint(len(vector)) + varint(len(places))
        body += b"" if step is None else struct.pack("<f", step)
        if len(places):
            gaps = (changes(places, -1) - 1).astype(np.uint32)
            body += encode_numbers(gaps, INTEGERS) + encode_numbers(numbers, self.FAMILY)
        body += bytes(_missing(len(places), len(body)))
        return body + struct.pack("<I", zlib.crc32(body))

    def decode(self, message: bytes) -> np.ndarray:
        reader = self._open(message)
        length = reader.number("number of parameters", 0, MAX_PARAMETERS)
        count = reader.number("number of non-zeros", 0, min(length, MAX_NONZEROS_PER_BYTE * len(message)))
        step = self._step()
        if step is not None:
            step = np.float32(struct.unpack("<f", reader.take(4, "step"))[0])
            if not (np.isfinite(step) and step > 0):
                raise CodecError(f"Message has step {step}; a step is finite and > 0.")
        places, values = np.zeros(0, np.int64), np.zeros(0, np.float32)
        if count:
            gaps = decode_numbers(reader, count, INTEGERS)
            places = np.cumsum(gaps + np.int64(1)) - 1
            if places[-1] >= length:
                raise CodecError(f"Message has a non-zero at {places[-1]}, beyond its {length} parameters.")
            values = self._values(decode_numbers(reader, count, self.FAMILY), step or np.float32(1))
        missing = _missing(count, len(message) - 4 - reader.left)
        if reader.left != missing or reader.take(missing, "zeros").strip(b"\0"):
            raise CodecError(f"Message goes on after its values: {reader.left} bytes, of which {missing} are expected.")
        try:
            vector = np.zeros(length, np.float32)
        except MemoryError:
            raise CodecError(f"Message has {length} parameters, more than there is memory for.") from None
        vector[places] = values
        return vector

    def _open(self, message: bytes) -> Reader:
        """Checks all that does not depend on the form; what is left to read begins with the length."""
        check_type("message", message, bytes, "Take what encode returned.")
        if len(message) < 10 or message[:2] != MAGIC:
            raise CodecError(
                f"Not a message of a codec: {len(message)} bytes beginning with {message[:4]!r}; "
                f"messages have at least 10 and begin with {MAGIC!r}."
            )
        if message[2] != VERSION:
            raise CodecError(f"Message of version {message[2]}; this package reads version {VERSION}.")
        (checksum,) = struct.unpack("<I", message[-4:])
        if checksum != zlib.crc32(message[:-4]):
            raise CodecError("Message does not have the checksum it was sent with: it was changed or cut on the way.")
        if message[3] != self.FORM:
            form = _FORMS.get(message[3])
            sender = f"form {message[3]}" if form is None else f"a {form}"
            raise CodecError(f"Message of {sender}, given to a {type(self).__name__}. Decode it with its own codec.")
        reader = Reader(message[:-4])
        reader.take(4, "header")
        return reader


@dataclasses.dataclass(frozen=True)
class LosslessCodec(_Form):
    """Every bit of every float32: NaN payloads, infinities and the sign of zero too."""

    FORM = 0
    FAMILY = (Float32(2, True), Float32(0, True), Float32(2, False), Float32(0, False))

    @property
    def name(self) -> str:
        return "lossless"

    def apply(self, vector: np.ndarray) -> np.ndarray:
        return _check_vector(vector).copy()

    def _nonzeros(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bits = vector.view(np.uint32)  # -0.0 is not zero here.
        places = np.flatnonzero(bits != 0)
        return places, bits[places]

    def _values(self, numbers: np.ndarray, step: np.float32) -> np.ndarray:
        if not numbers.all():
            raise CodecError("Message has a zero among its non-zeros.")
        return numbers.view(np.float32)


@dataclasses.dataclass(frozen=True)
class Float16Codec(_Form):
    """Rounds to half precision, to even at a tie; what rounds to zero is +0.0. Values beyond 65504 are refused."""

    FORM = 1
    FAMILY = tuple(High(shift) for shift in (4, 6, 8, 9, 11))

    @property
    def name(self) -> str:
        return "float16"

    def apply(self, vector: np.ndarray) -> np.ndarray:
        return self._halves(_check_vector(vector), None).astype(np.float32) + np.float32(0)  # -0.0 + 0.0 is 0.0.

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


@dataclasses.dataclass(frozen=True)
class QuantisedCodec(_Form):
    """Rounds to multiples of `step`: `q = rint(x / step)`, decoded as `q * step`, in float32, without -0.0.

    What was decoded is encoded again to the same bytes: up to 2^22 steps, beyond which values are refused.
    `decode` takes the step from the message.

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
        return self._steps(_check_vector(vector)) * np.float32(self.step) + np.float32(0)  # -0.0 + 0.0 is 0.0.

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


_KNOWN: dict[str, type[LosslessCodec] | type[Float16Codec] | type[QuantisedCodec]] = {
    "lossless": LosslessCodec,
    "float16": Float16Codec,
    "quantised": QuantisedCodec,
}
CODECS = tuple(_KNOWN.values())
_FORMS: dict[int, str] = {form.FORM: form.__name__ for form in _KNOWN.values()}


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


def _check_vector(vector: np.ndarray) -> np.ndarray:
    """The vector itself, contiguous."""
    check_type("vector", vector, np.ndarray, "Flatten and concatenate the update's arrays.")
    if vector.dtype != np.float32 or vector.ndim != 1 or len(vector) > MAX_PARAMETERS:
        raise ValueError(
            f"vector must be float32[n] with n at most {MAX_PARAMETERS}, found {vector.dtype}{list(vector.shape)}. "
            "Flatten and concatenate the update's arrays, as float32."
        )
    return np.ascontiguousarray(vector)


def _most_steps(step: np.float32) -> int:
    """The largest |q| that is encoded: q * step is finite, and gives q again."""
    return int(min(MAX_STEPS, float(np.finfo(np.float32).max) / float(step)))


def _missing(count: int, size: int) -> int:
    """How many zero bytes follow `size` bytes with `count` non-zeros in them."""
    return max(0, math.ceil(count / MAX_NONZEROS_PER_BYTE) - size)
