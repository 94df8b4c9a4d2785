"""A TensorFlow computation of TFF as a function of the TensorFlow installed here.

Values are nested tuples of tensors, in the order of the computation's type; a data set
is its variant tensor. See `values.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from tff_fen.runtime.errors import UnsupportedConstructError
from tff_fen.runtime.graph_parts import all_nodes, tensor_node
from tff_fen.runtime.inprocess.values import Value, flatten
from tff_fen.runtime.passes import isolating, stages

_numbers = itertools.count()

# What a graph that depends on nothing is made of, once TFF's compiler has folded it.
_CONSTANT_OPS = {"Const", "Identity", "NoOp"}

# Part of the names of operations whose kernels must not run twice at the same time: oneDNN's keep a call's sizes and
# pointers where the next call finds them (https://github.com/tensorflow/tensorflow/pull/99852). Keras's
# LayerNormalization is made of them, too.
_UNSAFE = "FusedBatchNorm"


def load(proto: Any) -> Callable[..., Value]:
    """Returns the graph of a `tensorflow` computation proto as a function of one value, or of none.

    Safe to call from many threads at once.
    """
    graph = GraphFunction(proto)
    if graph.has_queue:
        # A queue lives as long as its kernel and would hand what is left in it to the next call.
        return lambda argument=(): GraphFunction(proto)(argument)
    if graph.is_unsafe:
        return _Copies(proto, graph)
    return graph


class GraphFunction:
    """Calls the graph of a `tensorflow` computation proto, imported once.

    Each call has fresh variables and tables. Seeded random operations go on with their
    sequence from call to call, as they do in a session of TFF's worker.

    Attributes:
      is_unsafe: whether one call has to end before the next begins.
      has_queue: whether there is a queue, which calls would share: each needs an import of its own.
    """

    def __init__(self, proto: Any) -> None:
        """Imports the graph.

        Args:
          proto: the `tensorflow` message of a computation proto.
        """
        graph_def = tf.compat.v1.GraphDef()
        if not proto.graph_def.Unpack(graph_def):
            raise UnsupportedConstructError(
                f"A TensorFlow computation must hold a tensorflow.GraphDef, found {proto.graph_def.type_url!r}."
            )
        parameters = list(_tensor_names(proto.parameter))
        results = list(_tensor_names(proto.result))
        fetches = list(dict.fromkeys(results))  # a tensor may be in the result more than once
        stages.run_after_optimiser(
            graph_def,
            initialize_op=proto.initialize_op,
            suffix=f"_inprocess{next(_numbers)}",
            feeds=parameters,
            fetches=fetches,
        )
        self.has_queue = any(node.op in isolating.QUEUES for node in all_nodes(graph_def))
        self.is_unsafe = any(_UNSAFE in node.op for node in all_nodes(graph_def))
        placeholders = {node.name: node for node in graph_def.node if node.op == "Placeholder"}
        used = [(i, name) for i, name in enumerate(parameters) if tensor_node(name) in placeholders]
        self._used = [i for i, _ in used]
        feeds = [name for _, name in used]
        token = proto.session_token_tensor_name
        constants = {token: ""} if token and tensor_node(token) in placeholders else {}
        specs = [_placeholder_spec(placeholders[tensor_node(name)]) for name in feeds]
        self._function = import_function(graph_def, feeds, specs, fetches, constants) if fetches else None
        indices = iter([fetches.index(name) for name in results])
        self._pack = _packing(proto.result, indices)
        # Such as the weight of every client in an unweighted mean: called once is enough.
        self._is_constant = {node.op for node in graph_def.node} <= _CONSTANT_OPS
        self._constant: list[tf.Tensor] | None = None

    def __call__(self, argument: Value = ()) -> Value:
        """Returns the result for an argument, both as nested tuples of tensors."""
        if self._function is None:
            return _packed(self._pack, [])
        if self._constant is not None:
            return _packed(self._pack, self._constant)
        flat = list(flatten(argument))
        outputs = call_flat(self._function, [flat[i] for i in self._used])
        # Scalars only: others could be changed where they lie, by operations such as InplaceAdd.
        if self._is_constant and tf.executing_eagerly() and all(x.shape.rank == 0 for x in outputs):
            self._constant = outputs
        return _packed(self._pack, outputs)


class _Copies:
    """Calls a graph that is unsafe; calls side by side have a copy each, with kernels of its own.

    As many copies as there were calls at once. Seeded random operations begin anew in each.
    """

    def __init__(self, proto: Any, graph: GraphFunction) -> None:
        self._proto = proto
        self._idle = [graph]  # a list's `pop` and `append` are safe

    def __call__(self, argument: Value = ()) -> Value:
        try:
            graph = self._idle.pop()
        except IndexError:
            graph = GraphFunction(self._proto)
        try:
            return graph(argument)
        finally:
            self._idle.append(graph)


def import_function(
    graph_def: tf.compat.v1.GraphDef,
    feeds: list[str],
    specs: list[tf.TensorSpec],
    fetches: list[str],
    constants: Mapping[str, Any] | None = None,
) -> Any:
    """Returns a graph as a concrete function of the tensors named in `feeds`, of these specs, to those in `fetches`.

    Args:
      graph_def: the graph.
      feeds: what the function's arguments take the place of.
      specs: of the arguments.
      fetches: the results.
      constants: values for further tensors.
    """

    def body(*arguments: tf.Tensor) -> list[tf.Tensor]:
        fixed = {name: tf.constant(value) for name, value in (constants or {}).items()}
        inputs = dict(zip(feeds, arguments, strict=True)) | fixed
        outputs = tf.graph_util.import_graph_def(graph_def, inputs, fetches, name="")
        return [tf.identity(output) for output in outputs]

    # Out of whatever graph the first call may come from: the function belongs to the process.
    with tf.init_scope():
        return tf.compat.v1.wrap_function(body, specs)


def call_flat(function: Any, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Returns `function(*tensors)` of a concrete function.

    TensorFlow's own `__call__` checks each argument's type again, which takes as long as the call.
    """
    return function._call_flat(tensors, function.captured_inputs)


def _tensor_names(binding: Any) -> Iterator[str]:
    """The names of a binding's tensors, in the order of the type; none for a parameter that is not there."""
    kind = binding.WhichOneof("binding")
    if kind == "struct":
        for element in binding.struct.element:
            yield from _tensor_names(element)
    elif kind == "tensor":
        yield binding.tensor.tensor_name
    elif kind == "sequence":
        yield binding.sequence.variant_tensor_name


def _packing(binding: Any, indices: Iterator[int]) -> Any:
    """Where each part of the result is found among the fetched tensors: nested tuples of indices."""
    if binding.WhichOneof("binding") == "struct":
        return tuple(_packing(element, indices) for element in binding.struct.element)
    return next(indices)


def _packed(packing: Any, outputs: list[tf.Tensor]) -> Value:
    if isinstance(packing, tuple):
        return tuple(_packed(part, outputs) for part in packing)
    return outputs[packing]


def _placeholder_spec(node: tf.compat.v1.NodeDef) -> tf.TensorSpec:
    return tf.TensorSpec(tf.TensorShape(node.attr["shape"].shape), tf.dtypes.as_dtype(node.attr["dtype"].type))
