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
"""

from __future__ import annotations

import abc
import math
import struct
import zlib
from typing import Any, ClassVar

import numpy as np

from tff_fen.checks import check_type
from tff_fen.entropy_coding.numbers import CodecError, Reader, changes, decode_numbers, encode_numbers, varint
from tff_fen.entropy_coding.symbols import Leading, Split

MAGIC = b"FE"
VERSION = 1
# All zeros are a few bytes whatever their number: a message can ask for this much memory (times four bytes), not more.
MAX_PARAMETERS = 2**31
MAX_NONZEROS_PER_BYTE = 1024

INTEGERS: tuple[Split, ...] = tuple(Leading(bits) for bits in (11, 7, 4, 2))

# The names of the forms by their number: a form enters its own.
_FORMS: dict[int, str] = {}


class MessageForm(abc.ABC):
    """The message around the values of the non-zeros; each form says how they become `uint32` numbers and back."""

    FORM: ClassVar[int]
    FAMILY: ClassVar[tuple[Split, ...]]

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

    def _step(self) -> np.float32 | None:
        return None

    def encode(self, vector: np.ndarray) -> bytes:
        places, numbers = self._nonzeros(check_vector(vector))
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
