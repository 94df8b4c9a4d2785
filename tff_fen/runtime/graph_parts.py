"""Finds the parts of a TensorFlow graph: nodes, the functions of its library, and what a function calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf


def tensor_node(name: str) -> str:
    """The node of a tensor or control input: of `x`, `x:1` and `^x` it is `x`."""
    return name.removeprefix("^").split(":")[0]


def all_nodes(graph_def: tf.compat.v1.GraphDef) -> Iterator[tf.compat.v1.NodeDef]:
    """The nodes of a graph and of the functions in its library."""
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def functions_of(graph_def: tf.compat.v1.GraphDef) -> dict[str, Any]:
    """The functions in a graph's library, by their names."""
    return {function.signature.name: function for function in graph_def.library.function}


def nodes_of(name: str, functions: Mapping[str, Any]) -> Iterator[tf.compat.v1.NodeDef]:
    """The nodes of a function and of all that it calls."""
    found = {name}
    to_visit = [name]
    while to_visit:
        for node in functions[to_visit.pop()].node_def:
            yield node
            attributes = node.attr.values()
            called = [a.func.name for a in attributes] + [f.name for a in attributes for f in a.list.func] + [node.op]
            new = (functions.keys() & called) - found
            found |= new
            to_visit.extend(new)
