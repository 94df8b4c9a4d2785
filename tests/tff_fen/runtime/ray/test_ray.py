"""The Ray runtime on a real cluster of this machine: the bits of the in-process runtime, whatever is killed."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import ray_processes, runtime_algorithms, runtime_clients, runtime_local
from tests.support.runtime_suite import (
    CASES,
    FLOAT,
    INT,
    assert_same,
    at_clients,
    at_server,
    create_context,
    evaluate_on,
    fail_if_negative,
    federated,
    mapped,
)
from tests.support.runtime_suite import tensorflow as tensorflow_computation
from tff_fen.runtime.ray.context import RayContext

# Imported for the cases they add to `CASES`.
CASE_MODULES = (runtime_algorithms, runtime_clients, runtime_local)
# On one core, one after the other: they share a cluster, and it takes long to start.
pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore:threads_per_client:RuntimeWarning"),
]


@pytest.fixture(scope="module")
def native() -> Any:
    return tff.backends.test.create_sync_test_cpp_execution_context()


@pytest.fixture(scope="module")
def on_ray() -> Iterator[RayContext]:
    yield tff_fen.runtime.create_ray_context(num_workers=2)
    tff_fen.runtime.end_ray_cluster()


@pytest.fixture
def installed(on_ray: RayContext) -> Iterator[RayContext]:
    with tff.framework.get_context_stack().install(on_ray):
        yield on_ray


@pytest.mark.parametrize("name", CASES)
def test_equals_native(name: str, native: Any, on_ray: RayContext) -> None:
    case = CASES[name]
    assert_same(evaluate_on(on_ray, case.build()), evaluate_on(native, case.build()), case.tolerance)


def test_equals_in_process_to_the_bit(on_ray: RayContext) -> None:
    run = ray_processes.fed_dyn()
    assert_same(evaluate_on(on_ray, run), evaluate_on(create_context(), run), 0.0)
    assert all(worker.computed_clients for worker in on_ray.executor.describe_workers()), "all take part"


def test_results_are_in_the_order_of_clients(installed: RayContext) -> None:
    computation = mapped(lambda x: x * 2, INT)()
    assert computation(list(range(1000))) == list(range(0, 2000, 2))
    assert federated(tff.federated_sum, at_clients(INT))()([]) == 0


def test_many_threads_share_a_context(installed: RayContext) -> None:
    computation = mapped(lambda x: x + 1, INT)()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda k: evaluate_on(installed, lambda: computation([k, k + 1])), range(20))
        assert list(results) == [[k + 1, k + 2] for k in range(20)]


def test_a_worker_killed_in_mid_round_changes_no_bit(on_ray: RayContext, tmp_path: pathlib.Path) -> None:
    run = ray_processes.fed_dyn(tmp_path)
    before = [worker.process_id for worker in on_ray.executor.describe_workers()]
    result = ray_processes.in_background(evaluate_on, on_ray, run)
    ray_processes.await_started(tmp_path, 2)
    os.kill(before[0], signal.SIGKILL)
    ray_processes.go(tmp_path)
    assert_same(result.result(120), evaluate_on(create_context(), run), 0.0)
    # Another one takes its place.
    computation = mapped(lambda x: x + 1, INT)()
    ray_processes.await_true(lambda: _workers_after(on_ray, computation) == 2, 120)
    after = [worker.process_id for worker in on_ray.executor.describe_workers()]
    assert before[0] not in after and before[1] in after


def _workers_after(on_ray: RayContext, computation: Any) -> int:
    assert evaluate_on(on_ray, lambda: computation([1, 2, 3])) == [2, 3, 4]
    return len(on_ray.executor.describe_workers())


def test_client_errors_name_the_client_and_where(installed: RayContext) -> None:
    computation = mapped(fail_if_negative, INT)()
    with pytest.raises(tff_fen.runtime.ClientWorkError, match=r"client 3 \(of 5[\s\S]*a negative number") as caught:
        computation([1, 2, 3, -4, 5])
    assert caught.value.client == 3 and isinstance(caught.value.__cause__, tf.errors.InvalidArgumentError)
    (note,) = caught.value.__notes__
    assert "On the worker:\nTraceback" in note and "ray/worker.py" in note and "a negative number" in note
    assert computation([1, 2]) == [1, 2]


def test_common_parts_are_stored_once_a_round(installed: RayContext, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    puts: list[Any] = []
    put = ray.put

    def counting(value: Any) -> Any:
        puts.append(value)
        return put(value)

    monkeypatch.setattr(ray, "put", counting)
    work = tensorflow_computation(lambda w, data, x: data.reduce(x, lambda a, b: a + b[0]) + w[0], *COMMON_TYPES)()

    def round_of(w: Any, data: Any, x: Any) -> Any:
        return tff.federated_map(work, (tff.federated_broadcast(w), data, x))

    weights, per_client = np.arange(100_000, dtype=FLOAT), [float(k) for k in range(20)]
    data = [tf.data.Dataset.from_tensor_slices(np.full([1, 100_000], k, FLOAT)) for k in range(20)]
    computation = federated(round_of, at_server(COMMON_TYPES[0]), *map(at_clients, COMMON_TYPES[1:]))()
    expected = [2.0 * k for k in range(20)]
    assert computation(weights, data, per_client) == expected
    kinds = [type(value).__name__ for value in puts]
    assert sorted(kinds) == ["Common"] + ["bytes"] + ["ndarray"] * 20, "weights, function, each client's data"
    puts.clear()
    for k in range(3):
        assert computation(weights + FLOAT(k), data, per_client) == [e + k for e in expected]
    assert [type(value).__name__ for value in puts] == ["Common"] * 3, "function and data are there already"
    assert all(sum(part.nbytes for part in value.parts) == weights.nbytes for value in puts)


COMMON_TYPES = (
    tff.TensorType(FLOAT, [100_000]),
    tff.SequenceType(tff.TensorType(FLOAT, [100_000])),
    tff.TensorType(FLOAT),
)


def test_functions_are_imported_once_a_worker(installed: RayContext) -> None:
    computation = mapped(lambda x: x * 3 + 1, INT)()
    before = {w.process_id: w.imported_functions for w in installed.executor.describe_workers()}
    for k in range(1, 20):
        assert computation(list(range(k))) == [3 * i + 1 for i in range(k)]
    for worker in installed.executor.describe_workers():
        assert worker.imported_functions <= before[worker.process_id] + 1


def test_names_what_cannot_be_sent(installed: RayContext) -> None:
    computation = mapped(lambda d: d.reduce(0, lambda a, b: a + b), tff.SequenceType(INT))()
    generated = tf.data.Dataset.from_generator(lambda: iter([1, 2]), output_signature=tf.TensorSpec([], tf.int32))
    with pytest.raises(tff_fen.runtime.UnsupportedConstructError, match=r"Python function.*PyFunc"):
        computation([generated])


def test_data_sets_with_variables_have_their_present_values(installed: RayContext) -> None:
    computation = mapped(lambda d: d.reduce(0, lambda a, b: a + b), tff.SequenceType(INT))()
    variables = [tf.Variable(10 * k) for k in range(4)]
    data = [runtime_clients.int_dataset(1, 2).map(lambda x, v=v: x + v) for v in variables]
    assert computation(data) == [3, 23, 43, 63]
    for variable in variables:
        variable.assign_add(1)
    assert computation(data) == [5, 25, 45, 65]


def test_refuses_what_the_cluster_has_no_room_for(on_ray: RayContext) -> None:
    with pytest.raises(ValueError, match=r"num_workers must be an integer from 1 to 0.*found 5"):
        tff_fen.runtime.create_ray_context(num_workers=5)
    with pytest.raises(ValueError, match="connected to the Ray cluster at"):
        tff_fen.runtime.create_ray_context("127.0.0.1:1")
