"""Elementwise arithmetic as one loop: the same bits as one operation after the other, put in where it can be."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models
from tests.support.runtime_graphs import CompilingOnce, graphs_in, imported, refuse
from tff_fen import graph_marks
from tff_fen.runtime import compilation, devices
from tff_fen.runtime.graph_parts import all_nodes
from tff_fen.runtime.inprocess import graphs
from tff_fen.runtime.machine_code import compiled_ops, element_loops
from tff_fen.runtime.passes import fusing

OPERATION = "TffFenElementwise"
# Around the number of elements in a vector, and shapes that are none or empty.
SHAPES = [(1,), (15,), (16,), (17,), (5, 7), (2, 3, 2, 4), (), (0, 4), (3, 1)]

Function = Callable[..., tuple[tf.Tensor, ...]]


def columns_of(num_columns: int, shapes: list[tuple[int, ...]], seed: int = 0) -> list[list[tf.Tensor]]:
    """Tensors of numbers, a third of them 0."""
    rng = np.random.default_rng(seed)
    return [
        [tf.constant((rng.normal(size=s) * (rng.random(s) > 0.33)).astype(np.float32)) for s in shapes]
        for _ in range(num_columns)
    ]


def with_loops(concrete: Any) -> Any:
    """A function in which the call of a marked function has become an operation."""
    graph_def = concrete.graph.as_graph_def()
    fusing.use_loops(graph_def)
    assert [node.op.startswith(OPERATION) for node in graph_def.node].count(True) == 1
    feeds, fetches = ([t.name for t in tensors] for tensors in (concrete.inputs, concrete.outputs))
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in concrete.inputs]
    return graphs.import_function(graph_def, feeds, specs, fetches)


def in_one_loop(function: Function, scalars: list[float], columns: list[list[tf.Tensor]]) -> list[list[tf.Tensor]]:
    """`graph_marks.map_tensors` by the operation that takes its place."""

    @tf.function(autograph=False)
    def call(scalars: Any, columns: Any) -> Any:
        return graph_marks.map_tensors(function, scalars, *columns)

    concrete = call.get_concrete_function([tf.TensorSpec([], tf.float32)] * len(scalars), columns)
    imported = with_loops(concrete)
    assert [t.shape for t in imported.outputs] == [t.shape for t in concrete.outputs]
    results = imported(*map(tf.constant, scalars), *tf.nest.flatten(columns))
    size = len(columns[0])
    return [results[i : i + size] for i in range(0, len(results), size)]


def one_by_one(function: Function, scalars: list[float], columns: list[list[tf.Tensor]]) -> list[list[tf.Tensor]]:
    """The same, one operation after the other."""
    results = [function(*map(tf.constant, scalars), *tensors) for tensors in zip(*columns, strict=True)]
    return [list(column) for column in zip(*results, strict=True)]


def assert_same_bits(actual: list[list[tf.Tensor]], expected: list[list[tf.Tensor]]) -> None:
    for a, e in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        assert a.shape == e.shape
        assert a.numpy().tobytes() == e.numpy().tobytes()


def step(lr: tf.Tensor, factor: tf.Tensor, *tensors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """As a local step is: sums of many terms, whose bits change with the order."""
    theta, delta, gradient, correction = tensors
    moved = tf.add_n(
        [
            (1.0 - lr * 0.3) * delta,
            factor * gradient,
            correction,
            (-lr * 0.1) * tf.sign(delta),
            (-lr * 0.7) * (theta + delta),
        ]
    )
    moved -= tf.clip_by_value(moved, -lr * 0.2, lr * 0.2)
    return moved, theta + moved


def test_a_step_has_the_bits_of_its_operations() -> None:
    columns = columns_of(4, SHAPES)
    assert_same_bits(in_one_loop(step, [0.3, 0.9], columns), one_by_one(step, [0.3, 0.9], columns))


EACH_OPERATION: dict[str, Function] = {
    "sums": lambda s, x, y: (x + y, x - y, y - x),
    "products": lambda s, x, y: (x * y, s * y, x + 3.0),
    "signs": lambda s, x, y: (-x, tf.sign(y), tf.identity(x)),
    "extremes": lambda s, x, y: (tf.minimum(x, y), tf.maximum(x, y), tf.minimum(s, x), tf.maximum(x, s)),
    "long sums": lambda s, x, y: (tf.add_n([x]), tf.add_n([x, y, s * x, x * y, y, 7.0 * y, x, y * y, x])),
    "scalars": lambda s, x, y: (s * s * x, (1.0 - s) * y, (-s + 0.25) * x),
}


@pytest.mark.parametrize("name", EACH_OPERATION)
def test_each_operation(name: str) -> None:
    function, columns = EACH_OPERATION[name], columns_of(2, SHAPES)
    assert_same_bits(in_one_loop(function, [0.7], columns), one_by_one(function, [0.7], columns))


@pytest.mark.parametrize("name", EACH_OPERATION)
def test_each_operation_on_numbers_that_are_not_finite(name: str) -> None:
    special = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 0.0, 1.0, -2.0], np.float32)
    columns = [[tf.constant(np.repeat(special, 8))], [tf.constant(np.tile(special, 8))]]
    function = EACH_OPERATION[name]
    for actual, expected in zip(
        in_one_loop(function, [0.7], columns), one_by_one(function, [0.7], columns), strict=True
    ):
        np.testing.assert_array_equal(actual[0], expected[0])


def squares(s: tf.Tensor, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """As what is clipped: results, and half of the sum of squares of one of them."""
    descent = tf.add_n([x, s * y])
    return tf.nn.l2_loss(descent), descent, descent - y


def test_sums_of_squares_are_taken_in_the_same_loop() -> None:
    """Among them sums of nothing, of what does not fill a vector, and of more than float32 adds up exactly."""
    shapes = [*SHAPES, (100_003,)]
    columns = columns_of(2, shapes)
    sums, *others = in_one_loop(squares, [0.7], columns)
    _, *expected = one_by_one(squares, [0.7], columns)
    assert_same_bits(others, expected)
    for total, descent in zip(sums, others[0], strict=True):
        exact = np.float32(0.5 * np.sum(np.square(descent.numpy().astype(np.float64))))
        assert total.shape == () and np.abs(total - exact) <= np.spacing(exact)


@pytest.mark.parametrize("number", [np.inf, np.nan, 3e38, 1e-30])
def test_sums_of_squares_are_not_finite_where_tensorflows_are_not(number: float) -> None:
    for size in (3, 40):
        x = np.ones(size, np.float32)
        x[1] = number
        columns = [[tf.constant(x)], [tf.zeros(size)]]
        (actual, *_), (expected, *_) = in_one_loop(squares, [0.7], columns), one_by_one(squares, [0.7], columns)
        np.testing.assert_allclose(actual[0], expected[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda s, x: (s * x, 2.0 * tf.nn.l2_loss(x)), "computes with a sum of squares"),
        (lambda s, x: (tf.nn.l2_loss(s * x),), "nothing else is made of"),
    ],
)
def test_other_uses_of_a_sum_of_squares_are_left_to_tensorflow(function: Function, message: str) -> None:
    @tf.function(autograph=False)
    def call(x: tf.Tensor, scalars: tf.Tensor) -> Any:
        return function(scalars, x)

    definition = call.get_concrete_function(tf.TensorSpec([9]), tf.TensorSpec([])).function_def
    with pytest.raises(element_loops.UnsupportedFunctionError, match=message):
        element_loops.ElementFunction(definition)


def test_results_may_share_arguments_with_some_of_the_others() -> None:
    """Groups of which the first two turn out to be one."""

    @tf.function(autograph=False)
    def grouped(a: tf.Tensor, b: tf.Tensor, c: tf.Tensor, scalars: tf.Tensor) -> Any:
        return a + scalars, b - scalars, a * b, c + scalars

    specs = [tf.TensorSpec([None], tf.float32)] * 3 + [tf.TensorSpec([], tf.float32)]
    definition = grouped.get_concrete_function(*specs).function_def
    function = element_loops.ElementFunction(definition)
    assert function.groups == [((0, 1), (0, 1, 2), ()), ((2,), (3,), ())]
    assert (function.num_arguments, function.num_results) == (4, 4)


def test_arguments_that_others_hold_are_not_overwritten() -> None:
    columns = columns_of(4, [(1000,)])
    before = [column[0].numpy().copy() for column in columns]
    in_one_loop(step, [0.3, 0.9], columns)
    for column, kept in zip(columns, before, strict=True):
        np.testing.assert_array_equal(column[0], kept)


def repeated(dtype: Any, function: Function) -> Any:
    """A computation of TFF that takes `function` of a number and of its argument three times, in a loop in a loop."""

    @tff.tensorflow.computation(tff.TensorType(dtype, [20]), dtype)
    @tf.function
    def computation(x: tf.Tensor, s: tf.Tensor) -> Any:
        def body(i: tf.Tensor, y: tf.Tensor) -> Any:
            ((y,),) = graph_marks.map_tensors(function, [s], [y])
            return i + 1, y

        def epoch(e: tf.Tensor, y: tf.Tensor) -> Any:
            return e + 1, tf.while_loop(lambda i, _: i < 3, body, (0, y))[1]

        return tf.while_loop(lambda e, _: e < 1, epoch, (0, x))[1]

    return computation


def operations_in_process(computation: Any) -> set[str]:
    """What the in-process runtime, and Ray's workers, make of a computation."""
    graph_defs = imported(tff_fen.runtime.create_inprocess_context()._compile(computation))
    return {node.op for graph_def in graph_defs for node in all_nodes(graph_def)}


