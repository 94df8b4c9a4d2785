"""A TensorFlow graph of TFF as a function: imported once, apart from all others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support import new_process
from tests.support.runtime_suite import INT, INTS, int_dataset, mapped, tensorflow
from tff_fen.runtime.inprocess import graphs
from tff_fen.runtime.inprocess.context import InProcessContext


def test_graphs_are_imported_once(installed: InProcessContext, monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[graphs.GraphFunction] = []
    original = graphs.GraphFunction.__init__

    def counting(self: graphs.GraphFunction, proto: Any) -> None:
        imported.append(self)
        original(self, proto)

    monkeypatch.setattr(graphs.GraphFunction, "__init__", counting)
    traces: list[int] = []

    def work(x: tf.Tensor) -> tf.Tensor:
        traces.append(1)
        return x * 2

    computation = mapped(work, INT)()
    for k in range(1, 20):
        assert computation(list(range(k))) == [2 * i for i in range(k)]
    assert len(imported) == 1 and len(traces) == 1


def test_constants_are_computed_once() -> None:
    def graph_function(function: Any) -> graphs.GraphFunction:
        return graphs.GraphFunction(tensorflow(function)().to_building_block().proto.tensorflow)

    zeros = graph_function(lambda: (tf.zeros([]), 1))
    assert all(a is b for a, b in zip(zeros(), zeros(), strict=True))
    random = graph_function(lambda: tf.random.uniform([4]))
    assert np.any(random() != random())


def test_only_what_the_result_needs_is_run() -> None:
    """As in a session, and unlike in a tf.function, which runs all that has side effects."""

    def work(x: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_equal(x, 0)  # no control dependency: nothing waits for it
        return x + 1

    function = graphs.GraphFunction(tensorflow(work, INT)().to_building_block().proto.tensorflow)
    assert int(function(tf.constant(5))) == 6


def test_functions_of_one_name_and_different_bodies() -> None:
    """Computations made in different processes name their functions alike."""
    computation = tensorflow(lambda d: d.map(lambda x: x + 7).reduce(0, lambda a, b: a + b), INTS)()
    original = computation.to_building_block().proto.tensorflow
    graph_def = tf.compat.v1.GraphDef()
    original.graph_def.Unpack(graph_def)
    sevens = [
        node.attr["value"].tensor
        for function in graph_def.library.function
        for node in function.node_def
        if node.op == "Const" and list(node.attr["value"].tensor.int_val) == [7]
    ]
    assert len(sevens) == 1
    sevens[0].int_val[0] = 100
    changed = type(original)()
    changed.CopyFrom(original)
    changed.graph_def.Pack(graph_def)
    data = tf.data.experimental.to_variant(int_dataset(1, 2))
    functions = [graphs.GraphFunction(proto) for proto in (original, changed, original)]
    assert [int(function(data)) for function in functions] == [17, 203, 17]


@pytest.mark.long
def test_normalisation_at_clients_side_by_side() -> None:
    """TensorFlow's kernel for it mixes up calls at the same time, or ends the process: so in a process of its own."""
    output = new_process.run_python(
        """
        import tff_fen
        tff_fen.runtime.set_inprocess_context(max_concurrent_clients=4)
        import numpy as np, tensorflow as tf, tensorflow_federated as tff
        rng = np.random.default_rng(0)
        tf.random.set_seed(1)
        layers = [tf.keras.layers.Dense(8), tf.keras.layers.LayerNormalization(), tf.keras.layers.Dense(3)]
        model = tff.learning.models.functional_model_from_keras(
            tf.keras.Sequential([tf.keras.layers.InputLayer((6,)), *layers]),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            (tf.TensorSpec([None, 6]), tf.TensorSpec([None], tf.int32)),
        )
        clients = [
            tf.data.Dataset.from_tensors((rng.normal(size=(n, 6)).astype(np.float32), np.arange(n, dtype=np.int32) % 3))
            for n in (7, 1, 33, 5, 12, 30, 8, 2)
        ]
        training = tff_fen.LocalTraining(0.1, epochs=3, batch_size=4)
        process = tff_fen.build_fed_avg(model, tff_fen.ElasticNet(), training)
        state = process.initialize()

        def trained():
            weights = process.get_model_weights(process.next(state, clients).state)
            return b"".join(w.tobytes() for w in weights.trainable)

        print(len({trained() for _ in range(60)}))
        with tff.framework.get_context_stack().install(tff_fen.runtime.create_native_context()):
            on_native = trained()
        print(np.abs(np.frombuffer(trained(), np.float32) - np.frombuffer(on_native, np.float32)).max() < 1e-5)
        """
    )
    assert output.splitlines() == ["1", "True"]
