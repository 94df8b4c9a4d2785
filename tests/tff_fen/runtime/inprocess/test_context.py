"""The in-process context: its settings, and calls from wherever Python may call it."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import new_process, runtime_local
from tests.support.runtime_suite import INT, create_context, evaluate_on, mapped, tensorflow
from tff_fen.runtime.inprocess import context as context_module
from tff_fen.runtime.inprocess.context import InProcessContext
from tff_fen.runtime.inprocess.executors import ThreadedClientExecutor


def test_executables_live_as_long_as_their_computations(installed: InProcessContext) -> None:
    gc.collect()
    before = len(installed._executables)
    computation = mapped(lambda x: x, INT)()
    computation([1])
    assert len(installed._executables) == before + 1
    del computation
    gc.collect()
    assert len(installed._executables) == before


def test_many_threads_share_a_context(installed: InProcessContext) -> None:
    computation = mapped(runtime_local.count, INT)()

    def call(k: int) -> Any:
        return evaluate_on(installed, lambda: computation([k, k + 1, k + 2]))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(call, range(40)))
    assert results == [[2 * (10 + k + i) for i in range(3)] for k in range(40)]


def test_a_computation_may_be_called_while_a_graph_is_built(installed: InProcessContext) -> None:
    add_one = tensorflow(lambda x: x + 1, INT)()
    with tf.Graph().as_default():
        assert add_one(3) == 4
        with pytest.raises(TypeError, match="has no value before its graph is run"):
            add_one(tf.constant(3, tf.int32))
    traced = []
    tf.function(lambda: traced.append(add_one(5)))()
    assert traced == [6]


def test_a_fork_is_told_to_be_started_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow's threads are not there in a fork: a call there waits for ever."""
    context = create_context()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match=r"process -1 is a fork of.*get_context\('spawn'\)"):
        evaluate_on(context, lambda: tensorflow(lambda x: x + 1, INT)()(3))


def test_names_what_nests_too_deeply(installed: InProcessContext) -> None:
    aggregator = tff.learning.ddp_secure_aggregator(noise_multiplier=0.1, expected_clients_per_round=11)
    process = aggregator.create(tff.types.to_type([tff.TensorType(np.float32, [5])]))
    with pytest.raises(tff_fen.runtime.UnsupportedConstructError, match="PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"):
        process.initialize()
        process.next(process.initialize(), [[np.ones(5, np.float32)]] * 11)


