"""Kinds and ranges of single values; what stands here and in the library is the same in both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from experiments import values
from experiments.values import Value
from tff_fen import L1_STEPS, checks

SHARE = Value(0.5, "A share.", float, above=0, high=1)
MANY = [f"name_{i}" for i in range(20)]


def told(check: Callable[[str, Any, list[str]], None], value: Any, known: list[str]) -> str:
    try:
        check("method", value, known)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("known", [["mean", "dp"], MANY, MANY[:12], MANY[:13], []])
@pytest.mark.parametrize("value", ["mean", "men", "name_1", "name_77", "", "quite another"])
def test_names_are_checked_as_the_library_checks_them(value: str, known: list[str]) -> None:
    """They are written twice: the command line's mistakes must be told before TensorFlow is imported."""
    assert told(values.check_name, value, known) == told(checks.check_name, value, known)
    assert (told(values.check_name, value, known) == "") == (value in known)


def test_l1_steps_are_the_librarys() -> None:
    assert values.L1_STEPS == L1_STEPS


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        (SHARE, "0.25", 0.25),
        (Value(0.9, "", float, low=0, below=1), "0", 0.0),
        (Value(1, "", int, low=1), "3", 3),
        (Value(False, "", bool), "True", True),
        (Value("a", "", str, choices=("a", "b")), "b", "b"),
        (Value(None, "", float), "2", 2.0),
    ],
)
def test_a_text_is_read(value: Value, text: str, expected: Any) -> None:
    found = value.read("x", text)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "text", "message"),
    [
        (SHARE, "0", "x must be a finite number > 0 and <= 1, found 0.0."),
        (SHARE, "nan", "x must be a finite number > 0 and <= 1, found nan."),
        (SHARE, "much", "x must be a finite number > 0 and <= 1, found 'much'."),
        (Value(0.9, "", float, low=0, below=1), "1", "x must be a finite number >= 0 and < 1, found 1.0."),
        (Value(1, "", int, low=1, high=9), "10", "x must be an integer from 1 to 9, found 10."),
        (Value(1, "", int), "1.5", "x must be an integer, found '1.5'."),
        (Value(False, "", bool), "yes", "x must be true or false, found 'yes'."),
        (Value("a", "", str, choices=("a", "b")), "c", "x must be one of 'a', 'b', found 'c'."),
    ],
)
def test_a_text_that_is_refused(value: Value, text: str, message: str) -> None:
    with pytest.raises(ValueError) as found:
        value.read("x", text)
    assert str(found.value) == message


def test_nothing_is_a_value_where_it_is_the_default() -> None:
    Value(None, "", float).check("x", None)
    with pytest.raises(TypeError, match="x must be a finite number > 0 and <= 1, found None"):
        SHARE.check("x", None)
