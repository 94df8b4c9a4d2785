"""What a process says of itself, and what happens between an algorithm's two halves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models
from tff_fen import ElasticNet, LocalTraining
from tff_fen.codec import QuantisedCodec

TRAINING = LocalTraining(0.2, epochs=2, batch_size=4)
DATA = [models.examples(n, seed=k) for k, n in enumerate((5, 9, 2))]


def build(algorithm: str, elastic_net: ElasticNet) -> tff_fen.StatefulClientProcess:
    model = models.softmax_regression()
    if algorithm == "fed_avg":
        return tff_fen.build_fed_avg_clients(model, elastic_net, TRAINING)
    builder: Any = {"fed_dyn": tff_fen.build_fed_dyn, "scaffold": tff_fen.build_scaffold}[algorithm]
    return builder(model, elastic_net, TRAINING, num_clients=3)


@pytest.mark.parametrize(
    ("algorithm", "l1", "messages", "releases", "broadcast", "has_average_model"),
    [
        ("fed_avg", 0.1, ("delta",), ("delta",), [], False),
        ("scaffold", 0.1, ("delta", "control"), ("delta", "control"), ["control"], False),
        ("fed_dyn", 0.0, ("delta",), ("delta",), [], True),
        ("fed_dyn", 0.1, ("delta",), ("delta", "sign"), [], True),
    ],
)
def test_a_process_describes_itself(
    algorithm: str,
    l1: float,
    messages: tuple[str, ...],
    releases: tuple[str, ...],
    broadcast: list[str],
    has_average_model: bool,
) -> None:
    process = build(algorithm, ElasticNet(l1=l1, l2=0.3))
    assert (process.messages, process.releases) == (messages, releases)
    assert process.has_average_model is has_average_model
    inputs = [tff_fen.ClientInput(process.initialize_client(k), models.dataset(*DATA[k])) for k in range(3)]
    state = process.next(process.initialize(), inputs).state
    shared = process.get_broadcast(state)
    assert list(shared) == broadcast
    for name in broadcast:
        np.testing.assert_array_equal(shared[name][0], state.aggregator[name][0])
        assert np.any(shared[name][0])
    theta, gamma = process.get_model_weights(state).trainable[0], process.get_average_weights(state).trainable[0]
    assert bool(np.any(theta != gamma)) is has_average_model


class _Kept(NamedTuple):
    client_id: Any
    sent: Any
    rounds: Any


def test_absorb_gets_what_the_server_gets_and_a_lost_client_keeps_its_state() -> None:
    """An own algorithm: its state keeps the sum of what was sent, and counts its rounds before anything is sent."""
    trainer = tff_fen.Trainer(models.softmax_regression(), ElasticNet(threshold=0.05), TRAINING)

    def update(train: Any, client: _Kept, broadcast: Mapping[str, Any]) -> tff_fen.Update:
        assert not broadcast
        trained = train()
        return tff_fen.Update(trained, {"delta": trained.delta}, client._replace(rounds=client.rounds + 1))

    def absorb(client: _Kept, sent: Mapping[str, Any]) -> _Kept:
        return client._replace(sent=tf.nest.map_structure(tf.add, client.sent, sent["delta"]))

    process = tff_fen.compose_process(
        trainer,
        tff_fen.Algorithm(
            messages=("delta",),
            initialize_client=lambda k: _Kept(k, trainer.zeros(), tf.constant(0)),
            update=update,
            absorb=absorb,
            aggregator=tff.aggregators.MeanFactory(no_nan_division=True),
            move=lambda theta, mean: tf.nest.map_structure(tf.add, theta, mean),
        ),
        uplink=tff_fen.Uplink({"delta": 0.05}, codec=QuantisedCodec(0.01)),
        release_messages=True,
    )
    states = {k: process.initialize_client(k) for k in range(3)}
    server = process.initialize()
    total = np.zeros_like(states[0].sent[0])
    for t in range(3):
        data = [models.dataset(*d) for d in DATA]
        if t == 1:
            data[0] = models.dataset(np.full_like(DATA[0][0], np.nan), DATA[0][1])
        output = process.next(server, [tff_fen.ClientInput(states[k], data[k]) for k in range(3)])
        server, states = output.state, {int(s.client_id): s for s in output.client_states}
        message = {int(m.client_id): m.message for m in output.messages}[0][0]
        sent = message[message != 0]
        total += message
        if t == 1:
            assert not sent.size and output.metrics["client_work"]["train"]["non_finite_clients"] == 1
        else:
            assert sent.size and np.abs(sent).min() > 0.05 - 0.005  # the threshold comes before the rounding
            np.testing.assert_allclose(sent / 0.01, np.rint(sent / 0.01), atol=1e-4)
    np.testing.assert_array_equal(states[0].sent[0], total)
    assert [int(states[k].rounds) for k in range(3)] == [2, 3, 3]
