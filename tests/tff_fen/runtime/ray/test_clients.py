"""The driver's side of the Ray runtime without Ray: who gets which clients, and what becomes of lost workers."""

from __future__ import annotations

import gc
import hashlib
import pathlib
import socket
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support.runtime_suite import INT, assert_same, int_dataset, tensorflow
from tff_fen.runtime.inprocess.evaluator import ComputationEvaluator, Executable, LocalFunction
from tff_fen.runtime.inprocess.executors import ThreadedClientExecutor
from tff_fen.runtime.ray import clients, transport, watchdog
from tff_fen.runtime.ray.clients import RayClientExecutor
from tff_fen.runtime.ray.object_store import ObjectStore
from tff_fen.runtime.ray.worker import ClientWorker, Description


class Lost(Exception):
    """As Ray says that an actor has died."""


class FakeRay:
    """As much of Ray as the executor calls, in this process: a call is computed when it is waited for.

    Attributes:
      fate: called with each worker's number and the arguments of its calls; may raise.
      calls: worker and number of clients of each shard.
    """

    def __init__(self) -> None:
        self.exceptions = types.SimpleNamespace(RayActorError=Lost, ObjectLostError=KeyError)
        self.fate: Callable[[int, Any], None] = lambda worker, arguments: None
        self.calls: list[tuple[int, int]] = []
        self.workers = 0
        self.stored: dict[str, Any] = {}

    def remote(self, actor_class: Any) -> FakeRay:
        self._class = actor_class
        return self

    def options(self, **settings: Any) -> Any:
        return types.SimpleNamespace(remote=self._start)

    def _start(self, threads: int) -> Any:
        number = self.workers
        self.workers += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            worker = self._class(threads, lambda references: [self.stored[r] for r in references])

        def run(*arguments: Any) -> Callable[[], Any]:
            def call() -> Any:
                self.fate(number, arguments[2])
                self.calls.append((number, len(arguments[2])))
                return worker.run(*arguments)

            return call

        def describe() -> Callable[[], Any]:
            return lambda: worker.describe()

        return types.SimpleNamespace(
            run=types.SimpleNamespace(remote=run), describe=types.SimpleNamespace(remote=describe)
        )

    def put(self, value: Any) -> Any:
        key = f"object{len(self.stored)}"
        self.stored[key] = value
        return Reference(key)

    def wait(self, references: list[Any], timeout: float | None) -> tuple[list[Any], list[Any]]:
        return references[-1:], references[:-1]  # the last one first: the order of answers must not matter

    def get(self, reference: Any) -> Any:
        return [r() for r in reference] if isinstance(reference, list) else reference()

    def kill(self, worker: Any) -> None:
        pass


class Reference(str):
    """Of an object in the store."""

    __slots__ = ()

    def hex(self) -> str:
        return hashlib.sha256(self.encode()).hexdigest()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


def function(work: Callable[..., Any], *argument_types: Any) -> LocalFunction:
    executable = Executable(tensorflow(work, *argument_types)().to_building_block())
    return LocalFunction(executable.block, {}, ComputationEvaluator(executable, ThreadedClientExecutor(1), 0))


DOUBLE = function(lambda x: 2 * x, INT)


def doubled(executor: RayClientExecutor, number: int) -> list[int]:
    return [int(x) for x in executor.run(DOUBLE, [tf.constant(k) for k in range(number)])]


@pytest.mark.parametrize("num_workers, number", [(1, 1), (2, 10), (3, 100), (4, 3), (2, 0)])
def test_every_client_once_and_in_order(fake: FakeRay, num_workers: int, number: int) -> None:
    executor = RayClientExecutor(num_workers)
    assert doubled(executor, number) == [2 * k for k in range(number)]
    assert sum(size for _, size in fake.calls) == number
    sizes = [shard.stop - shard.start for shard in clients._shards(number, num_workers)]
    assert sizes == sorted(sizes, reverse=True) and sizes[-num_workers:] == [1] * min(num_workers, len(sizes))
    assert len(sizes) <= 2 * num_workers * (1 + number.bit_length()), "few messages for many clients"


def test_lost_workers_are_replaced_and_their_clients_computed_again(fake: FakeRay) -> None:
    executor = RayClientExecutor(2)

    def lose_first_two(worker: int, arguments: Any) -> None:
        if worker < 2:
            raise Lost

    fake.fate = lose_first_two
    assert doubled(executor, 10) == [2 * k for k in range(10)]
    assert fake.workers == 4 and {worker for worker, _ in fake.calls} <= {2, 3}
    assert len(executor.describe_workers()) >= 1


def test_an_answer_lost_with_its_node_is_computed_again(fake: FakeRay) -> None:
    executor = RayClientExecutor(1)

    def lose_answer(worker: int, arguments: Any) -> None:
        if worker == 0:
            raise KeyError

    fake.fate = lose_answer
    assert doubled(executor, 3) == [0, 2, 4]


