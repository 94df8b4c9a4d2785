"""The in-process evaluator: the results of TFF's native runtime, and errors that name what failed."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import runtime_algorithms, runtime_clients, runtime_local
from tests.support.runtime_suite import (
    CASES,
    FLOAT,
    INT,
    INTS,
    assert_same,
    at_clients,
    at_server,
    create_context,
    evaluate_on,
    fail_if_negative,
    federated,
    mapped,
    tensorflow,
)
from tff_fen.runtime.inprocess import evaluator, executors, folding
from tff_fen.runtime.inprocess.context import InProcessContext

# Imported for the cases they add to `CASES`.
CASE_MODULES = (runtime_algorithms, runtime_clients, runtime_local)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_equals_native(name: str, native: Any, in_process: InProcessContext) -> None:
    case = CASES[name]
    assert_same(evaluate_on(in_process, case.build()), evaluate_on(native, case.build()), case.tolerance)


def test_suite_is_large_and_can_tell_results_apart() -> None:
    assert len(CASES) >= 60
    for a, b in [(1.0, 2.0), ([1], (1,)), (INT(1), np.int64(1)), (dict(a=1, b=2), dict(b=2, a=1))]:
        with pytest.raises(AssertionError):
            assert_same(a, b, 0.0)


def test_each_clients_value_is_not_returned_from_no_clients(native: Any, in_process: Any) -> None:
    computation = mapped(lambda x: x, INT)()
    for context, message in ((native, "no data"), (in_process, "there are no clients")):
        with pytest.raises(ValueError, match=message):
            evaluate_on(context, lambda: computation([]))


def test_a_value_equal_for_all_needs_no_clients(installed: InProcessContext) -> None:
    """TFF's own runtime returns it where it was made with `default_num_clients` > 0."""
    assert federated(lambda x: tff.federated_broadcast(x), at_server(INT))()(3) == 3
    assert federated(lambda x: x, at_clients(INT, all_equal=True))()(4) == 4
    both = federated(lambda x, y: (tff.federated_broadcast(x), tff.federated_sum(y)), at_server(INT), at_clients(INT))()
    assert tuple(both(5, [])) == (5, 0)


def test_names_what_it_cannot_evaluate(installed: InProcessContext) -> None:
    with pytest.raises(NotImplementedError, match="intrinsic 'sequence_sum'"):
        federated(tff.sequence_sum, INTS)()([1])
    with pytest.raises(tff_fen.runtime.UnsupportedConstructError, match="kind 'xla'"):
        tff.jax.computation(lambda x: jnp.add(x, 1), INT)(1)

    def use_barrier() -> tf.Tensor:
        return tf.raw_ops.BarrierReadySize(handle=tf.raw_ops.Barrier(component_types=[tf.int32]))

    with pytest.raises(tff_fen.runtime.UnsupportedConstructError, match="holds a Barrier"):
        tensorflow(use_barrier)()()


def test_each_call_has_queues_of_its_own(installed: InProcessContext) -> None:
    """What a call leaves in a queue is in no other: neither in the next, nor in one beside it."""

    def leave_in_queue(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        queue = tf.queue.FIFOQueue(100, tf.int32, [])
        with tf.control_dependencies([queue.enqueue(x)]), tf.control_dependencies([queue.enqueue(x)]):
            first = queue.dequeue()
        with tf.control_dependencies([first]):
            return first, queue.size()

    computation = tensorflow(leave_in_queue, INT)()
    assert [tuple(computation(k)) for k in (1, 2, 3)] == [(1, 1), (2, 1), (3, 1)]
    at_all_clients = mapped(leave_in_queue, INT)()
    assert [tuple(pair) for pair in at_all_clients(list(range(20)))] == [(k, 1) for k in range(20)]


def test_iblt_heavy_hitters(installed: InProcessContext) -> None:
    """Of tff.analytics; decoding peels entries off a queue in random order."""
    words = [["a", "b", "a"], ["a", "c"], ["dd"]]
    computation = tff.analytics.heavy_hitters.iblt.build_iblt_computation(capacity=20, string_max_bytes=10)
    for _ in range(2):
        output = computation([tf.data.Dataset.from_tensor_slices(w).batch(2) for w in words])
        counts = dict(zip(output.heavy_hitters, output.heavy_hitters_counts, strict=True))
        assert counts == {b"a": 3, b"b": 1, b"c": 1, b"dd": 1} and output.num_not_decoded == 0


def test_client_errors_name_the_client(installed: InProcessContext) -> None:
    computation = mapped(fail_if_negative, INT)()
    with pytest.raises(tff_fen.runtime.ClientWorkError, match=r"client 3 \(of 5[\s\S]*a negative number") as caught:
        computation([1, 2, 3, -4, 5])
    assert caught.value.client == 3 and isinstance(caught.value.__cause__, tf.errors.InvalidArgumentError)
    assert computation([1, 2]) == [1, 2]


@pytest.mark.parametrize("bad", [2, 20, 39])  # alone, and in a call of many steps
def test_errors_of_aggregation_name_the_client(bad: int, installed: InProcessContext) -> None:
    computation = federated(lambda x: tff.federated_secure_sum(x, 10), at_clients(INT))()
    with pytest.raises(tff_fen.runtime.ClientWorkError, match="larger than maximum") as caught:
        computation([11 if k == bad else 1 for k in range(40)])
    assert caught.value.client == bad


def test_sums_are_in_the_order_of_clients_whatever_the_timing() -> None:
    """Bit for bit a loop in float32, with one thread or many, however the fold is cut into calls."""
    rng = np.random.default_rng(1)
    computation = federated(tff.federated_sum, at_clients(FLOAT))()
    for n in (1, 15, 16, 17, 33, 100):
        values = (rng.normal(size=n) * 10.0 ** rng.integers(-6, 6, n)).astype(FLOAT)
        expected = FLOAT(0)
        for value in values:
            expected = FLOAT(expected + value)
        for threads in (1, 4):
            context = create_context(max_concurrent_clients=threads)
            assert evaluate_on(context, lambda: computation(list(values))) == expected  # noqa: B023


def test_functions_with_surroundings_are_not_kept_in_a_fold() -> None:
    """A fold of a function that takes a value from its surroundings sees the value of this call."""
    add = tensorflow(lambda a, x, y: a + x * y, INT, INT, INT)()
    block = tff.framework.Lambda(
        "p",
        tff.types.to_type((INT, INT)),
        tff.framework.Call(
            add.to_building_block(),
            tff.framework.Struct(
                [
                    tff.framework.Selection(tff.framework.Reference("p", tff.types.to_type((INT, INT))), index=0),
                    tff.framework.Selection(tff.framework.Reference("p", tff.types.to_type((INT, INT))), index=1),
                    tff.framework.Reference("scale", tff.TensorType(INT)),
                ]
            ),
        ),
    )
    executable = evaluator.Executable(block)
    runs = evaluator.ComputationEvaluator(executable, executors.ThreadedClientExecutor(1), 0)
    values = [tf.constant(1)] * (2 * folding._STEPS_PER_CALL)
    for scale in (1, 5):
        function = runs.evaluate(block, {"scale": tf.constant(scale), "unrelated": tf.constant(0)})
        assert set(function.scope) == {"scale"}
        assert int(function.fold(tf.constant(0), values)) == scale * len(values)
