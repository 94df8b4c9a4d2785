"""Values of the runtime as what another process can read: NumPy arrays, bytes, and tuples of these.

    a tensor             a NumPy array or scalar; bytes if it is one string
    a data set           `DataSet`: its serialised graph, its constant tensors included
    a tuple              a tuple
    a function           `Function`: its building block and the values of the names it uses

Whoever reads gets the same bits: nothing is converted, rounded or compressed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import computation_pb2

from tff_fen.runtime.errors import UnsupportedConstructError
from tff_fen.runtime.graph_parts import all_nodes
from tff_fen.runtime.inprocess.executors import ClientFunction
from tff_fen.runtime.inprocess.values import Value

# What a data set may call that lives in the Python of one process.
_PYTHON_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


class DataSet(NamedTuple):
    """A data set: the serialised graph of `serialize_data_set`, or what stands for it elsewhere."""

    graph: Any


class Function(NamedTuple):
    """A function: its serialised building block and the encoded values of the names that it uses."""

    block: bytes
    scope: dict[str, Any]


def encode(
    value: Value,
    encode_tensor: Callable[[tf.Tensor], Any] | None = None,
    encode_data_set: Callable[[tf.Tensor], Any] | None = None,
) -> Any:
    """Returns a value in the form of the module's docstring.

    Args:
      value: of the runtime.
      encode_tensor: what to write for a tensor; by default its array.
      encode_data_set: what to write into a `DataSet`; by default the serialised graph.
    """
    if isinstance(value, tuple):
        return tuple(encode(part, encode_tensor, encode_data_set) for part in value)
    if isinstance(value, tf.Tensor):
        if value.dtype == tf.variant:
            return DataSet((encode_data_set or serialize_data_set)(value))
        return encode_tensor(value) if encode_tensor else value.numpy()
    if hasattr(value, "block") and hasattr(value, "scope"):
        return Function(serialize_block(value.block), {name: encode(v) for name, v in value.scope.items()})
    raise UnsupportedConstructError(f"A value of type {type(value).__name__} cannot be sent to another process.")


def decode(value: Any, make_function: Callable[[Function], ClientFunction] | None = None) -> Value:
    """Returns the value that `encode` was given."""
    if isinstance(value, DataSet):
        return tf.raw_ops.DatasetFromGraph(graph_def=tf.constant(bytes(value.graph)))
    if isinstance(value, Function):
        assert make_function is not None
        return make_function(value)
    if isinstance(value, tuple):
        return tuple(decode(part, make_function) for part in value)
    return tf.constant(value)


def serialize_block(block: Any) -> bytes:
    """The bytes of a building block; the same for the same block."""
    return block.proto.SerializeToString(deterministic=True)


def deserialize_block(serialized: bytes) -> tff.framework.ComputationBuildingBlock:
    """The building block of its bytes."""
    return tff.framework.ComputationBuildingBlock.from_proto(computation_pb2.Computation.FromString(serialized))


def serialize_data_set(variant: tf.Tensor) -> bytes:
    """The graph of a data set, with its constant tensors, and the present values of variables and tables.

    The same for a data set made anew of the same tensors, unless its operations call functions or shuffle.

    Raises:
      UnsupportedConstructError: if the data set calls a Python function, which lives in one process.
    """
    try:
        graph_def = tf.compat.v1.GraphDef.FromString(tf.raw_ops.DatasetToGraphV2(input_dataset=variant).numpy())
    except tf.errors.OpError as error:
        raise UnsupportedConstructError(
            f"A data set cannot be sent to another process: {error.message} Make it of tensors or files."
        ) from error
    if found := sorted(_PYTHON_OPS & {node.op for node in all_nodes(graph_def)}):
        raise UnsupportedConstructError(
            f"A data set calls a Python function ({found[0]}, as in tf.data.Dataset.from_generator or "
            "tf.py_function), which cannot be sent to another process. Make it of tensors or files, or use "
            "tff_fen.runtime.set_inprocess_context()."
        )
    for node in all_nodes(graph_def):
        node.attr.pop("metadata", None)  # a name for TensorFlow's profiler, with the number of data sets made so far
    return graph_def.SerializeToString(deterministic=True)


def is_constant(graph: bytes) -> bool:
    """Whether a data set serialised later would be the same: not if it holds the values of variables or tables."""
    operations = {node.op for node in all_nodes(tf.compat.v1.GraphDef.FromString(graph))}
    return not any(operation == "VarHandleOp" or "HashTable" in operation for operation in operations)
