"""The values of an experiment: what is refused, what differs, and what earlier versions have stored."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from experiments.experiment_config import ExperimentConfig, build_config
from experiments.flags import parse_grid
from experiments.settings import FIELDS, GROUPS, Settings
from tff_fen.config import ElasticNet, LocalTraining

RESULTS = pathlib.Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (dict(l1=-1.0), "l1 must be a finite number >= 0, found -1.0"),
        (dict(algorithm="feddyn"), "Did you mean 'fed_dyn'"),
        (dict(l2=0.0), "l2 must be > 0 for algorithm 'fed_dyn'"),
        (dict(aggregator="dpp"), "aggregator must be one of 'mean', 'dp'"),
        (dict(top_k=0.1), "top_k=0.1 has no effect: it is for algorithm 'fed_avg'"),
        (dict(top_k=1.1, algorithm="fed_avg"), "top_k must be a finite number > 0 and <= 1, found 1.1"),
        (dict(control_threshold=0.1), "control_threshold=0.1 has no effect: it is for algorithm 'scaffold'"),
        (dict(server_learning_rate=0.5), "server_learning_rate=0.5 has no effect"),
        (dict(dp_noise_multiplier=2.0), "dp_noise_multiplier=2.0 has no effect: it is for aggregator 'dp'"),
        (dict(dp_second_clip=2.0, aggregator="dp"), "dp_second_clip=2.0 has no effect"),
        (dict(compression_bits=4), "compression_bits=4 has no effect: it is for aggregator 'compression'"),
        (dict(augment="flip_crop"), "augment='flip_crop' has no effect: it is for tasks of photographs"),
        (dict(augment="flip", task="cifar10"), "augment must be one of 'none', 'flip_crop', found 'flip'"),
        (dict(alpha=0.5), "alpha=0.5 has no effect: it is for task 'synthetic'"),
        (dict(dp_test_seed=-1, aggregator="dp"), "dp_test_seed must be an integer from 0"),
        (dict(epochs=3_000_000_000), "epochs must be an integer from 1 to 2147483647, found 3000000000"),
        (dict(uplink="float16", aggregator="secure"), "two ways to encode a message"),
        (dict(compressor="qsgd:4", aggregator="compression"), "two ways to encode a message"),
        (dict(compressor="qsgd:4", uplink="float16"), "two ways to round a message"),
        (dict(compressor="stc:0.1", top_k=0.1, algorithm="fed_avg"), "two compressors"),
        (dict(error_feedback=True), "error_feedback=True has no effect: all of a message is sent"),
        (dict(error_feedback=1, top_k=0.1), "error_feedback must be true or false, found 1"),
        (dict(sampling="bernoulli:0"), r"probability in sampling must be a number in \(0, 1\], found 'bernoulli:0'"),
        (dict(sampling="bernoulli:2"), r"probability in sampling must be a number in \(0, 1\]"),
        (dict(sampling="uniform:1.5"), "sampling must be 'bernoulli:0.1' or 'uniform:10'"),
        (dict(sampling="uniform:0"), "number of clients in sampling must be an integer >= 1"),
        (dict(sampling="all"), "sampling must be one of 'bernoulli', 'uniform', found 'all'"),
        (dict(rounds=0), "rounds must be an integer >= 1"),
        (dict(dp_delta=1.0, aggregator="dp"), "dp_delta must be < 1, found 1.0"),
        (dict(dp_clip=0.0), "dp_clip must be a finite number > 0"),
        (dict(compression_bits=40), "compression_bits must be an integer from 1 to 16"),
        (dict(batch_size=0), "batch_size must be an integer from 1"),
    ],
)
def test_values_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        ExperimentConfig(**({"l2": 0.1} | values))


def test_a_compressor_that_has_a_flag_of_its_own() -> None:
    given = {"l2": 0.1, "compressor": "threshold:0.01"}
    assert build_config(given) == ExperimentConfig(l2=0.1, threshold=0.01)
    assert build_config(given | {"compressor": "float16"}) == ExperimentConfig(l2=0.1, uplink="float16")
    with pytest.raises(ValueError, match=r"compressor='threshold:0.01' and threshold=0.02 are two values of one"):
        build_config(given | {"threshold": 0.02})
    with pytest.raises(ValueError, match="compressor must be 'threshold:EPSILON', found 'threshold:x'"):
        build_config({"l2": 0.1, "compressor": "threshold:x"})


@pytest.mark.parametrize("values", [dict(uplink="zip"), dict(also_count="lossless,gzip")])
def test_codecs_that_cannot_be(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="codec must be"):
        ExperimentConfig(l2=0.1, **values).check_library()


def refuses(call: Callable[[], Any]) -> bool:
    try:
        call()
    except (TypeError, ValueError):
        return True
    return False


@pytest.mark.parametrize("kind", [ElasticNet, LocalTraining])
def test_ranges_are_the_librarys(kind: type) -> None:
    """They are written twice: the settings' must be told before TensorFlow is imported."""
    usual: dict[str, Any] = {} if kind is ElasticNet else {"learning_rate": 0.1, "batch_size": 4}
    fields = [field.name for field in dataclasses.fields(kind) if field.name in FIELDS and field.name != "augment"]
    assert len(fields) >= 4  # an augmentation is a name here and a function there
    probes = [-1, -1e-9, 0, 0.0, 1e-9, 1, 1.5, 2**31 - 1, 2**31, float("nan"), float("inf"), True, "proximal", "much"]
    for name, value in itertools.product(fields, probes):
        given: dict[str, Any] = {name: value}
        ours = refuses(Settings(**given).check_values)
        assert ours == refuses(functools.partial(kind, **(usual | given))), (name, value)


