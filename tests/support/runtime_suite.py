"""Named computations with arguments that every runtime must evaluate alike; see `CASES`.

A case is built when it is first asked for. What it builds is a function that evaluates the computation on TFF's
current runtime and returns the results. The cases themselves are in `runtime_local.py` (what is computed at one place),
`runtime_clients.py` (what is placed, and data sets) and `runtime_algorithms.py`, which add them when imported.
"""

from __future__ import annotations

import collections
import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen

Run = Callable[[], Any]
Dict = collections.OrderedDict

INT, FLOAT = np.int32, np.float32
INTS = tff.SequenceType(INT)
VECTOR = tff.TensorType(FLOAT, [3])


class Case(NamedTuple):
    """A computation to evaluate.

    Attributes:
      build: makes the function that evaluates it.
      tolerance: largest absolute difference between runtimes; 0 means equal to the bit.
    """

    build: Callable[[], Run]
    tolerance: float = 0.0


CASES: dict[str, Case] = {}


def add_case(name: str, build: Callable[[], Run], tolerance: float = 0.0) -> None:
    """Adds a case."""
    if name in CASES:
        raise ValueError(f"There is a case {name!r} already.")
    CASES[name] = Case(functools.cache(build), tolerance)


def add(name: str, build: Callable[[], tff.Computation], *arguments: tuple[Any, ...], tolerance: float = 0.0) -> None:
    """Adds a case of one computation, called with each of the tuples of arguments in turn."""

    def build_run() -> Run:
        computation = build()
        return lambda: [computation(*args) for args in arguments or [()]]

    add_case(name, build_run, tolerance)


def at_clients(member: Any, all_equal: bool = False) -> tff.FederatedType:
    """`{member}@CLIENTS`."""
    return tff.FederatedType(member, tff.CLIENTS, all_equal)


def at_server(member: Any) -> tff.FederatedType:
    """`member@SERVER`."""
    return tff.FederatedType(member, tff.SERVER)


def tensorflow(function: Callable[..., Any], *types: Any) -> Callable[[], tff.Computation]:
    """A TensorFlow computation, to be built later."""
    return lambda: tff.tensorflow.computation(function, *types)


def federated(function: Callable[..., Any], *types: Any) -> Callable[[], tff.Computation]:
    """A federated computation, to be built later."""
    return lambda: tff.federated_computation(function, *types)


def mapped(function: Callable[..., Any], *types: Any) -> Callable[[], tff.Computation]:
    """TensorFlow code that each client runs, to be built later."""

    def build() -> tff.Computation:
        work = tensorflow(function, *types)()
        return tff.federated_computation(
            lambda x: tff.federated_map(work, x), at_clients(work.type_signature.parameter)
        )

    return build


CLIENT_INTS, CLIENT_FLOATS, EQUAL_INTS = at_clients(INT), at_clients(FLOAT), at_clients(INT, all_equal=True)


def int_dataset(*values: int) -> tf.data.Dataset:
    """A data set of int32 scalars."""
    return tf.data.Dataset.from_tensor_slices(np.asarray(values, INT))


def fail_if_negative(x: tf.Tensor) -> tf.Tensor:
    """A client's work that fails for some clients."""
    with tf.control_dependencies([tf.debugging.assert_non_negative(x, "a negative number")]):
        return tf.identity(x)


def create_context(**settings: Any) -> tff_fen.runtime.InProcessContext:
    """A context in this process, where TensorFlow has long started."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return tff_fen.runtime.create_inprocess_context(**settings)


def evaluate_on(context: tff.framework.SyncContext, run: Callable[[], Any]) -> Any:
    with tff.framework.get_context_stack().install(context):
        return run()


def assert_same(actual: Any, expected: Any, tolerance: float, where: str = "result") -> None:
    """Asserts equal containers, dtypes and values; elements of data sets one by one."""
    if isinstance(expected, tf.data.Dataset):
        actual, expected = list(actual.as_numpy_iterator()), list(expected.as_numpy_iterator())
    assert type(actual) is type(expected), where
    if isinstance(expected, dict):
        assert list(actual) == list(expected), where
        for key in expected:
            assert_same(actual[key], expected[key], tolerance, f"{where}[{key!r}]")
    elif hasattr(expected, "__attrs_attrs__"):
        for field in expected.__attrs_attrs__:
            assert_same(getattr(actual, field.name), getattr(expected, field.name), tolerance, f"{where}.{field.name}")
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected), where
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            assert_same(a, e, tolerance, f"{where}[{i}]")
    elif isinstance(expected, np.ndarray | np.generic):
        assert actual.dtype == expected.dtype and actual.shape == expected.shape, where
        if tolerance and expected.dtype.kind in "fc":
            np.testing.assert_allclose(actual, np.asarray(expected), rtol=tolerance, atol=tolerance, err_msg=where)
        else:
            np.testing.assert_array_equal(actual, expected, err_msg=where)
    else:
        assert actual == expected, where
