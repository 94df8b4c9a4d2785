"""The bytes of a message: a header, the places of the non-zeros, their values, and a checksum.

The non-zeros' places are sent as the gaps between them, at the entropy of the gaps. A geometric law of the gaps would
cost as much as n tosses of a coin; the gaps' own histogram costs no more, and less if non-zeros cluster. A message:

    b"FE", version, form     4 bytes
    length, non-zeros        varints
    step                     4 bytes, float32 little-endian; the quantised form only
    gaps, values             sections of `numbers`; none if there are no non-zeros
    zeros                    until the bytes so far are 1/1024 of the non-zeros, if they are fewer
    checksum                 4 bytes, CRC-32 of all before

The zero bytes let a reader refuse a false number of non-zeros before it sets memory aside for them.

A reader that is told the length spends time and memory on that length alone, whatever the message says: every number
in it is checked against the length before anything is made of it, and non-zeros are decoded in blocks.
"""

from __future__ import annotations

import abc
import math
import struct
import zlib
from typing import Any, ClassVar

import numpy as np

from tff_fen.checks import check_integer, check_number, check_type
from tff_fen.entropy_coding.numbers import CodecError, Reader, changes, decode_numbers, encode_numbers, varint
from tff_fen.entropy_coding.symbols import Leading, Split

MAGIC = b"FE"
VERSION = 1
# All zeros are a few bytes whatever their number: a message can ask for this much memory (times four bytes), not more.
MAX_PARAMETERS = 2**31
MAX_NONZEROS_PER_BYTE = 1024
# In each of two sections, for each non-zero: 17 digits of the table, 3 bytes coded, 4 bytes extra.
_LONGEST_PER_PARAMETER = 32
_LONGEST_BESIDES = 128

INTEGERS: tuple[Split, ...] = tuple(Leading(bits) for bits in (11, 7, 4, 2))

# The names of the forms by their number: a form enters its own.
_FORMS: dict[int, str] = {}


