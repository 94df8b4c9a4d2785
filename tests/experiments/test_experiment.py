"""Experiments: values and presets, grids, bytes counted, privacy spent, and the files of a folder."""

from __future__ import annotations

import asyncio
import collections
import csv
import dataclasses
import json
import pathlib
from typing import Any

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from PIL import Image
from scipy import stats

import tff_fen
from experiments import accounting, plots, presets
from experiments.experiment_config import AGGREGATORS, ALGORITHMS, ExperimentConfig, parse_sampling
from experiments.flags import build_config, parse_grid
from experiments.loop import Loop, Parts, RoundRecord
from experiments.methods import Aggregation, build_aggregation, build_process
from experiments.output import ConfigMismatchError, Folder, summarize
from tasks.evaluation import Evaluator
from tasks.registry import load_task
from tff_fen.codec import Float16Codec, LosslessCodec, QuantisedCodec
from tff_fen.process import ClientMessage
from tff_fen.program import sampling
from tff_fen.program.store import SqliteStore

# --- values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (dict(l1=-1.0), "ElasticNet.l1 must be a finite number >= 0, found -1.0"),
        (dict(algorithm="feddyn"), "Did you mean 'fed_dyn'"),
        (dict(l2=0.0), "l2 must be > 0 for algorithm 'fed_dyn'"),
        (dict(aggregator="dpp"), "aggregator must be one of 'mean', 'dp'"),
        (dict(top_k=0.1), "top_k=0.1 has no effect: it is for algorithm 'fed_avg'"),
        (dict(top_k=1.1, algorithm="fed_avg"), r"top_k must be a share in \(0, 1\], found 1.1"),
        (dict(control_threshold=0.1), "control_threshold=0.1 has no effect: it is for algorithm 'scaffold'"),
        (dict(server_learning_rate=0.5), "server_learning_rate=0.5 has no effect"),
        (dict(dp_noise_multiplier=2.0), "dp_noise_multiplier=2.0 has no effect: it is for aggregator 'dp'"),
        (dict(dp_second_clip=2.0, aggregator="dp"), "dp_second_clip=2.0 has no effect"),
        (dict(compression_bits=4), "compression_bits=4 has no effect: it is for aggregator 'compression'"),
        (dict(alpha=0.5), "alpha=0.5 has no effect: it is for task 'synthetic'"),
        (dict(dp_test_seed=-1, aggregator="dp"), "dp_test_seed must be an integer from 0"),
        (dict(epochs=3_000_000_000), "LocalTraining.epochs must be an integer from 1 to"),
        (dict(uplink="float16", aggregator="secure"), "two ways to encode a message"),
        (dict(uplink="zip"), "codec must be"),
        (dict(also_count="lossless,gzip"), "codec must be"),
        (dict(sampling="bernoulli:0"), "probability in sampling must be a finite number > 0"),
        (dict(sampling="bernoulli:2"), "probability in sampling must be at most 1"),
        (dict(sampling="uniform:1.5"), "sampling must be 'bernoulli:0.1' or 'uniform:10'"),
        (dict(sampling="uniform:0"), "number of clients in sampling must be an integer >= 1"),
        (dict(sampling="all"), "sampling must be one of 'bernoulli', 'uniform', found 'all'"),
        (dict(rounds=0), "rounds must be an integer >= 1"),
        (dict(dp_delta=1.0, aggregator="dp"), "dp_delta must be < 1, found 1.0"),
        (dict(dp_clip=0.0), "dp_clip must be a finite number > 0"),
        (dict(compression_bits=40), "compression_bits must be an integer from 1 to 16"),
        (dict(batch_size=0), "LocalTraining.batch_size must be"),
    ],
)
def test_values_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        ExperimentConfig(**({"l2": 0.1} | values))


def test_differences_show_all_but_the_number_of_rounds() -> None:
    config = ExperimentConfig(l2=0.1, l1=1e-4)
    there = json.loads(dataclasses.replace(config, l1=1e-3, seed=2, rounds=99).to_json()) | {"gone": 1}
    assert config.differences(there) == {"l1": (1e-4, 1e-3), "seed": (0, 2), "gone": (None, 1)}
    assert config.differences(json.loads(config.to_json())) == {}


