"""What the tests of Algorithms 2 and 3 share: a population of five clients, and the tests that hold for both.

Which test kills which mutation (each was planted once and seen caught); the modules of the two list their own:
  1/|P| for 1/m in h or c              test_three_rounds_agree_with_the_listing, test_invariant_over_twenty_rounds
  +g_k for -g_k, c_k - c for c - c_k   test_three_rounds_agree_with_the_listing
  non-finite client moves its state    test_clients_that_bring_nothing_keep_their_state
  theta moves when nobody contributes  test_a_round_in_which_nobody_contributes
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow_federated as tff

import tff_fen
from tests.support import models, reference, rounds
from tests.support.population import BUILDERS, Clients
from tff_fen import ElasticNet, LocalTraining

SIZES = (5, 9, 2, 7, 12)
DATA = [models.examples(n, seed=k) for k, n in enumerate(SIZES)]
PENALTIES = {
    "plain": ElasticNet(l2=0.4),  # FedDyn, and SCAFFOLD with a proximal term (fact 1)
    "subgradient": ElasticNet(l1=0.02, l2=0.3, threshold=0.05),
    "proximal": ElasticNet(l1=0.05, l2=0.3, threshold=0.02, l1_step="proximal"),
}
TRAINING = LocalTraining(0.2, epochs=2, batch_size=4, lr_decay=0.9, weight_decay=0.01, clip_norm=0.9)
NAN_DATA = (np.full((4, 6), np.nan, np.float32), np.zeros(4, np.int32))

# Types, in the compact form.
W = "<float32[6,4],float32[4]>"
WEIGHTS = f"<trainable={W},non_trainable=<>>"
MEAN = "<value_sum_process=<>,weight_sum_process=<>>"
MESSAGE = "non_zeros=int64,{}norm=float32,entropy_trunc=float32,entropy_round=float32"
ONE_MESSAGE, SUMMED = MESSAGE.format(""), MESSAGE.format("non_zero_share=float32,")
INNER = "<mean_value=<>,mean_weight=<>>"


def build(algorithm: str, model: Any = None, elastic_net: ElasticNet | None = None, **kwargs: Any) -> Clients:
    arguments = dict(local_training=TRAINING, num_clients=len(DATA)) | kwargs
    process = BUILDERS[algorithm](
        model or models.softmax_regression(), elastic_net or PENALTIES["subgradient"], **arguments
    )
    return Clients(algorithm, process, DATA)


class StatefulTests:
    """The tests of a stateful algorithm; a subclass says which.

    Attributes:
      algorithm: its name in `population`.
      listing: its round in NumPy.
      norm_name: the metric of the server's state.
      second_aggregator: the keyword of its second aggregator.
      aggregator_state, client_state: their types.
      measured: the types of what its clients measure beside delta, of what its aggregator measures, and of the
        downlink.
    """

    algorithm: str
    listing: Callable[..., dict[int, Any]]
    norm_name: str
    second_aggregator: str
    aggregator_state: str
    client_state: str
    measured: tuple[str, str, str]

    @pytest.mark.parametrize("penalty", sorted(PENALTIES))
    @pytest.mark.parametrize("twin", ["softmax_regression", "two_layer_mlp"])
    def test_three_rounds_agree_with_the_listing(self, twin: str, penalty: str) -> None:
        """Partial participation, unequal sizes, decays, clipping: theta, h or c, all clients' states."""
        elastic_net, model = PENALTIES[penalty], getattr(models, twin)()
        clients = build(self.algorithm, model, elastic_net)
        expected = reference.Population.start(list(model.initial_weights[0]), len(DATA))
        for t, participants in enumerate([(0, 3, 1), (4, 1), (2, 3, 4, 0)]):
            metrics = clients.round(participants)["client_work"]["train"]
            batches = {k: rounds.batches_of_client(DATA[k], TRAINING, t, client_id=k) for k in participants}
            outcomes = self.listing(
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

    def test_invariant_over_twenty_rounds(self) -> None:
        """Facts 2 and 3: h = mean g_k, c = mean c_k over the whole population, with random partial participation."""
        clients = build(self.algorithm, models.two_layer_mlp(hidden=16), PENALTIES["subgradient"])
        rng = np.random.default_rng(7)
        for _ in range(20):
            clients.round(rng.choice(len(DATA), rng.integers(1, 5), replace=False).tolist())
            assert clients.invariant_gap() < 1e-5
        assert max(np.abs(s).max() for s in clients.shared) > 1e-3, "the state must have moved"

    def test_measurements_of_server_state_drift_and_downlink(self) -> None:
        clients = build(self.algorithm)
        clients.round((0, 1, 2))
        theta, shared = clients.theta, clients.shared
        own = {k: clients.own(k) for k in range(len(DATA))}
        metrics = clients.round((1, 3))
        norm = np.sqrt(sum(float((s**2).sum()) for s in clients.shared))
        assert metrics["aggregator"][self.norm_name] == pytest.approx(norm, rel=1e-5)

        expected = reference.Population(theta, shared, [own[k] for k in range(len(DATA))])
        batches = {k: rounds.batches_of_client(DATA[k], TRAINING, 1, client_id=k) for k in (1, 3)}
        local = rounds.local_settings(PENALTIES["subgradient"], TRAINING, 1)
        outcomes = self.listing(reference.softmax_regression, expected, batches, local)
        flat = np.array([np.concatenate([d.ravel() for d in o.delta]) for o in outcomes.values()])
        drift = np.sqrt(np.mean(np.sum((flat - flat.mean(0)) ** 2, axis=1)))
        assert metrics["aggregator"]["drift"] == pytest.approx(drift, rel=1e-4)

        downlink = metrics["distributor"]
        assert downlink["theta"]["non_zeros"] == sum(np.count_nonzero(t) for t in theta)
        if self.algorithm == "scaffold":
            assert downlink["shared"]["norm"] == pytest.approx(
                np.sqrt(sum(float((s**2).sum()) for s in shared)), rel=1e-5
            )
            changes = [
                np.concatenate([(a - b).ravel() for a, b in zip(clients.own(k), own[k], strict=True)]) for k in (1, 3)
            ]
            control = metrics["client_work"]["train"]["control"]
            assert control["non_zeros"] == sum(np.count_nonzero(c) for c in changes)
            assert control["norm"] == pytest.approx(np.mean([np.linalg.norm(c) for c in changes]), rel=1e-4)

    def test_measurements_do_not_change_the_round(self) -> None:
        measured, silent = build(self.algorithm), build(self.algorithm, measurements=False)
        for participants in ((0, 1), (1, 4)):
            measured.round(participants)
            metrics = silent.round(participants)
        rounds.assert_weights_close(silent.theta, measured.theta, 0.0)
        assert not {"delta", "theta", "control"} & set(metrics["client_work"]["train"])
        assert "distributor" not in metrics and "drift" not in metrics["aggregator"]

    def test_clients_that_bring_nothing_keep_their_state(self) -> None:
        """A non-finite and an empty client: model, h or c and the other clients' states as if they were not there."""
        with_them, without = build(self.algorithm), build(self.algorithm)
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

    @pytest.mark.parametrize("inner", [None, tff.aggregators.MeanFactory(), tff.aggregators.UnweightedMeanFactory()])
    def test_a_round_in_which_nobody_contributes(self, inner: Any) -> None:
        """Nothing moves, whatever the aggregator divides by."""
        clients = build(self.algorithm, aggregator=inner)
        clients.round((0, 1))
        clients.data_sets[2] = models.dataset(*NAN_DATA)
        theta, shared = clients.theta, clients.shared
        metrics = clients.round((2,))
        assert metrics["aggregator"]["usable"] == 0.0
        rounds.assert_weights_close(clients.shared, shared, 0.0)
        rounds.assert_weights_close(clients.theta, theta, 0.0)

    def test_a_batch_without_rows_is_no_data(self) -> None:
        """A step with it would still be one of correction and weight decay: it must count for nothing."""
        # No threshold here: it would hide the small step that must not be sent.
        clients = build(self.algorithm, None, PENALTIES["plain"], local_training=LocalTraining(0.2, weight_decay=0.1))
        clients.round((0, 1))
        before = clients.own(0)
        clients.data_sets[0] = models.dataset(np.zeros((0, 6), np.float32), np.zeros(0, np.int32))
        metrics = clients.round((0, 2))["client_work"]["train"]
        assert (metrics["participants"], metrics["contributing_clients"], metrics["non_finite_clients"]) == (2, 1, 0)
        assert metrics["delta"]["non_zero_share"] <= 1.0, "of the one message sent"
        rounds.assert_weights_close(clients.own(0), before, 0.0)
        assert clients.invariant_gap() < 1e-6

    def test_a_round_with_an_aggregate_that_is_not_finite_counts_not_at_all(self) -> None:
        """Two finite deltas whose sum overflows: neither model nor h or c moves."""
        process = BUILDERS[self.algorithm](
            models.quadratic(0.0, [0.0]), ElasticNet(l1=1.0, l2=1e-6), LocalTraining(1.0), num_clients=2
        )
        clients = Clients(self.algorithm, process, [models.rows([3e38]), models.rows([3e38])])
        assert clients.round((0, 1))["aggregator"]["usable"] == 0.0
        assert clients.theta[0] == 0.0 and clients.shared[0] == 0.0

    @pytest.mark.parametrize("participants", [(0, 1, 2), (3,), (0, 1, 2, 3, 4)])
    def test_a_private_aggregator_divides_by_its_own_number(self, participants: tuple[int, ...]) -> None:
        """No noise, no clipping, `clients_per_round` of 2 whoever comes: the sums behind h and c must be right."""
        first, second = tff_fen.build_dp_pair(0.0, 2, first_clip=1e6, second_clip=1e6)
        clients = build(self.algorithm, aggregator=first, **{self.second_aggregator: second})
        clients.round(participants)
        assert clients.invariant_gap() < 1e-6

    def test_type_signatures(self) -> None:
        process = build(self.algorithm).process
        assert isinstance(process, tff.templates.IterativeProcess)
        state = (
            f"<global_model_weights={WEIGHTS},distributor=<>,client_work=int32,"
            f"aggregator={self.aggregator_state},finalizer=<>>"
        )
        client = self.client_state
        further, aggregator, distributor = self.measured
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

    def test_more_participants_than_clients(self) -> None:
        clients = build(self.algorithm, num_clients=2)
        with pytest.raises(Exception, match="More clients took part in the round than num_clients=2"):
            clients.round((0, 1, 2))

    def test_a_client_comes_once_per_round(self) -> None:
        """However `next` is called; both messages would count, and only one of the two states be kept."""
        clients = build(self.algorithm)
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

    def test_a_round_does_not_grow_with_the_population(self) -> None:
        """Only participants' states are passed: m enters as one number, and the computation stays the same size."""
        sizes = set()
        for m in (100, 1000):
            process = build(self.algorithm, num_clients=m).process
            sizes.add(tff.framework.serialize_computation(process.next).ByteSize() // 1000)
        assert len(sizes) == 1
