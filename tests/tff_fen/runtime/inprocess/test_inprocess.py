"""The in-process runtime: the results of TFF's native runtime, and what only it does."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import new_process, runtime_algorithms, runtime_clients, runtime_local
from tests.support.runtime_suite import (
    CASES,
    FLOAT,
    INT,
    INTS,
    assert_same,
    at_clients,
    at_server,
    evaluate_on,
    federated,
    mapped,
    tensorflow,
)
from tff_fen.runtime.inprocess import evaluator, executors, folding, graphs
from tff_fen.runtime.inprocess.context import InProcessContext

assert runtime_algorithms.STOCK  # imported for the cases it adds, as the others are


def create_context(**settings: Any) -> InProcessContext:
    """A context in this process, where TensorFlow has long started."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return tff_fen.runtime.create_inprocess_context(**settings)


@pytest.fixture(scope="module")
def native() -> Any:
    return tff.backends.test.create_sync_test_cpp_execution_context()


@pytest.fixture(scope="module")
def in_process() -> InProcessContext:
    return create_context(max_concurrent_clients=3)


@pytest.fixture
def installed(in_process: InProcessContext) -> Iterator[InProcessContext]:
    with tff.framework.get_context_stack().install(in_process):
        yield in_process


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


# What is returned at CLIENTS needs clients, as on TFF's native runtime.
@pytest.mark.parametrize(
    "build, argument",
    [
        (mapped(lambda x: x, INT), []),
        (federated(lambda x: tff.federated_broadcast(x), at_server(INT)), 1),
        (federated(lambda x: x, at_clients(INT, all_equal=True)), 1),
    ],
)
def test_nothing_is_returned_from_no_clients(build: Any, argument: Any, native: Any, in_process: Any) -> None:
    computation = build()
    for context, message in ((native, "no data"), (in_process, "there are no clients")):
        with pytest.raises(ValueError, match=message):
            evaluate_on(context, lambda: computation(argument))


def test_names_what_it_cannot_evaluate(installed: InProcessContext) -> None:
    with pytest.raises(NotImplementedError, match="intrinsic 'sequence_sum'"):
        federated(tff.sequence_sum, INTS)()([1])
    with pytest.raises(tff_fen.runtime.UnsupportedConstructError, match="kind 'xla'"):
        tff.jax.computation(lambda x: jnp.add(x, 1), INT)(1)

    def use_queue() -> tf.Tensor:
        queue = tf.queue.FIFOQueue(1, tf.int32, [])
        with tf.control_dependencies([queue.enqueue(1)]):
            return queue.dequeue()

    with pytest.raises(tff_fen.runtime.UnsupportedConstructError, match="holds a FIFOQueueV2"):
        tensorflow(use_queue)()()


def _fail_if_negative(x: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.debugging.assert_non_negative(x, "a negative number")]):
        return tf.identity(x)


def test_client_errors_name_the_client(installed: InProcessContext) -> None:
    computation = mapped(_fail_if_negative, INT)()
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