class MessageForm(abc.ABC):
    """The message around the values of the non-zeros; each form says how they become `uint32` numbers and back."""

    FORM: ClassVar[int]
    FAMILY: ClassVar[tuple[Split, ...]]
    # Of a form whose messages bring one; a dataclass's field there.
    step: float | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _FORMS[cls.FORM] = cls.__name__

    @property
    @abc.abstractmethod
    def name(self) -> str: ...

    @abc.abstractmethod
    def _nonzeros(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places (int64[k], ascending) and numbers (uint32[k]) of what is not zero once encoded."""

    @abc.abstractmethod
    def _values(self, numbers: np.ndarray, step: np.float32) -> np.ndarray:
        """float32[k] from the numbers of a message; raises `CodecError` for numbers that `_nonzeros` never gives."""

    def encode(self, vector: np.ndarray) -> bytes:
        places, numbers = self._nonzeros(check_vector(vector))
        body = MAGIC + bytes([VERSION, self.FORM]) + varint(len(vector)) + varint(len(places))
        body += b"" if self.step is None else struct.pack("<f", self.step)
        if len(places):
            gaps = (changes(places, -1) - 1).astype(np.uint32)
            body += encode_numbers(gaps, INTEGERS) + encode_numbers(numbers, self.FAMILY)
        body += bytes(_missing(len(places), len(body)))
        return body + struct.pack("<I", zlib.crc32(body))

    def decode(
        self, message: bytes, *, length: int | None = None, step: float | None = None, finite: bool = False
    ) -> np.ndarray:
        """Returns the vector of a message; with `length` given, a message of anybody can be taken.

        Args:
          message: what `encode` returned.
          length: how many parameters are expected. `None` believes the message, up to 2^31 of them: for messages of
            your own alone.
          step: of the quantised form: the step that is expected. `None` takes the message's own.
          finite: whether to refuse NaN and infinities.

        Raises:
          CodecError: if the message is not one of this form, or not as expected.
        """
        if length is not None:
            check_integer("length", length, 0, MAX_PARAMETERS)
        if step is not None:
            if self.step is None:
                raise ValueError(f"step must be None for {self}, whose messages have none, found {step!r}.")
            check_number("step", step, 0.0, open_low=True)
        try:
            return self._decode(message, length, step, finite)
        except MemoryError:
            raise CodecError(f"Message of {len(message)} bytes needs more memory than there is.") from None

    def _decode(self, message: bytes, expected: int | None, expected_step: float | None, finite: bool) -> np.ndarray:
        reader = self._open(message, expected)
        length = reader.number("number of parameters", 0, MAX_PARAMETERS)
        if expected is not None and length != expected:
            raise CodecError(f"Message has {length} parameters; {expected} are expected.")
        count = reader.number("number of non-zeros", 0, min(length, MAX_NONZEROS_PER_BYTE * len(message)))
        step = np.float32(1) if self.step is None else self._read_step(reader, expected_step)
        vector = np.zeros(length, np.float32)
        if count:
            places = self._read_places(reader, count, length)
            at = 0
            for numbers in decode_numbers(reader, count, self.FAMILY):
                values = self._values(numbers, step)
                here = places[at : at + len(values)]
                if finite and not (known := np.isfinite(values)).all():
                    bad = int(np.argmin(known))
                    raise CodecError(
                        f"Message has {values[bad]} for parameter {here[bad]}; finite numbers are expected."
                    )
                vector[here] = values
                at += len(values)
        missing = _missing(count, len(message) - 4 - reader.left)
        if reader.left != missing or bytes(reader.take(missing, "zeros")).strip(b"\0"):
            raise CodecError(f"Message goes on after its values: {reader.left} bytes, of which {missing} are expected.")
        return vector

    def _read_step(self, reader: Reader, expected: float | None) -> np.float32:
        step = np.float32(struct.unpack("<f", reader.take(4, "step"))[0])
        if not (np.isfinite(step) and step > 0):
            raise CodecError(f"Message has step {step}; a step is finite and > 0.")
        if expected is not None and step != np.float32(expected):
            raise CodecError(f"Message has step {step}; {np.float32(expected)} is expected.")
        return step

    def _read_places(self, reader: Reader, count: int, length: int) -> np.ndarray:
        """int32[count], ascending, below `length`."""
        places = np.empty(count, np.int32)
        at, last = 0, -1
        # Different gaps add up to at least 0 + 1 + 2 + ..., and all of them to what is left of the length.
        most_distinct = math.isqrt(2 * (length - count)) + 1
        for gaps in decode_numbers(reader, count, INTEGERS, most_distinct):
            block = np.cumsum(gaps + np.int64(1)) + last
            last = int(block[-1])
            if last >= length:
                raise CodecError(f"Message has a non-zero at {last}, beyond its {length} parameters.")
            places[at : at + len(block)] = block
            at += len(block)
        return places

    def _open(self, message: bytes, length: int | None) -> Reader:
        """Checks all that does not depend on the form; what is left to read begins with the length."""
        check_type("message", message, bytes, "Take what encode returned.")
        if length is not None and len(message) > (longest := _LONGEST_PER_PARAMETER * length + _LONGEST_BESIDES):
            raise CodecError(f"Message of {len(message)} bytes; {longest} are the most for {length} parameters.")
        if len(message) < 10 or message[:2] != MAGIC:
            raise CodecError(
                f"Not a message of a codec: {len(message)} bytes beginning with {message[:4]!r}; "
                f"messages have at least 10 and begin with {MAGIC!r}."
            )
        if message[2] != VERSION:
            raise CodecError(f"Message of version {message[2]}; this package reads version {VERSION}.")
        (checksum,) = struct.unpack("<I", message[-4:])
        body = memoryview(message)[:-4]
        if checksum != zlib.crc32(body):
            raise CodecError("Message does not have the checksum it was sent with: it was changed or cut on the way.")
        if message[3] != self.FORM:
            form = _FORMS.get(message[3])
            sender = f"form {message[3]}" if form is None else f"a {form}"
            raise CodecError(f"Message of {sender}, given to a {type(self).__name__}. Decode it with its own codec.")
        reader = Reader(body)
        reader.take(4, "header")
        return reader


def check_vector(vector: np.ndarray) -> np.ndarray:
    """The vector itself, contiguous."""
    check_type("vector", vector, np.ndarray, "Flatten and concatenate the update's arrays.")
    if vector.dtype != np.float32 or vector.ndim != 1 or len(vector) > MAX_PARAMETERS:
        raise ValueError(
            f"vector must be float32[n] with n at most {MAX_PARAMETERS}, found {vector.dtype}{list(vector.shape)}. "
            "Flatten and concatenate the update's arrays, as float32."
        )
    return np.ascontiguousarray(vector)


def _missing(count: int, size: int) -> int:
    """How many zero bytes follow `size` bytes with `count` non-zeros in them."""
    return max(0, math.ceil(count / MAX_NONZEROS_PER_BYTE) - size)