def has_loop(operations: set[str]) -> bool:
    return any(operation.startswith(OPERATION) for operation in operations)


def run_in_process(computation: Any, *arguments: Any) -> Any:
    with tff.framework.get_context_stack().install(tff_fen.runtime.create_inprocess_context()):
        return computation(*arguments)


def test_a_computation_of_tff_gets_the_loop_and_keeps_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = []
    register = compiled_ops.register

    def register_and_note(function: element_loops.ElementFunction) -> str:
        registered.append(function)
        return register(function)

    monkeypatch.setattr(compiled_ops, "register", register_and_note)
    computation = repeated(np.float32, lambda s, y: (s * y + y * y,))
    x = np.linspace(-1, 1, 20, dtype=np.float32)
    expected = x
    for _ in range(3):
        expected = np.float32(0.5) * expected + expected * expected
    # To the bit, although TensorFlow's optimiser would make y * (s + y) of it, as it does on TFF's own runtime.
    np.testing.assert_array_equal(run_in_process(computation, x, np.float32(0.5)), expected)
    assert len(registered) == 1
    np.testing.assert_allclose(computation(x, np.float32(0.5)), expected, rtol=1e-5, atol=1e-7)
    assert len(registered) == 1


@pytest.mark.parametrize(
    ("dtype", "function"),
    [
        (np.float64, lambda s, y: (s * y + 0.5,)),
        (np.float32, lambda s, y: (tf.exp(s * y) - 0.5,)),
        (np.float32, lambda s, y: (y + tf.constant([1.0, 2.0] * 10),)),
        (np.float32, lambda s, y: (tf.add_n([s * y] * 10),)),
    ],
    ids=["float64", "an operation that is not known", "a constant of several elements", "a sum in blocks"],
)
def test_what_is_not_known_stays_as_it_is(dtype: Any, function: Function) -> None:
    computation = repeated(dtype, function)
    assert not has_loop(operations_in_process(computation))
    x = np.linspace(-1, 1, 20).astype(dtype)
    expected = tf.constant(x)
    for _ in range(3):
        (expected,) = function(tf.constant(0.5, dtype), expected)
    np.testing.assert_allclose(run_in_process(computation, x, dtype(0.5)), expected, rtol=1e-6)


