"""A receiver that says what it expects: no message costs it more than that, nor gives it other numbers."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks import attacks
from tff_fen.codec import CodecError, Float16Codec, LosslessCodec, QuantisedCodec
from tff_fen.entropy_coding import message as message_lib

EXPECTED_BYTES = 4 * attacks.LENGTH
ANSWERS = {
    "14 bytes ask for 8 GiB": "2147483648 parameters; 199210 are expected",
    "97 KB hold 99 million non-zeros": "2147483647 parameters; 199210 are expected",
    "dense zeros": "ends within its extra bits",
    "gaps that lead too far": "a non-zero at",
    "65,536 symbols, noise": "do not end after 199210 numbers",
    "65,536 gaps, noise": "a non-zero at",
    "widest extra bits": "decoded",
    "much too long": "6374848 are the most for 199210 parameters",
    "another step": r"has step 0.0199.*; 0.0099.* is expected",
    "NaN": "nan for parameter 0; finite numbers are expected",
}


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_expensive_messages_cost_no_more_than_what_is_expected() -> None:
    tried = set()
    for name, codec, message in attacks.expensive_messages():
        cost = attacks.measure(codec, message)
        assert cost.bytes <= attacks.MOST_MEMORY * EXPECTED_BYTES, (name, cost)
        assert re.search(ANSWERS[name], cost.answer), (name, cost)
        tried.add(name)
    assert tried == set(ANSWERS)


@pytest.mark.usefixtures("traced")
def test_mutated_messages_cost_no_more_than_what_is_expected() -> None:
    """`python -m benchmarks.attacks` has 200 000 of them, and looks at time too."""
    rng = np.random.default_rng(1)
    bases = [codec.encode(attacks.update(d, rng)) for codec in attacks.CODECS for d in (0.001, 0.01, 0.01)]
    answers = []
    for i in range(600):
        message = attacks.mutated(bases[i % len(bases)], bases[rng.integers(len(bases))], rng)
        cost = attacks.measure(attacks.CODECS[message[3] % 3 if len(message) > 3 else 0], message)
        assert cost.bytes <= attacks.MOST_MEMORY * EXPECTED_BYTES, (i, cost)
        answers.append(cost.answer)
    assert {"decoded"} < set(answers), "some mutations leave a valid message"


@pytest.mark.usefixtures("traced")
def test_valid_messages_stay_within_the_same_bounds() -> None:
    rng = np.random.default_rng(2)
    for codec in attacks.CODECS:
        cost = attacks.measure(codec, codec.encode(attacks.update(1.0, rng)))
        assert cost.answer == "decoded" and cost.bytes <= attacks.MOST_MEMORY * EXPECTED_BYTES


@pytest.mark.parametrize("size", [0, 1, 5, 8191, 8192, 8193, 30_000])
def test_blocks_meet_without_a_gap(size: int) -> None:
    rng = np.random.default_rng(size)
    for density in (0.3, 1.0):
        vector = attacks.update(density, rng, size)
        for codec in attacks.CODECS:
            decoded = codec.decode(codec.encode(vector), length=size, step=codec.step, finite=True)
            np.testing.assert_array_equal(decoded, codec.apply(vector))


def test_the_longest_message_of_a_length_is_taken() -> None:
    """The limit of a message's size holds for messages of few and unlike numbers, too."""
    for size in (1, 2, 3, 10, 1000):
        for seed in range(20):
            vector = np.random.default_rng(seed).integers(0, 2**32, size, np.uint32).view(np.float32)
            message = LosslessCodec().encode(vector)
            decoded = LosslessCodec().decode(message, length=size)
            np.testing.assert_array_equal(decoded.view(np.uint32), vector.view(np.uint32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_only_if_asked(value: float) -> None:
    message = LosslessCodec().encode(np.array([0, 1, 0, value], np.float32))
    np.testing.assert_array_equal(LosslessCodec().decode(message, length=4), np.array([0, 1, 0, value], np.float32))
    with pytest.raises(CodecError, match=rf"{value} for parameter 3; finite numbers are expected"):
        LosslessCodec().decode(message, length=4, finite=True)


def test_a_step_is_compared_as_float32() -> None:
    vector = np.array([0.3, 0, -0.1], np.float32)
    message = QuantisedCodec(0.1).encode(vector)
    # The codec's own step is not what is expected; the argument is.
    np.testing.assert_array_equal(QuantisedCodec(0.5).decode(message, step=0.1), QuantisedCodec(0.1).apply(vector))
    with pytest.raises(CodecError, match=r"has step 0\.1\d*; 0\.5 is expected"):
        QuantisedCodec(0.1).decode(message, step=0.5)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"length": -1}, "length must be an integer .*found -1"),
        ({"length": 2**31 + 1}, "length must be an integer .*found 2147483649"),
        ({"length": 1.5}, "length must be an integer"),
        ({"step": 0.0}, "step must be .*> 0, found 0.0"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        QuantisedCodec().decode(b"", **arguments)


@pytest.mark.parametrize("codec", [LosslessCodec(), Float16Codec()], ids=lambda codec: codec.name)
def test_forms_without_a_step_expect_none(codec) -> None:
    assert codec.step is None
    with pytest.raises(ValueError, match=r"step must be None for .*, whose messages have none, found 0\.1"):
        codec.decode(b"", step=0.1)


def test_a_lack_of_memory_is_an_error_of_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    message = LosslessCodec().encode(np.ones(5, np.float32))
    monkeypatch.setattr(message_lib, "decode_numbers", fail)
    with pytest.raises(CodecError, match=r"of 2. bytes needs more memory than there is"):
        LosslessCodec().decode(message)
