"""What a hostile sender can do to a decoder that was told what to expect: memory and time per message.

    python -m benchmarks.attacks [--messages=200000]

The receiver expects 199,210 parameters (the paper's MLP for MNIST). First come messages that are made to cost much,
then valid messages of all forms and densities, mutated at random; all have a right checksum. `memory` is the most that
Python and NumPy held while decoding, over the 4 bytes per parameter of the vector expected; 4 is allowed. `time` is
processor time, over that of a valid message of the same form in which no parameter is zero; 10 is allowed.
The address space of the process is limited, for what Python does not see. Exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import resource
import struct
import time
import tracemalloc
import zlib
from collections.abc import Iterator
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
MOST_MEMORY, MOST_TIME = 4.0, 10.0
DENSITIES = (0.0, 0.001, 0.003, 0.003, 0.01, 0.03)
# One base in so many has no zeros: it takes a hundred times as long as the others.
_DENSE_EVERY = 200
# Above what is in use at the start; the C library keeps some of what it has had.
_SPARE_BYTES = 2**26
_FILLINGS = (b"", b"\xff", b"\0", b"\x80\x80", b"\xff\xff\x7f")
_ONE_SYMBOL = b"\x00\x01\x80\x00"  # Split 0, symbol 0 alone, no coded bytes.


class Cost(NamedTuple):
    """What decoding a message took.

    Attributes:
      bytes: most memory held.
      seconds: processor time.
      answer: "decoded", or why the message was refused.
    """

    bytes: int
    seconds: float
    answer: str


def decode(codec: Codec, message: bytes, length: int = LENGTH) -> str:
    """Decodes as a server does; returns "decoded", or why the message was refused."""
    try:
        vector = codec.decode(message, length=length, step=codec.step, finite=True)
    except CodecError as error:
        return str(error)
    assert vector.shape == (length,) and np.isfinite(vector).all()
    return "decoded"


def measure(codec: Codec, message: bytes, length: int = LENGTH, repeats: int = 1) -> Cost:
    """Decodes a message; of several repeats the quickest counts. `tracemalloc` must be tracing."""
    seconds, most = [], 0
    for _ in range(repeats):
        tracemalloc.reset_peak()
        before, start = tracemalloc.get_traced_memory()[0], time.thread_time()
        answer = decode(codec, message, length)
        seconds.append(time.thread_time() - start)
        most = max(most, tracemalloc.get_traced_memory()[1] - before)
    return Cost(most, min(seconds), answer)


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
    table = b"\x04" + varint(2**16) + b"\x87" + b"\x77" * (2**15 - 1) + b"\x70"
    noise = rng.bytes(3 * length - 1) + b"\x01"
    section = table + varint(len(noise)) + noise
    body = b"FE\x01\x02" + varint(length) + varint(length) + step
    yield "65,536 symbols, noise", quantised, sealed(body + _ONE_SYMBOL + section)
    yield "65,536 gaps, noise", quantised, sealed(body + section + bytes(4 * length))
    wide = b"\x03\x01\xf0\x0f\xf1\x80\x00" + bytes(3 * length)
    yield "widest extra bits", lossless, sealed(head + varint(length) + varint(length) + _ONE_SYMBOL + wide)
    yield "much too long", lossless, sealed(head + varint(length) + varint(0) + bytes(64 * length))
    yield "another step", quantised, QuantisedCodec(0.02).encode(update(0.01, rng, length))
    yield "NaN", lossless, lossless.encode(np.full(length, np.nan, np.float32))


def mutated(message: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes changed, added, taken out, or taken from another message: most often near the front."""
    body = bytearray(message[:-4])
    for _ in range(rng.integers(1, 5)):
        near = min(len(body), 60) if rng.random() < 0.7 else len(body)
        place, cut, size = int(rng.integers(near + 1)), int(rng.integers(3)), int(rng.integers(1, 4))
        kind = rng.integers(5)
        if kind == 0:
            body[place : place + cut] = rng.bytes(size)
        elif kind == 1:
            body[place : place + 1] = _FILLINGS[rng.integers(len(_FILLINGS))]
        elif kind == 2 and body:
            body[place % len(body)] ^= 1 << int(rng.integers(8))
        elif kind == 3:
            body[place:] = other[place:-4]
        else:
            body[4:place] = varint(LENGTH) + varint(int(rng.integers(LENGTH + 1)))
    return sealed(bytes(body))


def main(argv: list[str]) -> int:
    del argv
    expected = 4 * LENGTH
    tracemalloc.start()
    rng = np.random.default_rng(0)
    dense = {codec: codec.encode(update(1.0, rng)) for codec in CODECS}
    valid = {codec: measure(codec, message, repeats=5) for codec, message in dense.items()}
    for codec, cost in valid.items():
        print(
            f"valid, {codec.name:15} {len(dense[codec]):9,} bytes  memory {cost.bytes / expected:5.2f}  "
            f"{1000 * cost.seconds:6.1f} ms"
        )
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + _SPARE_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    exceeded = 0
    for name, codec, message in expensive_messages():
        cost = measure(codec, message, repeats=3)
        memory, ratio = cost.bytes / expected, cost.seconds / valid[codec].seconds
        exceeded += memory > MOST_MEMORY or ratio > MOST_TIME
        print(f"{name:32} {len(message):9,} bytes  memory {memory:5.2f}  time {ratio:6.2f}  {cost.answer[:60]}")
    bases = {codec: [codec.encode(update(d, rng)) for d in DENSITIES] for codec in CODECS}
    worst_memory = worst_time = 0.0
    refused = 0
    for i in tqdm.trange(_MESSAGES.value, unit="message", mininterval=1.0):
        codec = CODECS[i % len(CODECS)]
        base = dense[codec] if i % _DENSE_EVERY == 0 else bases[codec][rng.integers(len(DENSITIES))]
        other_codec = CODECS[rng.integers(len(CODECS))]
        message = mutated(base, bases[other_codec][rng.integers(len(DENSITIES))], rng)
        cost = measure(codec, message)
        if cost.seconds > MOST_TIME * valid[codec].seconds:  # Once more: it may have been the machine.
            cost = measure(codec, message, repeats=5)
        memory, ratio = cost.bytes / expected, cost.seconds / valid[codec].seconds
        if memory > MOST_MEMORY or ratio > MOST_TIME or "more memory than there is" in cost.answer:
            exceeded += 1
            print(f"message {i}: memory {memory:.2f}, time {ratio:.2f}: {message[:40].hex()}...")
        worst_memory, worst_time = max(worst_memory, memory), max(worst_time, ratio)
        refused += cost.answer != "decoded"
    print(
        f"{_MESSAGES.value:,} mutated messages: {refused:,} refused, worst memory {worst_memory:.2f} of "
        f"{MOST_MEMORY:g}, worst time {worst_time:.2f} of {MOST_TIME:g}, {exceeded} beyond"
    )
    return 1 if exceeded else 0


if __name__ == "__main__":
    app.run(main)
