"""Fact 5: on heterogeneous least squares FedDyn and SCAFFOLD reach the optimum; FedAvg and FedProx stall."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tff_fen
from tasks.data_sets import least_squares
from tff_fen import ElasticNet, LocalTraining

PROBLEM = least_squares.generate(num_clients=6, dim=4)
MODEL = least_squares.build_model(dim=4)
TRAINING = LocalTraining(0.05, epochs=20)
ROUNDS = 60


def gap_after(process: Any, stateful: bool) -> float:
    """R(theta) - R(theta*) after rounds of all clients, so that the only error left is client drift."""
    data_sets = [tf.data.Dataset.from_tensors(c) for c in PROBLEM.clients]
    states = {k: process.initialize_client(k) for k in range(6)} if stateful else {}
    server = process.initialize()
    for _ in range(ROUNDS):
        if stateful:
            output = process.next(server, [tff_fen.ClientInput(states[k], d) for k, d in enumerate(data_sets)])
            states.update((int(s.client_id), s) for s in output.client_states)
        else:
            output = process.next(server, data_sets)
        server = output.state
    (theta,) = process.get_model_weights(server).trainable
    return PROBLEM.risk(theta) - PROBLEM.risk(PROBLEM.optimum())


@pytest.mark.long
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_fed_avg_and_fed_prox_stall(l2: float) -> None:
    assert gap_after(tff_fen.build_fed_avg(MODEL, ElasticNet(l2=l2), TRAINING), stateful=False) > 5e-3


@pytest.mark.long
def test_fed_dyn_converges() -> None:
    process = tff_fen.build_fed_dyn(MODEL, ElasticNet(l2=0.3), TRAINING, num_clients=6)
    assert gap_after(process, stateful=True) < 1e-5


@pytest.mark.long
def test_scaffold_converges() -> None:
    process = tff_fen.build_scaffold(MODEL, ElasticNet(), TRAINING, num_clients=6)
    assert gap_after(process, stateful=True) < 1e-5


def test_the_task_knows_its_optimum() -> None:
    optimum = PROBLEM.optimum()
    gradients = np.einsum("kij,j->ki", PROBLEM.hessians(), optimum) - PROBLEM.linear_terms()
    np.testing.assert_allclose(gradients.mean(0), 0.0, atol=1e-12)
    step = 1e-4 * np.eye(4)
    numeric = [(PROBLEM.risk(step[i]) - PROBLEM.risk(-step[i])) / 2e-4 for i in range(4)]
    np.testing.assert_allclose(numeric, -PROBLEM.linear_terms().mean(0), rtol=1e-6)
