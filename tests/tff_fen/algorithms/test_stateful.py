"""Algorithms 2 and 3: numbers against the NumPy listing, invariants of the population, types, robustness.

Which test kills which mutation (each was planted once and seen caught):
  1/|P| for 1/m in h or c              test_three_rounds_agree_with_the_listing, test_invariant_over_twenty_rounds
  sign(0) = 1 in g_k or in h           test_three_rounds_agree_with_the_listing (thresholded zeros), test_invariant...
  raw for thresholded delta in g_k     test_three_rounds_agree_with_the_listing, test_invariant_over_twenty_rounds
  thresholded for raw delta in c_k     test_three_rounds_agree_with_the_listing, test_control_is_the_mean_gradient
  undecayed lr in c_k                  test_three_rounds_agree_with_the_listing, test_control_is_the_mean_gradient
  l1 not applied to h                  test_invariant_over_twenty_rounds
  +g_k for -g_k, c_k - c for c - c_k   test_three_rounds_agree_with_the_listing
  eta_g ignored                        test_server_learning_rate
  non-finite client moves its state    test_clients_that_bring_nothing_keep_their_state
  theta moves when nobody contributes  test_a_round_in_which_nobody_contributes
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
import tensorflow_federated as tff

import tff_fen
from tests.support import models, reference, rounds
from tests.support.population import BUILDERS, Clients
from tff_fen import ElasticNet, LocalTraining

ALGORITHMS = sorted(BUILDERS)
REFERENCE_ROUNDS: dict[str, Any] = {"fed_dyn": reference.algorithm_3_round, "scaffold": reference.algorithm_2_round}
SIZES = (5, 9, 2, 7, 12)
DATA = [models.examples(n, seed=k) for k, n in enumerate(SIZES)]
PENALTIES = {
    "plain": ElasticNet(l2=0.4),  # FedDyn, and SCAFFOLD with a proximal term (fact 1)
    "subgradient": ElasticNet(l1=0.02, l2=0.3, threshold=0.05),
    "proximal": ElasticNet(l1=0.05, l2=0.3, threshold=0.02, l1_step="proximal"),
}
TRAINING = LocalTraining(0.2, epochs=2, batch_size=4, lr_decay=0.9, weight_decay=0.01, clip_norm=0.9)


def build(algorithm: str, model: Any = None, elastic_net: ElasticNet | None = None, **kwargs: Any) -> Clients:
    arguments = dict(local_training=TRAINING, num_clients=len(DATA)) | kwargs
    process = BUILDERS[algorithm](
        model or models.softmax_regression(), elastic_net or PENALTIES["subgradient"], **arguments
    )
    return Clients(algorithm, process, DATA)


# Numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", sorted(PENALTIES))
@pytest.mark.parametrize("twin", ["softmax_regression", "two_layer_mlp"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_three_rounds_agree_with_the_listing(algorithm: str, twin: str, penalty: str) -> None:
    """Partial participation, unequal sizes, decayed lr, weight decay, clipping: theta, h or c, every client's state."""
    elastic_net, model = PENALTIES[penalty], getattr(models, twin)()
    clients = build(algorithm, model, elastic_net)
    expected = reference.Population.start(list(model.initial_weights[0]), len(DATA))
    for t, participants in enumerate([(0, 3, 1), (4, 1), (2, 3, 4, 0)]):
        metrics = clients.round(participants)["client_work"]["train"]
        batches = {k: rounds.batches_of_client(DATA[k], TRAINING, t, client_id=k) for k in participants}
        outcomes = REFERENCE_ROUNDS[algorithm](
            getattr(reference, twin), expected, batches, rounds.local_settings(elastic_net, TRAINING, t)
        )
        rounds.assert_weights_close(clients.theta, expected.theta, 1e-5)
        rounds.assert_weights_close(clients.shared, expected.shared, 1e-5)
        for k in range(len(DATA)):
            rounds.assert_weights_close(clients.own(k), expected.clients[k], 1e-5)
        assert metrics["participants"] == len(participants)
        non_zeros = sum(np.count_nonzero(d) for o in outcomes.values() for d in o.delta)
        assert metrics["delta"]["non_zeros"] == non_zeros
        if elastic_net.threshold:
            assert non_zeros < sum(d.size for o in outcomes.values() for d in o.delta)


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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_invariant_over_twenty_rounds(algorithm: str) -> None:
    """Facts 2 and 3: h = mean g_k, c = mean c_k over the whole population, with random partial participation."""
    clients = build(algorithm, models.two_layer_mlp(hidden=16), PENALTIES["subgradient"])
    rng = np.random.default_rng(7)
    for _ in range(20):
        clients.round(rng.choice(len(DATA), rng.integers(1, 5), replace=False).tolist())
        assert clients.invariant_gap() < 1e-5
    assert max(np.abs(s).max() for s in clients.shared) > 1e-3, "the state must have moved"


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
    """gamma = theta + h/l2 is the mean of the participants' models, for FedDyn; for SCAFFOLD it is theta."""
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
    scaffold = build("scaffold")
    scaffold.round((0, 1))
    gamma = scaffold.process.get_average_weights(scaffold.server).trainable
    rounds.assert_weights_close(gamma, scaffold.theta, 0.0)