def test_a_gpu_keeps_tensorflows_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    computation = repeated(np.float32, lambda s, y: (s * y + y,))
    found = operations_in_process(computation)
    assert {"Mul", "AddV2"} <= found
    assert not has_loop(found) and "PartitionedCall" not in found


def test_a_gpu_at_a_worker_alone_leaves_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has kept the call for machine code; TensorFlow then calls the function."""
    compiled = compilation.compile_computation(repeated(np.float32, lambda s, y: (s * y + 0.5,)), keep_marked=True)
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    graph = graphs.GraphFunction(graphs_in(compiled)[0])
    assert graph._function is not None
    (call,) = (n for n in all_nodes(graph._function.graph.as_graph_def()) if n.op == "PartitionedCall")
    assert "_XlaMustCompile" not in call.attr
    x = np.ones(20, np.float32)
    np.testing.assert_allclose(graph((tf.constant(x), tf.constant(0.5))), np.full(20, 1.0), rtol=1e-6)


def test_native_computations_have_no_marks() -> None:
    compiled = compilation.compile_computation(repeated(np.float32, lambda s, y: (s * y + y,)))
    graph_def = tf.compat.v1.GraphDef()
    graphs_in(compiled)[0].graph_def.Unpack(graph_def)
    assert not graph_def.library.function
    assert {"Mul", "AddV2"} <= {node.op for node in graph_def.node}


def test_rounds_without_the_loop_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a worker with a GPU: the calls have been kept, and are to be computed as they are."""
    training = tff_fen.LocalTraining(0.1, epochs=2, batch_size=4, clip_norm=0.5, weight_decay=1e-3)
    penalties = tff_fen.ElasticNet(l1=1e-3, l2=0.1, threshold=1e-3)
    process = tff_fen.build_fed_dyn(models.two_layer_mlp(), penalties, training, num_clients=3)

    def weights_after_two_rounds() -> list[np.ndarray]:
        with tff.framework.get_context_stack().install(CompilingOnce()):
            state = process.initialize()
            clients = [process.initialize_client(k) for k in range(3)]
            for _ in range(2):
                data = [models.dataset(*models.examples(10 + k)) for k in range(3)]
                inputs = [tff_fen.ClientInput(state=c, data=d) for c, d in zip(clients, data, strict=True)]
                state, clients, _ = process.next(state, inputs)
            return process.get_model_weights(state).trainable

    with_loops = weights_after_two_rounds()
    monkeypatch.setattr(compiled_ops, "register", refuse)
    for a, b in zip(with_loops, weights_after_two_rounds(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_equal_functions_share_an_operation() -> None:
    def definition(number: float) -> Any:
        @tf.function(autograph=False)
        def scaled(x: tf.Tensor) -> tf.Tensor:
            return number * x

        return scaled.get_concrete_function(tf.TensorSpec([None], tf.float32)).function_def

    def register(number: float) -> str:
        return compiled_ops.register(element_loops.ElementFunction(definition(number)))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(register, [2.5] * 8))) == 1
    assert register(2.5) != register(3.5)


