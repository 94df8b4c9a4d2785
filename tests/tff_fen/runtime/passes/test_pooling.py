"""Max pooling's gradient by oneDNN's operations: the same numbers, put in where they can be."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.runtime import devices
from tff_fen.runtime.inprocess import graphs
from tff_fen.runtime.passes import pooling


def gradient_graph(
    size: int, stride: int, padding: str, dtype: tf.DType = tf.float32
) -> tuple[tf.compat.v1.GraphDef, list[str]]:
    """The graph of a pool of `x` and of what comes back of `weights` times it, and the names of the two."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(dtype, [None, 9, 8, 3], name="x")
        pool = tf.nn.max_pool2d(x, size, stride, padding)
        weights = tf.compat.v1.placeholder(dtype, pool.shape, name="weights")
        (gradient,) = tf.gradients(pool, x, weights)
    return graph.as_graph_def(), [pool.name, gradient.name]


def evaluate(graph_def: tf.compat.v1.GraphDef, names: list[str], *values: np.ndarray) -> list[np.ndarray]:
    def body(*arguments: tf.Tensor) -> list[tf.Tensor]:
        inputs = dict(zip(("x:0", "weights:0"), arguments, strict=True))
        return tf.graph_util.import_graph_def(graph_def, inputs, names, name="")

    specs = [tf.TensorSpec([None, *v.shape[1:]], v.dtype) for v in values]
    return [t.numpy() for t in tf.compat.v1.wrap_function(body, specs)(*map(tf.constant, values))]


def operations(graph_def: tf.compat.v1.GraphDef) -> set[str]:
    return {node.op for node in graph_def.node if "MaxPool" in node.op}


@pytest.fixture(autouse=True)
def forget_what_is_available() -> Iterator[None]:
    pooling._is_available.cache_clear()
    yield
    pooling._is_available.cache_clear()


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("size, stride", [(2, 2), (3, 2), (3, 1)])
def test_the_numbers_are_those_of_the_definition(size: int, stride: int, padding: str) -> None:
    graph_def, names = gradient_graph(size, stride, padding)
    pooling.use_fast_gradients(graph_def)
    assert operations(graph_def) == {"_MklNativeMaxPool", "_MklNativeMaxPoolGrad"}
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 9, 8, 3)).astype(np.float32)
    rows, columns = (-(-n // stride) if padding == "SAME" else (n - size) // stride + 1 for n in (9, 8))
    weights = rng.normal(size=(5, rows, columns, 3)).astype(np.float32)
    pool, gradient = evaluate(graph_def, names, x, weights)
    # TensorFlow's SAME: half of what is missing goes before, the rest behind.
    missing = [max((r - 1) * stride + size - n, 0) * (padding == "SAME") for r, n in ((rows, 9), (columns, 8))]
    expected = np.zeros_like(x)
    for k, i, j, c in np.ndindex(weights.shape):
        top, left = (i * stride - missing[0] // 2, j * stride - missing[1] // 2)
        window = [(a, b) for a in range(top, top + size) for b in range(left, left + size) if 0 <= a < 9 and 0 <= b < 8]
        best = max(window, key=lambda place: x[k, *place, c])
        assert pool[k, i, j, c] == x[k, *best, c]
        expected[k, *best, c] += weights[k, i, j, c]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6)


def test_a_pool_may_have_several_gradients() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4, 4, 1], name="x")
        pool = tf.nn.max_pool2d(x, 2, 2, "VALID")
        weights = tf.compat.v1.placeholder(tf.float32, [None, 2, 2, 1], name="weights")
        gradients = [tf.gradients(pool, x, scale * weights)[0] for scale in (1.0, 2.0)]
    graph_def = graph.as_graph_def()
    pooling.use_fast_gradients(graph_def)
    x_value = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    once, twice = evaluate(graph_def, [g.name for g in gradients], x_value, np.ones([1, 2, 2, 1], np.float32))
    np.testing.assert_array_equal(np.flatnonzero(once), [5, 7, 13, 15])
    np.testing.assert_array_equal(twice, 2 * once)


def test_other_types_and_lone_pools_stay() -> None:
    doubles, _ = gradient_graph(2, 2, "VALID", tf.float64)
    with tf.Graph().as_default() as graph:
        tf.nn.max_pool2d(tf.zeros([1, 4, 4, 1]), 2, 2, "VALID")
    alone = graph.as_graph_def()
    for graph_def in (doubles, alone):
        before = graph_def.SerializeToString(deterministic=True)
        pooling.use_fast_gradients(graph_def)
        assert graph_def.SerializeToString(deterministic=True) == before


def test_all_stays_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    graph_def, _ = gradient_graph(2, 2, "VALID")
    pooling.use_fast_gradients(graph_def)
    assert operations(graph_def) == {"MaxPool", "MaxPoolGrad"}


def test_all_stays_where_one_dnn_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "uses_onednn", lambda: False)
    graph_def, _ = gradient_graph(2, 2, "VALID")
    pooling.use_fast_gradients(graph_def)
    assert operations(graph_def) == {"MaxPool", "MaxPoolGrad"}


def test_a_gradient_of_another_pool_stays() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.zeros([1, 8, 8, 1])
        pool = tf.nn.max_pool2d(x, 4, 4, "VALID")
        for size, of in ((2, x), (4, -x)):
            tf.raw_ops.MaxPoolGrad(
                orig_input=of, orig_output=pool, grad=pool, ksize=[1, size, size, 1], strides=[1, 4, 4, 1],
                padding="VALID",
            )  # fmt: skip
    graph_def = graph.as_graph_def()
    pooling.use_fast_gradients(graph_def)
    assert operations(graph_def) == {"MaxPool", "MaxPoolGrad"}


def test_a_layout_left_out_is_the_usual_one() -> None:
    graph_def, _ = gradient_graph(2, 2, "VALID")
    for node in graph_def.node:
        node.attr.pop("data_format", None)
    pooling.use_fast_gradients(graph_def)
    assert operations(graph_def) == {"_MklNativeMaxPool", "_MklNativeMaxPoolGrad"}


def test_all_stays_where_tensorflow_lacks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "ONEDNN_LABEL", b"no such kernel")
    graph_def, _ = gradient_graph(2, 2, "VALID")
    pooling.use_fast_gradients(graph_def)
    assert operations(graph_def) == {"MaxPool", "MaxPoolGrad"}


def test_the_graphs_of_tff_get_them() -> None:
    """A graph as TFF has it, imported as the in-process runtime and Ray's workers do."""

    @tff.tensorflow.computation(tff.TensorType(np.float32, [1, 4, 4, 1]))
    def gradient(x: tf.Tensor) -> tf.Tensor:
        return tf.gradients(tf.nn.max_pool2d(x, 2, 2, "VALID"), x)[0]

    function = graphs.GraphFunction(gradient.to_building_block().proto.tensorflow)
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    np.testing.assert_array_equal(np.flatnonzero(function((tf.constant(x),))), [5, 7, 13, 15])
    assert operations(function._function.graph.as_graph_def()) == {"_MklNativeMaxPool", "_MklNativeMaxPoolGrad"}