@pytest.mark.parametrize(
    "settings, error, message",
    [
        (dict(max_concurrent_clients=0), ValueError, "max_concurrent_clients must be an integer >= 1, found 0"),
        (dict(threads_per_client=1.5), TypeError, "threads_per_client must be an integer"),
        (dict(client_devices=["GPU:7"]), ValueError, r"client_devices must be .*'CPU:0'.*found \['GPU:7'\]"),
        (dict(client_devices=[]), ValueError, "client_devices must be a list of one or more"),
        (dict(clients_per_gpu=0), ValueError, "clients_per_gpu must be an integer >= 1, found 0"),
        (dict(clients_per_gpu=2), ValueError, "clients_per_gpu=2 needs gpu_memory_mb.*nvidia-smi"),
        (dict(clients_per_gpu=2, gpu_memory_mb=1.5), TypeError, "gpu_memory_mb must be an integer"),
    ],
)
def test_rejects_settings(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        create_context(**settings)


def test_warns_if_tensorflow_has_started() -> None:
    tf.constant(1)
    if tf.config.threading.get_intra_op_parallelism_threads() == 3:
        pytest.skip("TensorFlow has started with the very number of threads")
    with pytest.warns(RuntimeWarning, match="threads_per_client=3 has no effect: TensorFlow has already started"):
        tff_fen.runtime.create_inprocess_context(threads_per_client=3)


@pytest.mark.long
def test_what_is_set_before_tensorflow_starts() -> None:
    """Threads and devices, in one process: of the devices a client's bits do not depend.

    Its one thread for operations is held by clients whose steps call functions: none of them waits for another.
    """
    output = new_process.run_python(
        """
        import warnings
        warnings.simplefilter("error", RuntimeWarning)
        import numpy as np, tensorflow as tf, tensorflow_federated as tff, tff_fen
        from tff_fen.runtime.inprocess import executors, graphs
        from tff_fen.runtime.machine_code import compiled_ops
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tff_fen.runtime.set_inprocess_context(client_devices=["CPU:1", "/device:CPU:0"])
        print(tf.config.threading.get_intra_op_parallelism_threads())
        work = tff.tensorflow.computation(lambda x: x + 1, np.int32)
        total = tff.federated_computation(
            lambda x: tff.federated_sum(tff.federated_map(work, x)), tff.FederatedType(np.int32, tff.CLIENTS)
        )
        print(total([1, 2, 3]))
        function = graphs.GraphFunction(work.to_building_block().proto.tensorflow)
        executor = executors.ThreadedClientExecutor(2, ["/device:CPU:1", "/device:CPU:0"])
        print(*[t.device[-5:] for t in executor.run(function, [tf.constant(k) for k in range(3)])])

        from tests.support import runtime_graphs
        from tests.tff_fen.runtime.passes import test_one_thread
        process = test_one_thread.fed_dyn("dense")
        print(len(runtime_graphs.loops_on_one_thread(test_one_thread.graphs_of(process.next))))
        contexts = [tff_fen.runtime.create_inprocess_context(client_devices=d) for d in (["CPU:0"], ["CPU:1", "CPU:0"])]
        one, two = (test_one_thread.weights_after_rounds(process, context=context) for context in contexts)
        print(all(np.array_equal(a, b) for a, b in zip(one, two, strict=True)))

        compiled_ops.register = runtime_graphs.refuse
        test_one_thread.weights_after_rounds(process, context=runtime_graphs.CompilingOnce(max_concurrent_clients=5))
        print("ended")
        """
    )
    assert output.splitlines() == ["1", "9", "CPU:1 CPU:0 CPU:1", "1", "True", "ended"]


@pytest.mark.long
def test_several_clients_per_device() -> None:
    """Split CPUs stand in for split GPUs: as many clients at once as there are parts, and the same numbers."""
    output = new_process.run_python(
        """
        import numpy as np, tensorflow as tf, tensorflow_federated as tff, tff_fen
        from tff_fen.runtime import devices
        from tests.support import runtime_graphs
        from tests.tff_fen.runtime.passes import test_one_thread

        devices.split("CPU", 3)
        names = [device.name for device in tf.config.list_logical_devices()]
        split = tff_fen.runtime.create_inprocess_context(client_devices=names)
        whole = tff_fen.runtime.create_inprocess_context(client_devices=names[:1])
        process = test_one_thread.fed_dyn("dense")
        one, two = (test_one_thread.weights_after_rounds(process, context=context) for context in (whole, split))
        print(*names, all(np.array_equal(a, b) for a, b in zip(one, two, strict=True)))
        try:
            devices.split("CPU", 2)
        except RuntimeError as error:
            print(error)
        """
    )
    first, second = output.splitlines()
    assert first == "/device:CPU:0 /device:CPU:1 /device:CPU:2 True"
    assert "only before TensorFlow starts" in second


def test_no_gpu_to_split() -> None:
    with pytest.warns(RuntimeWarning, match="TensorFlow finds no GPU to split into 2"):
        tff_fen.runtime.create_inprocess_context(clients_per_gpu=2, gpu_memory_mb=2000)


@pytest.mark.parametrize(
    ("clients", "expected"),
    [(None, (64, 1)), (10, (10, 6)), (64, (64, 1)), (100, (100, 1))],
    ids=["as many as cores", "fewer than cores", "cores", "more than cores"],
)
def test_threads_that_are_left_over(
    clients: int | None, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 64 cores: a context for ten clients at once gives each six threads if it may choose."""
    found: list[int] = []
    monkeypatch.setattr(context_module, "ThreadedClientExecutor", lambda clients, names: found.append(clients))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    monkeypatch.setattr(context_module, "configure_tensorflow", lambda threads, *_: found.append(threads))
    tff_fen.runtime.create_inprocess_context(max_concurrent_clients=clients, threads_per_client=None)
    threads, at_once = found
    assert (at_once, threads) == expected


def test_no_more_threads_than_clients() -> None:
    """A round of ten clients starts ten threads on 64 cores, so that more cores cannot slow it down."""
    executor = ThreadedClientExecutor(64)
    barrier = threading.Barrier(10)

    class Meeting:
        block = None
        scope: dict[str, Any] = {}  # noqa: RUF012

        def __call__(self, argument: Any = ()) -> Any:
            barrier.wait(timeout=20)  # all ten are at work at once
            return threading.get_ident()

    assert len({*executor.run(Meeting(), list(range(10)))}) == len(executor._pool._threads) == 10
