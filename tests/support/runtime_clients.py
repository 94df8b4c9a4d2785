"""Cases of `runtime_suite`: values at clients and at the server, and data sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.support.runtime_local import Pair
from tests.support.runtime_suite import (
    CLIENT_FLOATS,
    CLIENT_INTS,
    EQUAL_INTS,
    FLOAT,
    INT,
    INTS,
    VECTOR,
    Dict,
    add,
    at_clients,
    at_server,
    federated,
    int_dataset,
    mapped,
    tensorflow,
)

# Values at clients.
NUMBERS = [0.1, 1e8, -0.3, -1e8, 7.7]
MANY = [float(x) for x in np.random.default_rng(0).normal(size=53).astype(FLOAT) * np.logspace(-4, 4, 53).astype(FLOAT)]
STRUCTS = [Dict(b=float(k), a=np.arange(3, dtype=FLOAT) * k) for k in range(4)]
STRUCT = Dict(b=FLOAT, a=VECTOR)

add("sum", federated(tff.federated_sum, CLIENT_FLOATS), (NUMBERS,), (MANY,), ([],), ([2.0],))
add("sum_of_structs", federated(tff.federated_sum, at_clients(STRUCT)), (STRUCTS,), (STRUCTS * 9,), ([],))
add("mean", federated(lambda x: tff.federated_mean(x), CLIENT_FLOATS), (NUMBERS,), (MANY,), ([],))
add(
    "weighted_mean",
    federated(lambda x, w: tff.federated_mean(x, w), CLIENT_FLOATS, CLIENT_FLOATS),
    ([1.0, 2.0, 4.0], [1.0, 0.0, 3.0]),
    ([1.0], [0.0]),
    ([], []),
)
add(
    "weighted_mean_of_structs",
    federated(lambda x, w: tff.federated_mean(x, w), at_clients(STRUCT), CLIENT_FLOATS),
    (STRUCTS, [4.0, 1.0, 0.5, 0.0]),
)
add("min", federated(tff.federated_min, CLIENT_FLOATS), (NUMBERS,), ([],))
add("max", federated(tff.federated_max, CLIENT_INTS), ([3, 9, -1],), ([],))
add("map", mapped(lambda x: x * x, INT), ([1, 2, 3, 4, 5, 6, 7],))
add("map_of_structs", mapped(lambda s: Pair(s["a"], [s["b"]]), STRUCT), (STRUCTS,))
add("map_to_nothing", mapped(lambda x: (), INT), ([1, 2],))
add("selection_at_clients", federated(lambda x: (x.a, x.b), at_clients(STRUCT)), (STRUCTS,))
add("broadcast", lambda: _broadcast(), (2.0, NUMBERS), (-3.0, NUMBERS[:2]))
add(
    "broadcast_returned",
    federated(lambda x, y: (tff.federated_broadcast(x), y), at_server(INT), CLIENT_INTS),
    (1, [2, 3]),
)
add(
    "values",
    federated(lambda x: (tff.federated_value(3, tff.CLIENTS), tff.federated_value("s", tff.SERVER), x), CLIENT_INTS),
    ([1, 2],),
)
add("eval_at_server", lambda: _eval(tff.SERVER), ([1],))
add("eval_at_clients", lambda: _eval(tff.CLIENTS), ([1, 2, 3],))
add(
    "zip_at_clients",
    federated(lambda x, y: tff.federated_zip(Dict(q=x, p=(y, x))), CLIENT_INTS, CLIENT_FLOATS),
    ([1, 2], [3.0, 4.0]),
)
add("zip_with_all_equal", federated(lambda x, y: tff.federated_zip((x, y)), EQUAL_INTS, CLIENT_INTS), (9, [1, 2, 3]))
add(
    "zip_at_server",
    federated(lambda x, y: tff.federated_zip((x, y)), at_server(INT), at_server(STRUCT)),
    (9, STRUCTS[0]),
)
add("all_equal_returned", federated(lambda x, y: (x, y), at_clients(STRUCT, True), CLIENT_INTS), (STRUCTS[1], [1, 2]))
add("map_of_all_equal", lambda: _map_all_equal(), (3, [0, 0, 0]))
add(
    "sum_of_all_equal",
    federated(lambda x, y: (tff.federated_sum(x), tff.federated_sum(y)), EQUAL_INTS, CLIENT_INTS),
    (5, [1, 2, 3]),
    (5, []),
)
add("aggregate_in_order", lambda: _join(), (["a", "b", "c"],), ([chr(97 + k % 26) for k in range(40)],), ([],))
add("aggregate_of_another_type", lambda: _mean_and_count(), (MANY,), (NUMBERS,))
add("map_after_aggregate", lambda: centered(), (NUMBERS,))
add("lambda_of_many_computations", lambda: _nested_lambda(), ([1, 2, 3],))
add("select", lambda: _select(tff.federated_select), ([[0, 1], [3, 3]], 4, [5, 6, 7, 8]))
add("secure_select", lambda: _select(tff.federated_secure_select), ([[0, 1], [3, 3]], 4, [5, 6, 7, 8]))
add(
    "secure_sum", federated(lambda x: tff.federated_secure_sum(x, 100), CLIENT_INTS), ([1, 2, 100],), (list(range(50)),)
)
add("secure_sum_bitwidth", federated(lambda x: tff.federated_secure_sum_bitwidth(x, 4), CLIENT_INTS), ([1, 2, 15],))
add(
    "secure_sum_of_structs",
    federated(lambda x: tff.federated_secure_sum(x, (3, 9)), at_clients((INT, np.int64))),
    ([(1, 2), (3, 9)],),
)


def _broadcast() -> tff.Computation:
    scale = tensorflow(lambda x, y: x * y, FLOAT, FLOAT)()
    return tff.federated_computation(
        lambda s, c: (tff.federated_map(scale, (tff.federated_broadcast(s), c)), s), at_server(FLOAT), CLIENT_FLOATS
    )


def _eval(placement: Any) -> tff.Computation:
    make = tensorflow(lambda: Dict(z=tf.constant(1), y=tf.constant([2.0])))()
    return tff.federated_computation(lambda x: (tff.federated_eval(make, placement), x), CLIENT_INTS)


def _map_all_equal() -> tff.Computation:
    double = tensorflow(lambda x: 2 * x, INT)()
    return tff.federated_computation(lambda a, b: (tff.federated_map(double, a), b), EQUAL_INTS, CLIENT_INTS)


def _join() -> tff.Computation:
    join = tensorflow(lambda a, b: tf.strings.join([a, b]), np.str_, np.str_)()
    report = tensorflow(lambda a: (a, tf.strings.length(a)), np.str_)()
    return tff.federated_computation(lambda x: tff.federated_aggregate(x, "", join, join, report), at_clients(np.str_))


def _mean_and_count() -> tff.Computation:
    total = Dict(sum=np.float64, count=np.int64)
    zero = tensorflow(lambda: Dict(sum=tf.constant(0, tf.float64), count=tf.constant(0, tf.int64)))()
    accumulate = tensorflow(
        lambda t, x: Dict(sum=t["sum"] + tf.cast(x, tf.float64), count=t["count"] + 1), total, FLOAT
    )()
    merge = tensorflow(lambda a, b: Dict(sum=a["sum"] + b["sum"], count=a["count"] + b["count"]), total, total)()
    report = tensorflow(lambda t: t["sum"] / tf.cast(t["count"], tf.float64), total)()
    return tff.federated_computation(
        lambda x: tff.federated_aggregate(x, zero(), accumulate, merge, report), CLIENT_FLOATS
    )


def centered() -> tff.Computation:
    subtract = tensorflow(lambda x, m: x - m, FLOAT, FLOAT)()
    return tff.federated_computation(
        lambda x: tff.federated_map(subtract, (x, tff.federated_broadcast(tff.federated_mean(x)))), CLIENT_FLOATS
    )


def _nested_lambda() -> tff.Computation:
    double, add = tensorflow(lambda x: 2 * x, INT)(), tensorflow(lambda x, y: x + y, INT, INT)()
    work = tff.federated_computation(lambda x: Dict(z=add(double(x), x), y=(x, double(double(x)))), INT)
    return tff.federated_computation(lambda x: tff.federated_map(work, x), CLIENT_INTS)


def _select(select: Callable[..., Any]) -> tff.Computation:
    table, keys = tff.TensorType(INT, [4]), tff.TensorType(INT, [2])
    pick = tensorflow(lambda v, k: tf.gather(v, k), table, INT)()
    fold = tensorflow(lambda d: d.reduce(0, lambda a, b: 10 * a + b), INTS)()
    # TFF wants the number of keys at SERVER, and for secure selection too.
    return tff.federated_computation(
        lambda k, m, v: tff.federated_map(fold, select(k, m, v, pick)),
        at_clients(keys),
        at_server(INT),
        at_server(table),
    )


# Sequences.
NAMED = Dict(y=tff.TensorType(FLOAT, [None]), x=INT)
add(
    "dataset",
    tensorflow(lambda d: d.reduce(0, lambda a, b: 10 * a + b), INTS),
    (int_dataset(1, 2, 3),),
    ([4, 5],),
    ([],),
)
add(
    "dataset_of_structs",
    tensorflow(
        lambda d: d.reduce(0.0, lambda a, e: 10 * a + tf.reduce_sum(e["y"]) - tf.cast(e["x"], tf.float32)),
        tff.SequenceType(NAMED),
    ),
    ([Dict(y=[1.0, 2.0], x=3), Dict(y=[4.0], x=5)],),
    (tf.data.Dataset.from_tensors(Dict(y=tf.ones([4]), x=tf.constant(7))),),
)
add("dataset_returned", tensorflow(lambda d: d.map(lambda x: Dict(z=x, y=(x + 1, 2.0))), INTS), (int_dataset(1, 2),))
add("dataset_passed_through", federated(lambda d: d, tff.SequenceType(NAMED)), ([Dict(y=[1.0], x=3)],))
add(
    "datasets_of_clients", mapped(lambda d: d.reduce(0, lambda a, b: 10 * a + b), INTS), ([int_dataset(1, 2), [], [3]],)
)
add("datasets_of_clients_returned", mapped(lambda d: d.map(lambda x: x + 1), INTS), ([int_dataset(1, 2), [4]],))
add("iterator", tensorflow(lambda d: tf.function(_first)(d), INTS), (int_dataset(4, 5),))
add("reduce_to_a_state_that_grows", mapped(lambda d: d.reduce(tf.zeros([0], INT), _append), INTS), ([[1, 2], [], [3]],))
add("reduce_to_a_struct", mapped(lambda d: d.reduce((0, "", 1.0), _collect), INTS), ([[1, 2], [3], []],))
add("reduce_with_other_arguments", tensorflow(lambda d, x: _polynomial(d, x), INTS, INT), ([1, 2, 3], 5), ([], 5))
add("reduce_with_a_variable", mapped(lambda d: _running_sum(d), INTS), ([[1, 2, 3], [4, 5], [], [6]],), ([[7]],))
add("reduce_with_seeded_random", mapped(lambda d: d.reduce(0.0, _add_noise), INTS), ([[1, 2], [3]],), ([[1, 2]],))
add("reduce_with_nested_seeded_random", mapped(lambda d: _sum_maybe_noise(d), INTS), ([[1, 2]],), ([[1, 2]],))
add("reduce_strings", mapped(lambda d: d.reduce("", lambda a, b: a + b), tff.SequenceType(np.str_)), ([["a", "b"]],))
add("reduce_in_a_branch", tensorflow(lambda d, x: _if_positive(d, x), INTS, INT), ([1, 2], 1), ([1, 2], -1))
add("reduce_in_a_loop", mapped(tf.function(lambda d: _epochs(d)), INTS), ([[1, 2, 3, 4], [], [5]],))
add("reduce_in_map_fn", tensorflow(lambda d: _reduce_from(d, tf.constant([0, 1, 2])), INTS), ([1, 2, 3],))
add("reduce_with_variables_twice", tensorflow(lambda d: _two_passes(d), INTS), *[([1, 2, 3],)] * 30)
add("reduce_with_a_false_shape", tensorflow(lambda d: d.map(_false_shape).reduce(0, _add_sum), INTS), ([1, 2, 3],))
add("reduce_in_a_step", tensorflow(lambda d: d.reduce(0, _add_divisors), INTS), ([4, 6],))
add("reduce_what_was_reduced", mapped(lambda d: _reduce_twice(d), INTS), ([[1, 2, 3], [4]],))
add("sequence_reduce", lambda: _sequence_reduce(), ([1, 2, 3],), ([],))
add("sequence_map", lambda: _sequence_map(), ([int_dataset(1, 2, 3), []],))


def _first(dataset: tf.data.Dataset) -> tf.Tensor:
    return next(iter(dataset))


def _append(state: tf.Tensor, element: tf.Tensor) -> tf.Tensor:
    return tf.concat([state, [element]], 0)


def _collect(state: Any, element: tf.Tensor) -> Any:
    count, text, product = state
    return count + 1, text + tf.strings.as_string(element), product * tf.cast(element, tf.float32)


def _polynomial(dataset: tf.data.Dataset, x: tf.Tensor) -> tf.Tensor:
    return dataset.reduce(0, lambda a, b: a * x + b)


def _running_sum(dataset: tf.data.Dataset) -> Any:
    total = tf.Variable(0)

    def step(sums: tf.Tensor, element: tf.Tensor) -> tf.Tensor:
        return 10 * sums + total.assign_add(element)

    with tf.control_dependencies([dataset.reduce(0, step)]):
        return total.read_value()


def _add_noise(state: tf.Tensor, element: tf.Tensor) -> tf.Tensor:
    return state + tf.cast(element, tf.float32) * tf.random.uniform([], seed=3)


def _sum_maybe_noise(dataset: tf.data.Dataset) -> tf.Tensor:
    return dataset.reduce(0.0, lambda a, b: tf.cond(b > 1, lambda: _add_noise(a, b), lambda: a))


def _if_positive(dataset: tf.data.Dataset, x: tf.Tensor) -> tf.Tensor:
    return tf.cond(x > 0, lambda: dataset.reduce(x, lambda a, b: a + b), lambda: x)


def _epochs(dataset: tf.data.Dataset) -> Any:
    return tf.while_loop(
        lambda i, _: i < 3, lambda i, a: (i + 1, dataset.reduce(a, lambda x, y: (10 * x + y) % 10007)), (0, 0)
    )


def _reduce_from(dataset: tf.data.Dataset, starts: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(lambda start: dataset.reduce(start, lambda a, b: 10 * a + b), starts)


def _two_passes(dataset: tf.data.Dataset) -> Any:
    """What the second pass begins with depends on the first only by its result, which is there before its variables."""
    matrix, vector = tf.Variable(tf.ones([300, 300])), tf.Variable(tf.ones([300]))

    def step(count: tf.Tensor, element: tf.Tensor) -> tf.Tensor:
        y = tf.linalg.matvec(matrix, vector) / 1000
        matrix.assign_sub(tf.tensordot(y, y, 0) / 1000)
        vector.assign_sub(y / 100)
        return count + element

    @tf.function
    def passes(dataset: tf.data.Dataset) -> Any:
        count = dataset.reduce(dataset.reduce(0, step), step)
        return count, tf.reduce_sum(tf.linalg.matvec(matrix, vector))

    return passes(dataset)


def _false_shape(x: tf.Tensor) -> tf.Tensor:
    y = tf.range(x)
    y.set_shape([5])
    return y


def _add_sum(state: tf.Tensor, element: tf.Tensor) -> tf.Tensor:
    return 10 * state + tf.reduce_sum(element)


def _add_divisors(state: tf.Tensor, element: tf.Tensor) -> tf.Tensor:
    candidates = tf.data.Dataset.range(1, 10)
    count = candidates.reduce(0, lambda n, i: n + tf.cast(element % tf.cast(i, tf.int32) == 0, tf.int32))
    return 10 * state + count


def _reduce_twice(dataset: tf.data.Dataset) -> tf.Tensor:
    total = dataset.reduce(0, lambda a, b: a + b)
    return dataset.reduce(0, lambda a, b: 10 * a + total - b)


def _sequence_reduce() -> tff.Computation:
    step = tensorflow(lambda a, b: 10 * a + b, INT, INT)()
    return tff.federated_computation(lambda d: tff.sequence_reduce(d, 0, step), INTS)


def _sequence_map() -> tff.Computation:
    double, step = tensorflow(lambda x: 2 * x, INT)(), tensorflow(lambda a, b: 10 * a + b, INT, INT)()
    work = tff.federated_computation(lambda d: tff.sequence_reduce(tff.sequence_map(double, d), 0, step), INTS)
    return tff.federated_computation(lambda d: tff.federated_map(work, d), at_clients(INTS))
