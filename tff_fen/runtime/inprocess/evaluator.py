"""Evaluates a compiled TFF computation: its building blocks, and the intrinsics that TFF's compiler leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.runtime.errors import UnsupportedConstructError
from tff_fen.runtime.inprocess import folding, graphs, sequences
from tff_fen.runtime.inprocess.executors import ClientExecutor
from tff_fen.runtime.inprocess.values import ClientValues, Value, flatten

_blocks = tff.framework


class Executable:
    """A compiled computation with its TensorFlow functions, which are made when first needed and then kept.

    Attributes:
      block: the computation as a building block.
    """

    def __init__(self, block: tff.framework.ComputationBuildingBlock) -> None:
        self.block = block
        # By identity: to hash a building block is to serialise it. `block` keeps all of its parts alive.
        self._graphs: dict[int, Callable[..., Value]] = {}
        self._folds: dict[int, folding.Fold] = {}
        self._lock = threading.Lock()

    def graph(self, block: tff.framework.CompiledComputation) -> Callable[..., Value]:
        """The function of a TensorFlow computation in it."""
        with self._lock:
            if id(block) not in self._graphs:
                kind = block.proto.WhichOneof("computation")
                if kind != "tensorflow":
                    raise UnsupportedConstructError(
                        f"The computation holds a compiled computation of kind {kind!r}; in process only "
                        "'tensorflow' can be evaluated. Write it with tff.tensorflow.computation."
                    )
                self._graphs[id(block)] = graphs.load(block.proto.tensorflow)
            return self._graphs[id(block)]

    def fold(self, function: LocalFunction) -> folding.Fold:
        """The repeated application of an accumulating function in it."""
        with self._lock:
            return self._folds.setdefault(id(function.block), folding.Fold(function.block.type_signature))


class LocalFunction:
    """A function as a value; see `executors.ClientFunction`."""

    __slots__ = ("_evaluator", "block", "scope")

    def __init__(self, block: Any, scope: dict[str, Value], evaluator: ComputationEvaluator) -> None:
        self.block = block
        self.scope = scope
        self._evaluator = evaluator

    def __call__(self, argument: Value = ()) -> Value:
        block = self.block
        if isinstance(block, _blocks.CompiledComputation):
            return self._evaluator.executable.graph(block)(argument)
        if isinstance(block, _blocks.Intrinsic):
            return self._evaluator.apply(block, argument)
        scope = self.scope if block.parameter_name is None else {**self.scope, block.parameter_name: argument}
        return self._evaluator.evaluate(block.result, scope)

    def fold(self, zero: Value, values: list[Value]) -> Value:
        """Returns `accumulator`, `zero` at first, after `accumulator = self((accumulator, value))` for each value."""
        return self._evaluator.executable.fold(self)(self, zero, values)


class ComputationEvaluator:
    """One invocation of an executable: the values of its building blocks for an argument."""

    def __init__(self, executable: Executable, executor: ClientExecutor, num_clients: int) -> None:
        self.executable = executable
        self._executor = executor
        self._num_clients = num_clients

    def run(self, argument: Value | None) -> Value:
        """Returns the executable's result for an argument, `None` if it takes none."""
        function = self.evaluate(self.executable.block, {})
        return function() if argument is None else function(argument)

    def evaluate(self, block: Any, scope: dict[str, Value]) -> Value:
        """Returns the value of a building block where `scope` gives the values of names."""
        rule = _BLOCK_RULES.get(type(block))
        if rule is None:
            raise UnsupportedConstructError(
                f"The computation holds a {type(block).__name__} building block, {block.compact_representation()!r}, "
                "which cannot be evaluated in process."
            )
        return rule(self, block, scope)

    def _reference(self, block: Any, scope: dict[str, Value]) -> Value:
        return scope[block.name]

    def _selection(self, block: Any, scope: dict[str, Value]) -> Value:
        return self.evaluate(block.source, scope)[block.as_index()]

    def _struct(self, block: Any, scope: dict[str, Value]) -> Value:
        return tuple(self.evaluate(element, scope) for element in block)

    def _call(self, block: Any, scope: dict[str, Value]) -> Value:
        function = self.evaluate(block.function, scope)
        return function() if block.argument is None else function(self.evaluate(block.argument, scope))

    def _block(self, block: Any, scope: dict[str, Value]) -> Value:
        scope = dict(scope)
        for name, value in block.locals:
            scope[name] = self.evaluate(value, scope)
        return self.evaluate(block.result, scope)

    def _function(self, block: Any, scope: dict[str, Value]) -> LocalFunction:
        return LocalFunction(block, {name: scope[name] for name in _free_names(block) if name in scope}, self)

    def _literal(self, block: Any, scope: dict[str, Value]) -> tf.Tensor:
        dtype = block.type_signature.dtype.type
        return tf.constant(block.value, tf.string if dtype is np.str_ else dtype)

    def apply(self, block: Any, argument: Value) -> Value:
        """Returns the value of an intrinsic of an argument."""
        rule = _INTRINSIC_RULES.get(block.uri)
        if rule is None:
            raise UnsupportedConstructError(
                f"The computation holds the intrinsic {block.uri!r}, which cannot be evaluated in process; those that "
                f"can be are {', '.join(sorted(_INTRINSIC_RULES))}."
            )
        return rule(self, argument, block.type_signature)

    def _apply(self, argument: Value, signature: Any) -> Value:
        function, value = argument
        return function(value)

    def _map(self, argument: Value, signature: Any) -> ClientValues:
        function, value = argument
        if not isinstance(value, ClientValues):
            return function(value)
        return ClientValues(self._run_at_clients(function, value.each(self._num_clients)))

    def _map_all_equal(self, argument: Value, signature: Any) -> ClientValues:
        function, value = argument
        return ClientValues([function(value.members[0])], all_equal=True)

    def _eval_at_clients(self, function: Value, signature: Any) -> ClientValues:
        return ClientValues(self._run_at_clients(function, [()] * self._num_clients))

    def _run_at_clients(self, function: LocalFunction, arguments: list[Value]) -> list[Value]:
        if not _computes(function.block):
            # It only picks parts: done here in less time than it takes to hand it over.
            return [function(argument) for argument in arguments]
        return self._executor.run(function, arguments)

    def _all_equal(self, value: Value, signature: Any) -> ClientValues:
        return ClientValues([value], all_equal=True)

    def _identity(self, value: Value, signature: Any) -> Value:
        return value

    def _call_at_server(self, function: Value, signature: Any) -> Value:
        return function()

    def _zip_at_clients(self, value: Value, signature: Any) -> ClientValues:
        if isinstance(value, ClientValues):
            return value
        parts = [self._zip_at_clients(part, signature) for part in value]
        if all(part.all_equal for part in parts):
            return ClientValues([tuple(part.members[0] for part in parts)], all_equal=True)
        return ClientValues(list(zip(*(part.each(self._num_clients) for part in parts), strict=True)))

    def _aggregate(self, argument: Value, signature: Any) -> Value:
        # One level of clients: `merge` would only be needed for partial sums.
        value, zero, accumulate, _, report = argument
        members = value.each(self._num_clients)
        return report(accumulate.fold(zero, members))

    def _select(self, argument: Value, signature: Any) -> ClientValues:
        keys, _, server_value, select = argument
        element_type = signature.result.member.element

        def selected(keys_of_client: tf.Tensor) -> tf.Tensor:
            return _map_dataset(
                tf.data.Dataset.from_tensor_slices(keys_of_client),
                lambda key: select((server_value, key)),
                element_type,
            )

        return ClientValues([selected(k) for k in keys.each(self._num_clients)])

    def _sequence_map(self, argument: Value, signature: Any) -> tf.Tensor:
        function, sequence = argument
        element_type = signature.parameter[1].element
        return _map_dataset(
            _dataset(sequence, element_type),
            lambda element: function(sequences.to_element(element, element_type)),
            signature.result.element,
        )

    def _sequence_reduce(self, argument: Value, signature: Any) -> Value:
        sequence, accumulator, function = argument
        element_type = signature.parameter[0].element
        for element in _dataset(sequence, element_type):
            accumulator = function((accumulator, sequences.to_element(element, element_type)))
        return accumulator


