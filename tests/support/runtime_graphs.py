"""The TensorFlow graphs of computations as the in-process runtime has them, for the tests of its passes."""

from __future__ import annotations

import collections
from typing import Any, ClassVar

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen import graph_marks
from tff_fen.runtime.graph_parts import all_nodes, functions_of, nodes_of
from tff_fen.runtime.inprocess import graphs
from tff_fen.runtime.inprocess.context import InProcessContext
from tff_fen.runtime.inprocess.executors import ThreadedClientExecutor
from tff_fen.runtime.machine_code import element_loops


class CompilingOnce(InProcessContext):
    """An in-process context that shares what it compiles with all others of its kind; what it imports is its own."""

    _compiled: ClassVar[dict[int, tuple[Any, Any]]] = {}

    def __init__(self, max_concurrent_clients: int = 2) -> None:
        super().__init__(ThreadedClientExecutor(max_concurrent_clients), clients_on_gpus=False)

    def _compile(self, comp: Any) -> Any:
        if id(comp) not in self._compiled:
            # With the computation, whose id must not become that of another.
            self._compiled[id(comp)] = (comp, super()._compile(comp))
        return self._compiled[id(comp)][1]


def graphs_in(computation: Any) -> list[Any]:
    """The TensorFlow computations inside a computation."""
    return [block.proto.tensorflow for block in _compiled_blocks(computation)]


def imported(compiled: Any) -> list[tf.compat.v1.GraphDef]:
    """The graphs of a compiled computation as the in-process runtime, and Ray's workers, import them."""
    functions = [graphs.GraphFunction(proto)._function for proto in graphs_in(compiled)]
    graph_defs = [function.graph.as_graph_def() for function in functions if function is not None]
    assert not any("_XlaMustCompile" in node.attr for g in graph_defs for node in all_nodes(g))
    return graph_defs


def marked_parts(computation: Any) -> list[tff.framework.ConcreteComputation]:
    """The TensorFlow computations with marks inside a computation; they compile in a fraction of its time."""
    return [
        tff.framework.ConcreteComputation(
            computation_proto=block.proto, context_stack=tff.framework.get_context_stack()
        )
        for block in _compiled_blocks(computation)
        if _is_marked(block.proto.tensorflow)
    ]


def loops_on_one_thread(graph_defs: list[tf.compat.v1.GraphDef]) -> list[collections.Counter[str]]:
    """The operations of each loop that has a thread of its own."""
    found = []
    for graph_def in graph_defs:
        functions = functions_of(graph_def)
        for node in all_nodes(graph_def):
            if node.attr["executor_type"].s == b"SINGLE_THREADED_EXECUTOR":
                name = node.attr["f"].func.name
                assert graph_marks.is_loop(name) and functions[name].attr["_noinline"].b
                found.append(collections.Counter(n.op for n in nodes_of(name, functions)))
    return found


def refuse(function: element_loops.ElementFunction) -> str:
    """In place of `compiled_ops.register`: no machine code is made of any function."""
    raise element_loops.UnsupportedFunctionError("Refused for the test.")


def _compiled_blocks(computation: Any) -> list[Any]:
    found = []

    def visit(block: Any) -> tuple[Any, bool]:
        if isinstance(block, tff.framework.CompiledComputation):
            found.append(block)
        return block, False

    tff.framework.transform_postorder(computation.to_building_block(), visit)
    return found


def _is_marked(proto: Any) -> bool:
    graph_def = tf.compat.v1.GraphDef()
    proto.graph_def.Unpack(graph_def)
    names = [function.signature.name for function in graph_def.library.function]
    return any(graph_marks.is_elementwise(name) or graph_marks.is_loop(name) for name in names)
