"""What a hostile sender can do to a decoder that was told what to expect: memory and time per message.

    python -m benchmarks.attacks [--messages=200000]

The receiver expects 199,210 parameters (the paper's MLP for MNIST). First come messages that are made to cost much,
then valid messages of all forms and densities, mutated at random, their tables too; all have a right checksum.
`memory` is by how much the process grew while decoding, all libraries included, in MB of 2^20 bytes; 4 times the vector
expected and 2 MB are allowed. `time` is processor time, measured apart from memory, over that of a valid message of the
same form in which no parameter is zero; 10 is allowed.
The address space of the process is limited, for what Python does not see. Exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import ctypes
import pathlib
import resource
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import psutil
import tqdm
from absl import app, flags

from tff_fen.codec import Codec, CodecError, Float16Codec, LosslessCodec, QuantisedCodec
from tff_fen.entropy_coding.numbers import varint

_MESSAGES = flags.DEFINE_integer("messages", 200_000, "Mutated messages decoded.", lower_bound=1)

LENGTH = 199_210
CODECS: tuple[Codec, ...] = (LosslessCodec(), Float16Codec(), QuantisedCodec(0.01))
MOST_TIME = 10.0
DENSITIES = (0.0, 0.001, 0.003, 0.003, 0.01, 0.03)
# One base in so many has no zeros: it takes a hundred times as long as the others.
_DENSE_EVERY = 200
# Messages drawn and measured at a time.
_TOGETHER = 50
_PROC = pathlib.Path("/proc/self")
# Above what is in use at the start; the C library keeps some of what it has had.
_SPARE_BYTES = 2**26
_FILLINGS = (b"", b"\xff", b"\0", b"\x80\x80", b"\xff\xff\x7f")
_CODES = ("7", "7", "7", "8", "6", "f01", "f08", "f00", "f10")
_ONE_SYMBOL = b"\x00\x01\x80\x00"  # Split 0, symbol 0 alone, no coded bytes.


class Cost(NamedTuple):
    """What decoding a message took.

    Attributes:
      bytes: by how much the process grew at most.
      seconds: processor time.
      answer: "decoded", or why the message was refused.
    """

    bytes: int
    seconds: float
    answer: str


def most_bytes(length: int = LENGTH) -> int:
    """Returns the memory that a message may take; for a small model it is mostly blocks and tables."""
    return 4 * 4 * length + 2**21


def decode(codec: Codec, message: bytes, length: int = LENGTH) -> str:
    """Decodes as a server does; returns "decoded", or why the message was refused."""
    try:
        vector = codec.decode(message, length=length, step=codec.step, finite=True)
    except CodecError as error:
        return str(error)
    assert vector.shape == (length,) and np.isfinite(vector).all()
    return "decoded"


def measure(codec: Codec, message: bytes, length: int = LENGTH, repeats: int = 1) -> Cost:
    """Decodes a message; of several repeats the quickest counts."""
    return measure_all([(codec, message)], length, repeats)[0]


def measure_all(messages: Sequence[tuple[Codec, bytes]], length: int = LENGTH, repeats: int = 1) -> list[Cost]:
    """Decodes messages, all for their time, then all again for their memory, since fresh pages are slow."""
    seconds, costs = [], []
    for codec, message in messages:
        tried = []
        for _ in range(repeats):
            start = time.thread_time()
            decode(codec, message, length)
            tried.append(time.thread_time() - start)
        seconds.append(min(tried))
    for (codec, message), quickest in zip(messages, seconds, strict=True):
        # What was freed would be used again, and not counted.
        ctypes.CDLL(None).malloc_trim(0)
        (_PROC / "clear_refs").write_text("5")  # The peak is what is in use now.
        before = _status("VmRSS")
        answer = decode(codec, message, length)
        costs.append(Cost(_status("VmHWM") - before, quickest, answer))
    return costs


def _status(name: str) -> int:
    """A size of the process in bytes."""
    lines = (_PROC / "status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def sealed(body: bytes) -> bytes:
    """A message with a right checksum."""
    return body + struct.pack("<I", zlib.crc32(body))


def update(density: float, rng: np.random.Generator, length: int = LENGTH) -> np.ndarray:
    """Laplace values beyond a threshold, as an update has them."""
    values = (5e-3 + rng.exponential(5e-3, length)) * rng.choice([-1, 1], length)
    return np.where(rng.random(length) < density, values, 0).astype(np.float32)


def expensive_messages(length: int = LENGTH) -> Iterator[tuple[str, Codec, bytes]]:
    """Messages whose cost is out of proportion to their size, for a reader that believes them."""
    rng = np.random.default_rng(0)
    lossless, _, quantised = CODECS
    head, step = b"FE\x01\x00", struct.pack("<f", 0.01)
    yield "14 bytes ask for 8 GiB", lossless, sealed(head + varint(2**31) + b"\0")
    many = 99_000_000
    body = head + varint(2**31 - 1) + varint(many) + _ONE_SYMBOL + b"\x03\x01\xf0\x03\x80\x00"
    yield "97 KB hold 99 million non-zeros", lossless, sealed(body + bytes(many // 1024 + 1 - len(body)))
    body = head + varint(length) + varint(length) + _ONE_SYMBOL + _ONE_SYMBOL
    yield "dense zeros", lossless, sealed(body + bytes(length // 1024 + 1))
    body = head + varint(length) + varint(length) + b"\x00\x01\xf0\x03\x80\x00"
    yield "gaps that lead too far", lossless, sealed(body + bytes(length))
    # As many symbols as a table can hold, one digit each, then coded bytes that mean nothing.
    noise = rng.bytes(3 * length - 1) + b"\x01"
    size = min(2**16, length)
    section = b"\x04" + table(size, "7") + varint(len(noise)) + noise
    body = b"FE\x01\x02" + varint(length) + varint(length) + step
    yield "65,536 symbols, noise", quantised, sealed(body + _ONE_SYMBOL + section)
    yield "65,536 gaps, noise", quantised, sealed(body + section + bytes(4 * length))
    for name, codec, split, entry in (
        ("65,536 symbols far apart", lossless, 4, "f00888877"),
        ("65,536 symbols far apart, steps", quantised, 4, "f008817"),
        ("65,536 jumps of 0", quantised, 4, "f00" + 10 * "8" + "0" + "7"),
        ("65,536 counts that are too many", quantised, 4, "f11f02"),
        ("65,536 jumps with a 0 in front", quantised, 4, "f009" + 9 * "8" + "0" + "7"),
        ("65,536 codes in three digits", quantised, 4, "f01"),
    ):
        about = head if codec is lossless else b"FE\x01\x02"
        about += varint(length) + varint(length) + (step if codec.step else b"")
        far = bytes([split]) + table(size, entry) + varint(len(noise)) + noise
        yield name, codec, sealed(about + _ONE_SYMBOL + far)
    wide = b"\x03\x01\xf0\x0f\xf1\x80\x00" + bytes(3 * length)
    yield "widest extra bits", lossless, sealed(head + varint(length) + varint(length) + _ONE_SYMBOL + wide)
    yield "much too long", lossless, sealed(head + varint(length) + varint(0) + bytes(64 * length))
    yield "another step", quantised, QuantisedCodec(0.02).encode(update(0.01, rng, length))
    yield "NaN", lossless, lossless.encode(np.full(length, np.nan, np.float32))


def table(size: int, entry: str) -> bytes:
    """A table of `size` symbols: 1 with code 1, then always the same entry in hexadecimal digits."""
    digits = "f0018" + entry * (size - 1)
    return varint(size) + bytes.fromhex(digits + "0" * (len(digits) % 2))


def _sections(form: int, rng: np.random.Generator) -> bytes:
    """Number of non-zeros, step, gaps and values: tables of all sizes and forms, coded bytes that mean nothing."""
    body = varint(LENGTH if rng.random() < 0.5 else int(rng.integers(LENGTH + 1)))
    body += struct.pack("<f", 0.01) if form == QuantisedCodec.FORM else b""
    for most in (9, 16):  # More gaps than 2^9 are refused at once.
        jump = "" if rng.random() < 0.4 else "f00" + "8" * int(rng.integers(11)) + str(rng.integers(3))
        codes = _CODES[rng.integers(len(_CODES))]
        size = int(2 ** rng.uniform(0, most))
        coded = rng.bytes(int(2 ** rng.uniform(0, 19)))
        section = bytes([rng.integers(6)]) + table(size, jump + codes) + varint(len(coded)) + coded
        body += section if rng.random() < 0.7 else _ONE_SYMBOL
    return body


def mutated(message: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes changed, added, taken out, or taken from another message, most often near the front; other tables."""
    body = bytearray(message[:-4])
    for _ in range(rng.integers(1, 5)):
        near = min(len(body), 60) if rng.random() < 0.7 else len(body)
        place, cut, size = int(rng.integers(near + 1)), int(rng.integers(3)), int(rng.integers(1, 4))
        kind = rng.integers(6)
        if kind == 0:
            body[place : place + cut] = rng.bytes(size)
        elif kind == 1:
            body[place : place + 1] = _FILLINGS[rng.integers(len(_FILLINGS))]
        elif kind == 2 and body:
            body[place % len(body)] ^= 1 << int(rng.integers(8))
        elif kind == 3:
            body[place:] = other[place:-4]
        elif kind == 4 and len(body) > 4:
            body[4:] = varint(LENGTH) + _sections(body[3], rng)
        else:
            body[4:place] = varint(LENGTH) + varint(int(rng.integers(LENGTH + 1)))
    return sealed(bytes(body))


