"""What carries h and c, used alone: type signatures, numbers that can be done in the head, rejections."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.aggregators import (
    BroadcastingAggregationProcess,
    ControlVariateFactory,
    DualVariableFactory,
    MeanAndCountFactory,
    build_dp_factory,
)
from tff_fen.aggregators.broadcasting import broadcast_of

W = tff.TensorType(np.float32, [2])
FLOAT = tff.TensorType(np.float32)
MEAN = "<value_sum_process=<>,weight_sum_process=<>>"
MEASURED = "<mean_value=<>,mean_weight=<>>"


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def check_next(process: Any, state: str, value: str, result: str, measurements: str) -> None:
    """Holds a process to its type signature, written as in the factory's docstring."""
    signature = process.next.type_signature
    found = [
        signature.parameter[0].compact_representation(),
        signature.parameter[1].compact_representation(),
        signature.parameter[2].compact_representation(),
        signature.result.result.compact_representation(),
        signature.result.measurements.compact_representation(),
    ]
    assert found == [f"{state}@SERVER", f"{{{value}}}@CLIENTS", "{float32}@CLIENTS", f"{result}@SERVER",
                     f"{measurements}@SERVER"]  # fmt: skip
    assert signature.result.state == signature.parameter[0]


def controls(*values: tuple[Sequence[float], Sequence[float]]) -> list[Any]:
    return [collections.OrderedDict(delta=vector(*d), control=vector(*c)) for d, c in values]


def test_type_signatures() -> None:
    check_next(
        MeanAndCountFactory().create(W, FLOAT),
        MEAN, "float32[2]", "<mean=float32[2],count=float32,usable=float32>", MEASURED,
    )  # fmt: skip
    state = f"<h=float32[2],delta={MEAN},sign={{}}>"
    result = "<mean=float32[2],usable=float32,h=float32[2]>"
    check_next(
        DualVariableFactory(4, l2=0.5).create(W, FLOAT),
        state.format("<>"), "float32[2]", result,
        f"<delta={MEASURED},usable=float32,h_norm=float32,drift=float32>",
    )  # fmt: skip
    check_next(
        DualVariableFactory(4, l1=0.1, l2=0.5, measurements=False).create(W, FLOAT),
        state.format(MEAN), "float32[2]", result, f"<delta={MEASURED},sign={MEASURED},usable=float32>",
    )  # fmt: skip
    value_type = tff.to_type(collections.OrderedDict(delta=W, control=W))
    process = ControlVariateFactory(4).create(value_type, FLOAT)
    state = f"<control=float32[2],delta={MEAN},control_change={MEAN}>"
    check_next(
        process, state, "<delta=float32[2],control=float32[2]>", "float32[2]",
        f"<delta={MEASURED},control_change={MEASURED},usable=float32,control_norm=float32,drift=float32>",
    )  # fmt: skip
    signature = process.get_broadcast.type_signature
    assert signature.compact_representation() == f"({state} -> <control=float32[2]>)"


def test_h_takes_up_sums_over_the_population() -> None:
    """h' = h - (l2/m) sum delta - (l1/m) sum sign(delta), by hand: m = 4, l2 = 0.5, l1 = 0.25, sign(0) = 0."""
    process = DualVariableFactory(4, l1=0.25, l2=0.5).create(W, FLOAT)
    output = process.next(process.initialize(), [vector(2.0, 0.0), vector(4.0, -2.0)], [1.0, 1.0])
    np.testing.assert_array_equal(output.result["mean"], [3.0, -1.0])
    np.testing.assert_array_equal(output.result["h"], [-0.5 * 6 / 4 - 0.25 * 2 / 4, 0.5 * 2 / 4 + 0.25 * 1 / 4])
    # A second round goes on from there; a client of weight 0 counts for nothing.
    again = process.next(output.state, [vector(1.0, 1.0), vector(50.0, 50.0)], [1.0, 0.0])
    expected = output.result["h"] - np.float32(0.5 / 4 + 0.25 / 4)
    np.testing.assert_allclose(again.state["h"], expected, rtol=1e-6)
    # sqrt(mean |delta_k - mean|^2) of (2, 0) and (4, -2) is sqrt(2)
    assert output.measurements["drift"] == pytest.approx(np.sqrt(2.0), rel=1e-6)
    assert output.measurements["h_norm"] == pytest.approx(np.linalg.norm(output.result["h"]), rel=1e-6)


