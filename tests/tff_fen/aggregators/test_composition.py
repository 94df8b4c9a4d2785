"""The processes run with TFF's own aggregators inside: private, compressed, robust, encoded, secure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models
from tests.support.population import BUILDERS, Clients
from tff_fen import ElasticNet, LocalTraining

CLIENTS = [models.examples(n, features=160, seed=k) for k, n in enumerate((8, 12, 6, 9))]
# 160 x 130 = 20 800 weights in the first layer: above the 20 000 from which TFF's compression quantises.
MODEL = models.two_layer_mlp(features=160, hidden=130)
TRAINING = LocalTraining(0.02, epochs=2, batch_size=4)
PENALTIES = ElasticNet(l1=1e-3, l2=0.1, threshold=1e-3)

FACTORIES: dict[str, Callable[[], tff.aggregators.AggregationFactory]] = {
    "mean": tff.aggregators.MeanFactory,
    "unweighted_mean": tff.aggregators.UnweightedMeanFactory,
    "dp": lambda: tff.learning.dp_aggregator(noise_multiplier=0.1, clients_per_round=len(CLIENTS)),
    "compression": tff.learning.compression_aggregator,
    "robust": tff.learning.robust_aggregator,
    "encoded": lambda: tff.aggregators.MeanFactory(
        tff.aggregators.EncodedSumFactory.quantize_above_threshold(quantization_bits=8, threshold=1)
    ),
    "secure": tff.learning.secure_aggregator,
    "secure_sum": lambda: tff.aggregators.UnweightedMeanFactory(
        tff.aggregators.SecureSumFactory(upper_bound_threshold=1.0, lower_bound_threshold=-1.0)
    ),
}
# Largest distance from the weighted mean of the first round, in units of the update's norm. (From the second round on
# TFF's adaptive clipping takes part.)
TOLERANCES = {
    "mean": 0.0,
    "unweighted_mean": 0.5,  # uniform weights instead of n_k
    "dp": np.inf,  # clips to 0.1 at first and adds noise: only finite and moved
    "compression": 0.2,
    "robust": 1e-6,
    "encoded": 0.2,
    "secure": 1e-3,
    "secure_sum": 0.5,
}


@pytest.fixture(autouse=True, scope="module")
def _runtime_with_secure_intrinsics() -> Iterator[None]:
    tff.backends.test.set_sync_test_cpp_execution_context()
    yield
    tff.backends.native.set_sync_local_cpp_execution_context()


def data_sets() -> list[tf.data.Dataset]:
    return [models.dataset(*client) for client in CLIENTS]


@pytest.mark.parametrize("name", sorted(FACTORIES))
def test_fed_avg_composes(name: str) -> None:
    plain = tff_fen.build_fed_avg(MODEL, PENALTIES, TRAINING)
    expected = _flat(plain, plain.next(plain.initialize(), data_sets()).state)
    process = tff_fen.build_fed_avg(MODEL, PENALTIES, TRAINING, aggregator=FACTORIES[name]())
    state = process.initialize()
    trajectory = [_flat(process, state)]
    for _ in range(2):
        state = process.next(state, data_sets()).state
        trajectory.append(_flat(process, state))
    assert np.all(np.isfinite(trajectory)) and np.any(trajectory[1] != trajectory[2])
    assert np.any(trajectory[0] != trajectory[1])
    update = np.linalg.norm(expected - trajectory[0])
    assert np.linalg.norm(trajectory[1] - expected) <= TOLERANCES[name] * update
    assert state.client_work == 2


# Bounds on how far h strays from mean g_k, or c from mean c_k, in two rounds, in units of the largest |h| or |c|. A
# lossy inner aggregator breaks the invariant, because the clients know their own messages exactly;
# `python -m benchmarks.invariant_drift` measures how much.
LOSSLESS = {"mean": 1e-5, "unweighted_mean": 1e-5, "secure_sum": 1e-3}


# FedDyn and SCAFFOLD have to be told what a private factory divides by.
DECLARED: dict[str, Callable[[], tff.aggregators.AggregationFactory]] = FACTORIES | {
    "dp": lambda: tff_fen.FixedDenominatorFactory(FACTORIES["dp"](), len(CLIENTS)),
}


# The rest of the pairs take a minute: they are run by make test-long.
SOME = [("fed_dyn", "compression"), ("fed_dyn", "dp"), ("fed_dyn", "mean"), ("scaffold", "robust")]


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        pytest.param(*pair, marks=[] if pair in SOME else pytest.mark.long)
        for pair in itertools.product(sorted(BUILDERS), sorted(DECLARED))
    ],
)
def test_stateful_algorithms_compose(algorithm: str, name: str) -> None:
    process = BUILDERS[algorithm](MODEL, PENALTIES, TRAINING, num_clients=len(CLIENTS), aggregator=DECLARED[name]())
    clients = Clients(algorithm, process, CLIENTS)
    start = clients.theta
    for participants in ((0, 1, 2, 3), (1, 2)):
        clients.round(participants)
    assert all(np.all(np.isfinite(w)) for w in (*clients.theta, *clients.shared))
    assert any(np.any(a != b) for a, b in zip(start, clients.theta, strict=True))
    gap = clients.invariant_gap() / max(float(np.abs(s).max()) for s in clients.shared)
    if name in LOSSLESS:
        assert gap <= LOSSLESS[name]
    else:
        assert gap > 1e-5, "lossy by design: an exact result means that it was not plugged in"


def test_dp_pair_costs_one_budget() -> None:
    """Two Gaussian mechanisms of z1 and z2 compose to one of (z1^-2 + z2^-2)^(-1/2): measured on the noise itself."""
    noise_multiplier, clips, num = 0.7, (2.0, 5.0), 4
    value_type = tff.to_type((np.float32, [20000]))
    multipliers = []
    for factory, clip in zip(tff_fen.build_dp_pair(noise_multiplier, num, *clips), clips, strict=True):
        process = factory.create(value_type)
        output = process.next(process.initialize(), [np.zeros(20000, np.float32)] * num)
        multipliers.append(np.std(output.result) * num / clip)
    assert sum(z**-2.0 for z in multipliers) ** -0.5 == pytest.approx(noise_multiplier, rel=0.03)


@pytest.mark.parametrize("bad", [dict(noise_multiplier=-1.0), dict(first_clip=0.0), dict(clients_per_round=0)])
def test_dp_pair_rejects(bad: dict[str, float]) -> None:
    good: dict[str, Any] = dict(noise_multiplier=1.0, clients_per_round=4, first_clip=1.0, second_clip=1.0)
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be a finite number"):
        tff_fen.build_dp_pair(**(good | bad))


def test_compression_does_quantise() -> None:
    """Guards the tests above: with a small model TFF's compression would be a plain mean."""
    process = tff_fen.build_fed_avg(MODEL, PENALTIES, TRAINING, aggregator=FACTORIES["compression"]())
    plain = tff_fen.build_fed_avg(MODEL, PENALTIES, TRAINING)
    compressed = _flat(process, process.next(process.initialize(), data_sets()).state)
    assert np.any(compressed != _flat(plain, plain.next(plain.initialize(), data_sets()).state))


def test_metrics_can_be_summed_securely() -> None:
    process = tff_fen.build_fed_avg(
        MODEL,
        PENALTIES,
        TRAINING,
        aggregator=tff.learning.secure_aggregator(),
        metrics_aggregator=tff.learning.metrics.secure_sum_then_finalize,
    )
    metrics = process.next(process.initialize(), data_sets()).metrics["client_work"]["train"]
    assert metrics["participants"] == 4 and metrics["num_examples"] == 35
    assert "secure_sum_measurements" in metrics


def _flat(process: tff.learning.templates.LearningProcess, state: object) -> np.ndarray:
    return np.concatenate([np.ravel(w) for w in process.get_model_weights(state).trainable])
