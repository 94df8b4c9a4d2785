"""Cases of `runtime_suite`: tensors, structures, variables, tables, control flow and random numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.support.runtime_suite import FLOAT, INT, Dict, add, federated, mapped, tensorflow


class Pair(NamedTuple):
    """A container with names out of the order of the alphabet."""

    second: Any
    first: Any


@attrs.define
class Point:
    """A container made with attrs."""

    y: Any
    x: Any


# Tensors.
add("scalar", tensorflow(lambda x: x + 1, INT), (1,), (np.int32(5),), (np.array(7, INT),))
add("float", tensorflow(lambda x: x / 3, np.float64), (1.0,), (np.float64(2),))
add("bool", tensorflow(lambda x: tf.logical_not(x), np.bool_), (True,), (np.bool_(False),))
add("int8", tensorflow(lambda x: x * 2, np.int8), (3,))
add(
    "bfloat16",
    tensorflow(lambda x: x * 2, tff.TensorType(tf.bfloat16.as_numpy_dtype, [2])),
    (np.array([1.5, 2], tf.bfloat16.as_numpy_dtype),),
)
add("complex", tensorflow(lambda x: x * x, np.complex64), (np.complex64(1 + 2j),))
add("string", tensorflow(lambda s: tf.strings.join([s, "!"]), np.str_), ("a",), (b"\x00b",))
add(
    "strings",
    tensorflow(lambda s: tf.strings.join([s, "!"]), tff.TensorType(np.str_, [2])),
    (["a", "bb"],),
    (np.array(["c", "dd"]),),
    (np.array([b"e\x00f", b"g"], object),),
)
add(
    "unknown_dimension",
    tensorflow(lambda x: 2 * x, tff.TensorType(FLOAT, [None])),
    (np.arange(3, dtype=FLOAT),),
    ([0.5],),
    (np.zeros(0, FLOAT),),
)
add("unknown_rank", tensorflow(lambda x: tf.shape(x), tff.TensorType(INT, None)), (np.zeros((2, 3), INT),))
add("eager_tensors", tensorflow(lambda x, y: x - y, INT, INT), (tf.constant(3), tf.Variable(5)))
add("no_argument", tensorflow(lambda: tf.range(4)))
add("unused_parameter", tensorflow(lambda x, y: y, INT, FLOAT), (1, 2.0))
add("tensor_returned_twice", tensorflow(lambda x: (x + 1,) * 2, INT), (1,))
add("literal", federated(lambda: tff.federated_value(np.array([1.0, 2.0], FLOAT), tff.SERVER)))

# Structures.
add("empty_struct", tensorflow(lambda: ()))
add(
    "named_tuple",
    tensorflow(lambda p: Pair(p.first, p.second), tff.StructWithPythonType([("second", INT), ("first", INT)], Pair)),
    (Pair(1, 2),),
)
add("attrs", tensorflow(lambda x: Point(y=x, x=x + 1), INT), (1,))
add("unsorted_names", tensorflow(lambda s: Dict(z=s["b"], y=s["a"]), Dict(b=INT, a=INT)), (Dict(b=1, a=2),), ((3, 4),))
add("containers", tensorflow(lambda x: [x, {"b": (x,), "a": Dict(c=[x + 1])}], INT), (1,))
add("rearranged", federated(lambda a, b: Dict(z=[b, a], y=(a.x, a)), Dict(y=INT, x=INT), FLOAT), (Dict(y=1, x=2), 3.0))
add(
    "function_parameter",
    federated(lambda f, x: f(f(x)), tff.FunctionType(INT, INT), INT),
    (tensorflow(lambda x: 3 * x, INT)(), 2),
)
add("computations_in_a_row", lambda: _chained())


def _chained() -> tff.Computation:
    double, square = tensorflow(lambda x: x * 2, INT)(), tensorflow(lambda x: x * x, INT)()
    return tff.federated_computation(lambda: (square(double(double(INT(3)))), double(square(INT(3)))))


# Variables, tables, control flow, random numbers.
def count(x: Any) -> Any:
    counter, start = tf.Variable(10), tf.Variable(lambda: tf.constant(1))
    with tf.control_dependencies([counter.assign_add(x), start.assign_add(1)]):
        return counter.read_value() * start.read_value()


def _add_up(x: Any) -> Any:
    total = tf.Variable(0)

    def step(i: Any) -> Any:
        with tf.control_dependencies([total.assign_add(x)]):
            return i + 1

    (steps,) = tf.while_loop(lambda i: i < 3000, step, (0,))
    with tf.control_dependencies([steps]):
        return total.read_value()


def _remember(x: Any) -> Any:
    table = tf.lookup.experimental.MutableHashTable(tf.int32, tf.int32, -1)
    with tf.control_dependencies([table.insert(x, 2 * x)]):
        return table.size(), table.lookup(tf.range(5))


def _look_up(x: Any) -> Any:
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2]), tf.constant(["one", "two"]))
    return tf.lookup.StaticHashTable(initializer, "none").lookup(x)


def _newton(x: Any) -> Any:
    return tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, (y + x / y) / 2), (0, x))


def _last(dataset: tf.data.Dataset) -> tf.Tensor:
    return dataset.reduce(tf.zeros([6], tf.int64), lambda _, x: x)


@tf.function
def _branches(x: Any) -> Any:
    if x > 0:
        return tf.gradients(x**3, [x])[0]
    return -x


add("variables", tensorflow(count, INT), (1,), (2,), (1,))
add("variables_of_clients", mapped(count, INT), ([1, 2, 3, 4, 5],), ([5, 4],))
add("variables_of_clients_side_by_side", mapped(_add_up, INT), ([1, 2, 3, 4, 5, 6],))
add("mutable_tables_of_clients", mapped(_remember, INT), ([1, 2, 3, 4],), ([4],))
add("static_tables_of_clients", mapped(_look_up, INT), ([1, 2, 3],))
add("while_loop", tensorflow(_newton, FLOAT), (2.0,))
add("branches_and_gradients", mapped(_branches, FLOAT), ([2.0, -1.0],))
add("stateless_random", mapped(lambda s: tf.random.stateless_normal([2], tf.stack([s, 1])), INT), ([1, 2, 3],))
add("random_generator", tensorflow(lambda: tf.random.Generator.from_seed(3, "philox").uniform([2])), (), ())
add("seeded_random_goes_on", tensorflow(lambda: tf.random.uniform([], seed=1)), (), (), ())
add("seeded_shuffle", tensorflow(lambda: _last(tf.data.Dataset.range(6).shuffle(6, seed=2).batch(6))), (), ())