@pytest.mark.parametrize("bad", [1, 7])  # in a shard with others, and alone
def test_a_client_that_ends_every_worker_is_named(fake: FakeRay, bad: int) -> None:
    executor = RayClientExecutor(2)

    def die_of_bad(worker: int, arguments: Any) -> None:
        if bad in arguments:
            raise Lost("out of memory")

    fake.fate = die_of_bad
    with pytest.raises(tff_fen.runtime.ClientWorkError, match=rf"client {bad} \(of 10.*Lost: out of memory") as caught:
        doubled(executor, 10)
    assert caught.value.client == bad
    assert fake.workers <= 2 + 1 + clients._MOST_LOSSES


def test_workers_that_end_as_they_start_are_an_error(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(self: Any) -> Any:
        raise Lost("no module named tff_fen")

    monkeypatch.setattr(ClientWorker, "describe", describe)
    with pytest.raises(tff_fen.runtime.RayWorkersError, match="end as they start: no module named tff_fen"):
        RayClientExecutor(2)


def test_workers_with_another_tensorflow_are_refused(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Description(1, "far", {"tensorflow": "1.0"}, 0, 0)
    monkeypatch.setattr(ClientWorker, "describe", lambda self: other)
    with pytest.raises(tff_fen.runtime.RayWorkersError, match=r"on far has \{'tensorflow': '1.0'\}.*Install the same"):
        RayClientExecutor(1)


def test_a_closed_context_says_so(fake: FakeRay) -> None:
    executor = RayClientExecutor(1)
    executor.close()
    with pytest.raises(tff_fen.runtime.RayWorkersError, match=r"closed. Call tff_fen.runtime.set_ray_context\(\)"):
        doubled(executor, 1)


def test_functions_with_surroundings(fake: FakeRay) -> None:
    """A function's free names go along, functions among them."""
    pair = tff.types.to_type((INT, INT))
    reference = tff.framework.Reference
    block = tff.framework.Lambda(
        "x",
        INT,
        tff.framework.Call(
            reference("add", tff.FunctionType(pair, INT)),
            tff.framework.Struct([reference("x", tff.TensorType(INT)), reference("y", tff.TensorType(INT))]),
        ),
    )
    executor = RayClientExecutor(2)
    for y in (5, 70):
        scope = {"add": function(lambda a, b: a + b, INT, INT), "y": tf.constant(y)}
        work = LocalFunction(block, scope, None)  # type: ignore[arg-type]
        assert [int(r) for r in executor.run(work, [tf.constant(k) for k in range(4)])] == [y + k for k in range(4)]


@pytest.mark.parametrize(
    "value",
    [
        np.float32(1.5), np.arange(6, dtype=np.int64).reshape(2, 3), np.zeros([0, 3], np.float16), b"a\x00b\x00",
        np.array([b"x", b"", b"\xff\x00"], np.object_), np.zeros([0], np.object_), np.array([True, False]),
        np.array([np.nan, -0.0, 1e-45], np.float32), np.complex64(1j), np.uint8(200),
    ],
)  # fmt: skip
def test_tensors_arrive_as_they_were_sent(value: Any) -> None:
    tensor = tf.constant(value, tf.string if getattr(value, "dtype", None) == np.object_ else None)
    received = transport.decode(transport.encode(tensor))
    assert received.dtype == tensor.dtype and received.shape == tensor.shape
    assert tf.io.serialize_tensor(received).numpy() == tf.io.serialize_tensor(tensor).numpy()


def test_structures_and_data_sets_arrive_as_they_were_sent() -> None:
    data = tf.data.experimental.to_variant(int_dataset(4, 5, 6).batch(2))
    ((received,), empty, nested) = transport.decode(transport.encode(((data,), (), (tf.constant(1), ()))))
    spec = tf.TensorSpec([None], tf.int32)
    assert_same(tf.data.experimental.from_variant(received, spec), int_dataset(4, 5, 6).batch(2), 0.0)
    assert empty == () and int(nested[0]) == 1 and nested[1] == ()


def test_data_sets_are_serialised_once_and_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    serialised: list[Any] = []
    original = transport.serialize_data_set

    def counting(variant: tf.Tensor) -> bytes:
        serialised.append(variant.shape)
        return original(variant)

    monkeypatch.setattr(transport, "serialize_data_set", counting)
    store = ObjectStore(lambda value: hashlib.sha256(value.tobytes()).hexdigest(), kept_data_bytes=2_000_000)
    data = [tf.data.Dataset.from_tensors(np.full(200_000, k, np.float32)) for k in range(3)]
    variants = [tf.data.experimental.to_variant(d) for d in data]
    assert store.data_set(variants[0]) == store.data_set(variants[0]) and len(serialised) == 1
    for variant in variants:
        store.data_set(variant)
    assert len(serialised) == 3 and store._data_bytes <= 2_000_000
    store.data_set(variants[0])
    assert len(serialised) == 4, "the oldest had to make room"
    del data, variants, variant
    gc.collect()
    assert store._data_bytes <= 2_000_000 and not store._digests, "what is gone is known by its content alone"
    small = tf.data.experimental.to_variant(int_dataset(1))
    assert isinstance(store.data_set(small), bytes), "as cheap to send as to store"


def test_data_made_anew_in_each_round_are_sent_once() -> None:
    """As run_experiment.py makes them; others, or the same in another order, are sent as what they are."""
    sent: list[int] = []

    def put(value: np.ndarray) -> int:
        sent.append(value.nbytes)
        return len(sent)

    def variants(shift: float = 0.0) -> list[tf.Tensor]:
        arrays = [(np.full([50, 784], k + shift, np.float32), np.arange(50, dtype=np.int32)) for k in range(3)]
        made = [tf.data.Dataset.from_tensors(arrays[0])]
        made += [tf.data.Dataset.from_tensor_slices(a).batch(10).repeat(2) for a in arrays[1:]]
        return [tf.data.experimental.to_variant(dataset) for dataset in made]

    store = ObjectStore(put)
    first = [store.data_set(v) for v in variants()]
    for _ in range(4):
        gc.collect()
        assert [store.data_set(v) for v in variants()] == first
    assert first == [1, 2, 3] and sum(sent) < 3 * 50 * 785 * 4 + 30_000
    assert [store.data_set(v) for v in variants(0.5)] == [4, 5, 6]
    assert [store.data_set(v) for v in reversed(variants())] == [3, 2, 1] and len(sent) == 6


def test_what_a_data_set_reads_from_a_variable_is_read_each_time() -> None:
    store, variable = ObjectStore(lambda value: value), tf.Variable(np.zeros(20_000, np.float32))
    dataset = tf.data.Dataset.range(1).map(lambda x: variable + tf.cast(x, tf.float32))
    variant = tf.data.experimental.to_variant(dataset)
    before = bytes(store.data_set(variant))
    variable.assign(np.ones(20_000, np.float32))
    assert bytes(store.data_set(variant)) != before


def test_the_store_forgets_functions_with_their_computations() -> None:
    store = ObjectStore(lambda value: value)
    work = function(lambda x: x, INT)
    store.function(work.block)
    assert len(store._functions) == 1
    del work
    gc.collect()
    assert not store._functions


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where something listens and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    "settings, error, message",
    [
        (dict(num_workers=0), ValueError, "num_workers must be an integer >= 1, found 0"),
        (dict(threads_per_client=1.5), TypeError, "threads_per_client must be an integer"),
        (dict(gpus_per_worker=-1), ValueError, "gpus_per_worker must be a finite number >= 0, found -1"),
        (dict(address="127.0.0.1:1"), ValueError, r"found '127.0.0.1:1', where there is none.*ray start --head"),
        (dict(address="ray://host:1"), ValueError, r"address must be 'HOST:PORT'.*found 'ray://host:1'"),
        (dict(address=7), TypeError, "address must be a str, found 7"),
        (dict(address="127.0.0.1:{port}"), ValueError, "does not speak gRPC"),
    ],
)
@pytest.mark.filterwarnings("ignore:threads_per_client:RuntimeWarning")
def test_rejects_settings_quickly(settings: Any, error: type[Exception], message: str, silent_port: int) -> None:
    if "port" in str(settings.get("address")):
        settings = {"address": settings["address"].format(port=silent_port)}
    start = time.monotonic()
    with pytest.raises(error, match=message):
        tff_fen.runtime.create_ray_context(**settings)
    assert time.monotonic() - start < 20


def test_the_watchdog_ends_marked_processes_and_removes_the_folder(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "ray"
    (folder / "session").mkdir(parents=True)
    marked, other = (
        subprocess.Popen(["sleep", "1000"], env={"TFF_FEN_TEST": value}) for value in (str(folder), "other")
    )
    guard = subprocess.Popen(
        [sys.executable, "-I", watchdog.__file__, "TFF_FEN_TEST", str(folder), str(folder)], stdin=subprocess.PIPE
    )
    try:
        time.sleep(0.5)
        assert marked.poll() is None and folder.exists(), "not before its owner ends"
        assert guard.stdin is not None
        guard.stdin.close()
        assert marked.wait(10) == -9 and guard.wait(10) == 0
        assert not folder.exists() and other.poll() is None
    finally:
        for process in (marked, other, guard):
            process.kill()
            process.wait()


def test_a_worker_keeps_to_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of TensorFlow's threads: it would else hand operations to cores that are other workers'."""
    counts = {}
    for kind in ("intra", "inter"):
        name = f"set_{kind}_op_parallelism_threads"
        monkeypatch.setattr(tf.config.threading, name, lambda count, kind=kind: counts.update({kind: count}))
    ClientWorker(3)
    assert counts == {"intra": 3, "inter": 3}
