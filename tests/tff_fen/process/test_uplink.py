"""Messages on their way: the codec in the graph, what is given back of them, and top-k with error feedback."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tff_fen
from tests.support import models, rounds
from tests.support.population import BUILDERS, Clients
from tff_fen import ElasticNet, LocalTraining
from tff_fen.codec import Float16Codec, LosslessCodec, QuantisedCodec

CODECS = [LosslessCodec(), Float16Codec(), QuantisedCodec(0.01), QuantisedCodec(0.003)]
DATA = [models.examples(n, seed=k) for k, n in enumerate((5, 9, 2, 7, 12))]
TRAINING = LocalTraining(0.2, epochs=2, batch_size=4)
NET = ElasticNet(l1=0.02, l2=0.3, threshold=0.05)


def flat(structure: Any) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in tf.nest.flatten(structure)])


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_the_graph_rounds_as_the_codec_does(codec: Any) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_t(1.5, 5000) * 0.02).astype(np.float32)
    x[:4] = [0.0, -0.0, 0.005, -0.015]  # ties
    rounded = tf.function(codec.as_received)(tf.constant(x)).numpy()
    np.testing.assert_array_equal(rounded, codec.apply(x))
    np.testing.assert_array_equal(codec.decode(codec.encode(rounded)), rounded)


@pytest.mark.parametrize(("codec", "value"), [(Float16Codec(), 70000.0), (QuantisedCodec(0.01), 50000.0)])
def test_what_a_codec_cannot_hold_is_infinite(codec: Any, value: float) -> None:
    sent = codec.as_received(tf.constant([value, -value, 1.0]))
    assert np.isinf(sent.numpy()).tolist() == [True, True, False]
    with pytest.raises(ValueError, match="cannot hold"):
        codec.encode(np.array([value], np.float32))


@pytest.mark.parametrize("codec", [None, *CODECS], ids=str)
@pytest.mark.parametrize("algorithm", sorted(BUILDERS))
def test_states_take_up_what_arrives(algorithm: str, codec: Any) -> None:
    """h = mean g_k and c = mean c_k with any codec, and the server moves by what was decoded."""
    process = BUILDERS[algorithm](
        models.two_layer_mlp(), NET, TRAINING, num_clients=5, codec=codec, release_messages=True
    )
    clients = Clients(algorithm, process, DATA)
    for participants in [(0, 3, 1), (4, 1), (2, 3, 4, 0)]:
        theta = clients.theta
        inputs = [tff_fen.ClientInput(clients.states[k], clients.data_sets[k]) for k in participants]
        output = process.next(clients.server, inputs)
        clients.server = output.state
        clients.states.update((int(s.client_id), s) for s in output.client_states)
        assert sorted(int(m.client_id) for m in output.messages) == sorted(participants)
        deltas = []
        for sent in output.messages:
            parts = sent.message if algorithm == "scaffold" else {"delta": sent.message}
            assert list(parts) == (["delta", "control"] if algorithm == "scaffold" else ["delta"])
            for part in parts.values():
                vector = flat(part)
                assert np.count_nonzero(vector)
                if codec is not None:
                    np.testing.assert_array_equal(codec.decode(codec.encode(vector)), vector)
            deltas.append(flat(parts["delta"]))
        mean = np.mean(deltas, axis=0)
        h = flat(clients.shared) if algorithm == "fed_dyn" else np.zeros_like(mean)
        np.testing.assert_allclose(flat(clients.theta), flat(theta) + mean - h / NET.l2, atol=1e-5)
        assert clients.invariant_gap() < 1e-6
        counted = output.metrics["client_work"]["train"]["delta"]["non_zeros"]
        assert counted == sum(np.count_nonzero(d) for d in deltas)


def run_fed_avg(num_rounds: int = 3, **kwargs: Any) -> tuple[list[Any], dict[int, Any], list[dict[int, np.ndarray]]]:
    """Returns theta after each round, the clients' states, and what they sent in each round."""
    process = tff_fen.build_fed_avg_clients(models.two_layer_mlp(), release_messages=True, **kwargs)
    states = {k: process.initialize_client(k) for k in range(len(DATA))}
    server, thetas, sent = process.initialize(), [], []
    for _ in range(num_rounds):
        inputs = [tff_fen.ClientInput(states[k], models.dataset(*DATA[k])) for k in range(len(DATA))]
        output = process.next(server, inputs)
        server = output.state
        states = {int(s.client_id): s for s in output.client_states}
        thetas.append(flat(process.get_model_weights(server).trainable))
        sent.append({int(m.client_id): flat(m.message) for m in output.messages})
    return thetas, states, sent


