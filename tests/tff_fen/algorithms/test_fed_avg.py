"""Algorithm 1 as a LearningProcess: types, numbers, rejections, robustness, TFF's own drivers."""

from __future__ import annotations

import asyncio
import collections
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models, reference, rounds
from tff_fen import ElasticNet, LocalTraining

SIZES = (5, 9, 2)
CLIENTS = [models.examples(n, seed=k) for k, n in enumerate(SIZES)]


def data_sets(clients: list[rounds.Examples], batch_size: int | None = None) -> list[tf.data.Dataset]:
    return [models.dataset(*client, batch_size) for client in clients]


def trainable(process: tff.learning.templates.LearningProcess, state: Any) -> list[np.ndarray]:
    return list(process.get_model_weights(state).trainable)


def train_metrics(output: Any) -> Any:
    return output.metrics["client_work"]["train"]


# Types -------------------------------------------------------------------------------------------------------------

WEIGHTS = "<trainable=<float32[6,4],float32[4]>,non_trainable=<>>"
STATE = (
    f"<global_model_weights={WEIGHTS},distributor=<>,client_work=int32,"
    "aggregator=<value_sum_process=<>,weight_sum_process=<>>,finalizer=<>>@SERVER"
)
MEASURED = (
    "delta=<non_zeros=int64,non_zero_share=float32,norm=float32,entropy_trunc=float32,entropy_round=float32>,"
    "theta=<entropy_trunc=float32,entropy_round=float32>,"
)


@pytest.mark.parametrize("measured", [True, False])
def test_type_signatures(measured: bool) -> None:
    process = tff_fen.build_fed_avg(
        models.softmax_regression(), ElasticNet(), LocalTraining(0.1), measurements=measured
    )
    assert isinstance(process, tff.learning.templates.LearningProcess)
    assert process.initialize.type_signature.compact_representation() == f"( -> {STATE})"
    metrics = (
        "<distributor=<>,client_work=<train=<loss=float32,num_examples=int64,participants=int32,"
        f"contributing_clients=int32,non_finite_clients=int32,{MEASURED if measured else ''}accuracy=float32>>,"
        "aggregator=<mean_value=<>,mean_weight=<>>,finalizer=<update_non_finite=int32>>@SERVER"
    )
    data = "{<float32[?,6],int32[?]>*}@CLIENTS"
    assert (
        process.next.type_signature.compact_representation()
        == f"(<state={STATE},client_data={data}> -> <state={STATE},metrics={metrics}>)"
    )
    unplaced = STATE.removesuffix("@SERVER")
    assert process.get_model_weights.type_signature.compact_representation() == f"({unplaced} -> {WEIGHTS})"


# Numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "elastic_net",
    [
        ElasticNet(),  # FedAvg
        ElasticNet(l2=0.5),  # FedProx (fact 1)
        ElasticNet(l1=0.02, l2=0.3, threshold=0.05),
        ElasticNet(l1=0.02, l2=0.3, threshold=0.0, l1_step="proximal"),
    ],
)
@pytest.mark.parametrize("twin", ["softmax_regression", "two_layer_mlp"])
def test_three_rounds_agree_with_the_listing(twin: str, elastic_net: ElasticNet) -> None:
    """Unequal sizes, decayed lr, weight decay, clipping: weights and measurements, round by round."""
    settings = LocalTraining(0.3, epochs=2, batch_size=4, lr_decay=0.9, weight_decay=0.01, clip_norm=0.7)
    model, loss_and_gradient = getattr(models, twin)(), getattr(reference, twin)
    process = tff_fen.build_fed_avg(model, elastic_net, settings)
    state = process.initialize()
    theta = list(model.initial_weights[0])
    for t in range(3):
        batches = [rounds.batches_of_client(client, settings, t) for client in CLIENTS]
        local = rounds.local_settings(elastic_net, settings, t)
        outcomes = [reference.local_steps(loss_and_gradient, theta, b, local) for b in batches]
        new_theta = reference.algorithm_1_round(loss_and_gradient, theta, batches, settings.epochs, local)
        output = process.next(state, data_sets(CLIENTS))
        state = output.state
        rounds.assert_weights_close(trainable(process, state), new_theta)

        metrics = train_metrics(output)
        assert (metrics["participants"], metrics["num_examples"], metrics["non_finite_clients"]) == (3, 16, 0)
        sums = [np.dot(o.losses, [len(y) for _, y in b]) for o, b in zip(outcomes, batches, strict=True)]
        assert metrics["loss"] == pytest.approx(sum(sums) / (2 * 16), rel=1e-5)
        flat = [np.concatenate([d.ravel() for d in o.delta]) for o in outcomes]
        assert metrics["delta"]["non_zeros"] == sum(np.count_nonzero(f) for f in flat)
        assert metrics["delta"]["non_zero_share"] == pytest.approx(np.mean([np.mean(f != 0) for f in flat]))
        assert metrics["delta"]["norm"] == pytest.approx(np.mean([np.linalg.norm(f) for f in flat]), rel=1e-5)
        flat_theta = np.concatenate([w.ravel() for w in theta])
        for group, vectors in (("delta", flat), ("theta", [flat_theta + f for f in flat])):
            for how in ("trunc", "round"):
                expected = np.mean([_entropy(v, how) for v in vectors])
                assert metrics[group][f"entropy_{how}"] == pytest.approx(expected, abs=1e-4)
        theta = new_theta