# Measurements ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_measurements_of_server_state_drift_and_downlink(algorithm: str) -> None:
    clients = build(algorithm)
    clients.round((0, 1, 2))
    theta, shared = clients.theta, clients.shared
    own = {k: clients.own(k) for k in range(len(DATA))}
    metrics = clients.round((1, 3))
    name = {"fed_dyn": "h_norm", "scaffold": "control_norm"}[algorithm]
    norm = np.sqrt(sum(float((s**2).sum()) for s in clients.shared))
    assert metrics["aggregator"][name] == pytest.approx(norm, rel=1e-5)

    expected = reference.Population(theta, shared, [own[k] for k in range(len(DATA))])
    batches = {k: rounds.batches_of_client(DATA[k], TRAINING, 1, client_id=k) for k in (1, 3)}
    local = rounds.local_settings(PENALTIES["subgradient"], TRAINING, 1)
    outcomes = REFERENCE_ROUNDS[algorithm](reference.softmax_regression, expected, batches, local)
    flat = np.array([np.concatenate([d.ravel() for d in o.delta]) for o in outcomes.values()])
    drift = np.sqrt(np.mean(np.sum((flat - flat.mean(0)) ** 2, axis=1)))
    assert metrics["aggregator"]["drift"] == pytest.approx(drift, rel=1e-4)

    downlink = metrics["distributor"]
    assert downlink["theta"]["non_zeros"] == sum(np.count_nonzero(t) for t in theta)
    if algorithm == "scaffold":
        assert downlink["shared"]["norm"] == pytest.approx(np.sqrt(sum(float((s**2).sum()) for s in shared)), rel=1e-5)
        changes = [
            np.concatenate([(a - b).ravel() for a, b in zip(clients.own(k), own[k], strict=True)]) for k in (1, 3)
        ]
        control = metrics["client_work"]["train"]["control"]
        assert control["non_zeros"] == sum(np.count_nonzero(c) for c in changes)
        assert control["norm"] == pytest.approx(np.mean([np.linalg.norm(c) for c in changes]), rel=1e-4)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_measurements_do_not_change_the_round(algorithm: str) -> None:
    measured, silent = build(algorithm), build(algorithm, measurements=False)
    for participants in ((0, 1), (1, 4)):
        measured.round(participants)
        metrics = silent.round(participants)
    rounds.assert_weights_close(silent.theta, measured.theta, 0.0)
    assert not {"delta", "theta", "control"} & set(metrics["client_work"]["train"])
    assert "distributor" not in metrics and "drift" not in metrics["aggregator"]


# Clients that bring nothing ----------------------------------------------------------------------------------------

