"""Folds clients' values with few TensorFlow calls, in the order of the clients."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.runtime.errors import ClientWorkError
from tff_fen.runtime.inprocess.executors import ClientFunction
from tff_fen.runtime.inprocess.graphs import call_flat
from tff_fen.runtime.inprocess.values import Value, flatten

# A TensorFlow call costs about as much as a hundred scalar additions inside of one.
_STEPS_PER_CALL = 8


class Fold:
    """`accumulator = accumulate((accumulator, value))` over values, `_STEPS_PER_CALL` of them in one TensorFlow call.

    The order of operations is that of the loop, so that the bits do not depend on how
    many values there are in a call, nor on the time at which clients were done.
    """

    def __init__(self, signature: tff.FunctionType) -> None:
        """Initializes the fold.

        Args:
          signature: of the accumulating function, `(<U,T> -> U)`.
        """
        self._types = tuple(signature.parameter)
        self._many: tf.types.experimental.ConcreteFunction | None = None
        self._lock = threading.Lock()

    def __call__(self, accumulate: ClientFunction, zero: Value, values: list[Value]) -> Value:
        """Returns the accumulator after the last value.

        Raises:
          ClientWorkError: if the step of a value fails.
        """
        accumulator = zero
        for start in range(0, len(values), _STEPS_PER_CALL):
            chunk = values[start : start + _STEPS_PER_CALL]
            # What a function takes from its surroundings may differ from call to call: not to be kept in a trace.
            if len(chunk) == _STEPS_PER_CALL and not accumulate.scope:
                try:
                    accumulator = self._fold_many(accumulate, accumulator, chunk)
                    continue
                except tf.errors.OpError:
                    pass  # the loop below takes the same steps, and knows whose fails
            for i, value in enumerate(chunk, start):
                try:
                    accumulator = accumulate((accumulator, value))
                except tf.errors.OpError as error:
                    raise ClientWorkError(i, len(values), error) from error
        return accumulator

    def _fold_many(self, accumulate: ClientFunction, accumulator: Value, chunk: list[Value]) -> Value:
        with self._lock:
            if self._many is None:
                self._many = self._trace(accumulate)
        flat = call_flat(self._many, list(flatten((accumulator, *chunk))))
        return _unflatten(self._types[0], iter(flat))

    def _trace(self, accumulate: ClientFunction) -> tf.types.experimental.ConcreteFunction:
        accumulator_type, value_type = self._types

        # Each step stays a function: TensorFlow would make one sum of the additions of many, in another order.
        step = tf.function(accumulate, autograph=False, experimental_attributes={"_noinline": True})

        def many(*tensors: tf.Tensor) -> list[tf.Tensor]:
            remaining = iter(tensors)
            accumulator = _unflatten(accumulator_type, remaining)
            for _ in range(_STEPS_PER_CALL):
                accumulator = step((accumulator, _unflatten(value_type, remaining)))
            return list(flatten(accumulator))

        specs = [*_specs(accumulator_type), *_specs(value_type) * _STEPS_PER_CALL]
        return tf.function(many, autograph=False).get_concrete_function(*specs)


def _unflatten(type_spec: tff.Type, tensors: Any) -> Value:
    if isinstance(type_spec, tff.StructType):
        return tuple(_unflatten(element_type, tensors) for element_type in type_spec)
    return next(tensors)


def _specs(type_spec: tff.Type) -> list[tf.TensorSpec]:
    if isinstance(type_spec, tff.StructType):
        return [spec for element_type in type_spec for spec in _specs(element_type)]
    if isinstance(type_spec, tff.SequenceType):
        return [tf.TensorSpec([], tf.variant)]
    return [tf.TensorSpec(type_spec.shape, tf.string if type_spec.dtype.type is np.str_ else type_spec.dtype)]
