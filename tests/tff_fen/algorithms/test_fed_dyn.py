"""Algorithm 3: numbers against the NumPy listing, h, types, robustness.

`tests.support.stateful` has the tests that it shares with Algorithm 2.

Which test kills which mutation (each was planted once and seen caught):
  sign(0) = 1 in g_k or in h           test_three_rounds_agree_with_the_listing (thresholded zeros), test_invariant...
  raw for thresholded delta in g_k     test_three_rounds_agree_with_the_listing, test_invariant_over_twenty_rounds
  l1 not applied to h                  test_invariant_over_twenty_rounds
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow_federated as tff

import tff_fen
from tests.support import models, reference, rounds
from tests.support.population import Clients
from tests.support.stateful import (
    DATA,
    INNER,
    MEAN,
    NAN_DATA,
    ONE_MESSAGE,
    PENALTIES,
    TRAINING,
    StatefulTests,
    W,
    build,
)
from tff_fen import ElasticNet, LocalTraining


class TestFedDyn(StatefulTests):
    algorithm = "fed_dyn"
    listing = staticmethod(reference.algorithm_3_round)
    norm_name = "h_norm"
    second_aggregator = "sign_aggregator"
    aggregator_state = f"<h={W},delta={MEAN},sign={MEAN}>"
    client_state = f"<client_id=int64,gradient={W}>"
    measured = (
        "",
        f"<delta={INNER},sign={INNER},usable=float32,h_norm=float32,drift=float32>",
        f"<theta=<{ONE_MESSAGE}>>",
    )


def test_fed_dyn_in_the_form_of_its_own_authors() -> None:
    """Fact 1 for FedDyn: with s_k = -g_k / l2 the clients hold the sum of their past updates, and h = -l2 mean s_k."""
    l2 = 0.4
    clients = build("fed_dyn", None, ElasticNet(l2=l2))
    theta_before, sums = clients.theta, [np.zeros_like(w) for w in clients.theta]
    clients.round((0, 2))
    clients.round((0, 1))
    # Client 2 took part once: its s_k is its one delta, a step from theta_before along its own losses.
    s_2 = [-g / l2 for g in clients.own(2)]
    batches = rounds.batches_of_client(DATA[2], TRAINING, 0, client_id=2)
    local = rounds.local_settings(ElasticNet(l2=l2), TRAINING, 0)
    outcome = reference.local_steps(reference.softmax_regression, theta_before, batches, local)
    rounds.assert_weights_close(s_2, outcome.delta)
    for k in range(len(DATA)):
        sums = [total - g / l2 / len(DATA) for total, g in zip(sums, clients.own(k), strict=True)]
    rounds.assert_weights_close(clients.shared, [-l2 * s for s in sums])


def test_a_large_l1_with_the_proximal_step_leaves_fed_dyn_in_place() -> None:
    """Fact 8: nothing is sent and g_k stays, also when g_k is not zero."""
    quadratic = models.quadratic(1.0, [0.5, -0.5])
    data = [models.rows([1.0, 0.0]), models.rows([-1.0, 0.5])]
    small = tff_fen.build_fed_dyn(quadratic, ElasticNet(l2=0.5), LocalTraining(0.1, epochs=3), num_clients=2)
    clients = Clients("fed_dyn", small, data)
    clients.round((0, 1))
    g = [clients.own(k)[0] for k in (0, 1)]
    gradients = [clients.theta[0] - d[0][0] - gk for d, gk in zip(data, g, strict=True)]
    l1 = float(max(np.abs(v).max() for v in gradients)) * (1 + 1e-6)
    large = ElasticNet(l1=l1, l2=0.5, l1_step="proximal")
    process = tff_fen.build_fed_dyn(quadratic, large, LocalTraining(0.1, epochs=3), num_clients=2)
    still = Clients("fed_dyn", process, data)
    still.states = clients.states
    still.server = process.set_model_weights(still.server, small.get_model_weights(clients.server))
    metrics = still.round((0, 1))
    assert metrics["client_work"]["train"]["delta"]["non_zeros"] == 0
    np.testing.assert_array_equal([still.own(k)[0] for k in (0, 1)], g)


def test_average_weights_are_the_mean_of_the_local_models() -> None:
    """gamma = theta + h/l2."""
    model, elastic_net = models.softmax_regression(), PENALTIES["subgradient"]
    clients = build("fed_dyn", model, elastic_net)
    expected = reference.Population.start(list(model.initial_weights[0]), len(DATA))
    for t, participants in enumerate([(0, 1), (1, 2, 3)]):
        clients.round(participants)
        theta = expected.theta
        batches = {k: rounds.batches_of_client(DATA[k], TRAINING, t, client_id=k) for k in participants}
        local = rounds.local_settings(elastic_net, TRAINING, t)
        outcomes = reference.algorithm_3_round(reference.softmax_regression, expected, batches, local)
        gamma = [w + np.mean([o.delta[i] for o in outcomes.values()], axis=0) for i, w in enumerate(theta)]
        rounds.assert_weights_close(clients.process.get_average_weights(clients.server).trainable, gamma, 1e-5)


def test_a_client_whose_new_state_is_not_finite_keeps_the_old_one() -> None:
    """delta is finite here, l2 * delta is not."""
    process = tff_fen.build_fed_dyn(
        models.quadratic(0.0, [0.0]), ElasticNet(l2=100.0), LocalTraining(1.0), num_clients=2
    )
    clients = Clients("fed_dyn", process, [models.rows([5e36]), models.rows([1e-3])])
    metrics = clients.round((0, 1))["client_work"]["train"]
    assert (metrics["contributing_clients"], metrics["non_finite_clients"]) == (1, 1)
    assert clients.own(0)[0] == 0.0 and clients.own(1)[0] != 0.0 and clients.invariant_gap() < 1e-6


def test_a_model_that_is_lost_does_not_stop_the_round() -> None:
    clients = build("fed_dyn")
    weights = tff.learning.models.ModelWeights([np.full_like(w, np.nan) for w in clients.theta], [])
    clients.server = clients.process.set_model_weights(clients.server, weights)
    assert clients.round((0, 1))["client_work"]["train"]["non_finite_clients"] == 2


def test_measurements_are_means_over_the_messages_sent() -> None:
    """Clients that send nothing do not dilute them; drift does not count them either."""
    alone, with_them = build("fed_dyn"), build("fed_dyn")
    with_them.data_sets[3] = with_them.data_sets[3].take(0)
    with_them.data_sets[4] = models.dataset(*NAN_DATA)
    expected, found = alone.round((0, 1)), with_them.round((0, 1, 3, 4))
    for group in ("delta", "theta"):
        for name, value in expected["client_work"]["train"][group].items():
            assert found["client_work"]["train"][group][name] == pytest.approx(value, rel=1e-5)
    assert found["aggregator"]["drift"] == pytest.approx(expected["aggregator"]["drift"], rel=1e-4)


def test_drift_is_of_the_models_not_of_the_aggregate() -> None:
    noisy = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(1.0, 3, clip=0.01)
    exact, private = build("fed_dyn"), build("fed_dyn", aggregator=tff_fen.FixedDenominatorFactory(noisy, 3))
    drifts = [clients.round((0, 1, 2))["aggregator"]["drift"] for clients in (exact, private)]
    assert drifts[0] > 0.0 and drifts[1] == pytest.approx(drifts[0], rel=1e-5)


def test_the_signs_go_through_their_own_aggregator() -> None:
    """With an aggregator that clips the signs away, h is made of the deltas alone."""
    elastic_net = ElasticNet(l1=0.2, l2=0.3)
    vanish = tff.aggregators.clipping_factory(1e-9, tff.aggregators.MeanFactory())
    clients = build("fed_dyn", None, elastic_net, sign_aggregator=vanish)
    before = clients.theta
    clients.round((0, 1))
    gamma = clients.process.get_average_weights(clients.server).trainable
    expected = [-0.3 * 2 / len(DATA) * (g - t) for g, t in zip(gamma, before, strict=True)]
    rounds.assert_weights_close(clients.shared, expected)
    assert clients.invariant_gap() > 1e-2


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(elastic_net=ElasticNet(l1=0.1)), ValueError, r"l2 must be a finite number > 0 for FedDyn"),
        (dict(num_clients=0), ValueError, "num_clients must be an integer >= 1, found 0"),
        (dict(aggregator="mean"), TypeError, "^aggregator must be a WeightedAggregationFactory or"),
        (dict(sign_aggregator=1), TypeError, "^sign_aggregator must be a WeightedAggregationFactory or"),
        (dict(aggregator=0), TypeError, "^aggregator must be a WeightedAggregationFactory or"),
        (dict(aggregator=tff.aggregators.SumFactory()), TypeError, "must give a mean, found SumFactory"),
    ],
)
def test_rejections(change: dict[str, Any], error: type[Exception], message: str) -> None:
    good = dict(
        model=models.softmax_regression(), elastic_net=ElasticNet(l2=0.1), local_training=TRAINING, num_clients=5
    )
    with pytest.raises(error, match=message):
        tff_fen.build_fed_dyn(**(good | change))
