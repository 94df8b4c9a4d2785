"""All algorithms through compressors, with and without error feedback: the listing, and the invariants of the states.

Which test kills which mutation (each was planted once and seen caught):
  residual not kept, or kept before the threshold   test_three_rounds_agree_with_the_listing
  g_k or c_k takes up delta, not what was sent      test_three_rounds_agree_with_the_listing, test_invariant...
  one seed for all clients, or for all rounds       test_a_seed_is_of_one_client_in_one_round
  one seed for delta and control                    test_three_rounds_agree_with_the_listing[qsgd, scaffold]
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tff_fen
from tests.support import models, reference, rounds
from tests.support.population import BUILDERS, Clients
from tff_fen import ElasticNet, LocalTraining
from tff_fen.codec import QuantisedCodec, parse_compressor
from tff_fen.process.client import message_seed

DATA = [models.examples(n, seed=k) for k, n in enumerate((5, 9, 2, 7, 12))]
TRAINING = LocalTraining(0.2, epochs=2, batch_size=4, lr_decay=0.9, seed=11)
NET = ElasticNet(l1=0.02, l2=0.3, threshold=0.02)
COHORTS = [(0, 3, 1), (4, 1), (2, 3, 4, 0)]
NAMES = {"fed_dyn": ["delta"], "scaffold": ["delta", "control"]}


def compress_at(process_seed: Any, round_number: int, names: list[str], spec: str) -> reference.Compress:
    """The compressor of the listing; QSGD's draws are those of (seed, round, client, message)."""
    kind, _, value = spec.partition(":")

    def compress(v: np.ndarray, client: int, name: str) -> np.ndarray:
        if kind != "qsgd":
            return {"top_k": reference.top_k, "stc": reference.stc}[kind](v, float(value))
        seed = process_seed(tf.constant(round_number), tf.constant(client, tf.int64))
        own = tf.random.experimental.stateless_fold_in(seed, names.index(name), alg="philox")
        return reference.qsgd(v, int(value), tf.random.stateless_uniform(v.shape, own, alg="philox").numpy())

    return compress


def vector(message: Any) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in tf.nest.flatten(message)])


@pytest.mark.parametrize(
    ("algorithm", "spec"),
    [
        ("fed_dyn", "stc:0.3"),
        ("fed_dyn", "qsgd:8"),
        ("scaffold", "top_k:0.2"),
        pytest.param("scaffold", "qsgd:8", marks=pytest.mark.long),
    ],
)
def test_three_rounds_agree_with_the_listing(algorithm: str, spec: str) -> None:
    """With error feedback, partial participation, unequal sizes, decayed lr; and what is encoded is what was sent."""
    model = models.two_layer_mlp()
    process = BUILDERS[algorithm](
        model, NET, TRAINING, num_clients=len(DATA),
        compressor=parse_compressor(spec), error_feedback=True, release_messages=True,
    )  # fmt: skip
    clients = Clients(algorithm, process, DATA)
    names = NAMES[algorithm]
    seed = functools.partial(message_seed, tff_fen.Trainer(model, NET, TRAINING))
    sender = reference.Sender({"delta": NET.threshold}, feedback=True)
    expected = reference.Population.start(list(model.initial_weights[0]), len(DATA))
    listing: Any = {"fed_dyn": reference.algorithm_3_round, "scaffold": reference.algorithm_2_round}[algorithm]
    for t, cohort in enumerate(COHORTS):
        inputs = [tff_fen.ClientInput(clients.states[k], clients.data_sets[k]) for k in cohort]
        output = process.next(clients.server, inputs)
        clients.server = output.state
        clients.states.update((int(s.client_id), s) for s in output.client_states)
        sender.compress = compress_at(seed, t, names, spec)
        batches = {k: rounds.batches_of_client(DATA[k], TRAINING, t, client_id=k) for k in cohort}
        local = rounds.local_settings(NET, TRAINING, t)
        listing(reference.two_layer_mlp, expected, batches, local, send=sender)
        rounds.assert_weights_close(clients.theta, expected.theta, 1e-5)
        rounds.assert_weights_close(clients.shared, expected.shared, 1e-5)
        for k in range(len(DATA)):
            rounds.assert_weights_close(clients.own(k), expected.clients[k], 1e-5)
            residual = clients.states[k].residual if len(names) > 1 else {"delta": clients.states[k].residual}
            for name in names:
                there = sender.residuals.get((k, name), 0.0)
                np.testing.assert_allclose(vector(residual[name]), there, atol=1e-5)
        for sent in output.messages:
            parts = sent.message if len(names) > 1 else {"delta": sent.message}
            for name, step in getattr(sent, "steps", {}).items():
                codec, whole = QuantisedCodec(float(step)), vector(parts[name])
                np.testing.assert_array_equal(codec.decode(codec.encode(whole)), whole)


