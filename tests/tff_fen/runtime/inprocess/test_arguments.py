"""Arguments that are not of a computation's type: rejected in process as on TFF's native runtime, with more to say."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.support.runtime_suite import FLOAT, INT, INTS, at_clients, evaluate_on, federated, mapped, tensorflow

VECTOR = tff.TensorType(FLOAT, [None])
BAD_ARGUMENTS: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "dtype": (tensorflow(lambda x: x, INT), np.int64(3), TypeError, "type int32, found 3 of type int64"),
    "kind": (tensorflow(lambda x: x, INT), 3.5, TypeError, "type int32, found 3.5 of type float"),
    "size": (tensorflow(lambda x: x, np.int8), 300, TypeError, "type int8, found 300"),
    "overflow": (tensorflow(lambda x: x, np.int64), 2**63, TypeError, "type int64, found 92233720"),
    "ragged": (tensorflow(lambda x: x, VECTOR), [[1.0], [1.0, 2.0]], TypeError, r"type float32\[\?\], found"),
    "text": (tensorflow(lambda x: x, FLOAT), "a", TypeError, "type float32, found 'a'"),
    "shape": (tensorflow(lambda x: x, VECTOR), np.zeros((2, 2), FLOAT), TypeError, r"shape \(2, 2\)"),
    "array": (tensorflow(lambda x: x, VECTOR), np.zeros(2), TypeError, "dtype float64"),
    "list": (tensorflow(lambda x: x, VECTOR), [1, 2.5], TypeError, r"float32\[\?\], found \[1, 2.5\]"),
    "tensor": (tensorflow(lambda x: x, INT), tf.constant(1.0), TypeError, "found an array of dtype"),
    "length": (tensorflow(lambda x: x, (INT, INT)), (1, 2, 3), TypeError, "found 3 elements"),
    "no_struct": (tensorflow(lambda x: x, (INT, INT)), 5, TypeError, "structure of type <int32,int32>, found 5"),
    "names": (
        tensorflow(lambda x: x, collections.OrderedDict(a=INT, b=INT)),
        dict(b=1, a=2),
        TypeError,
        r"named \['a', 'b'\], found \['b', 'a'\]",
    ),
    "element": (mapped(lambda x: x, INT), [1, 2, 3.5], TypeError, "argument of client 2 to be of type int32"),
    "tuple": (mapped(lambda x: x, INT), (1, 2), TypeError, "list of one value a client, found .* of type tuple"),
    "data_set": (tensorflow(lambda d: 0, INTS), tf.data.Dataset.range(3), TypeError, r"type int32\*, found .* int64\*"),
    "no_data_set": (tensorflow(lambda d: 0, INTS), 7, TypeError, "tf.data.Dataset or a list of elements, found 7"),
    "list_element": (tensorflow(lambda d: 0, INTS), [1, "x"], TypeError, "element 1 of the argument"),
    "ambiguous": (
        tensorflow(lambda d: 0, tff.SequenceType(collections.OrderedDict(b=INT, a=INT))),
        tf.data.Dataset.from_tensors({"b": tf.constant(1), "a": tf.constant(2)}),
        ValueError,
        "Use a collections.OrderedDict",
    ),
    "none": (tensorflow(lambda x: x, INT), None, TypeError, "Expected an argument of type int32"),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_rejects_arguments_of_another_type(name: str, native: Any, in_process: Any) -> None:
    build, argument, error, message = BAD_ARGUMENTS[name]
    computation = build()
    with pytest.raises(error, match=message):
        evaluate_on(in_process, lambda: computation(argument))
    if name != "names":  # which TFF's native runtime takes for what they are not
        with pytest.raises(Exception):  # noqa: B017 - of various kinds
            evaluate_on(native, lambda: computation(argument))


class Pair(NamedTuple):
    """Equals the tuple of its elements."""

    x: Any
    y: Any


@pytest.mark.parametrize("order", [(tuple, Pair), (Pair, tuple)])
def test_data_sets_of_named_and_of_plain_tuples_are_told_apart(order: Any, in_process: Any) -> None:
    """Their element specs are equal and have equal hashes."""
    size = len(order[0].__name__)  # of no other case: what was seen before may be kept
    zeros, member = tf.zeros([size], tf.int32), tff.TensorType(INT, [size])
    kinds = {tuple: (zeros, zeros), Pair: Pair(zeros, zeros)}
    for kind in order:
        computation = tensorflow(
            lambda data: data.reduce(np.int32(0), lambda n, _: n + 1),
            tff.SequenceType(tff.to_type((member, member) if kind is tuple else Pair(member, member))),
        )()
        count = evaluate_on(in_process, lambda: computation(tf.data.Dataset.from_tensors(kinds[kind])))  # noqa: B023
        assert count == 1


def test_rejects_conflicting_numbers_of_clients(in_process: Any) -> None:
    computation = federated(lambda a, b: tff.federated_sum(a), at_clients(INT), at_clients(INT))()
    with pytest.raises(ValueError, match=r"the argument\['b'\] has 1, a part before it 2"):
        evaluate_on(in_process, lambda: computation([1, 2], [1]))