NAN_DATA = (np.full((4, 6), np.nan, np.float32), np.zeros(4, np.int32))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_clients_that_bring_nothing_keep_their_state(algorithm: str) -> None:
    """A non-finite and an empty client: model, h or c and the other clients' states as if they had not been there."""
    with_them, without = build(algorithm), build(algorithm)
    for clients in (with_them, without):
        clients.round((0, 1, 2, 3))
    with_them.data_sets[0] = models.dataset(*NAN_DATA)
    with_them.data_sets[3] = with_them.data_sets[3].take(0)
    before = [with_them.own(k) for k in (0, 3)]
    metrics = with_them.round((0, 1, 3, 4))["client_work"]["train"]
    without.round((1, 4))
    assert (metrics["participants"], metrics["non_finite_clients"]) == (4, 1)
    rounds.assert_weights_close(with_them.theta, without.theta, 1e-6)
    rounds.assert_weights_close(with_them.shared, without.shared, 1e-6)
    for k, old in zip((0, 3), before, strict=True):
        rounds.assert_weights_close(with_them.own(k), old, 0.0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("inner", [None, tff.aggregators.MeanFactory(), tff.aggregators.UnweightedMeanFactory()])
def test_a_round_in_which_nobody_contributes(algorithm: str, inner: Any) -> None:
    """Nothing moves, whatever the aggregator divides by."""
    clients = build(algorithm, aggregator=inner)
    clients.round((0, 1))
    clients.data_sets[2] = models.dataset(*NAN_DATA)
    theta, shared = clients.theta, clients.shared
    metrics = clients.round((2,))
    assert metrics["aggregator"]["usable"] == 0.0
    rounds.assert_weights_close(clients.shared, shared, 0.0)
    rounds.assert_weights_close(clients.theta, theta, 0.0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_batch_without_rows_is_no_data(algorithm: str) -> None:
    """A step with it would still be one of correction and weight decay: it must count for nothing."""
    # No threshold here: it would hide the small step that must not be sent.
    clients = build(algorithm, None, PENALTIES["plain"], local_training=LocalTraining(0.2, weight_decay=0.1))
    clients.round((0, 1))
    before = clients.own(0)
    clients.data_sets[0] = models.dataset(np.zeros((0, 6), np.float32), np.zeros(0, np.int32))
    metrics = clients.round((0, 2))["client_work"]["train"]
    assert (metrics["participants"], metrics["contributing_clients"], metrics["non_finite_clients"]) == (2, 1, 0)
    assert metrics["delta"]["non_zero_share"] <= 1.0, "of the one message sent"
    rounds.assert_weights_close(clients.own(0), before, 0.0)
    assert clients.invariant_gap() < 1e-6


def test_a_client_whose_new_state_is_not_finite_keeps_the_old_one() -> None:
    """delta is finite here, l2 * delta is not."""
    process = tff_fen.build_fed_dyn(
        models.quadratic(0.0, [0.0]), ElasticNet(l2=100.0), LocalTraining(1.0), num_clients=2
    )
    clients = Clients("fed_dyn", process, [models.rows([5e36]), models.rows([1e-3])])
    metrics = clients.round((0, 1))["client_work"]["train"]
    assert (metrics["contributing_clients"], metrics["non_finite_clients"]) == (1, 1)
    assert clients.own(0)[0] == 0.0 and clients.own(1)[0] != 0.0 and clients.invariant_gap() < 1e-6


def test_scaffolds_state_is_checked_too() -> None:
    """A learning rate that has decayed to zero gives 0/0 in c_k."""
    clients = build("scaffold", local_training=LocalTraining(1e-40, lr_decay=1e-10))
    clients.round((0, 1))
    metrics = clients.round((0, 1))["client_work"]["train"]
    assert metrics["non_finite_clients"] == 2 and all(np.all(np.isfinite(c)) for c in clients.own(0))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_round_with_an_aggregate_that_is_not_finite_counts_not_at_all(algorithm: str) -> None:
    """Two finite deltas whose sum overflows: neither model nor h or c moves."""
    process = BUILDERS[algorithm](
        models.quadratic(0.0, [0.0]), ElasticNet(l1=1.0, l2=1e-6), LocalTraining(1.0), num_clients=2
    )
    clients = Clients(algorithm, process, [models.rows([3e38]), models.rows([3e38])])
    assert clients.round((0, 1))["aggregator"]["usable"] == 0.0
    assert clients.theta[0] == 0.0 and clients.shared[0] == 0.0


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


# The second aggregator -----------------------------------------------------------------------------------------------


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


def test_the_control_change_goes_through_its_own_aggregator() -> None:
    vanish = tff.aggregators.clipping_factory(1e-9, tff.aggregators.MeanFactory())
    clients = build("scaffold", control_aggregator=vanish)
    before = clients.theta
    clients.round((0, 1))
    assert max(np.abs(c).max() for c in clients.shared) < 1e-8
    assert max(np.abs(a - b).max() for a, b in zip(clients.theta, before, strict=True)) > 1e-2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("participants", [(0, 1, 2), (3,), (0, 1, 2, 3, 4)])
def test_a_private_aggregator_divides_by_its_own_number(algorithm: str, participants: tuple[int, ...]) -> None:
    """No noise, no clipping, `clients_per_round` of 2 whoever comes: the sums behind h and c must still be right."""
    first, second = tff_fen.build_dp_pair(0.0, 2, first_clip=1e6, second_clip=1e6)
    second_name = {"fed_dyn": "sign_aggregator", "scaffold": "control_aggregator"}[algorithm]
    clients = build(algorithm, aggregator=first, **{second_name: second})
    clients.round(participants)
    assert clients.invariant_gap() < 1e-6


# Types and rejections ----------------------------------------------------------------------------------------------

W = "<float32[6,4],float32[4]>"
WEIGHTS = f"<trainable={W},non_trainable=<>>"
MEAN = "<value_sum_process=<>,weight_sum_process=<>>"
AGGREGATOR_STATES = {
    "fed_dyn": f"<h={W},delta={MEAN},sign={MEAN}>",
    "scaffold": f"<control={W},delta={MEAN},control_change={MEAN}>",
}
CLIENT_STATES = {"fed_dyn": f"<client_id=int64,gradient={W}>", "scaffold": f"<client_id=int64,control={W}>"}
MESSAGE = "non_zeros=int64,{}norm=float32,entropy_trunc=float32,entropy_round=float32"
ONE_MESSAGE, SUMMED = MESSAGE.format(""), MESSAGE.format("non_zero_share=float32,")
INNER = "<mean_value=<>,mean_weight=<>>"
MEASURED = {
    "fed_dyn": (
        "",
        f"<delta={INNER},sign={INNER},usable=float32,h_norm=float32,drift=float32>",
        f"<theta=<{ONE_MESSAGE}>>",
    ),
    "scaffold": (
        f"control=<{SUMMED}>,",
        f"<delta={INNER},control_change={INNER},usable=float32,control_norm=float32,drift=float32>",
        f"<theta=<{ONE_MESSAGE}>,shared=<{ONE_MESSAGE}>>",
    ),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_type_signatures(algorithm: str) -> None:
    process = build(algorithm).process
    assert isinstance(process, tff.templates.IterativeProcess)
    state = (
        f"<global_model_weights={WEIGHTS},distributor=<>,client_work=int32,"
        f"aggregator={AGGREGATOR_STATES[algorithm]},finalizer=<>>"
    )
    client = CLIENT_STATES[algorithm]
    further, aggregator, distributor = MEASURED[algorithm]
    metrics = (
        "<client_work=<train=<loss=float32,num_examples=int64,participants=int32,"
        "contributing_clients=int32,non_finite_clients=int32,"
        f"delta=<{SUMMED}>,theta=<entropy_trunc=float32,entropy_round=float32>,{further}accuracy=float32>>,"
        f"aggregator={aggregator},distributor={distributor}>"
    )
    signatures = {
        process.initialize: f"( -> {state}@SERVER)",
        process.initialize_client: f"(int64 -> {client})",
        process.next: (
            f"(<state={state}@SERVER,clients={{<state={client},data=<float32[?,6],int32[?]>*>}}@CLIENTS> -> "
            f"<state={state}@SERVER,client_states={{{client}}}@CLIENTS,metrics={metrics}@SERVER>)"
        ),
        process.get_model_weights: f"({state} -> {WEIGHTS})",
        process.set_model_weights: f"(<state={state},weights={WEIGHTS}> -> {state})",
        process.get_average_weights: f"({state} -> {WEIGHTS})",
    }
    for computation, signature in signatures.items():
        assert computation.type_signature.compact_representation() == signature


@pytest.mark.parametrize(
    ("algorithm", "change", "error", "message"),
    [
        ("fed_dyn", dict(elastic_net=ElasticNet(l1=0.1)), ValueError, r"l2 must be a finite number > 0 for FedDyn"),
        ("fed_dyn", dict(num_clients=0), ValueError, "num_clients must be an integer >= 1, found 0"),
        (
            "scaffold",
            dict(num_clients=10.0),
            TypeError,
            "num_clients must be an integer >= 1, found 10.0 of type float",
        ),
        ("scaffold", dict(server_learning_rate=0.0), ValueError, "server_learning_rate must be a finite number > 0"),
        ("scaffold", dict(control_threshold=-1.0), ValueError, "control_threshold must be a finite number >= 0"),
        ("fed_dyn", dict(aggregator="mean"), TypeError, "^aggregator must be a WeightedAggregationFactory or"),
        ("fed_dyn", dict(sign_aggregator=1), TypeError, "^sign_aggregator must be a WeightedAggregationFactory or"),
        ("scaffold", dict(control_aggregator=1), TypeError, "^control_aggregator must be a Weighted"),
        ("fed_dyn", dict(aggregator=0), TypeError, "^aggregator must be a WeightedAggregationFactory or"),
        ("fed_dyn", dict(aggregator=tff.aggregators.SumFactory()), TypeError, "must give a mean, found SumFactory"),
        ("scaffold", dict(measurements="no"), TypeError, "measurements must be a bool, found 'no'"),
        ("scaffold", dict(metrics_aggregator=1), TypeError, "metrics_aggregator must be a function"),
        ("scaffold", dict(model=None), TypeError, "model must be a FunctionalModel, found None"),
    ],
)
def test_rejections(algorithm: str, change: dict[str, Any], error: type[Exception], message: str) -> None:
    good = dict(
        model=models.softmax_regression(), elastic_net=ElasticNet(l2=0.1), local_training=TRAINING, num_clients=5
    )
    with pytest.raises(error, match=message):
        BUILDERS[algorithm](**(good | change))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_more_participants_than_clients(algorithm: str) -> None:
    clients = build(algorithm, num_clients=2)
    with pytest.raises(Exception, match="More clients took part in the round than num_clients=2"):
        clients.round((0, 1, 2))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_client_comes_once_per_round(algorithm: str) -> None:
    """However `next` is called; both messages would count, and only one of the two states be kept."""
    clients = build(algorithm)
    inputs = [tff_fen.ClientInput(clients.states[k], clients.data_sets[k]) for k in (0, 3, 0)]
    named = [collections.OrderedDict(state=c.state._asdict(), data=c.data) for c in inputs]
    for call in (
        lambda: clients.process.next(clients.server, inputs),
        lambda: clients.process.next(state=clients.server, clients=inputs),
        lambda: clients.process.next(clients.server, named),
    ):
        with pytest.raises(ValueError, match="clients must be different ones, found client_id 0 more than once"):
            call()
    # What are no clients is for TFF to refuse, and inside another computation there are no values to compare yet.
    with pytest.raises(TypeError):
        clients.process.next(clients.server, [clients.states[0]] * 2)
    signature = clients.process.next.type_signature.parameter

    @tff.federated_computation(signature[0], signature[1])
    def one_round(state: Any, clients_of_round: Any) -> Any:
        return clients.process.next(state, clients_of_round)

    assert len(one_round(clients.server, inputs[:2]).client_states) == 2


# Scale -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_round_does_not_grow_with_the_population(algorithm: str) -> None:
    """Only participants' states are passed: m enters as one number, and the computation stays the same size."""
    sizes = set()
    for m in (100, 1000):
        process = build(algorithm, num_clients=m).process
        sizes.add(tff.framework.serialize_computation(process.next).ByteSize() // 1000)
    assert len(sizes) == 1