def test_presets_have_the_papers_values() -> None:
    names = presets.preset_names()
    # 11 methods: digits once; four data sets of three splits and one of two, with a tenth and with all clients.
    assert len(names) == 11 * (1 + 2 * (4 * 3 + 2)) == len(set(names))
    for name in names:
        ExperimentConfig(**presets.load_preset(name).values)
    preset = presets.load_preset("mnist/dirichlet_0.3/algorithm_3")
    values = preset.values
    assert (values["l1"], values["l2"], values["threshold"]) == (1e-4, 0.05, 5e-3)
    assert (values["task"], values["split"], values["algorithm"]) == ("mnist", "dirichlet:0.3", "fed_dyn")
    assert (values["rounds"], values["batch_size"], values["sampling"]) == (100, 10, "bernoulli:0.1")
    assert set(preset.assumed) == {
        "learning_rate", "lr_decay", "epochs", "weight_decay", "clip_norm", "initializer", "size_sigma"
    }  # fmt: skip
    assert presets.load_preset("cifar100/iid/algorithm_1/all").values["sampling"] == "bernoulli:1"
    fed_prox = presets.load_preset("shakespeare/natural/fed_prox").values
    assert fed_prox["l2"] == 1e-4 and "l1" not in fed_prox and "threshold" not in fed_prox
    ablation = presets.load_preset("mnist/iid/threshold_3").values
    assert (ablation["l1"], ablation["threshold"]) == (0.0, 5e-3)
    proximal = presets.load_preset("mnist/iid/proximal_3").values
    assert (proximal["l1"], proximal["threshold"], proximal["l1_step"]) == (1e-4, 0.0, "proximal")
    with pytest.raises(ValueError, match="Did you mean 'mnist/iid/algorithm_3'"):
        presets.load_preset("mnist/iid/algorithm3")


def test_grids() -> None:
    points = parse_grid(["l1=1e-2,1e-4", "seed=0,1", "preset=a/b"], also=["preset"])
    assert points == [{"l1": l1, "seed": s, "preset": "a/b"} for l1 in (1e-2, 1e-4) for s in (0, 1)]
    assert parse_grid([]) == [{}]
    for axes, message in [
        (["lone=1"], "axis of --grid must be one of"),
        (["l1="], "--grid needs values"),
        (["l1=x"], "no float"),
        (["l1=1", "l1=2"], "names 'l1' twice"),
        (["l1=1e-2,0.01"], "a value for 'l1' twice"),
    ]:
        with pytest.raises(ValueError, match=message):
            parse_grid(axes)
    assert build_config({"l2": 0.1, "l1": 1.0}, {"l1": 2.0}).l1 == 2.0


# --- bytes


def message(vector: np.ndarray, control: np.ndarray | None = None) -> ClientMessage:
    delta = (vector[:3], vector[3:].reshape(2, -1))
    sent = delta if control is None else collections.OrderedDict(delta=delta, control=(control,))
    return ClientMessage(np.int64(1), sent)


def test_uplink_counts_are_the_lengths_of_messages() -> None:
    rng = np.random.default_rng(0)
    vectors = [np.where(rng.random(1003) < 0.1, rng.normal(size=1003), 0).astype(np.float32) for _ in range(3)]
    controls = [rng.normal(size=20).astype(np.float32) for _ in range(3)]
    config = ExperimentConfig(l2=0.1, also_count="float16,quantised:0.01")
    counts, histogram = accounting.Accountant(config, Aggregation()).count_uplink(
        [message(v, c) for v, c in zip(vectors, controls, strict=True)]
    )
    assert counts["uplink_bytes"] == sum(len(LosslessCodec().encode(v)) for v in vectors)
    assert counts["uplink_control_bytes"] == sum(len(LosslessCodec().encode(c)) for c in controls)
    assert counts["uplink_bytes_float16"] == sum(len(Float16Codec().encode(v)) for v in vectors)
    assert counts["uplink_control_bytes_quantised:0.01"] == sum(len(QuantisedCodec(0.01).encode(c)) for c in controls)
    assert histogram.sum() == 3 * 1003
    assert histogram[0] == sum(np.count_nonzero(v == 0) for v in vectors)


def test_a_message_that_the_server_did_not_get_is_found() -> None:
    accountant = accounting.Accountant(ExperimentConfig(l2=0.1, uplink="quantised:0.01"), Aggregation())
    accountant.count_uplink([message(np.array([0, 0.01, 0, 0.02, -0.03, 0, 0], np.float32))])
    with pytest.raises(accounting.MessageMismatchError, match=r"quantised:0.01"):
        accountant.count_uplink([message(np.array([0, 0.012, 0, 0, 0, 0, 0], np.float32))])


