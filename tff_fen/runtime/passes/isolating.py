"""Rewrites the graph of a TFF computation so that it can be called many times, and by many threads at once.

TFF's graphs are written for a session: names are global, variables and tables live in
the session and an `initialize_op` is run before the fetches. Inside a TensorFlow
function of this process, names must not meet those of other computations, and every
call needs variables and tables of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from tff_fen.runtime.errors import UnsupportedConstructError
from tff_fen.runtime.graph_parts import all_nodes, tensor_node

# tensorflow::ResourceHandle::ANONYMOUS_NAME, which Python has no name for: with it a VarHandleOp makes a new variable
# at every execution, freed with the last reference to it.
_ANONYMOUS = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"

# Operations that look a table up by name, and the same without a name: a new table at every execution.
_ANONYMOUS_TABLES = {
    "HashTableV2": "AnonymousHashTable",
    "MutableHashTableV2": "AnonymousMutableHashTable",
    "MutableHashTableOfTensorsV2": "AnonymousMutableHashTableOfTensors",
    "MutableDenseHashTableV2": "AnonymousMutableDenseHashTable",
}
# Without a name these belong to their kernel, so to the import of the graph; see `graphs.load`.
QUEUES = frozenset({"FIFOQueueV2", "PaddingFIFOQueueV2", "PriorityQueueV2", "RandomShuffleQueueV2"})
_NAMING_ATTRIBUTES = ("container", "shared_name", "use_node_name_sharing")
_HANDLE_OPS = {"VarHandleOp", *_ANONYMOUS_TABLES.values()}


def isolate_calls(graph_def: tf.compat.v1.GraphDef, initialize_op: str, suffix: str) -> None:
    """Makes every execution of the graph independent of all others, in place.

    Args:
      graph_def: the graph.
      initialize_op: the operation to run before all use of variables and tables, or "".
      suffix: what to append to the names of the library's functions; unique in the process.
    """
    _rename_functions(graph_def, suffix)
    for node in all_nodes(graph_def):
        _make_anonymous(node)
    if initialize_op:
        _wait_for_initialization(graph_def, tensor_node(initialize_op), suffix)


def cut_control_inputs(graph_def: tf.compat.v1.GraphDef, nodes: Iterable[str]) -> None:
    """Removes control edges from `nodes`, in place: the optimiser leaves some on placeholders, which are fed."""
    cut = {f"^{node}" for node in nodes}
    for node in graph_def.node:
        if cut.intersection(node.input):
            kept = [source for source in node.input if source not in cut]
            del node.input[:]
            node.input.extend(kept)


def keep_ancestors(graph_def: tf.compat.v1.GraphDef, nodes: Iterable[str]) -> None:
    """Removes all nodes but `nodes` and what they depend on, in place.

    A session runs no more than this; what it does not run need not be imported, nor its placeholders be fed.
    """
    kept = _ancestors(graph_def, nodes)
    for i in reversed(range(len(graph_def.node))):
        if graph_def.node[i].name not in kept:
            del graph_def.node[i]


def _ancestors(graph_def: tf.compat.v1.GraphDef, names: Iterable[str]) -> set[str]:
    """The named nodes and all that they depend on, by data or control."""
    nodes = {node.name: node for node in graph_def.node}
    found: set[str] = set()
    to_visit = list(names)
    while to_visit:
        name = to_visit.pop()
        if name not in found:
            found.add(name)
            to_visit.extend(map(tensor_node, nodes[name].input))
    return found


def _rename_functions(graph_def: tf.compat.v1.GraphDef, suffix: str) -> None:
    """Appends `suffix` to the names of all library functions: two computations use one name for different bodies."""
    library = graph_def.library
    renamed = {f.signature.name: f.signature.name + suffix for f in library.function}

    def rename_in(attributes: Iterable[tf.compat.v1.AttrValue]) -> None:
        for attribute in attributes:
            if attribute.HasField("func"):
                attribute.func.name = renamed.get(attribute.func.name, attribute.func.name)
            for function in attribute.list.func:
                function.name = renamed.get(function.name, function.name)

    for node in all_nodes(graph_def):
        node.op = renamed.get(node.op, node.op)
        rename_in(node.attr.values())
    for function in library.function:
        function.signature.name = renamed[function.signature.name]
        rename_in(function.attr.values())
    for gradient in library.gradient:
        gradient.function_name = renamed.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = renamed.get(gradient.gradient_func, gradient.gradient_func)


def _make_anonymous(node: tf.compat.v1.NodeDef) -> None:
    """Lets the node make a resource of its own at every execution rather than share one by name."""
    if node.op == "VarHandleOp":
        node.attr["shared_name"].s = _ANONYMOUS
    elif node.op in _ANONYMOUS_TABLES:
        node.op = _ANONYMOUS_TABLES[node.op]
        for name in _NAMING_ATTRIBUTES:
            node.attr.pop(name, None)
    elif node.op in QUEUES:
        for name in _NAMING_ATTRIBUTES[:2]:
            node.attr[name].s = b""
    elif "shared_name" in node.attr:
        raise UnsupportedConstructError(
            f"A TensorFlow computation holds a {node.op} ({node.name!r}), a resource that calls side by side would "
            f"share. In process these can be made anew for each call: VarHandleOp, "
            f"{', '.join([*_ANONYMOUS_TABLES, *sorted(QUEUES)])}. "
            "Use one of those, or run the computation on tff_fen.runtime.set_native_context()."
        )


def _wait_for_initialization(graph_def: tf.compat.v1.GraphDef, initialize_op: str, suffix: str) -> None:
    """Lets all that uses a variable or table, but is not part of `initialize_op`, run after it."""
    nodes = {node.name: node for node in graph_def.node}
    initializing = _ancestors(graph_def, [initialize_op])
    waiting: dict[str, str] = {}

    def waiting_handle(handle: str) -> str:
        if handle not in waiting:
            node = graph_def.node.add(name=f"{handle}/initialized{suffix}", op="Identity")
            node.input.extend([handle, f"^{initialize_op}"])
            node.attr["T"].type = tf.resource.as_datatype_enum
            waiting[handle] = node.name
        return waiting[handle]

    for node in nodes.values():
        if node.name in initializing:
            continue
        for i, source in enumerate(node.input):
            name = tensor_node(source)
            if name in initializing and not source.startswith("^") and _is_handle(nodes[name]):
                node.input[i] = waiting_handle(name)


def _is_handle(node: tf.compat.v1.NodeDef) -> bool:
    is_copy = node.op == "Identity" and node.attr["T"].type == tf.resource.as_datatype_enum
    return is_copy or node.op in _HANDLE_OPS