@pytest.mark.parametrize(
    "shapes", [([3, 2], [2, 2], []), ([3, 1], [1, 3], []), ([4], [2, 2], []), ([4], [4], [1]), ([4], [4], [0])]
)
def test_tensors_of_different_shapes_are_refused(shapes: tuple[list[int], ...]) -> None:
    """Where the shapes are known only when it is computed: TensorFlow would spread the smaller one."""
    function = tf.function(lambda x, y, s: graph_marks.map_tensors(lambda s, a, b: (s * a + b,), [s], [x], [y]))
    imported = with_loops(function.get_concrete_function(*[tf.TensorSpec(None, tf.float32)] * 3))
    np.testing.assert_array_equal(imported(tf.ones([3, 2]), tf.ones([3, 2]), tf.ones([]))[0], np.full([3, 2], 2.0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have one shape"):
        imported(*map(tf.ones, shapes))


def hostile_node(inputs: list[tf.Tensor], in_types: list[Any], out_types: list[Any]) -> Any:
    """Evaluates a node of the operation that was compiled for two tensors of float32 and a scalar, with one result."""
    function = tf.function(lambda s, x, y: graph_marks.map_tensors(lambda s, a, b: (s * a + b,), [s], [x], [y]))
    specs = [tf.TensorSpec([], tf.float32)] + [tf.TensorSpec([4], tf.float32)] * 2
    graph_def = function.get_concrete_function(*specs).graph.as_graph_def()
    fusing.use_loops(graph_def)
    (operation,) = {node.op for node in graph_def.node if node.op.startswith(OPERATION)}
    hostile = tf.compat.v1.GraphDef(versions=graph_def.versions)
    node = hostile.node.add(name="hostile", op=operation)
    for i, tensor in enumerate(inputs):
        placeholder = hostile.node.add(name=f"x{i}", op="Placeholder")
        placeholder.attr["dtype"].type = tensor.dtype.as_datatype_enum
        node.input.append(f"x{i}")
    for name, types in (("Tin", in_types), ("Tout", out_types)):
        node.attr[name].list.type.extend(dtype.as_datatype_enum for dtype in types)
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]
    return graphs.import_function(hostile, [f"x{i}:0" for i in range(len(inputs))], specs, ["hostile:0"])(*inputs)


def test_a_graph_that_was_made_by_hand_computes_what_was_compiled() -> None:
    """Guards the test below."""
    inputs = [tf.ones([4]), tf.ones([4]), tf.constant(2.0)]
    np.testing.assert_array_equal(hostile_node(inputs, [tf.float32] * 3, [tf.float32])[0], np.full(4, 3.0))


@pytest.mark.parametrize(
    ("inputs", "out_types", "error"),
    [
        ([tf.int8, tf.int8, tf.float32], [tf.float32], "int8"),
        ([tf.float32] * 3, [tf.int64], "int64"),
        ([tf.float32] * 2, [tf.float32], "compiled for 3 inputs and 1 outputs; this node has others"),
        ([tf.float32], [tf.float32], "compiled for 3 inputs"),
        ([tf.float32] * 5, [tf.float32], "compiled for 3 inputs"),
        ([tf.float32] * 3, [tf.float32] * 2, "compiled for 3 inputs and 1 outputs"),
    ],
)
def test_a_graph_cannot_read_other_memory(inputs: list[Any], out_types: list[Any], error: str) -> None:
    """int8 inputs gave back what lay behind them; too few ended the process."""
    tensors = [tf.zeros([] if i == 2 else [4], dtype) for i, dtype in enumerate(inputs)]
    with pytest.raises((tf.errors.InvalidArgumentError, TypeError, ValueError), match=error):
        hostile_node(tensors, inputs, out_types)


def test_tensors_treated_alike_share_a_loop() -> None:
    """Compiling hundreds of weights takes no longer than compiling one."""

    @tf.function(autograph=False)
    def call(scalars: Any, columns: Any) -> Any:
        return graph_marks.map_tensors(step, scalars, *columns)

    specs = [tf.TensorSpec([], tf.float32)] * 2, [[tf.TensorSpec([n], tf.float32) for n in range(1, 9)]] * 4
    library = call.get_concrete_function(*specs).graph.as_graph_def().library
    (definition,) = (f for f in library.function if graph_marks.is_elementwise(f.signature.name))
    text = compiled_ops._text(element_loops.ElementFunction(definition))
    assert text.count("define internal void @loop") == 1 and text.count("call void @loop0(") == 8


def test_where_nothing_can_be_compiled_tensorflow_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str, name: str) -> Any:
        raise RuntimeError("no such processor")

    monkeypatch.setattr(compiled_ops, "_compile", fail)
    computation = repeated(np.float32, lambda s, y: (s * y + 0.125,))
    with pytest.warns(RuntimeWarning, match="no machine code can be made .RuntimeError: no such processor.*llvmlite"):
        result = run_in_process(computation, np.ones(20, np.float32), np.float32(0.5))
    np.testing.assert_array_equal(result, np.full(20, 0.34375, np.float32))
