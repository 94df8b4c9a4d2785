"""What clients compute can be computed on a GPU, by the kernels in the installed TensorFlow; no GPU is needed to ask.

It shows that there is a kernel for each operation and its types, not what the kernels compute, nor how fast.
"""

from __future__ import annotations

import collections
import graphlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.framework import kernels  # there is no public name for what kernels there are

import tff_fen
from tests.support import models
from tests.support.runtime_graphs import imported, marked_parts
from tff_fen.runtime import devices
from tff_fen.runtime.graph_parts import all_nodes, tensor_node
from tff_fen.runtime.inprocess.context import InProcessContext
from tff_fen.runtime.inprocess.executors import ThreadedClientExecutor

layers = tf.keras.layers

# TensorFlow computes these on the CPU wherever the rest is; each runs once per round or epoch, none in a step.
WITHOUT_A_KERNEL = {
    "Const": "strings, such as the messages of checks; never computed with",
    "DenseBincount": "the histogram of the entropy, of what is sent",
    "Fingerprint": "the digest of a client's data that seeds the shuffling of a client without an id",
    "StatelessShuffle": "the order of the examples of an epoch",
}
TRAINING = tff_fen.LocalTraining(0.1, epochs=2, batch_size=4, clip_norm=1.0, weight_decay=1e-3)
PENALTIES = tff_fen.ElasticNet(l1=1e-3, l2=0.1, threshold=1e-3)


def cnn() -> tff.learning.models.FunctionalModel:
    convolution = [layers.Reshape((4, 4, 1)), layers.Conv2D(3, 3, activation="relu", padding="same")]
    return models.from_layers([*convolution, layers.MaxPool2D(), layers.Flatten(), layers.Dense(4)], 16)


def lstm() -> tff.learning.models.FunctionalModel:
    of = [layers.InputLayer((5,), dtype=tf.int32), layers.Embedding(20, 3), layers.LSTM(4), layers.Dense(4)]
    return tff.learning.models.functional_model_from_keras(
        tff_fen.fuse_lstm(tf.keras.Sequential(of)),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        (tf.TensorSpec([None, 5], tf.int32), tf.TensorSpec([None], tf.int32)),
        collections.OrderedDict(accuracy=tf.keras.metrics.SparseCategoricalAccuracy),
    )


PROCESSES: dict[str, Callable[[], Any]] = {
    "MLP, Algorithm 1": lambda: tff_fen.build_fed_avg(models.two_layer_mlp(), PENALTIES, TRAINING),
    "MLP, Algorithm 2": lambda: tff_fen.build_scaffold(models.two_layer_mlp(), PENALTIES, TRAINING, num_clients=2),
    "MLP, Algorithm 3": lambda: tff_fen.build_fed_dyn(models.two_layer_mlp(), PENALTIES, TRAINING, num_clients=2),
    "CNN": lambda: tff_fen.build_fed_dyn(cnn(), PENALTIES, TRAINING, num_clients=2),
    "LSTM": lambda: tff_fen.build_fed_dyn(lstm(), PENALTIES, TRAINING, num_clients=2),
}
# What a step must have, or it was not among the graphs.
COMPUTED = {"MLP": "MatMul", "CNN": "Conv2DBackpropFilter", "LSTM": "BlockLSTMGradV2"}


def without_a_kernel(graph_def: tf.compat.v1.GraphDef) -> Iterator[tf.compat.v1.NodeDef]:
    """The nodes that no kernel for GPUs, nor one for all devices, computes with these types."""
    for node in all_nodes(graph_def):
        found = kernels.get_registered_kernels_for_op(node.op).kernel
        if not any(kernel.device_type in ("GPU", "DEFAULT") and _takes(kernel, node) for kernel in found):
            yield node


def _takes(kernel: Any, node: tf.compat.v1.NodeDef) -> bool:
    def types_of(attribute: Any) -> set[int]:
        return {attribute.type} if attribute.type else set(attribute.list.type)

    return all(types_of(node.attr[c.name]) <= set(c.allowed_values.list.type) for c in kernel.constraint)


def steps_of(graph_def: tf.compat.v1.GraphDef) -> Iterator[tf.compat.v1.NodeDef]:
    """The nodes in the loop over batches, which is in the loop over epochs; TensorFlow has taken both apart."""
    nodes = {node.name: node for node in graph_def.node}
    # What ends an iteration begins the next: without its inputs there is no cycle.
    sources = {n.name: [] if n.op == "NextIteration" else [tensor_node(s) for s in n.input] for n in graph_def.node}
    depths: dict[str, int] = {}
    for name in graphlib.TopologicalSorter(sources).static_order():
        depth = max((depths[source] for source in sources[name]), default=0)
        depths[name] = depth + {"Enter": 1, "Exit": -1}.get(nodes[name].op, 0)
    return (node for node in graph_def.node if depths[node.name] >= 2)


@pytest.mark.parametrize("name", PROCESSES)
def test_what_clients_compute_has_kernels_for_gpus(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    context = InProcessContext(ThreadedClientExecutor(1), clients_on_gpus=True)
    graph_defs = [g for part in marked_parts(PROCESSES[name]().next) for g in imported(context._compile(part))]
    steps = [node for graph_def in graph_defs for node in steps_of(graph_def)]
    assert COMPUTED[name.partition(",")[0]] in {node.op for node in steps}
    missing = [node for graph_def in graph_defs for node in without_a_kernel(graph_def)]
    assert {node.op for node in missing} <= set(WITHOUT_A_KERNEL)
    assert all(node.attr["dtype"].type == tf.string.as_datatype_enum for node in missing if node.op == "Const")
    assert not {node.op for node in steps} & (set(WITHOUT_A_KERNEL) - {"Const"})
    # Nothing that is for CPUs alone: loops in machine code, kernels of oneDNN, the executor of one thread.
    nodes = [node for graph_def in graph_defs for node in all_nodes(graph_def)]
    assert not any(node.op.startswith(("TffFen", "_Mkl")) or node.attr["executor_type"].s for node in nodes)


def test_a_missing_kernel_is_noticed() -> None:
    """Of an operation that has none, and of one that has none for these types."""
    with tf.Graph().as_default() as graph:
        tf.raw_ops.Fingerprint(data=tf.zeros([2, 3]), method="farmhash64")
        tf.matmul(tf.zeros([2, 2], tf.int32), tf.zeros([2, 2], tf.int32))
        tf.matmul(tf.zeros([2, 2]), tf.zeros([2, 2]))
    found = sorted(node.op for node in without_a_kernel(graph.as_graph_def()))
    assert found[0] == "Const" and found[1:] == ["Fingerprint", "MatMul"]
