"""Every bad value is refused with field, value and range; good ones are kept frozen."""

import dataclasses
import math
from typing import Any

import pytest

from tff_fen import ElasticNet, LocalTraining


def test_defaults_penalise_nothing() -> None:
    assert ElasticNet() == ElasticNet(l1=0.0, l2=0.0, threshold=0.0, l1_step="subgradient")
    assert LocalTraining(0.1) == LocalTraining(0.1, 1, None, 1.0, 0.0, None, 0)


def test_configuration_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ElasticNet().l1 = 1.0  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        LocalTraining(0.1).seed = 1  # type: ignore[misc]


@pytest.mark.parametrize("field", ["l1", "l2", "threshold"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, -math.inf, 10**400])
def test_elastic_net_rejects_bad_numbers(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"ElasticNet\.{field} must be a finite number >= 0, found {value!r}"):
        ElasticNet(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["1e-4", None, True, [0.1]])
def test_elastic_net_rejects_what_is_no_number(value: Any) -> None:
    with pytest.raises(TypeError, match=r"ElasticNet\.l1 must be a finite number >= 0, found .* of type"):
        ElasticNet(l1=value)


@pytest.mark.parametrize("value", ["prox", "Subgradient", "", None])
def test_elastic_net_rejects_unknown_l1_step(value: Any) -> None:
    with pytest.raises(ValueError, match=r"ElasticNet\.l1_step must be one of 'subgradient', 'proximal', found"):
        ElasticNet(l1_step=value)


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("learning_rate", 0.0, ValueError, "a finite number > 0, found 0.0"),
        ("learning_rate", -0.1, ValueError, "a finite number > 0, found -0.1"),
        ("learning_rate", math.nan, ValueError, "a finite number > 0, found nan"),
        ("learning_rate", "0.1", TypeError, "a finite number > 0, found '0.1' of type str"),
        ("epochs", 0, ValueError, "an integer from 1 to 2147483647, found 0"),
        ("epochs", 1.0, TypeError, "an integer from 1 to 2147483647, found 1.0 of type float"),
        ("epochs", True, TypeError, "an integer from 1 to 2147483647, found True of type bool"),
        ("batch_size", 0, ValueError, "an integer from 1 to 2147483647, found 0"),
        ("batch_size", -5, ValueError, "an integer from 1 to 2147483647, found -5"),
        ("lr_decay", 0.0, ValueError, "a finite number > 0, found 0.0"),
        ("lr_decay", math.inf, ValueError, "a finite number > 0, found inf"),
        ("weight_decay", -1e-3, ValueError, "a finite number >= 0, found -0.001"),
        ("clip_norm", 0.0, ValueError, "a finite number > 0, found 0.0"),
        ("clip_norm", math.nan, ValueError, "a finite number > 0, found nan"),
        ("seed", -1, ValueError, "an integer from 0 to 2147483647, found -1"),
        ("seed", 2**31, ValueError, "an integer from 0 to 2147483647, found 2147483648"),
        ("seed", 0.5, TypeError, "an integer from 0 to 2147483647, found 0.5 of type float"),
    ],
)
def test_local_training_rejects(field: str, value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        LocalTraining(**{"learning_rate": 0.1, field: value})
    assert str(raised.value).startswith(f"LocalTraining.{field} must be {message}")
