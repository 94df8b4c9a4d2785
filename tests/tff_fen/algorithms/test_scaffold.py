"""Algorithm 2: numbers against the NumPy listing, c, types, robustness.

`tests.support.stateful` has the tests that it shares with Algorithm 3.

Which test kills which mutation (each was planted once and seen caught):
  thresholded for raw delta in c_k     test_three_rounds_agree_with_the_listing, test_control_is_the_mean_gradient
  undecayed lr in c_k                  test_three_rounds_agree_with_the_listing, test_control_is_the_mean_gradient
  eta_g ignored                        test_server_learning_rate
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow_federated as tff

import tff_fen
from tests.support import models, reference, rounds
from tests.support.stateful import (
    DATA,
    INNER,
    MEAN,
    ONE_MESSAGE,
    SUMMED,
    TRAINING,
    StatefulTests,
    W,
    build,
)
from tff_fen import ElasticNet, LocalTraining


class TestScaffold(StatefulTests):
    algorithm = "scaffold"
    listing = staticmethod(reference.algorithm_2_round)
    norm_name = "control_norm"
    second_aggregator = "control_aggregator"
    aggregator_state = f"<control={W},delta={MEAN},control_change={MEAN}>"
    client_state = f"<client_id=int64,control={W}>"
    measured = (
        f"control=<{SUMMED}>,",
        f"<delta={INNER},control_change={INNER},usable=float32,control_norm=float32,drift=float32>",
        f"<theta=<{ONE_MESSAGE}>,shared=<{ONE_MESSAGE}>>",
    )


def test_scaffold_itself_needs_no_l2() -> None:
    """Fact 1 for SCAFFOLD: l1 = l2 = threshold = 0."""
    model = models.softmax_regression()
    clients = build("scaffold", model, ElasticNet())
    expected = reference.Population.start(list(model.initial_weights[0]), len(DATA))
    for t in range(2):
        clients.round((1, 2, 4))
        batches = {k: rounds.batches_of_client(DATA[k], TRAINING, t, client_id=k) for k in (1, 2, 4)}
        local = rounds.local_settings(ElasticNet(), TRAINING, t)
        reference.algorithm_2_round(reference.softmax_regression, expected, batches, local)
    rounds.assert_weights_close(clients.theta, expected.theta)


@pytest.mark.parametrize("lr_decay", [1.0, 0.7])
def test_control_is_the_mean_gradient(lr_decay: float) -> None:
    """Fact 6: c_k' = mean over the steps of gradient and penalties, without clip and weight decay."""
    settings = LocalTraining(0.1, epochs=2, batch_size=4, lr_decay=lr_decay)
    elastic_net = ElasticNet(l1=0.03, l2=0.2, threshold=0.05)
    clients = build("scaffold", models.two_layer_mlp(), elastic_net, local_training=settings)
    clients.round((0, 1, 2))
    theta, c, c_1 = clients.theta, clients.shared, clients.own(1)
    clients.round((1, 4))
    outcome = reference.local_steps(
        reference.two_layer_mlp,
        theta,
        rounds.batches_of_client(DATA[1], settings, 1, client_id=1),
        rounds.local_settings(elastic_net, settings, 1),
        [a - b for a, b in zip(c, c_1, strict=True)],
    )
    mean_gradient = [np.mean(g, axis=0) for g in zip(*outcome.gradients, strict=True)]
    rounds.assert_weights_close(clients.own(1), mean_gradient, 1e-5)


def test_server_learning_rate() -> None:
    moved = {}
    for eta_g in (1.0, 0.25):
        clients = build("scaffold", server_learning_rate=eta_g)
        before = clients.theta
        clients.round((0, 1))
        moved[eta_g] = [a - b for a, b in zip(clients.theta, before, strict=True)]
    rounds.assert_weights_close([4.0 * d for d in moved[0.25]], moved[1.0])


def test_control_threshold_keeps_what_was_sent() -> None:
    clients = build("scaffold", control_threshold=0.05)
    for participants in ((0, 1), (1, 2, 3), (0, 4)):
        metrics = clients.round(participants)
        assert clients.invariant_gap() < 1e-6
    assert 0.0 < metrics["client_work"]["train"]["control"]["non_zero_share"] < 1.0


def test_scaffolds_state_is_checked_too() -> None:
    """A learning rate that has decayed to zero gives 0/0 in c_k."""
    clients = build("scaffold", local_training=LocalTraining(1e-40, lr_decay=1e-10))
    clients.round((0, 1))
    metrics = clients.round((0, 1))["client_work"]["train"]
    assert metrics["non_finite_clients"] == 2 and all(np.all(np.isfinite(c)) for c in clients.own(0))


def test_the_control_change_goes_through_its_own_aggregator() -> None:
    vanish = tff.aggregators.clipping_factory(1e-9, tff.aggregators.MeanFactory())
    clients = build("scaffold", control_aggregator=vanish)
    before = clients.theta
    clients.round((0, 1))
    assert max(np.abs(c).max() for c in clients.shared) < 1e-8
    assert max(np.abs(a - b).max() for a, b in zip(clients.theta, before, strict=True)) > 1e-2


def test_average_weights_are_theta() -> None:
    clients = build("scaffold")
    clients.round((0, 1))
    gamma = clients.process.get_average_weights(clients.server).trainable
    rounds.assert_weights_close(gamma, clients.theta, 0.0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(num_clients=10.0), TypeError, "num_clients must be an integer >= 1, found 10.0 of type float"),
        (dict(server_learning_rate=0.0), ValueError, "server_learning_rate must be a finite number > 0"),
        (dict(control_threshold=-1.0), ValueError, "control_threshold must be a finite number >= 0"),
        (dict(control_aggregator=1), TypeError, "^control_aggregator must be a Weighted"),
        (dict(measurements="no"), TypeError, "measurements must be a bool, found 'no'"),
        (dict(metrics_aggregator=1), TypeError, "metrics_aggregator must be a function"),
        (dict(model=None), TypeError, "model must be a FunctionalModel, found None"),
    ],
)
def test_rejections(change: dict[str, Any], error: type[Exception], message: str) -> None:
    good = dict(
        model=models.softmax_regression(), elastic_net=ElasticNet(l2=0.1), local_training=TRAINING, num_clients=5
    )
    with pytest.raises(error, match=message):
        tff_fen.build_scaffold(**(good | change))