def test_fed_avg_with_clients_is_fed_avg() -> None:
    """One batch an epoch, so that the order of examples is all that may differ, and rounds off only."""
    training = LocalTraining(0.2, epochs=2, batch_size=50, lr_decay=0.9)
    thetas, _, _ = run_fed_avg(elastic_net=NET, local_training=training)
    process = tff_fen.build_fed_avg(models.two_layer_mlp(), NET, training)
    state = process.initialize()
    for theta in thetas:
        state = process.next(state, [models.dataset(*d) for d in DATA]).state
        np.testing.assert_allclose(theta, flat(process.get_model_weights(state).trainable), atol=2e-6)


@pytest.mark.parametrize("codec", [None, QuantisedCodec(0.001)], ids=str)
def test_top_k_sends_the_largest_and_forgets_nothing(codec: Any) -> None:
    training = LocalTraining(0.2, epochs=1, batch_size=50)
    thetas, states, sent = run_fed_avg(elastic_net=ElasticNet(), local_training=training, top_k=0.1, codec=codec)
    size = thetas[0].size
    k = int(np.ceil(0.1 * size))
    for messages in sent:
        for message in messages.values():
            assert np.count_nonzero(message) <= k and (codec is not None or np.count_nonzero(message) == k)
    # The first round has no residuals: the update is known from a run that sends all of it.
    _, _, whole = run_fed_avg(1, elastic_net=ElasticNet(), local_training=training)
    for client, update in whole[0].items():
        message = sent[0][client]
        chosen = np.argsort(-np.abs(update))[:k]
        expected = np.zeros_like(update)
        expected[chosen] = update[chosen]
        np.testing.assert_allclose(message, expected if codec is None else codec.apply(expected), atol=1e-7)
    one_round = run_fed_avg(1, elastic_net=ElasticNet(), local_training=training, top_k=0.1, codec=codec)
    for client, state in one_round[1].items():
        np.testing.assert_allclose(flat(state.residual) + sent[0][client], whole[0][client], atol=1e-6)
    assert any(np.abs(flat(state.residual)).max() > 0 for state in states.values())


def test_a_lost_client_keeps_its_residual() -> None:
    process = tff_fen.build_fed_avg_clients(
        models.softmax_regression(), ElasticNet(), TRAINING, top_k=0.2, release_messages=True
    )
    x, y = DATA[1]
    states = [process.initialize_client(k) for k in range(2)]
    first = process.next(
        process.initialize(), [tff_fen.ClientInput(s, models.dataset(x, y)) for s in states]
    ).client_states
    bad = models.dataset(np.full_like(x, np.nan), y)
    output = process.next(
        process.initialize(), [tff_fen.ClientInput(first[0], bad), tff_fen.ClientInput(first[1], models.dataset(x, y))]
    )
    kept = {int(s.client_id): s for s in output.client_states}
    rounds.assert_weights_close(list(kept[0].residual), list(first[0].residual), 0.0)
    assert output.metrics["client_work"]["train"]["non_finite_clients"] == 1
    assert np.all(np.isfinite(flat(process.get_model_weights(output.state).trainable)))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(top_k=0.0), ValueError, "top_k must be a finite number > 0, found 0.0"),
        (dict(top_k=1.5), ValueError, "top_k must be a share of the elements, at most 1, found 1.5"),
        (dict(codec="lossless"), TypeError, "codec must be a .* found 'lossless'"),
        (dict(release_messages=1), TypeError, "release_messages must be a bool, found 1"),
    ],
)
def test_rejections(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tff_fen.build_fed_avg_clients(models.softmax_regression(), NET, TRAINING, **arguments)