def _dataset(variant: tf.Tensor, element_type: tff.Type) -> tf.data.Dataset:
    return tf.data.experimental.from_variant(variant, sequences.element_spec(element_type))


def _map_dataset(dataset: tf.data.Dataset, function: Callable[[Any], Value], result_type: tff.Type) -> tf.Tensor:
    """The variant of a data set of `function` of each element; an element may be a container or a tensor."""

    def mapped(*parts: Any) -> Any:
        # Data sets pass the parts of a tuple as so many arguments.
        element = parts if isinstance(dataset.element_spec, tuple) else parts[0]
        return sequences.from_element(flatten(function(element)), result_type)

    with tf.device("/CPU:0"):
        return tf.data.experimental.to_variant(dataset.map(tf.autograph.experimental.do_not_convert(mapped)))


def _free_names(block: Any) -> set[str]:
    """The names that a block uses and does not bind."""
    if isinstance(block, _blocks.Reference):
        return {block.name}
    if isinstance(block, _blocks.Lambda):
        return _free_names(block.result) - {block.parameter_name}
    if isinstance(block, _blocks.Block):
        free = _free_names(block.result)
        for name, value in reversed(block.locals):
            free = (free - {name}) | _free_names(value)
        return free
    return set().union(*map(_free_names, block.children()))


def _computes(block: Any) -> bool:
    """Whether a function does more than pick and arrange parts of its argument."""
    return isinstance(block, _blocks.CompiledComputation | _blocks.Intrinsic) or any(map(_computes, block.children()))


_BLOCK_RULES: dict[type, Callable[[ComputationEvaluator, Any, dict[str, Value]], Value]] = {
    _blocks.Reference: ComputationEvaluator._reference,
    _blocks.Selection: ComputationEvaluator._selection,
    _blocks.Struct: ComputationEvaluator._struct,
    _blocks.Call: ComputationEvaluator._call,
    _blocks.Block: ComputationEvaluator._block,
    _blocks.Lambda: ComputationEvaluator._function,
    _blocks.CompiledComputation: ComputationEvaluator._function,
    _blocks.Intrinsic: ComputationEvaluator._function,
    _blocks.Literal: ComputationEvaluator._literal,
}

_INTRINSIC_RULES: dict[str, Callable[[ComputationEvaluator, Value, Any], Value]] = {
    "federated_aggregate": ComputationEvaluator._aggregate,
    "federated_apply": ComputationEvaluator._apply,
    "federated_broadcast": ComputationEvaluator._all_equal,
    "federated_eval_at_clients": ComputationEvaluator._eval_at_clients,
    "federated_eval_at_server": ComputationEvaluator._call_at_server,
    "federated_map": ComputationEvaluator._map,
    "federated_map_all_equal": ComputationEvaluator._map_all_equal,
    "federated_select": ComputationEvaluator._select,
    "federated_value_at_clients": ComputationEvaluator._all_equal,
    "federated_value_at_server": ComputationEvaluator._identity,
    "federated_zip_at_clients": ComputationEvaluator._zip_at_clients,
    "federated_zip_at_server": ComputationEvaluator._identity,
    "sequence_map": ComputationEvaluator._sequence_map,
    "sequence_reduce": ComputationEvaluator._sequence_reduce,
}
