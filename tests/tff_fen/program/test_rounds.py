"""The loop below `run_rounds`: what it records, when it stops, what it refuses."""

from __future__ import annotations

import asyncio
import collections
import json
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.support import small_run
from tests.support.small_run import client_dataset, sample
from tff_fen.program.records import Record, flatten, numbers
from tff_fen.program.rounds import Rounds, read_header
from tff_fen.program.serialization import to_bytes
from tff_fen.program.store import DamagedStoreError, MemoryStore, SqliteStore


@pytest.fixture(scope="module")
def process() -> Any:
    return small_run.build("fed_dyn")


def test_columns_are_the_round_then_the_processes_then_what_is_measured(process: Any) -> None:
    seen: list[Any] = []

    def measure(before: Any, output: Any, ids: list[int]) -> dict[str, Any]:
        seen.append((before, output.state, ids))
        return {"b": np.float32(0.5), "histogram": np.arange(3), "a": {"x": tf.constant(2)}, "none": None}

    store = MemoryStore()
    rounds = Rounds(process, client_dataset, sample, store, measure=measure, header=b"about")
    initial = rounds.state
    record = rounds.run_round()
    names = list(record.row)
    assert names[0] == "round" and names[-3:] == ["b", "a/x", "none"]
    assert "client_work/train/loss" in names[1:-3] and "distributor/theta/entropy_trunc" in names[1:-3]
    assert [record.row[name] for name in ("round", "b", "a/x", "none")] == [1, 0.5, 2, None]
    assert record.lists == {"histogram": [0, 1, 2]}
    ((before, after, ids),) = seen
    assert before is initial and after is rounds.state and ids == sample(0).tolist()
    assert list(rounds.records()) == [record]
    (_, header), (_, content) = store.metrics()
    assert json.loads(content) == {"row": record.row, "histogram": [0, 1, 2]}
    assert header == b"about" == read_header(store)
    assert read_header(MemoryStore()) is None


def test_a_record_of_earlier_versions_is_read() -> None:
    content = b'{"row": {"round": 1, "loss": 0.1, "accuracy": null, "x": NaN}, "histogram": [3, 4]}'
    record = Record.from_bytes(content)
    assert list(record.row) == ["round", "loss", "accuracy", "x"] and record.lists == {"histogram": [3, 4]}
    assert record.to_bytes() == content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "it must be an object of 'row'"),
        (b'{"row": {}}', "it says that its round is None"),
        (b'{"row": {"round": 2}}', "it says that its round is 2"),
        (b'{"row": {"round": 1, "loss": [1]}}', "column 'loss' must be one value"),
        (b'{"row": {"round": 1}, "histogram": 3}', "and of lists"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "it must be an object"),
        (b"\xff", "can't decode"),
    ],
)
def test_a_record_that_is_none_is_named_with_its_store(
    process: Any, tmp_path: pathlib.Path, content: bytes, said: str
) -> None:
    """With a right digest, as only a forger writes it."""
    with SqliteStore(tmp_path / "store") as store:
        initial = Rounds(process, client_dataset, sample, store).state
        store.commit(1, to_bytes(initial), {}, content)
        rounds = Rounds(process, client_dataset, sample, store)
        with pytest.raises(DamagedStoreError, match=f"{tmp_path / 'store'} is damaged: .* round 1 is none: .*{said}"):
            list(rounds.records())


def test_what_a_column_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Column 'x' must hold a number, .* found <object .* of type object"):
        Record.from_columns({"x": object()})
    with pytest.raises(ValueError, match="must not be named 'row'"):
        Record.from_columns({"row": [1]})


def test_metrics_are_made_flat_and_only_single_numbers_of_a_process_are_columns() -> None:
    nested = collections.OrderedDict(
        a=collections.OrderedDict(z=np.int64(3), empty=(), y=tf.constant(0.5)), vector=np.ones(2), text=b"no", n=True
    )
    assert list(numbers(nested).items()) == [("a/z", 3), ("a/y", 0.5), ("n", True)]
    assert list(flatten({"a": {"b": [1]}, "c": 2})) == ["a/b", "c"]
    assert flatten(()) == {}


def test_it_stops_when_told_and_tells_of_each_round(process: Any) -> None:
    told: list[int] = []
    rounds = Rounds(process, client_dataset, sample, MemoryStore())
    rounds.run(4, should_stop=lambda: len(told) == 2, on_round=lambda record: told.append(record.row["round"]))
    assert told == [1, 2] and rounds.round == 2
    rounds.run(3)
    assert rounds.round == 3
    rounds.run(3)
    with pytest.raises(ValueError, match=r"rounds must be at least 3, found 2\. The store in memory holds 3 rounds"):
        rounds.run(2)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_round_that_fails_leaves_the_one_before(
    process: Any, error: type[BaseException], tmp_path: pathlib.Path
) -> None:
    def measure(*_: Any) -> dict[str, Any]:
        if rounds.round == 1:
            raise error
        return {}

    with SqliteStore(tmp_path) as store:
        rounds = Rounds(process, client_dataset, sample, store, measure=measure)
        state = rounds.run_round() and rounds.state
        clients = store.read_clients(range(5))
        with pytest.raises(error):
            rounds.run_round()
        latest = store.latest()
        assert latest is not None and latest.number == rounds.round == 1
        assert rounds.state is state and store.read_clients(range(5)) == clients


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([], ValueError, r"sample\(0\) must return at least one client id, found none"),
        ([2, 1, 2], ValueError, r"sample\(0\) must return different client ids, found \[2\] more than once"),
        ([1, 2.0], TypeError, r"sample\(0\)\[1\] must be an integer from 0 to .*found 2.0 of type float"),
        ([-1], ValueError, r"sample\(0\)\[0\] must be an integer from 0 to .*found -1"),
        (np.zeros((1, 1), int), TypeError, r"sample\(0\)\[0\] must be an integer"),
        (3, TypeError, r"sample\(0\) must return client ids, found 3 of type int"),
        (None, TypeError, r"sample\(0\) must return client ids, found None"),
    ],
)
def test_bad_samples_are_refused_before_the_work(process: Any, ids: Any, error: type[Exception], message: str) -> None:
    def no_data(client: int) -> Any:
        raise AssertionError("The work has begun.")

    rounds = Rounds(process, no_data, lambda number: ids, MemoryStore())
    with pytest.raises(error, match=message):
        rounds.run_round()


def test_measured_columns_must_not_hide_others(process: Any) -> None:
    rounds = Rounds(process, client_dataset, sample, MemoryStore(), measure=lambda *_: {"round": 7})
    with pytest.raises(ValueError, match=r"must have names of its own, found \['round'\]"):
        rounds.run_round()
    assert rounds.round == 0


def test_releases_work_where_an_event_loop_is_running(process: Any) -> None:
    manager = tff.program.MemoryReleaseManager()

    async def notebook() -> None:
        rounds._release(Record({"round": 1, "loss": 0.5, "none": None}, {"list": [1]}))

    rounds = Rounds(process, client_dataset, sample, MemoryStore(), release_managers=[manager])
    loop = asyncio.new_event_loop()
    loop.run_until_complete(notebook())
    loop.close()
    assert manager.values() == {1: {"loss": 0.5}}
    assert isinstance(manager.values()[1]["loss"], np.float64)