def _entropy(values: np.ndarray, how: str) -> float:
    bins = getattr(np, how)(values / 0.01)
    p = np.unique(bins, return_counts=True)[1] / values.size
    return float(-(p * np.log2(p)).sum())


def test_the_same_delta_at_every_client_moves_theta_by_exactly_that() -> None:
    """Fact 7: the weights n_k are normalised over the participants."""
    process = tff_fen.build_fed_avg(models.quadratic(1.0, [0.0, 0.0]), ElasticNet(), LocalTraining(0.5))
    unequal = [(np.tile([[2.0, -4.0]], (n, 1)).astype(np.float32), np.zeros(n, np.int32)) for n in (1, 2, 5)]
    output = process.next(process.initialize(), data_sets(unequal))
    np.testing.assert_allclose(trainable(process, output.state)[0], [1.0, -2.0], rtol=1e-7)


@pytest.mark.parametrize(
    ("weighting", "expected"), [(None, 0.5 * (1 * 1.0 + 3 * 5.0) / 4), (tff.learning.ClientWeighting.UNIFORM, 1.5)]
)
def test_client_weighting(weighting: Any, expected: float) -> None:
    process = tff_fen.build_fed_avg(
        models.quadratic(1.0, [0.0]), ElasticNet(), LocalTraining(0.5), client_weighting=weighting
    )
    clients = [
        (np.full((1, 1), 1.0, np.float32), np.zeros(1, np.int32)),
        (np.full((3, 1), 5.0, np.float32), np.zeros(3, np.int32)),
    ]
    output = process.next(process.initialize(), data_sets(clients))
    np.testing.assert_allclose(trainable(process, output.state)[0], [expected], rtol=1e-6)


def test_measurements_do_not_change_the_update() -> None:
    results = []
    for measured in (True, False):
        process = tff_fen.build_fed_avg(
            models.two_layer_mlp(),
            ElasticNet(l1=0.01, l2=0.1, threshold=0.01),
            LocalTraining(0.1, epochs=2, batch_size=3),
            measurements=measured,
        )
        state = process.initialize()
        for _ in range(2):
            state = process.next(state, data_sets(CLIENTS)).state
        results.append(trainable(process, state))
    rounds.assert_weights_close(results[0], results[1], atol=0.0)


def test_a_client_trains_alike_wherever_it_stands_in_the_list() -> None:
    """The seed comes from the client's data, not from its place; and a round can be repeated to the bit."""
    process = tff_fen.build_fed_avg(models.softmax_regression(), ElasticNet(), LocalTraining(0.3, 2, batch_size=2))
    state = process.initialize()
    once = trainable(process, process.next(state, data_sets(CLIENTS)).state)
    again = trainable(process, process.next(state, data_sets(CLIENTS)).state)
    turned = trainable(process, process.next(state, data_sets(CLIENTS[::-1])).state)
    rounds.assert_weights_close(again, once, atol=0.0)
    rounds.assert_weights_close(turned, once, atol=1e-7)


# Clients that bring nothing ----------------------------------------------------------------------------------------

NAN_CLIENT = (np.full((4, 6), np.nan, np.float32), np.zeros(4, np.int32))


@pytest.mark.parametrize("batch_size", [None, 3])
def test_empty_and_non_finite_clients_weigh_nothing(batch_size: int | None) -> None:
    settings = LocalTraining(0.2, epochs=2, batch_size=batch_size)
    process = tff_fen.build_fed_avg(models.softmax_regression(), ElasticNet(l2=0.1), settings)
    state = process.initialize()
    alone = process.next(state, data_sets(CLIENTS))
    empty = models.dataset(*CLIENTS[0]).take(0)
    with_them = process.next(state, [empty, *data_sets([NAN_CLIENT, *CLIENTS])])
    rounds.assert_weights_close(trainable(process, with_them.state), trainable(process, alone.state), atol=1e-7)
    metrics, metrics_alone = train_metrics(with_them), train_metrics(alone)
    assert (metrics["participants"], metrics["non_finite_clients"], metrics["num_examples"]) == (5, 1, 16)
    assert metrics["loss"] == pytest.approx(metrics_alone["loss"], rel=1e-6)
    assert metrics["accuracy"] == pytest.approx(metrics_alone["accuracy"], rel=1e-6)
    assert metrics["delta"]["non_zeros"] == metrics_alone["delta"]["non_zeros"]


