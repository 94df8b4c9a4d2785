"""Experiments' rounds: every algorithm and aggregator, and the columns that are measured of them."""

from __future__ import annotations

import pathlib
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow_federated as tff

import tff_fen
from experiments import columns
from experiments.aggregation import Aggregation
from experiments.build import build_parts, build_process
from experiments.experiment_config import ExperimentConfig
from experiments.measure import Measure, build_rounds
from experiments.methods import ALGORITHMS
from experiments.privacy import PrivacyAccountant
from experiments.releases import Releases
from experiments.settings import AGGREGATORS
from tasks.registry import load_task
from tff_fen.program import sampling
from tff_fen.program.rounds import Rounds
from tff_fen.program.store import MemoryStore


class Experiment(NamedTuple):
    """The rounds of an experiment, and what measures them."""

    rounds: Rounds
    measure: Measure


def start(config: ExperimentConfig) -> Experiment:
    parts = build_parts(config, load_task(config.task, num_clients=config.num_clients, seed=config.seed))
    measure = Measure(config, parts)
    return Experiment(build_rounds(parts, measure, MemoryStore()), measure)


SMALL: dict[str, Any] = dict(
    task="digits", num_clients=8, epochs=1, l1=1e-4, l2=0.1, threshold=1e-3, sampling="bernoulli:0.5"
)


# All of the algorithms and all of the aggregators; more pairs are in test_composition.
PAIRS: list[Any] = [
    ("fed_dyn", "mean"),
    *(pytest.param("fed_dyn", other, marks=pytest.mark.long) for other in AGGREGATORS if other != "mean"),
    *((algorithm, "mean") for algorithm in ALGORITHMS if algorithm != "fed_dyn"),
    ("scaffold", "dp"),
]


@pytest.mark.parametrize(("algorithm", "aggregator"), PAIRS)
def test_algorithms_and_aggregators(algorithm: str, aggregator: str) -> None:
    if aggregator == "secure":
        tff.backends.test.set_sync_test_cpp_execution_context()
    try:
        config = ExperimentConfig(algorithm=algorithm, aggregator=aggregator, client_measurements="on", **SMALL)
        rounds = start(config).rounds
        rows = [rounds.run_round().row for _ in range(2)]
    finally:
        tff.backends.native.set_sync_local_cpp_execution_context()
    assert [row["round"] for row in rows] == [1, 2]
    unlisted = {name for name in rows[1] if not columns.is_among(name, columns.COLUMNS)}
    of_tff = {name for name in unlisted if name.startswith(("aggregator/delta/", "aggregator/sign/"))}
    assert unlisted == of_tff and bool(of_tff) == (aggregator in ("robust", "secure"))
    assert all(row["uplink_bytes"] > 0 and row["downlink_bytes"] > 0 for row in rows)
    assert ("uplink_control_bytes" in rows[0]) == ("downlink_control_bytes" in rows[0]) == (algorithm == "scaffold")
    assert ("dp_epsilon" in rows[0]) == (aggregator == "dp")
    assert ("average_accuracy" in rows[0]) == (algorithm == "fed_dyn")
    assert len(sampling.sample_bernoulli(0, 8, 0.5)) == rows[0]["client_work/train/participants"]


def test_the_rounds_are_the_algorithm() -> None:
    """Rounds that are measured and stored give what rounds by hand give."""
    config = ExperimentConfig(algorithm="fed_dyn", **SMALL)
    rounds = start(config).rounds
    rounds.run(3)
    found = rounds.state.global_model_weights
    task = load_task("digits", num_clients=8)
    process = tff_fen.build_fed_dyn(
        task.build_model(), config.elastic_net(), config.local_training(task.batch_size), num_clients=8
    )
    server, states = process.initialize(), {k: process.initialize_client(k) for k in range(8)}
    for t in range(3):
        chosen = sampling.sample_bernoulli(t, 8, 0.5)
        output = process.next(server, [tff_fen.ClientInput(states[k], task.client_dataset(k)) for k in chosen])
        server = output.state
        states.update((int(s.client_id), s) for s in output.client_states)
    for a, b in zip(found.trainable, process.get_model_weights(server).trainable, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_evaluation_is_where_it_is_due() -> None:
    config = ExperimentConfig(algorithm="fed_avg", rounds=4, evaluate_every=3, **SMALL)
    rounds, measure = start(config)
    accuracies = [rounds.run_round().row["accuracy"] for _ in range(4)]
    assert [a is not None for a in accuracies] == [False, False, True, False]
    assert measure.evaluate(rounds.state)["accuracy"] > 0.0
    assert [record.row["accuracy"] for record in rounds.records()] == accuracies


def test_the_tables_agree_with_what_the_processes_say_of_themselves() -> None:
    """The tables are there for what has no process at hand: a report, and the choice of aggregators."""
    model = load_task("digits").build_model()
    for key, l1 in [(key, l1) for key in ALGORITHMS for l1 in (0.0, 1e-3)]:
        config = ExperimentConfig(algorithm=key, l1=l1, l2=0.1)
        process = build_process(config, model, config.local_training(10), 8, Aggregation())
        assert process.messages == config.row().messages
        assert (len(process.releases) == 2) == config.row().releases_second(config)


def test_without_messages_there_are_no_bytes_of_the_uplink() -> None:
    experiment = start(ExperimentConfig(algorithm="fed_avg", **SMALL))
    before = experiment.rounds.state
    output = tff_fen.process.RoundOutput(before, [], {})
    assert list(experiment.measure(before, output, [0, 1])) == ["downlink_bytes", "accuracy", "test_loss", "seconds"]


@pytest.mark.parametrize(
    ("algorithm", "compressor"), [("fed_dyn", "qsgd:1"), ("scaffold", "stc:0.01"), ("fed_avg", "top_k:0.01")]
)
def test_bytes_of_compressed_messages(algorithm: str, compressor: str) -> None:
    """Messages are encoded as what they are: a sign of few elements costs a small part of a float for each."""
    experiment = start(ExperimentConfig(algorithm=algorithm, compressor=compressor, error_feedback=True, **SMALL))
    row = experiment.rounds.run_round().row
    weights = experiment.rounds.state.global_model_weights.trainable
    dense = 4 * sum(w.size for w in weights) * row["client_work/train/participants"]
    sent = {name: size for name, size in row.items() if name.startswith("uplink")}
    assert len(sent) == (2 if algorithm == "scaffold" else 1)
    assert all(0 < 50 * size < dense for size in sent.values()), (sent, dense)


def test_a_round_that_was_rolled_back_and_is_run_again_is_a_release_more(tmp_path: pathlib.Path) -> None:
    """The store went back to round 2; the list beside it did not."""
    for number in (1, 2, 3):
        Releases(tmp_path / "releases").add(number)
    config = ExperimentConfig(aggregator="dp", **SMALL | {"sampling": "uniform:8"})
    parts = build_parts(config, load_task("digits", num_clients=8))
    spent = PrivacyAccountant(config.dp_noise_multiplier, config.dp_delta, parts.sample)
    for number in (1, 2, 3, 3):
        spent.count(number)
    found = Measure(config, parts, Releases(tmp_path / "releases", 2))._release(3)
    assert found == {columns.EPSILON.name: spent.epsilon(), columns.RELEASES.name: 4}
    assert (tmp_path / "releases").read_text() == "1\n2\n3\n3\n"