def test_other_ways_to_encode() -> None:
    vector = np.zeros(1003, np.float32)
    for name, expected in (("compression", 1003 + 2 * 8), ("secure", 4 * 1003)):
        config = ExperimentConfig(l2=0.1, aggregator=name)
        accountant = accounting.Accountant(config, build_aggregation(config, 10))
        assert accountant.count_uplink([message(vector)])[0] == {"uplink_bytes": expected}
        # FedDyn's signs are a second message where the server never sees a client's delta.
        config = dataclasses.replace(config, l1=0.1)
        accountant = accounting.Accountant(config, build_aggregation(config, 10))
        counts = accountant.count_uplink([message(vector), message(vector)])[0]
        assert counts == {"uplink_bytes": 2 * expected, "uplink_sign_bytes": 2 * expected}
    config = ExperimentConfig(l2=0.1, l1=0.1)
    counts = accounting.Accountant(config, build_aggregation(config, 10)).count_uplink([message(vector)])[0]
    assert list(counts) == ["uplink_bytes"], "else they follow from delta"


def test_a_codec_that_only_counts_stops_nothing() -> None:
    config = ExperimentConfig(l2=0.1, also_count="quantised:1e-09,float16")
    messages = [message(np.array([1.0, 0, 0, 0, 0, 0, 0], np.float32))] * 2
    counts, _ = accounting.Accountant(config, Aggregation()).count_uplink(messages)
    assert counts["uplink_bytes_quantised:1e-09"] is None and counts["uplink_bytes_float16"] is not None


def test_downlink() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=100).astype(np.float32), rng.normal(size=(3, 5)).astype(np.float32)]
    one = len(LosslessCodec().encode(accounting.flatten(weights)))
    counted = accounting.Accountant(ExperimentConfig(l2=0.1), Aggregation()).count_downlink(weights, weights[:1], 7)
    assert counted["downlink_bytes"] == 7 * one and 0 < counted["downlink_control_bytes"] < 7 * one


def test_histogram_of_magnitudes() -> None:
    counts = accounting.magnitude_histogram(np.array([0, 0, 1e-9, -1.1e-8, 0.0101, 100], np.float32))
    assert counts[0] == 2 and counts[1] == 1 and counts[2] == 1 and counts[-1] == 1 and counts.sum() == 6
    place = int(np.searchsorted(accounting.HISTOGRAM_EDGES, 0.0101)) + 1
    assert counts[place] == 1


# --- privacy


def test_privacy_spent_is_that_of_the_client_of_most_rounds() -> None:
    """Who takes part is known from the seed: no amplification by sampling is claimed."""
    config = ExperimentConfig(l2=0.1, aggregator="dp", dp_noise_multiplier=1.3)
    rounds = [[0, 1], [1], [1, 2], [0]]  # client 1 takes part three times
    ours = accounting.PrivacyAccountant(config, lambda t: np.array(rounds[t]))

    def gaussian(number: int) -> float:
        accountant = dp_accounting.rdp.RdpAccountant()
        accountant.compose(dp_accounting.GaussianDpEvent(1.3), number)
        return accountant.get_epsilon(1e-5)

    assert [ours.epsilon(t) for t in (1, 2, 3, 4)] == [gaussian(n) for n in (1, 2, 3, 3)]
    resumed = accounting.PrivacyAccountant(config, lambda t: np.array(rounds[t]))
    assert resumed.epsilon(4) == gaussian(3), "an accountant that starts late knows the earlier rounds"
    # Within a few per cent of the exact epsilon of a Gaussian mechanism of noise 1.3 / sqrt(3).
    assert gaussian(3) == pytest.approx(_exact_gaussian_epsilon(1.3 / np.sqrt(3), 1e-5), rel=0.1)


def _exact_gaussian_epsilon(sigma: float, delta: float) -> float:
    """Balle and Wang (2018), theorem 8, solved by bisection."""

    def spent(epsilon: float) -> float:
        a, b = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
        return float(stats.norm.cdf(a) - np.exp(epsilon) * stats.norm.cdf(b))

    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) > delta else (low, middle)
    return high


