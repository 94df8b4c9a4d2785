"""Compiles TFF computations for the runtimes here: as TFF does, but for one optimisation that slows training.

`tff.backends.native.desugar_and_transform_to_native` optimises the TensorFlow graphs with
Grappler's memory heuristics on. They drop activations and compute them again in the
backward pass, which no client here is short of memory for, and they keep TensorFlow from
fusing what is computed twice: a convolution or matrix product with its bias and activation.

This is the one module with private imports of TFF, which has no public name for two
things: what desugars intrinsics (federated_mean and the like) without also optimising,
and what a native context does to data sets among its arguments.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.core.environments.tensorflow_backend import tensorflow_tree_transformations
from tensorflow_federated.python.core.environments.tensorflow_frontend import tensorflow_computation

from tff_fen.runtime.passes import stages


def compile_computation(comp: Any, *, keep_marked: bool = False) -> Any:
    """Returns a computation in the form that TFF's native runtime takes, its graphs optimised for speed.

    Args:
      comp: the computation.
      keep_marked: whether functions that this package has marked stay functions, for a runtime that knows them.
    """
    block = comp.to_building_block()
    if keep_marked:
        block, _ = tff.framework.transform_postorder(block, _keep_marked)
    desugared, _ = tensorflow_tree_transformations.replace_intrinsics_with_bodies(block)
    return tff.backends.native.transform_to_native_form(
        tff.framework.ConcreteComputation(
            computation_proto=desugared.proto, context_stack=tff.framework.get_context_stack()
        ),
        grappler_config=_grappler_config(),
    )


def _keep_marked(block: Any) -> tuple[Any, bool]:
    """A graph in which marked functions will not be inlined, and whether it had any."""
    if not isinstance(block, tff.framework.CompiledComputation) or not block.proto.HasField("tensorflow"):
        return block, False
    graph_def = tf.compat.v1.GraphDef()
    block.proto.tensorflow.graph_def.Unpack(graph_def)
    if not stages.run_before_optimiser(graph_def):
        return block, False
    proto = type(block.proto)()
    proto.CopyFrom(block.proto)
    proto.tensorflow.graph_def.Pack(graph_def)
    return tff.framework.CompiledComputation(proto, type_signature=block.type_signature), True


def create_local_cpp_context(max_concurrent_computation_calls: int) -> tff.framework.SyncExecutionContext:
    """Returns what `tff.backends.native.create_sync_local_cpp_execution_context` does, with this module's compiler."""
    return tff.framework.SyncExecutionContext(
        executor_fn=tff.framework.local_cpp_executor_factory(
            default_num_clients=0, max_concurrent_computation_calls=max_concurrent_computation_calls
        ),
        compiler_fn=compile_computation,
        transform_args=tensorflow_computation.transform_args,
        transform_result=tensorflow_computation.transform_result,
    )


def _grappler_config() -> tf.compat.v1.ConfigProto:
    """TFF's own settings without the memory heuristics. Inlining all functions is what lets data sets go to GPUs."""
    config = tf.compat.v1.ConfigProto()
    options = config.graph_options.rewrite_options
    options.memory_optimization = options.NO_MEM_OPT
    options.constant_folding = options.AGGRESSIVE
    options.arithmetic_optimization = options.AGGRESSIVE
    options.loop_optimization = options.AGGRESSIVE
    options.function_optimization = options.AGGRESSIVE
    return config