def test_c_takes_up_the_changes_of_the_clients() -> None:
    """c' = c + (1/m) sum (c_k' - c_k), m = 4; the result is the mean of delta alone."""
    process = ControlVariateFactory(4).create(tff.to_type(collections.OrderedDict(delta=W, control=W)), FLOAT)
    values = controls(((1.0, 3.0), (4.0, 0.0)), ((3.0, 5.0), (0.0, 8.0)))
    output = process.next(process.initialize(), values, [1.0, 1.0])
    np.testing.assert_array_equal(output.result, [2.0, 4.0])
    np.testing.assert_array_equal(output.state["control"], [1.0, 2.0])
    shared = process.get_broadcast(output.state)
    assert list(shared) == ["control"]
    np.testing.assert_array_equal(shared["control"], [1.0, 2.0])


@pytest.mark.parametrize(("weights", "bad"), [([0.0, 0.0], 1.0), ([1.0, 1.0], np.inf)])
def test_a_round_counts_with_both_aggregates_or_not_at_all(weights: list[float], bad: float) -> None:
    dual = DualVariableFactory(4, l2=0.5).create(W, FLOAT)
    output = dual.next(dual.initialize(), [vector(bad, 1.0), vector(1.0, 1.0)], weights)
    assert output.result["usable"] == 0.0 and not np.any(output.state["h"])
    process = ControlVariateFactory(4).create(tff.to_type(collections.OrderedDict(delta=W, control=W)), FLOAT)
    # Only the control change is bad: delta must not count either.
    values = controls(((1.0, 3.0), (bad, 0.0)), ((3.0, 5.0), (0.0, 8.0)))
    output = process.next(process.initialize(), values, weights)
    assert output.measurements["usable"] == 0.0
    assert not np.any(output.result) and not np.any(output.state["control"])


@pytest.mark.parametrize(
    ("factory", "mean", "count"),
    [
        (tff.aggregators.MeanFactory(no_nan_division=True), [3.0, 2.0], 1.0),
        (tff.aggregators.UnweightedMeanFactory(), [2.0, 1.5], 2.0),
        (build_dp_factory(0.0, 8.0, 100.0), [0.5, 0.375], 8.0),
    ],
    ids=["weighted", "unweighted", "fixed"],
)
def test_the_mean_comes_with_what_it_was_divided_by(factory: Any, mean: list[float], count: float) -> None:
    """Updates (3, 2) of weight 1 and (1, 1) of weight 0: who counts depends on the inner factory."""
    process = MeanAndCountFactory(factory).create(W, FLOAT)
    result = process.next(process.initialize(), [vector(3.0, 2.0), vector(1.0, 1.0)], [1.0, 0.0]).result
    np.testing.assert_array_equal(result["mean"], mean)
    assert (result["count"], result["usable"]) == (count, 1.0)


def test_more_clients_than_there_are() -> None:
    process = DualVariableFactory(1, l2=0.5).create(W, FLOAT)
    with pytest.raises(Exception, match="More clients took part in the round than num_clients=1"):
        process.next(process.initialize(), [vector(1.0, 1.0)] * 2, [1.0, 1.0])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DualVariableFactory(0, l2=0.5), "num_clients must be an integer >= 1, found 0"),
        (lambda: DualVariableFactory(4, l2=-1.0), "l2 must be a finite number >= 0, found -1.0"),
        (lambda: DualVariableFactory(4, l1=np.nan, l2=1.0), "l1 must be a finite number >= 0, found nan"),
        (lambda: ControlVariateFactory(1.5), "num_clients must be an integer >= 1, found 1.5"),  # type: ignore[arg-type]
        (lambda: ControlVariateFactory(4, aggregator=tff.aggregators.SumFactory()), "aggregator must give a mean"),
        (
            lambda: DualVariableFactory(4, l2=0.5, sign_aggregator=tff.aggregators.SumFactory()),
            "sign_aggregator must give a mean, found SumFactory",
        ),
        (lambda: MeanAndCountFactory(MeanAndCountFactory().create(W, FLOAT)), "factory must be a"),
    ],
)
def test_rejections(build: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        build()


def test_what_is_shared_with_clients_is_typed() -> None:
    plain = tff.aggregators.MeanFactory().create(W, FLOAT)
    assert broadcast_of(plain).type_signature.result.compact_representation() == "<>"

    @tff.tensorflow.computation(W)
    def other_state(state: Any) -> Any:
        return collections.OrderedDict(x=tf.identity(state))

    with pytest.raises(TypeError, match=r"get_broadcast must take the process's state, .*, found float32"):
        BroadcastingAggregationProcess(plain.initialize, plain.next, other_state)