def test_noise_is_fresh_unless_a_test_fixes_it() -> None:
    value_type = tff.to_type((np.float32, [1000]))
    values = [np.zeros(1000, np.float32)] * 4

    def draw(**kwargs: Any) -> list[np.ndarray]:
        process = tff_fen.build_dp_factory(0.5, 4, 2.0, **kwargs).create(value_type)
        state, results = process.initialize(), []
        for _ in range(2):
            output = process.next(state, values)
            state = output.state
            results.append(np.asarray(output.result))
        return results

    fresh, again = draw(), draw()
    assert not np.array_equal(fresh[0], again[0]) and not np.array_equal(fresh[0], fresh[1])
    fixed, repeated, other = draw(test_seed=3), draw(test_seed=3), draw(test_seed=4)
    np.testing.assert_array_equal(fixed, repeated)
    assert not np.array_equal(fixed[0], fixed[1]) and not np.array_equal(fixed[0], other[0])
    for result in (*fresh, *fixed):
        assert np.std(result) == pytest.approx(0.5 * 2.0 / 4, rel=0.1)
    # Clipped messages, one noise: the mean of four messages of norm 10 clipped to 2.
    process = tff_fen.build_dp_factory(0.0, 4, 2.0, test_seed=1).create(value_type)
    large = np.full(1000, 10 / np.sqrt(1000), np.float32)
    np.testing.assert_allclose(process.next(process.initialize(), [large] * 4).result, large / 5, rtol=1e-5)


# --- the loop


def make_loop(config: ExperimentConfig, store: SqliteStore) -> Loop:
    task = load_task(config.task, num_clients=config.num_clients, seed=config.seed)
    _, share = parse_sampling(config.sampling)
    aggregation = build_aggregation(config, share * len(task.clients))
    process = build_process(config, task.build_model(), task.batch_size, len(task.clients), aggregation)

    def sample(t: int) -> np.ndarray:
        return sampling.sample_bernoulli(t, len(task.clients), share, config.seed)

    return Loop(config, Parts(process, aggregation, task.client_dataset, sample, Evaluator(task).evaluate), store)


SMALL: dict[str, Any] = dict(
    task="digits", num_clients=8, epochs=1, l1=1e-4, l2=0.1, threshold=1e-3, sampling="bernoulli:0.5"
)


# All of the algorithms and all of the aggregators; more pairs are in test_composition.
PAIRS = [
    *(("fed_dyn", aggregator) for aggregator in AGGREGATORS),
    *((algorithm, "mean") for algorithm in ALGORITHMS if algorithm != "fed_dyn"),
    ("scaffold", "dp"),
]


@pytest.mark.parametrize(("algorithm", "aggregator"), PAIRS)
def test_algorithms_and_aggregators(algorithm: str, aggregator: str, tmp_path: pathlib.Path) -> None:
    if aggregator == "secure":
        tff.backends.test.set_sync_test_cpp_execution_context()
    try:
        config = ExperimentConfig(algorithm=algorithm, aggregator=aggregator, **SMALL)
        with SqliteStore(tmp_path) as store:
            loop = make_loop(config, store)
            rows = [loop.run_round().row for _ in range(2)]
    finally:
        tff.backends.native.set_sync_local_cpp_execution_context()
    assert [row["round"] for row in rows] == [1, 2]
    assert all(row["uplink_bytes"] > 0 and row["downlink_bytes"] > 0 for row in rows)
    assert ("uplink_control_bytes" in rows[0]) == ("downlink_control_bytes" in rows[0]) == (algorithm == "scaffold")
    assert ("dp_epsilon" in rows[0]) == (aggregator == "dp")
    assert ("average_accuracy" in rows[0]) == (algorithm == "fed_dyn")
    assert len(sampling.sample_bernoulli(0, 8, 0.5)) == rows[0]["client_work/train/participants"]


def test_the_loop_is_the_algorithm(tmp_path: pathlib.Path) -> None:
    """Rounds through the store give what rounds in memory give."""
    config = ExperimentConfig(algorithm="fed_dyn", **SMALL)
    with SqliteStore(tmp_path) as store:
        loop = make_loop(config, store)
        for _ in range(3):
            loop.run_round()
        found = loop.weights
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


def test_evaluation_is_where_it_is_due(tmp_path: pathlib.Path) -> None:
    config = ExperimentConfig(algorithm="fed_avg", rounds=4, evaluate_every=3, **SMALL)
    with SqliteStore(tmp_path) as store:
        loop = make_loop(config, store)
        accuracies = [loop.run_round().row["accuracy"] for _ in range(4)]
        assert [a is not None for a in accuracies] == [False, False, True, False]
        assert loop.evaluate()["accuracy"] > 0.0
        assert [record.row["accuracy"] for record in loop.records()] == accuracies


# --- files


def records() -> list[RoundRecord]:
    made = []
    for t in range(1, 4):
        row: dict[str, Any] = {"round": t, "uplink_bytes": 100 * t, "downlink_bytes": 1000}
        row |= {f"client_work/train/{m}/entropy_trunc": 0.1 * t for m in ("delta", "theta")}
        row |= {"client_work/train/delta/non_zeros": 10, "client_work/train/delta/non_zero_share": 0.1}
        row |= {"client_work/train/contributing_clients": 2, "client_work/train/loss": 1 / 3}
        row |= {"accuracy": None if t == 2 else 0.5 + 0.1 * t, "test_loss": None if t == 2 else 1.0}
        histogram = [50, *[t] * (len(accounting.HISTOGRAM_EDGES) + 1)]
        made.append(RoundRecord(row, histogram))
    return made