@pytest.mark.parametrize("clients", [[], [NAN_CLIENT]])
def test_a_round_in_which_nobody_contributes_leaves_the_model(clients: list[rounds.Examples]) -> None:
    process = tff_fen.build_fed_avg(models.softmax_regression(), ElasticNet(), LocalTraining(0.2))
    state = process.initialize()
    output = process.next(state, data_sets(clients))
    rounds.assert_weights_close(trainable(process, output.state), trainable(process, state), atol=0.0)
    assert train_metrics(output)["loss"] == 0.0 and train_metrics(output)["delta"]["non_zeros"] == 0


def test_an_aggregate_that_is_not_finite_is_refused() -> None:
    """TFF's plain mean is 0/0 when no client contributes."""
    process = tff_fen.build_fed_avg(
        models.softmax_regression(), ElasticNet(), LocalTraining(0.2), aggregator=tff.aggregators.MeanFactory()
    )
    state = process.initialize()
    output = process.next(state, data_sets([NAN_CLIENT]))
    assert output.metrics["finalizer"]["update_non_finite"] == 1
    rounds.assert_weights_close(trainable(process, output.state), trainable(process, state), atol=0.0)


# Speed by construction ---------------------------------------------------------------------------------------------


def test_no_retracing_for_new_rounds_sizes_or_numbers_of_clients() -> None:
    model = models.softmax_regression()
    traces: list[int] = []
    inner = model._loss_fn

    def counting(*args: Any, **kwargs: Any) -> Any:
        traces.append(1)
        return inner(*args, **kwargs)

    model._loss_fn = counting
    process = tff_fen.build_fed_avg(model, ElasticNet(), LocalTraining(0.1, batch_size=4))
    built = len(traces)
    state = process.initialize()
    for clients in (CLIENTS, CLIENTS[:1], [models.examples(31)]):
        state = process.next(state, data_sets(clients)).state
    assert built >= 1 and len(traces) == built


# Rejections --------------------------------------------------------------------------------------------------------


def with_spec(spec: Any) -> tff.learning.models.FunctionalModel:
    model = models.softmax_regression()
    model._input_spec = spec
    return model


def half_precision() -> tff.learning.models.FunctionalModel:
    model = models.softmax_regression()
    model._initial_weights = tuple(tuple(w.astype(np.float16) for w in part) for part in model.initial_weights)
    return model


def with_loss(loss: Any) -> tff.learning.models.FunctionalModel:
    model = models.softmax_regression()
    model._loss_fn = lambda output, label, sample_weight=None: loss(output, label)
    return model


def with_metrics(metrics: Any) -> tff.learning.models.FunctionalModel:
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    keras_model = tf.keras.Sequential([tf.keras.layers.InputLayer((6,)), tf.keras.layers.Dense(4)])
    return tff.learning.models.functional_model_from_keras(keras_model, loss, models.spec(6), metrics)