def main(argv: list[str]) -> int:
    del argv
    allowed = most_bytes()
    rng = np.random.default_rng(0)
    dense = {codec: codec.encode(update(1.0, rng)) for codec in CODECS}
    valid = {codec: measure(codec, message, repeats=5) for codec, message in dense.items()}
    for codec, cost in valid.items():
        print(
            f"valid, {codec.name:15} {len(dense[codec]):9,} bytes  memory {cost.bytes / 2**20:5.2f} MB  "
            f"{1000 * cost.seconds:6.1f} ms"
        )
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + _SPARE_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    exceeded = 0
    for name, codec, message in expensive_messages():
        cost = measure(codec, message, repeats=3)
        ratio = cost.seconds / valid[codec].seconds
        exceeded += cost.bytes > allowed or ratio > MOST_TIME
        print(
            f"{name:32} {len(message):9,} bytes  memory {cost.bytes / 2**20:5.2f} MB  time {ratio:6.2f}  "
            f"{cost.answer[:60]}"
        )
    bases = {codec: [codec.encode(update(d, rng)) for d in DENSITIES] for codec in CODECS}
    worst_memory = refused = 0
    worst_time = 0.0

    def draw(i: int) -> tuple[Codec, bytes]:
        codec = CODECS[i % len(CODECS)]
        base = dense[codec] if i % _DENSE_EVERY == 0 else bases[codec][rng.integers(len(DENSITIES))]
        other_codec = CODECS[rng.integers(len(CODECS))]
        return codec, mutated(base, bases[other_codec][rng.integers(len(DENSITIES))], rng)

    with tqdm.tqdm(total=_MESSAGES.value, unit="message", mininterval=1.0) as progress:
        while progress.n < _MESSAGES.value:
            messages = [draw(i) for i in range(progress.n, min(progress.n + _TOGETHER, _MESSAGES.value))]
            for (codec, message), cost in zip(messages, measure_all(messages), strict=True):
                if cost.seconds > MOST_TIME * valid[codec].seconds:  # Once more: it may have been the machine.
                    cost = measure(codec, message, repeats=5)
                ratio = cost.seconds / valid[codec].seconds
                if cost.bytes > allowed or ratio > MOST_TIME or "more memory than there is" in cost.answer:
                    exceeded += 1
                    print(f"memory {cost.bytes:,} bytes, time {ratio:.2f}: {message[:40].hex()}...")
                worst_memory, worst_time = max(worst_memory, cost.bytes), max(worst_time, ratio)
                refused += cost.answer != "decoded"
            progress.update(len(messages))
    print(
        f"{_MESSAGES.value:,} mutated messages: {refused:,} refused, worst memory {worst_memory / 2**20:.2f} of "
        f"{allowed / 2**20:.2f} MB, worst time {worst_time:.2f} of {MOST_TIME:g}, {exceeded} beyond"
    )
    return 1 if exceeded else 0


if __name__ == "__main__":
    app.run(main)
