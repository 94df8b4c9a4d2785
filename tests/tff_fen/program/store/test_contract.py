"""What both stores hold to: what is written is read, and the rules for what is written."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support import store_process
from tests.support.stores import EVERYBODY, NEWEST, assert_is_round
from tff_fen.program.store import MemoryStore, RoundStore, SqliteStore, StoreError


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[RoundStore]:
    """An empty store."""
    stores: dict[str, Callable[[], RoundStore]] = {
        "sqlite": lambda: SqliteStore(tmp_path / "new" / "folder"),
        "memory": MemoryStore,
    }
    with stores[request.param]() as opened:
        yield opened


def test_rounds_are_read_as_they_were_written(store: RoundStore) -> None:
    assert store.latest() is None
    assert list(store.metrics()) == [] and list(store.client_ids()) == []
    assert store.read_clients([3, 4]) == [None, None]
    for number in range(NEWEST + 1):
        store_process.commit(store, number)
        assert_is_round(store, number)
    assert store.read_clients(np.array([3, 3, 1])) == [store_process.expected_states(NEWEST)[c] for c in (3, 3, 1)]
    assert store.warnings == ()


def test_clients_may_be_listed_while_rounds_are_committed(store: RoundStore) -> None:
    store.commit(0, b"", {}, b"")
    store.commit(1, b"", {client: b"x" for client in range(0, 4000, 2)}, b"")
    for number, client in enumerate(store.client_ids()):
        if number < 3:
            store.commit(number + 2, b"", {client: b"y"}, b"")
    assert list(store.client_ids()) == list(range(0, 4000, 2))


@pytest.mark.parametrize("number", [0, NEWEST - 1, NEWEST, NEWEST + 2])
def test_rounds_are_consecutive(store: RoundStore, number: int) -> None:
    for earlier in range(NEWEST + 1):
        store_process.commit(store, earlier)
    expected = f"round_number must be {NEWEST + 1}, found {number}: .*newest is {NEWEST}"
    with pytest.raises(ValueError, match=expected):
        store.commit(number, b"", {}, b"")
    assert_is_round(store, NEWEST)


def test_the_first_round_is_0_and_has_no_clients(store: RoundStore) -> None:
    with pytest.raises(ValueError, match=r"round_number must be 0, found 1: .*the store is empty"):
        store.commit(1, b"", {}, b"")
    with pytest.raises(ValueError, match=r"client_states must be empty in round 0, .*found 1 clients"):
        store.commit(0, b"", {0: b""}, b"")
    assert store.latest() is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((True, b"", {}, b""), "round_number must be an integer .*found True of type bool"),
        ((1.0, b"", {}, b""), "round_number must be an integer .*found 1.0 of type float"),
        ((1, "text", {}, b""), "checkpoint must be a bytes, found 'text' of type str"),
        ((1, b"", {}, None), "metrics must be a bytes, found None of type NoneType"),
        ((1, b"", [b""], b""), "client_states must be a Mapping, found"),
        ((1, b"", {0: np.zeros(1)}, b""), r"client_states\[0\] must be a bytes, found array"),
        ((1, b"", {"0": b""}, b""), "A client id must be an integer from 0 to .*found '0' of type str"),
    ],
)
def test_wrong_types_are_refused_and_leave_no_trace(store: RoundStore, arguments: Any, message: str) -> None:
    store_process.commit(store, 0)
    with pytest.raises(TypeError, match=message):
        store.commit(*arguments)
    assert_is_round(store, 0)


def test_ids_out_of_range_are_refused(store: RoundStore) -> None:
    store.commit(0, b"", {}, b"")
    for client in (-1, 2**63):
        with pytest.raises(ValueError, match=f"A client id must be .*found {client}"):
            store.commit(1, b"", {client: b""}, b"")
        with pytest.raises(ValueError, match=f"A client id must be .*found {client}"):
            store.read_clients([client])
    store.commit(1, b"", {2**63 - 1: b"last"}, b"")
    assert store.read_clients([2**63 - 1]) == [b"last"]


def test_a_closed_store_says_so(store: RoundStore) -> None:
    store.close()
    store.close()
    for use in (store.latest, lambda: store.read_clients(EVERYBODY), lambda: list(store.metrics())):
        with pytest.raises(StoreError, match=r"is closed\. Open it anew"):
            use()