def test_records_survive_as_bytes() -> None:
    for record in records():
        assert RoundRecord.from_bytes(record.to_bytes()) == record


def test_the_folder(tmp_path: pathlib.Path) -> None:
    config = ExperimentConfig(l2=0.1)
    folder = Folder(tmp_path)
    about = {"preset": "x", "assumed": ["l2"], "data": "abc"}
    header = folder.claim(config, about, None, 0)
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["config"]["l2"] == 0.1 and content["assumed"] == ["l2"] and content["versions"]["tensorflow"]
    # What is in the store counts, whatever became of the file.
    (tmp_path / "config.json").unlink()
    assert folder.claim(dataclasses.replace(config, rounds=99), about, header, 3) == header
    assert json.loads((tmp_path / "config.json").read_text())["config"]["rounds"] == 99
    for other, data, done, message in [
        (dataclasses.replace(config, l1=0.5), "abc", 0, r"l1: 0.0 there, 0.5 asked"),
        (config, "xyz", 0, "data: 'abc' there, 'xyz' asked"),
        (dataclasses.replace(config, rounds=2), "abc", 3, "rounds: '3 done' there, 2 asked"),
    ]:
        with pytest.raises(ConfigMismatchError, match=message):
            folder.claim(other, about | {"data": data}, header, done)
    own = asyncio.new_event_loop()
    asyncio.set_event_loop(own)
    folder.start(records()[:1])
    for record in records()[1:]:
        folder.add(record)
    assert asyncio.get_event_loop() is own, "the thread's event loop, which TFF's training loops use, stays"
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["round"] for row in rows] == ["1", "2", "3"]
    assert rows[0]["client_work/train/loss"] == "0.3333333333333333" and rows[1]["accuracy"] == ""
    whole = (tmp_path / "metrics.csv").read_bytes()
    again = Folder(tmp_path)
    again.start(records())
    assert (tmp_path / "metrics.csv").read_bytes() == whole, "line by line or at once: the same file"
    events = list(tmp_path.glob("events.out.tfevents.*"))
    assert len(events) == 1
    found = [
        (event.step, value.tag)
        for event in tf.compat.v1.train.summary_iterator(str(events[0]))
        for value in event.summary.value
    ]
    assert (3, "uplink_bytes") in found and (2, "accuracy") not in found
    weights = tff.learning.models.ModelWeights([np.zeros(2)], [])
    Folder(tmp_path).finish({"rounds": 3}, weights, records()[-1])
    lines = (tmp_path / "updates.csv").read_text().splitlines()
    second, last = accounting.HISTOGRAM_EDGES[[1, -1]]
    assert lines[:4] == ["lower,upper,count", "0.0,0.0,50", "0.0,1e-08,3", f"1e-08,{second},3"]
    assert lines[-1] == f"{last},inf,3" and len(lines) == 2 + len(accounting.HISTOGRAM_EDGES) + 1
    Folder(tmp_path / "none").path.mkdir()
    Folder(tmp_path / "none").finish({"rounds": 0}, weights, None)
    assert not (tmp_path / "none" / "updates.csv").exists()


def test_summary() -> None:
    summary = summarize(records(), {"accuracy": 0.75}, 100, 1.26)
    assert summary["rounds"] == 3 and summary["participants"] == 6 and summary["uplink_bytes"] == 600
    assert summary["non_zeros"] == 30 and summary["dense_elements"] == 600
    assert summary["accuracy"] == 0.75 and summary["best_accuracy"] == 0.8
    assert summary["entropy_delta_sum"] == pytest.approx(0.6)
    assert summarize([], {}, 100, 0.0) == {"rounds": 0}


def test_plots(tmp_path: pathlib.Path) -> None:
    pictures = plots.draw(records())
    assert sorted(pictures) == ["accuracy.png", "entropy.png", "non_zeros.png", "updates.png"]
    for name, content in pictures.items():
        (tmp_path / name).write_bytes(content)
        image = np.asarray(Image.open(tmp_path / name).convert("RGB"))
        assert min(image.shape[:2]) > 300 and len(np.unique(image.reshape(-1, 3), axis=0)) > 10, name
    assert plots.draw([]) == {}