def test_graphs_are_imported_once(installed: InProcessContext, monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[graphs.GraphFunction] = []
    original = graphs.GraphFunction.__init__

    def counting(self: graphs.GraphFunction, proto: Any) -> None:
        imported.append(self)
        original(self, proto)

    monkeypatch.setattr(graphs.GraphFunction, "__init__", counting)
    traces: list[int] = []

    def work(x: tf.Tensor) -> tf.Tensor:
        traces.append(1)
        return x * 2

    computation = mapped(work, INT)()
    for k in range(1, 20):
        assert computation(list(range(k))) == [2 * i for i in range(k)]
    assert len(imported) == 1 and len(traces) == 1


def test_constants_are_computed_once() -> None:
    def graph_function(function: Any) -> graphs.GraphFunction:
        return graphs.GraphFunction(tensorflow(function)().to_building_block().proto.tensorflow)

    zeros = graph_function(lambda: (tf.zeros([]), 1))
    assert all(a is b for a, b in zip(zeros(), zeros(), strict=True))
    random = graph_function(lambda: tf.random.uniform([4]))
    assert np.any(random() != random())


def test_only_what_the_result_needs_is_run() -> None:
    """As in a session, and unlike in a tf.function, which runs all that has side effects."""

    def work(x: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_equal(x, 0)  # no control dependency: nothing waits for it
        return x + 1

    function = graphs.GraphFunction(tensorflow(work, INT)().to_building_block().proto.tensorflow)
    assert int(function(tf.constant(5))) == 6


def test_functions_of_one_name_and_different_bodies() -> None:
    """Computations made in different processes name their functions alike."""
    computation = tensorflow(lambda d: d.map(lambda x: x + 7).reduce(0, lambda a, b: a + b), INTS)()
    original = computation.to_building_block().proto.tensorflow
    graph_def = tf.compat.v1.GraphDef()
    original.graph_def.Unpack(graph_def)
    sevens = [
        node.attr["value"].tensor
        for function in graph_def.library.function
        for node in function.node_def
        if node.op == "Const" and list(node.attr["value"].tensor.int_val) == [7]
    ]
    assert len(sevens) == 1
    sevens[0].int_val[0] = 100
    changed = type(original)()
    changed.CopyFrom(original)
    changed.graph_def.Pack(graph_def)
    data = tf.data.experimental.to_variant(runtime_clients.int_dataset(1, 2))
    functions = [graphs.GraphFunction(proto) for proto in (original, changed, original)]
    assert [int(function(data)) for function in functions] == [17, 203, 17]


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


def test_results_are_in_the_order_of_clients() -> None:
    executor = executors.ThreadedClientExecutor(4)

    class Slow:
        block = None
        scope: dict[str, Any] = {}  # noqa: RUF012

        def __call__(self, argument: Any = ()) -> Any:
            time.sleep(0.02 if argument % 2 == 0 else 0.0)
            return argument, threading.get_ident()

    results = executor.run(Slow(), list(range(12)))
    assert [argument for argument, _ in results] == list(range(12))
    assert len({thread for _, thread in results}) > 1


def test_clients_that_have_not_begun_do_not_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()
    arguments = list(range(100))
    done = []

    class Waiting:
        block = None
        scope: dict[str, Any] = {}  # noqa: RUF012

        def __call__(self, argument: Any = ()) -> Any:
            begun.release()
            may_end.wait()
            done.append(argument)

    def interrupt(self: Any) -> None:
        for _ in range(2):
            begun.acquire()
        raise KeyboardInterrupt

    executor = executors.ThreadedClientExecutor(2)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(concurrent.futures.Future, "result", interrupt)
        executor.run(Waiting(), arguments)
    may_end.set()
    executor._pool.shutdown()
    assert sorted(done) == [0, 1]


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


def test_client_work_goes_through_the_executor() -> None:
    """What a runtime on other machines implements: nothing but this method sees a client's work."""

    class Recording:
        def __init__(self) -> None:
            self.calls: list[tuple[str, int]] = []

        def run(self, function: executors.ClientFunction, arguments: Any) -> list[Any]:
            self.calls.append((function.block.proto.WhichOneof("computation"), len(arguments)))
            assert not function.scope
            return [function(argument) for argument in arguments]

    executor = Recording()
    computation = runtime_clients.centered()
    result = evaluate_on(InProcessContext(executor), lambda: computation(runtime_clients.NUMBERS))
    assert executor.calls[-1] == ("tensorflow", len(runtime_clients.NUMBERS))
    assert all(count == len(runtime_clients.NUMBERS) for _, count in executor.calls)
    assert len(result) == len(runtime_clients.NUMBERS)


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


@pytest.mark.parametrize(
    "settings, error, message",
    [
        (dict(max_concurrent_clients=0), ValueError, "max_concurrent_clients must be an integer >= 1, found 0"),
        (dict(threads_per_client=1.5), TypeError, "threads_per_client must be an integer"),
        (dict(client_devices=["GPU:7"]), ValueError, r"client_devices must be .*'CPU:0'.*found \['GPU:7'\]"),
        (dict(client_devices=[]), ValueError, "client_devices must be a list of one or more"),
    ],
)
def test_rejects_settings(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        create_context(**settings)


def test_sets_threads_and_devices_before_tensorflow_starts() -> None:
    output = new_process.run_python(
        """
        import warnings
        warnings.simplefilter("error", RuntimeWarning)
        import numpy as np, tensorflow as tf, tensorflow_federated as tff, tff_fen
        from tff_fen.runtime.inprocess import executors, graphs
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
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
        """
    )
    assert output.splitlines() == ["1", "9", "CPU:1 CPU:0 CPU:1"]


def test_normalisation_at_clients_side_by_side() -> None:
    """TensorFlow's kernel for it mixes up calls at the same time, or ends the process: so in a process of its own."""
    output = new_process.run_python(
        """
        import tff_fen
        tff_fen.runtime.set_inprocess_context(max_concurrent_clients=4)
        import numpy as np, tensorflow as tf, tensorflow_federated as tff
        rng = np.random.default_rng(0)
        tf.random.set_seed(1)
        layers = [tf.keras.layers.Dense(8), tf.keras.layers.LayerNormalization(), tf.keras.layers.Dense(3)]
        model = tff.learning.models.functional_model_from_keras(
            tf.keras.Sequential([tf.keras.layers.InputLayer((6,)), *layers]),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            (tf.TensorSpec([None, 6]), tf.TensorSpec([None], tf.int32)),
        )
        clients = [
            tf.data.Dataset.from_tensors((rng.normal(size=(n, 6)).astype(np.float32), np.arange(n, dtype=np.int32) % 3))
            for n in (7, 1, 33, 5, 12, 30, 8, 2)
        ]
        training = tff_fen.LocalTraining(0.1, epochs=3, batch_size=4)
        process = tff_fen.build_fed_avg(model, tff_fen.ElasticNet(), training)
        state = process.initialize()

        def trained():
            weights = process.get_model_weights(process.next(state, clients).state)
            return b"".join(w.tobytes() for w in weights.trainable)

        print(len({trained() for _ in range(60)}))
        with tff.framework.get_context_stack().install(tff_fen.runtime.create_native_context()):
            on_native = trained()
        print(np.abs(np.frombuffer(trained(), np.float32) - np.frombuffer(on_native, np.float32)).max() < 1e-5)
        """
    )
    assert output.splitlines() == ["1", "True"]


def test_warns_if_tensorflow_has_started() -> None:
    tf.constant(1)
    if tf.config.threading.get_intra_op_parallelism_threads() == 3:
        pytest.skip("TensorFlow has started with the very number of threads")
    with pytest.warns(RuntimeWarning, match="threads_per_client=3 has no effect: TensorFlow has already started"):
        tff_fen.runtime.create_inprocess_context(threads_per_client=3)