def test_every_value_is_in_a_group_of_the_help() -> None:
    assert {field.metadata["group"] for field in FIELDS.values()} <= {*GROUPS}


def test_differences_show_all_but_the_number_of_rounds() -> None:
    config = ExperimentConfig(l2=0.1, l1=1e-4)
    there = json.loads(dataclasses.replace(config, l1=1e-3, seed=2, rounds=99).to_json()) | {"gone": 1}
    assert config.differences(there) == {"l1": (1e-4, 1e-3), "seed": (0, 2), "gone": (None, 1)}
    assert config.differences(json.loads(config.to_json())) == {}


def test_a_field_that_is_not_stored_has_its_default() -> None:
    config = ExperimentConfig(l2=0.1, rounds=7)
    stored = json.loads(config.to_json())
    for name in ("hyperparameters", "also_count", "l1"):
        del stored[name]
    assert config.differences(stored) == {} and Settings.from_stored(stored) == Settings.from_stored(
        json.loads(config.to_json())
    )
    assert ExperimentConfig(l2=0.1, l1=0.5).differences(stored) == {"l1": (0.5, 0.0)}


@pytest.mark.parametrize("nothing", [None, False, 0, 0.0, ""])
def test_a_field_that_is_no_longer_known_is_passed_over_if_it_is_off(nothing: Any) -> None:
    stored = json.loads(ExperimentConfig(l2=0.1).to_json()) | {"gone": nothing}
    assert ExperimentConfig(l2=0.1).differences(stored) == {}
    assert Settings.from_stored(stored).l2 == 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gone": 0.5}, "gone=0.5 is no setting of this version"),
        ({"l1": "much"}, "l1 must be a finite number >= 0, found 'much'"),
        ({"l1": float("nan")}, "l1 must be a finite number >= 0, found nan"),
        ({"rounds": 2.5}, "rounds must be an integer >= 1, found 2.5"),
        ({"rounds": True}, "rounds must be an integer >= 1, found True"),
        ({"split": 3}, "split must be a str, found 3"),
        ({"seed": None}, "seed must be an integer from 0 to 2147483647, found None"),
        ({"sampling": "all"}, "sampling must be 'bernoulli:0.1' or"),
    ],
)
def test_stored_values_that_cannot_be(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Settings.from_stored(json.loads(ExperimentConfig(l2=0.1).to_json()) | change)


def test_all_stored_configs_are_read_to_their_values() -> None:
    paths = list(RESULTS.rglob("config.json"))
    assert len(paths) >= 53
    for path in paths:
        stored = json.loads(path.read_text())["config"]
        read = dataclasses.asdict(Settings.from_stored(stored))
        assert {name: read[name] for name in stored} == stored
        assert all(read[name] == FIELDS[name].default for name in read if name not in stored)
        assert ExperimentConfig(**stored).differences(stored) == {}, "it can be resumed"


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
