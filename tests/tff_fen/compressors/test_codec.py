"""Messages: what `apply` says comes out, at the size promised, and nothing but a `CodecError` from broken ones."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tff_fen.codec import Codec, CodecError, Float16Codec, LosslessCodec, QuantisedCodec, parse_codec
from tff_fen.entropy_coding import numbers as entropy_coding
from tff_fen.entropy_coding import symbols as symbols_lib
from tff_fen.entropy_coding.message import INTEGERS

CODECS: tuple[Codec, ...] = (LosslessCodec(), Float16Codec(), QuantisedCodec(0.01))
IDS = [codec.name for codec in CODECS]
# The same examples in every run: a failure can be looked at, and none comes by chance.
SETTINGS = hypothesis.settings(max_examples=150, deadline=None, derandomize=True, database=None)

SPECIAL = (0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000)
NANS = (0x7F800001, 0x7FC00000, 0xFFC12345, 0x7FFFFFFF, 0xFFFFFFFF)
# One number many times, or different ones: gaps, dense parts, equal parts, and both sides of every word boundary.
COUNTS = st.one_of(st.integers(1, 4), st.sampled_from([31, 32, 33, 1000, 5000, 70_000]))


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def bits(vector: np.ndarray) -> list[int]:
    """Compares as bits: NaN equals itself, -0.0 is not 0.0."""
    assert vector.dtype == np.float32 and vector.ndim == 1
    return vector.view(np.uint32).tolist()


def runs(numbers: st.SearchStrategy[Any], dtype: type) -> st.SearchStrategy[np.ndarray]:
    """Vectors of runs of equal numbers, zeros among them."""
    run = st.tuples(st.one_of(st.just(0), numbers), COUNTS)

    def join(parts: list[tuple[Any, int]]) -> np.ndarray:
        return np.concatenate([np.zeros(0, dtype), *(np.full(count, number, dtype) for number, count in parts)])

    return st.one_of(
        st.lists(run, max_size=12).map(join), st.lists(numbers, max_size=300).map(lambda xs: np.array(xs, dtype))
    )


PATTERNS = st.one_of(st.sampled_from(SPECIAL + NANS), st.integers(0, 2**32 - 1))
HALVES = st.floats(-65504, 65504, width=32)
STEPS = st.one_of(*(st.floats(-high, high, width=32) for high in (0.125, 41, 41_900)))
VECTORS = {
    "lossless": runs(PATTERNS, np.uint32).map(lambda x: x.view(np.float32)),
    "float16": runs(HALVES, np.float32),
    "quantised:0.01": runs(STEPS, np.float32),
}
ANY = st.sampled_from(CODECS).flatmap(lambda codec: st.tuples(st.just(codec), VECTORS[codec.name]))


def sparse(size: int, density: float, scale: float = 5e-3, seed: int = 0) -> np.ndarray:
    """Laplace values beyond a threshold of 5e-3, as an update has them."""
    rng = np.random.default_rng(seed)
    values = (5e-3 + rng.exponential(scale, size)) * rng.choice([-1, 1], size)
    return np.where(rng.random(size) < density, values, 0).astype(np.float32)


def with_checksum(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


# What comes out.


@SETTINGS
@hypothesis.given(ANY)
def test_decode_gives_what_apply_gives(case: tuple[Codec, np.ndarray]) -> None:
    codec, vector = case
    before = vector.tobytes()
    message = codec.encode(vector)
    decoded = codec.decode(message)
    assert bits(decoded) == bits(codec.apply(vector))
    assert vector.tobytes() == before
    assert codec.encode(vector) == message
    assert codec.encode(decoded) == message, "what was decoded is the codec's own: encoding it loses nothing more"
    decoded[:] = 1.0  # The caller's own, to write into.


@SETTINGS
@hypothesis.given(VECTORS["lossless"])
def test_lossless_keeps_every_bit(vector: np.ndarray) -> None:
    assert bits(LosslessCodec().decode(LosslessCodec().encode(vector))) == bits(vector)
    assert bits(LosslessCodec().apply(vector)) == bits(vector)


def test_lossless_keeps_each_exponent_and_each_count_of_trailing_zeros() -> None:
    exponents, zeros = np.meshgrid(np.arange(512, dtype=np.uint32), np.arange(24, dtype=np.uint32))
    patterns = ((exponents << np.uint32(23)) | ((np.uint32(1) << zeros) & np.uint32(0x7FFFFF))).ravel()
    vector = np.concatenate([patterns, patterns | np.uint32(0x400000), patterns ^ np.uint32(0x7FF000)]).view(np.float32)
    assert bits(LosslessCodec().decode(LosslessCodec().encode(vector))) == bits(vector)


SPLITS = (*INTEGERS, *LosslessCodec.FAMILY, *Float16Codec.FAMILY, symbols_lib.COUNTS, symbols_lib.EXACT)


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_splits_join_to_what_was_split(split: symbols_lib.Split) -> None:
    """Around each power of two, that being the largest number: what a shortcut for small numbers can get wrong."""
    for power in range(33):
        near = np.arange(max(0, 2**power - 40), min(2**32, 2**power + 1))
        spread = np.random.default_rng(power).integers(0, 2**power, 200)
        for values in (near.astype(np.uint32), near[: 2**power - near[0]].astype(np.uint32), spread.astype(np.uint32)):
            symbols = split.symbols(values)
            extra, widths = split.extra(values, symbols), split.widths(symbols)
            assert split.join(symbols, extra).tolist() == values.tolist()
            assert (extra >> widths.astype(np.uint64)).max() == 0 and widths.max() <= 32


def test_leading_bits_by_hand() -> None:
    values = np.array([0, 1, 7, 15, 16, 17, 18, 31, 32, 36, 2**31], np.uint32)
    symbols = symbols_lib.Leading(3).symbols(values)
    assert symbols.tolist() == [0, 1, 7, 15, 16, 16, 17, 23, 24, 25, 28 * 8 + 8]
    assert symbols_lib.Leading(3).widths(symbols).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 28]


def test_float16_keeps_each_finite_half() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    vector = halves[np.isfinite(halves)].astype(np.float32)
    expected = vector.copy()
    expected[expected == 0] = 0.0  # -0.0 loses its sign.
    assert bits(Float16Codec().decode(Float16Codec().encode(vector))) == bits(expected)


def test_float16_rounds_to_even_and_drops_the_sign_of_zero() -> None:
    tiny, tie = 2.0**-24, 1 + 2.0**-11
    vector = f32(1.0, tie, 1 + 3 * 2.0**-11, -tie, tiny, tiny / 2, tiny * 0.51, -tiny / 2, -0.0, 65504.0, 65519.0)
    expected = f32(1.0, 1.0, 1 + 2.0**-9, -1.0, tiny, 0.0, tiny, 0.0, 0.0, 65504.0, 65504.0)
    assert bits(Float16Codec().apply(vector)) == bits(expected)
    assert bits(Float16Codec().decode(Float16Codec().encode(vector))) == bits(expected)


def test_quantised_rounds_to_the_nearest_step_and_to_even_at_a_tie() -> None:
    vector = f32(0.125, 0.126, 0.375, 0.625, -0.375, -0.125, -0.0, 2.0**20, -(2.0**20), 0.25)
    expected = f32(0.0, 0.25, 0.5, 0.5, -0.5, 0.0, 0.0, 2.0**20, -(2.0**20), 0.25)
    codec = QuantisedCodec(0.25)
    assert bits(codec.apply(vector)) == bits(expected)
    assert bits(codec.decode(codec.encode(vector))) == bits(expected)


def test_quantised_is_computed_in_float32() -> None:
    """Halves of 0.01 are ties in float32, and are not in float64."""
    vector = np.arange(-1000, 1000, dtype=np.float32) * np.float32(0.001)
    expected = np.array([np.rint(x / np.float32(0.01)) * np.float32(0.01) + np.float32(0) for x in vector])
    assert bits(QuantisedCodec().decode(QuantisedCodec().encode(vector))) == bits(expected)
    assert np.any(expected != np.rint(vector.astype(np.float64) / 0.01).astype(np.float32) * np.float32(0.01))


@SETTINGS
@hypothesis.given(
    st.floats(min_value=2.0**-149, max_value=2.0**127, width=32),
    st.lists(st.one_of(st.floats(-(2.0**22), 2.0**22), st.integers(-(2**22), 2**22)), max_size=50),
)
def test_quantising_twice_is_quantising_once(step: float, steps: list[float]) -> None:
    codec = QuantisedCodec(step)
    with np.errstate(over="ignore"):
        vector = (np.array(steps, np.float32) * np.float32(step)).astype(np.float32)
    try:
        once = codec.apply(vector)
    except ValueError:
        hypothesis.reject()
    assert bits(codec.apply(once)) == bits(once)
    assert codec.encode(once) == codec.encode(vector)
    assert bits(codec.decode(codec.encode(vector))) == bits(once)


def test_what_is_not_contiguous_is_encoded_as_it_reads() -> None:
    vector = sparse(1000, 0.5)
    for codec in CODECS:
        assert codec.encode(vector[::-2]) == codec.encode(vector[::-2].copy())
        assert bits(codec.apply(vector[::-2])) == bits(codec.apply(vector[::-2].copy()))


# Sizes.


def shannon_bytes(numbers: np.ndarray) -> float:
    """The entropy of one histogram over all parameters, in bytes."""
    _, counts = np.unique(numbers, return_counts=True)
    return float(-np.sum(counts * np.log2(counts / counts.sum())) / 8)


def clustered(size: int) -> np.ndarray:
    vector = sparse(size, 1.0)
    vector[np.random.default_rng(1).random(size // 200).repeat(200) < 0.9] = 0.0
    return vector


def with_outliers(size: int) -> np.ndarray:
    vector = sparse(size, 0.1)
    vector[:: size // 40] = np.logspace(0, 4.6, len(vector[:: size // 40]))
    return vector


@pytest.mark.parametrize(
    "vector",
    [
        sparse(100_000, 0.1),
        sparse(199_210, 0.1),
        sparse(199_210, 0.01),
        sparse(199_210, 0.5),
        sparse(199_210, 1.0),
        sparse(199_210, 0.1, scale=0.1),
        np.random.default_rng(0).normal(0, 1, 199_210).astype(np.float32),
        np.random.default_rng(0).normal(0, 0.01, 199_210).astype(np.float32),
        clustered(200_000),
        with_outliers(200_000),
    ],
    ids=["100k", "sparse", "1 %", "50 %", "dense", "wide", "normal", "narrow normal", "clustered", "outliers"],
)
def test_quantised_stays_within_two_percent_of_the_entropy(vector: np.ndarray) -> None:
    header = 4 + 3 + 3 + 4 + 4  # Magic, length, non-zeros, step, checksum.
    codec = QuantisedCodec(0.01)
    entropy = shannon_bytes(np.rint(vector / np.float32(0.01)))
    assert len(codec.encode(vector)) <= 1.02 * entropy + header


@pytest.mark.parametrize(
    ("density", "bits_each"),
    # 4.7 bits for the place of one in ten, 1 for the sign, 1.1 for exponent and high bits, 21 of the mantissa.
    [(0.1, 29.9), (1.0, 25.2)],
)
def test_lossless_bits_per_nonzero(density: float, bits_each: float) -> None:
    vector = sparse(199_210, density)
    message = LosslessCodec().encode(vector)
    assert 8 * len(message) <= bits_each * np.count_nonzero(vector)
    assert len(message) < 8 * np.count_nonzero(vector), "index and value, four bytes each"


def test_lossless_makes_use_of_the_zeros_that_a_difference_of_weights_ends_in() -> None:
    rng = np.random.default_rng(0)
    theta = rng.uniform(-0.1, 0.1, 100_000).astype(np.float32)
    moved = theta + rng.laplace(0, 1e-4, 100_000).astype(np.float32)
    noise = rng.laplace(0, 1e-4, 100_000).astype(np.float32)
    assert 8 * len(LosslessCodec().encode(moved - theta)) < 18.6 * 100_000
    assert 8 * len(LosslessCodec().encode(noise)) < 26.9 * 100_000, "without such zeros"


def test_few_distinct_values_are_sent_once() -> None:
    rng = np.random.default_rng(0)
    vector = rng.choice(f32(0.1, -0.7, 3e-5, 1e20), 100_000)
    assert len(LosslessCodec().encode(vector)) < 2.01 * 100_000 / 8 + 80
    vector = rng.choice(np.arange(1, 5, dtype=np.float32) * 10_007, 100_000)
    assert len(QuantisedCodec(1.0).encode(vector)) < 2.01 * 100_000 / 8 + 80
    assert bits(QuantisedCodec(1.0).decode(QuantisedCodec(1.0).encode(vector))) == bits(vector)


@pytest.mark.parametrize("codec", CODECS, ids=IDS)
def test_zeros_cost_nothing(codec: Codec) -> None:
    assert len(codec.encode(np.zeros(5_000_000, np.float32))) <= 4 + 4 + 1 + 4 + 4
    assert bits(codec.decode(codec.encode(np.zeros(3, np.float32)))) == [0, 0, 0]


def test_messages_to_the_byte() -> None:
    """The format is what other versions rely on. Sections by hand: split, one symbol, count, no words, extra bits."""
    head = b"FE\x01"
    assert LosslessCodec().encode(f32()) == with_checksum(head + b"\x00\x00\x00")
    assert Float16Codec().encode(np.zeros(300, np.float32)) == with_checksum(head + b"\x01\xac\x02\x00")
    step = struct.pack("<f", 0.01)
    # A gap of 3 is symbol 3: digits f00 for a jump, 3, code 1 as 8, a filler. -2 steps are number 3 as well.
    one = b"\x00\x01\xf0\x03\x80\x00"
    assert QuantisedCodec().encode(f32(0, 0, 0, -0.02)) == with_checksum(head + b"\x02\x04\x01" + step + one + one)
    # Exponent 127 and 15 zeros of split 1: symbol 127 << 4 | 15 = 0o3777 as digits f f f 3; 8 zeros and the sign.
    value = b"\x01\x01\xf0\x0f\xff\x38\x00\x01\x00"
    gap = b"\x00\x01\x80\x00"
    assert LosslessCodec().encode(f32(-1.0)) == with_checksum(head + b"\x00\x01\x01" + gap + value)


def test_coded_symbols_are_read_by_an_independent_decoder() -> None:
    """Two symbols of probability 1/2, by the definition of ANS: 64 bits of state, 32-bit words, 2^24 quantiles."""
    gaps = np.array([0, 1, 1, 0, 1, 0, 0, 1] * 9)
    vector = np.zeros(len(gaps) + gaps.sum(), np.float32)
    vector[np.cumsum(gaps + 1) - 1] = 0.01
    message = QuantisedCodec().encode(vector)
    # 108 parameters, 72 non-zeros, step; split 0; two symbols of count 36: code 25 by f 1 9, then 7 for no change.
    start = b"FE\x01\x02\x6c\x48" + struct.pack("<f", 0.01) + b"\x00\x02" + b"\xf1\x97"
    assert message.startswith(start + b"\x0c")
    words = list(struct.unpack("<3I", message[len(start) + 1 :][:12]))
    state = words.pop() << 32 | words.pop()
    decoded = []
    for _ in gaps:
        quantile, state = state % 2**24, state >> 24
        decoded.append(quantile >> 23)
        state = (state << 23) + quantile % 2**23
        if state < 2**32 and words:
            state = state << 32 | words.pop()
    assert decoded == gaps.tolist()
    assert state == 0 and not words


# Broken messages.


def refused_or_of_its_length(codec: Codec, message: bytes) -> None:
    """What a reader owes to a message with a right checksum."""
    try:
        vector = codec.decode(message)
    except CodecError:
        return
    reader = entropy_coding.Reader(message[4:])
    assert vector.shape == (reader.number("length", 0, 2**31),)
    assert vector.dtype == np.float32


@pytest.mark.parametrize("codec", CODECS, ids=IDS)
def test_every_truncation_and_every_changed_bit_is_refused(codec: Codec) -> None:
    message = codec.encode(sparse(300, 0.2))
    for size in range(len(message)):
        with pytest.raises(CodecError):
            codec.decode(message[:size])
        refused_or_of_its_length(codec, with_checksum(message[:size]))
    for place in range(8 * len(message)):
        changed = bytearray(message)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(CodecError):
            codec.decode(bytes(changed))
        refused_or_of_its_length(codec, with_checksum(bytes(changed[:-4])))
    with pytest.raises(CodecError, match="checksum"):
        codec.decode(message + b"\0")
    with pytest.raises(CodecError, match="goes on after its values: 1 bytes, of which 0"):
        codec.decode(with_checksum(message[:-4] + b"\0"))


@SETTINGS
@hypothesis.given(ANY, st.data())
def test_changed_messages_with_a_right_checksum(case: tuple[Codec, np.ndarray], data: st.DataObject) -> None:
    codec, vector = case
    body = bytearray(codec.encode(vector[:3000])[:-4])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(body), 60) - 1) | st.integers(0, len(body) - 1))
        new = data.draw(st.sampled_from([b"", b"\xff", b"\0", b"\x80\x80"]) | st.binary(min_size=1, max_size=3))
        body[place : place + data.draw(st.integers(0, 2))] = new
        if not body:
            break
    refused_or_of_its_length(codec, with_checksum(bytes(body)))


@SETTINGS
@hypothesis.given(st.sampled_from(CODECS), st.binary(max_size=200))
def test_random_bytes_are_refused(codec: Codec, data: bytes) -> None:
    with pytest.raises(CodecError):
        codec.decode(data)
    head = b"FE\x01" + bytes([CODECS.index(codec)])
    refused_or_of_its_length(codec, with_checksum(head + data))


GAP = b"\x00\x01\x80\x00"  # Split 0, symbol 0 alone, of code 1; no coded bytes.


@pytest.mark.parametrize(
    ("codec", "body", "error"),
    [
        (0, entropy_coding.varint(2**60) + b"\0", "1152921504606846976 as its number of parameters; 0 to 2147483648"),
        (0, b"\xff" * 12, "number of parameters of more than 63 bits"),
        (0, entropy_coding.varint(2**31) + entropy_coding.varint(2**31), "2147483648 as its number of non-zeros"),
        (0, b"\x05\x06", "6 as its number of non-zeros; 0 to 5"),
        (0, b"\x05\x01\x05", "split 5, there are 0 to 4"),
        (0, b"\x05\x01\x00\xff\x7f\0", "16383 as its number of symbols; 1 to 1 is"),
        (0, b"\x05\x01\x00\x00\x80\0", "0 as its number of symbols"),
        (0, b"\x05\x02\x00\x02\x80", "-6 for symbol 1; codes are 1 to 239"),
        (0, b"\x05\x01\x00\x01\xff\x00", "code 240 for symbol 0"),
        (0, b"\x05\x01\x00\x01\xf0\x0f\xff", "ends within its table"),
        (0, b"\x05\x01\x00\x01\xf0\x0f" + b"\xff" * 4 + b"\xf7\x80", "code 1 for symbol 8589934591"),
        (0, b"\x05\x01\x00\x01\xf0\x00\x80\x00", "a jump in its table that .* ends with 0"),
        (0, b"\x05\x01\x00\x01\xf0\x09\x08\x00", "a jump in its table that .* ends with 0"),
        (0, b"\x05\x01\x00\x01\xf0\x0f" + b"\xff" * 6 + b"\x18", "a jump in its table that .* is too long"),
        (0, b"\x05\x01\x00\x01\xf0\x1f\x00", "in three digits where one is enough"),
        (0, b"\x05\x02\x00\x02\x8f\x08\x00", "in three digits where one is enough"),
        (0, b"\x05\x02\x00\x02\x80\x00", "code -6 for symbol 1"),
        (0, b"\x05\x03\x00\x02\x89\x00", "a table of 4 or more numbers; 3 are expected"),
        (0, b"\x05\x01\x00\x01\x80\x05", "5 as its number of bytes of symbols; 0 to 1"),
        (0, b"\x05\x02\x00\x02\x87\x02\x01\x00", "end with a zero byte"),
        (0, b"\x05\x02\x00\x02\x87\x04\x01\x00\x00\x70", "do not end after 2 numbers"),
        (0, b"\x05\x01\x00\x01\x80\x04\x01\x00\x00\x70", "do not end after 1 numbers"),
        (0, b"\x05\x01\x00\x01\xf0\x05\x80\x00", "a non-zero at 5, beyond its 5 parameters"),
        (0, b"\x05\x01\x00\x01\xf0\x08\x88\x88\x88\x18\x00", "with 1023 extra bits; 32 is the most"),
        (0, b"\x05\x01" + GAP + b"\x06", "split 6, there are 0 to 4"),
        (0, b"\x05\x01" + GAP + b"\x03\x01\x80\x00\x00\x00\x00", "a zero among its non-zeros"),
        (0, b"\x05\x01" + GAP + b"\x02\x01\x80\x00\x00\x00\x40", "bits set after its last extra bit"),
        (0, b"\x05\x01" + GAP + b"\x03\x01\x80\x00\x00\x00", "ends within its extra bits: 3 bytes announced, 2"),
        (0, b"\x05\x01" + GAP + b"\x03\x01\xf0\x08\x88\x18\x00\0\0\0", "the number 4294967296, which does not fit"),
        (1, b"\x05\x01" + GAP + b"\x05\x01\x80\x00", "no finite half"),
        (1, b"\x05\x01" + GAP + b"\x05\x01\xf0\x08\x88\xcf\x18\x00", "no finite half"),
        (2, b"\x05\x00" + struct.pack("<f", 0.0), r"has step 0\.0; a step is finite and > 0"),
        (2, b"\x05\x00" + struct.pack("<f", np.nan), "has step nan"),
        (2, b"\x05\x00" + struct.pack("<f", -np.inf), "has step -inf"),
        (2, b"\x05\x00\x00\x00", "ends within its step: 4 bytes announced, 2 there"),
        (2, b"\x05\x01" + struct.pack("<f", 1e38) + GAP + b"\0\x01\xf0\x06\x80\0", "a value of 4 steps of .*; 3 is"),
        (2, b"\x05\x01" + struct.pack("<f", 1) + GAP + b"\4\x01\xf0\x08\x88\x88\x88\x48\0", "4194305 steps of 1.0"),
    ],
)
def test_each_field_is_checked(codec: int, body: bytes, error: str) -> None:
    with pytest.raises(CodecError, match=error):
        CODECS[codec].decode(with_checksum(b"FE\x01" + bytes([codec]) + body))


def test_many_nonzeros_need_many_bytes() -> None:
    """A dense vector of one value: 0 bits each, and yet a number that a reader can believe."""
    vector = np.full(1_000_000, 0.5, np.float32)
    for codec in CODECS:
        message = codec.encode(vector)
        assert len(message) == 977 + 4
        assert bits(codec.decode(message)) == bits(vector)
        with pytest.raises(CodecError, match="1000000 as its number of non-zeros"):
            codec.decode(with_checksum(message[:500]))
        with pytest.raises(CodecError, match="goes on"):
            codec.decode(with_checksum(message[:-5] + b"\1"))
        with pytest.raises(CodecError, match="goes on"):
            codec.decode(with_checksum(message[:-5]))


def test_foreign_messages_say_what_they_are() -> None:
    message = LosslessCodec().encode(f32(1, 2))
    with pytest.raises(CodecError, match="Message of a LosslessCodec, given to a Float16Codec"):
        Float16Codec().decode(message)
    with pytest.raises(CodecError, match="Message of form 77, given to a QuantisedCodec"):
        QuantisedCodec().decode(with_checksum(b"FE\x01M" + message[4:-4]))
    with pytest.raises(CodecError, match="version 2; this package reads version 1"):
        LosslessCodec().decode(with_checksum(b"FE\x02" + message[3:-4]))
    with pytest.raises(CodecError, match=r"Not a message of a codec: 12 bytes beginning with b'PK"):
        LosslessCodec().decode(b"PK\x03\x04" + bytes(8))
    with pytest.raises(TypeError, match=r"message must be a bytes, found .* of type str"):
        LosslessCodec().decode("FE")  # type: ignore[arg-type]


def test_a_message_brings_its_own_step() -> None:
    assert bits(QuantisedCodec(0.01).decode(QuantisedCodec(0.5).encode(f32(1.3)))) == bits(f32(1.5))


# What is refused.


@pytest.mark.parametrize("method", ["encode", "apply"])
@pytest.mark.parametrize("codec", CODECS, ids=IDS)
def test_only_flat_float32_is_taken(codec: Codec, method: str) -> None:
    for vector in (np.zeros(3), np.zeros((2, 2), np.float32), np.zeros((), np.float32), np.zeros(3, ">f4")):
        with pytest.raises(ValueError, match=r"vector must be float32\[n\] with n at most 2147483648, found "):
            getattr(codec, method)(vector)
    with pytest.raises(TypeError, match=r"vector must be a ndarray, found .* of type list"):
        getattr(codec, method)([0.0])


@pytest.mark.parametrize("method", ["encode", "apply"])
@pytest.mark.parametrize(
    ("codec", "value", "error"),
    [
        (Float16Codec(), np.nan, r"Float16Codec\(\) cannot hold vector\[2\] = nan; .* at most 65504"),
        (Float16Codec(), -np.inf, r"vector\[2\] = -inf"),
        (Float16Codec(), 65520.0, r"vector\[2\] = 65520.0"),
        (QuantisedCodec(), np.nan, r"QuantisedCodec\(step=0.01\) cannot hold vector\[2\] = nan"),
        (QuantisedCodec(), np.inf, r"vector\[2\] = inf; values must be finite and at most 4194304 steps"),
        (QuantisedCodec(1.0), -4194305.0, r"vector\[2\] = -4194305.0"),
        (QuantisedCodec(1e-30), 3e38, r"vector\[2\] = "),
        (QuantisedCodec(2e38), 3.2e38, r"vector\[2\] = .* at most 1 steps"),
    ],
)
def test_values_that_do_not_fit_are_named(codec: Codec, value: float, error: str, method: str) -> None:
    with pytest.raises(ValueError, match=error):
        getattr(codec, method)(f32(0, 0.5 if codec.name == "float16" else 0, value, 0))


@pytest.mark.parametrize("step", [0.0, -0.01, np.nan, np.inf, 1e-60, 1e39])
def test_steps_that_are_none(step: float) -> None:
    with pytest.raises(ValueError, match=r"QuantisedCodec\.step must be a finite number > 0.*, found "):
        QuantisedCodec(step)


def test_names() -> None:
    for codec in (*CODECS, QuantisedCodec(1e-05), QuantisedCodec(3)):
        assert parse_codec(codec.name) == codec
    assert parse_codec("quantised") == QuantisedCodec(0.01)
    assert parse_codec("quantised:0.5") == QuantisedCodec(0.5)
    assert [codec.name for codec in CODECS] == ["lossless", "float16", "quantised:0.01"]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("quantized", "found 'quantized'. Did you mean 'quantised'"),
        ("quantized:0.1", "Did you mean 'quantised'"),
        ("float32", "Did you mean 'float16'"),
        ("Lossless", "Did you mean 'lossless'"),
        ("", "Did you mean"),
        ("lossless:1", "'lossless' takes no step"),
        ("quantised:", "a number > 0 as STEP, found 'quantised:'"),
        ("quantised:fine", "a number > 0 as STEP"),
        ("quantised:-1", r"QuantisedCodec\.step must be a finite number > 0, found -1\.0"),
        ("quantised:nan", r"QuantisedCodec\.step must be a finite number > 0, found nan"),
    ],
)
def test_unknown_names_bring_the_nearest_known(name: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse_codec(name)