@pytest.mark.parametrize("spec", ["stc:0.3", "qsgd:8"])
def test_fed_avg_agrees_with_the_listing(spec: str) -> None:
    model = models.two_layer_mlp()
    process = tff_fen.build_fed_avg_clients(
        model, NET, TRAINING, compressor=parse_compressor(spec), error_feedback=True
    )
    seed = functools.partial(message_seed, tff_fen.Trainer(model, NET, TRAINING))
    sender = reference.Sender({"delta": NET.threshold}, feedback=True)
    states, server = [process.initialize_client(k) for k in range(len(DATA))], process.initialize()
    theta = [np.asarray(w, np.float64) for w in model.initial_weights[0]]
    for t in range(3):
        output = process.next(
            server, [tff_fen.ClientInput(s, models.dataset(*d)) for s, d in zip(states, DATA, strict=True)]
        )
        server, states = output.state, sorted(output.client_states, key=lambda s: int(s.client_id))
        sender.compress = compress_at(seed, t, ["delta"], spec)
        batches = [rounds.batches_of_client(d, TRAINING, t, client_id=k) for k, d in enumerate(DATA)]
        local = rounds.local_settings(NET, TRAINING, t)
        theta = reference.algorithm_1_round(
            reference.two_layer_mlp, theta, batches, TRAINING.epochs, local, send=sender
        )
        rounds.assert_weights_close(list(process.get_model_weights(server).trainable), theta, 1e-5)


@pytest.mark.parametrize(("algorithm", "spec"), [("fed_dyn", None), ("fed_dyn", "qsgd:8"), ("scaffold", "stc:0.3")])
def test_invariant_over_twenty_rounds(algorithm: str, spec: str | None) -> None:
    """h = mean g_k and c = mean c_k, for the threshold alone (None) and for each compressor."""
    process = BUILDERS[algorithm](
        models.softmax_regression(), NET, TRAINING, num_clients=len(DATA),
        compressor=None if spec is None else parse_compressor(spec), error_feedback=True,
    )  # fmt: skip
    clients = Clients(algorithm, process, DATA)
    rng = np.random.default_rng(7)
    for _ in range(20):
        clients.round(rng.choice(len(DATA), rng.integers(1, 5), replace=False).tolist())
        assert clients.invariant_gap() < 1e-5
    assert any(np.abs(vector(state.residual)).max() > 1e-4 for state in clients.states.values())


def test_a_seed_is_of_one_client_in_one_round() -> None:
    def seed(training_seed: int, round_number: int, client: int) -> tuple[int, ...]:
        training = LocalTraining(0.1, seed=training_seed)
        trainer = tff_fen.Trainer(models.softmax_regression(), NET, training)
        return tuple(message_seed(trainer, tf.constant(round_number), tf.constant(client, tf.int64)).numpy().tolist())

    places = [(s, t, k) for s in (0, 1) for t in (0, 1, 2) for k in (0, 1, 2**40)]
    assert len({seed(*place) for place in places}) == len(places)
    assert seed(1, 2, 0) == seed(1, 2, 0)


def test_a_compressor_and_a_codec_that_both_round_are_refused() -> None:
    with pytest.raises(ValueError, match=r"compressor='qsgd:8' and codec='quantised:0.01' are two ways to round"):
        tff_fen.build_fed_dyn(
            models.softmax_regression(), NET, TRAINING, num_clients=5,
            compressor=parse_compressor("qsgd:8"), codec=QuantisedCodec(0.01),
        )  # fmt: skip
    with pytest.raises(TypeError, match=r"compressor must be a TopK or .* found 'qsgd:8'"):
        tff_fen.build_fed_dyn(models.softmax_regression(), NET, TRAINING, num_clients=5, compressor="qsgd:8")  # type: ignore[arg-type]