GOOD: dict[str, Any] = dict(elastic_net=ElasticNet(), local_training=LocalTraining(0.1))
MINIBATCHES = LocalTraining(0.1, batch_size=5)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(model=tf.keras.Sequential()), TypeError, "model must be a FunctionalModel.*functional_model_from_keras"),
        (dict(model=models.softmax_regression), TypeError, "model must be a FunctionalModel, found <function"),
        (dict(elastic_net=0.1), TypeError, "elastic_net must be a ElasticNet, found 0.1 of type float"),
        (dict(local_training={"lr": 1}), TypeError, "local_training must be a LocalTraining"),
        (dict(model=half_precision()), TypeError, r"initial_weights\[0\]\[0\] has dtype float16.*must be float32"),
        (dict(model=with_spec(models.spec(6)[0])), TypeError, r"input_spec must be a pair \(x, y\)"),
        (dict(model=with_spec((1, 2, 3))), TypeError, r"input_spec must be a pair \(x, y\)"),
        (
            dict(model=with_spec((tf.TensorSpec([8, 6]), tf.TensorSpec([8], tf.int32))), local_training=MINIBATCHES),
            ValueError,
            r"batch_size=5 every tensor of model.input_spec must have shape \[None, ...\]",
        ),
        (
            dict(model=with_spec((tf.TensorSpec([None, None]), models.spec(6)[1])), local_training=MINIBATCHES),
            ValueError,
            "known dimensions after the first",
        ),
        (
            dict(model=with_loss(lambda o, y: tf.square(o[:, 0]))),
            TypeError,
            r"loss must be one float32 .* shape \(None,\)",
        ),
        (
            dict(model=with_loss(lambda o, y: tf.cast(tf.reduce_mean(o), tf.float64))),
            TypeError,
            r"loss must be one float32 a batch, found float64 of shape \(\)",
        ),
        (dict(model=with_spec(models.spec(7))), TypeError, "cannot be called on batches of its own input_spec"),
        (dict(aggregator=tff.aggregators.SumFactory()), TypeError, "aggregator must give a mean, found SumFactory"),
        (dict(measurements=1), TypeError, "measurements must be a bool, found 1"),
        (
            dict(model=with_metrics(tf.keras.metrics.SparseCategoricalAccuracy)),
            TypeError,
            "metrics must be a mapping of names to metrics",
        ),
        (
            dict(model=with_metrics(collections.OrderedDict(delta=tf.keras.metrics.SparseCategoricalAccuracy))),
            ValueError,
            r"metrics of the names \['delta'\].*rename them",
        ),
        (dict(aggregator=tff.aggregators.MeanFactory), TypeError, "aggregator must be a WeightedAggregationFactory or"),
        (dict(aggregator="mean"), TypeError, "aggregator must be a WeightedAggregationFactory or"),
        (dict(client_weighting="uniform"), TypeError, "client_weighting must be a ClientWeighting, found 'uniform'"),
        (
            dict(
                aggregator=tff.aggregators.UnweightedMeanFactory(),
                client_weighting=tff.learning.ClientWeighting.NUM_EXAMPLES,
            ),
            ValueError,
            "needs a weighted aggregator, found the unweighted UnweightedMeanFactory",
        ),
    ],
)
def test_rejections_when_the_process_is_built(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tff_fen.build_fed_avg(**{"model": models.softmax_regression(), **GOOD, **change})


# TFF's drivers -----------------------------------------------------------------------------------------------------


def test_runs_in_tffs_simulation_loop() -> None:
    process = tff_fen.build_fed_avg(models.softmax_regression(), ElasticNet(l2=0.01), LocalTraining(0.3, batch_size=3))
    model = models.softmax_regression()
    evaluate = tff.learning.algorithms.build_fed_eval(lambda: tff.learning.models.model_from_functional(model))

    def evaluation_fn(state: Any, data: Any) -> Any:
        weights = process.get_model_weights(state)
        output = evaluate.next(evaluate.set_model_weights(evaluate.initialize(), weights), data)
        return collections.OrderedDict(loss=output.metrics["client_work"]["eval"]["current_round_metrics"]["loss"])

    memory = tff.program.MemoryReleaseManager()
    state = tff.simulation.run_training_process(
        process,
        training_selection_fn=lambda round_num: data_sets(CLIENTS),
        total_rounds=8,
        evaluation_fn=evaluation_fn,
        evaluation_selection_fn=lambda round_num: data_sets(CLIENTS, 4),
        rounds_per_evaluation=4,
        metrics_managers=[memory],
    )
    assert state.client_work == 8
    losses = [memory.values()[t]["evaluation/loss"] for t in (0, 4, 8)]
    assert losses[0] > losses[1] > losses[2]


class _Clients(tff.program.FederatedDataSource, tff.program.FederatedDataSourceIterator):
    """Hands out the first clients each round. (TFF's DatasetDataSource cannot be copied, which train_model does.)"""

    federated_type = tff.FederatedType(tff.SequenceType(tff.types.tensorflow_to_type(models.spec(6))), tff.CLIENTS)

    def iterator(self) -> _Clients:
        return self

    def select(self, k: int | None = None) -> list[tf.data.Dataset]:
        return data_sets(CLIENTS[:k])

    def to_bytes(self) -> bytes:
        return b""

    @classmethod
    def from_bytes(cls, buffer: bytes) -> _Clients:
        return cls()


def test_runs_in_tffs_training_program(tmp_path: pathlib.Path) -> None:
    process = tff_fen.build_fed_avg(models.softmax_regression(), ElasticNet(l1=1e-3), LocalTraining(0.3, batch_size=3))
    context = tff.backends.native.create_async_local_cpp_execution_context()
    memory = tff.program.MemoryReleaseManager()
    with tff.framework.get_context_stack().install(tff.program.NativeFederatedContext(context)):
        asyncio.run(
            tff.learning.programs.train_model(
                train_process=process,
                train_data_source=_Clients(),
                train_per_round_clients=2,
                train_total_rounds=3,
                program_state_manager=tff.program.FileProgramStateManager(str(tmp_path)),
                model_output_manager=tff.program.MemoryReleaseManager(),
                train_metrics_manager=memory,
                evaluation_manager=None,
                evaluation_periodicity=1,
            )
        )
    released = memory.values()
    assert sorted(released) == [1, 2, 3]
    train = [m["model_metrics"] for m in released.values()]
    assert all(m["participants"] == 2 and m["delta"]["non_zeros"] > 0 for m in train)
