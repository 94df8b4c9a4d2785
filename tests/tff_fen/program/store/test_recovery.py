"""Damage to a store: always noticed, named, and fallen back from where a whole round is left."""

from __future__ import annotations

import logging
import pathlib
import random
import shutil
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import store_process
from tests.support.stores import EVERYBODY, NEWEST, assert_is_round, change, look, write
from tff_fen.program.store import DamagedStoreError, Round, SqliteStore


def damage_checkpoint(path: pathlib.Path, number: int) -> str:
    flip(path, "SELECT checkpoint FROM rounds WHERE round = ?", number)
    return f"the checkpoint of round {number}: content and digest do not match"


def damage_client(path: pathlib.Path, number: int) -> str:
    client = next(c for c in store_process.participants(number) if store_process.state(c, number))
    flip(path, "SELECT content FROM clients WHERE round = ? AND client = ?", number, client)
    return f"the state of client {client} of round {number}: content and digest do not match"


def damage_metrics(path: pathlib.Path, number: int) -> str:
    assert change(path, "UPDATE metrics SET content = x'00' || substr(content, 2) WHERE round = ?", number) == 1
    return f"the row of metrics of round {number}: content and digest do not match"


def swap_clients(path: pathlib.Path, number: int) -> str:
    """Content and digest of one client under the key of another."""
    a, b = store_process.participants(number)[:2]
    query = "SELECT client, digest, content FROM clients WHERE round = ? AND client IN (?, ?)"
    for client, digest, content in look(path, query, number, a, b):
        other = a + b - client
        update = "UPDATE clients SET digest = ?, content = ? WHERE round = ? AND client = ?"
        assert change(path, update, digest, content, number, other) == 1
    return f"the clients' states as of round {number}: keys were changed or are missing"


def swap_contents(path: pathlib.Path, number: int) -> str:
    """Contents of two clients exchanged, the digests left."""
    rows = look(path, "SELECT client, content FROM clients WHERE round = ? ORDER BY client", number)[:2]
    for (client, _), (_, content) in zip(rows, reversed(rows), strict=True):
        change(path, "UPDATE clients SET content = ? WHERE round = ? AND client = ?", content, number, client)
    return f"of round {number}: content and digest do not match"


def lose_client(path: pathlib.Path, number: int) -> str:
    client = store_process.participants(number)[0]
    assert change(path, "DELETE FROM clients WHERE round = ? AND client = ?", number, client) == 1
    return f"the clients' states as of round {number}: keys were changed or are missing"


def lose_checkpoint(path: pathlib.Path, number: int) -> str:
    assert change(path, "DELETE FROM rounds WHERE round = ?", number) == 1
    return f"the checkpoint of round {number} is missing"


def lose_content(path: pathlib.Path, number: int) -> str:
    query = "DELETE FROM contents WHERE id = (SELECT checkpoint FROM rounds WHERE round = ?)"
    assert change(path, query, number) == 1
    return f"the checkpoint of round {number}: its content is missing"


def lose_metrics(path: pathlib.Path, number: int) -> str:
    assert change(path, "DELETE FROM metrics WHERE round = ?", number) == 1
    return f"the row of metrics of round {number}: it is missing"


def take_from_earlier_round(path: pathlib.Path, number: int) -> str:
    """Checkpoint and digest of the round before, as if the newest one had not been written."""
    query = "SELECT digest, checkpoint, participants, population FROM rounds WHERE round = ?"
    row = look(path, query, number - 1)[0]
    update = "UPDATE rounds SET digest = ?, checkpoint = ?, participants = ?, population = ? WHERE round = ?"
    assert change(path, update, *row, number) == 1
    return f"the checkpoint of round {number}: content and digest do not match"


def flip(path: pathlib.Path, query: str, *values: int) -> None:
    """Changes one byte of a content."""
    ((content_id,),) = look(path, query, *values)
    ((content,),) = look(path, "SELECT content FROM contents WHERE id = ?", content_id)
    middle = len(content) // 2
    changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    assert change(path, "UPDATE contents SET content = ? WHERE id = ?", changed, content_id) == 1


DAMAGES = [
    damage_checkpoint,
    damage_client,
    damage_metrics,
    swap_clients,
    swap_contents,
    take_from_earlier_round,
    lose_client,
    lose_checkpoint,
    lose_content,
    lose_metrics,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_the_newest_round_is_named_and_costs_that_round_only(
    tmp_path: pathlib.Path, damage: Callable[[pathlib.Path, int], str], caplog: pytest.LogCaptureFixture
) -> None:
    message = damage(write(tmp_path), NEWEST)
    with SqliteStore(tmp_path) as store, caplog.at_level(logging.WARNING):
        assert_is_round(store, NEWEST - 1)
        (warning,) = store.warnings
        assert message in warning and "rounds.sqlite" in warning
        assert message in caplog.text and f"Rolled back to round {NEWEST - 1}" in caplog.text
    with SqliteStore(tmp_path) as store:
        assert_is_round(store, NEWEST - 1)
        assert store.warnings == ()
        for number in range(NEWEST, NEWEST + 5):
            store_process.commit(store, number)
            assert_is_round(store, number)
    with SqliteStore(tmp_path) as store:
        assert_is_round(store, NEWEST + 4)


@pytest.mark.parametrize("damage", [damage_checkpoint, damage_client, damage_metrics])
def test_the_rounds_kept_can_be_fallen_back_to_and_none_before(
    tmp_path: pathlib.Path, damage: Callable[[pathlib.Path, int], str]
) -> None:
    path = write(tmp_path)
    for back in (1, 2):
        damage(path, NEWEST - back + 1)
    with SqliteStore(tmp_path) as store:
        assert_is_round(store, NEWEST - 2)
        assert len(store.warnings) == 2
    message = damage(path, NEWEST - 2)
    with SqliteStore(tmp_path) as store:
        for _ in range(2):
            with pytest.raises(DamagedStoreError, match=f"No round is whole.*{message}.*Restore the folder"):
                store.latest()
        with pytest.raises(DamagedStoreError, match=message):
            store.commit(NEWEST - 1, b"", {}, b"")


def test_a_damaged_state_of_the_round_before_costs_two_rounds_unless_it_was_replaced(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path)
    newest, before = (set(store_process.participants(r)) for r in (NEWEST, NEWEST - 1))
    replaced = next(c for c in before & newest if store_process.state(c, 1))
    current = next(c for c in before - newest if store_process.state(c, 1))
    query = "SELECT content FROM clients WHERE client = ? AND round = ?"
    flip(path, query, replaced, NEWEST - 1)
    with SqliteStore(tmp_path) as store:
        assert_is_round(store, NEWEST)
    flip(path, query, current, NEWEST - 1)
    with SqliteStore(tmp_path) as store:
        assert_is_round(store, NEWEST - 2)
        assert len(store.warnings) == 2


def test_old_values_are_checked_when_they_are_read(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path)
    ((client, number),) = look(path, "SELECT client, round FROM clients WHERE client % 5 ORDER BY round LIMIT 1")
    assert number < NEWEST - 2
    flip(path, "SELECT content FROM clients WHERE client = ? AND round = ?", client, number)
    damage_metrics(path, 1)
    with SqliteStore(tmp_path) as store:
        assert store.latest() == Round(NEWEST, store_process.checkpoint(NEWEST))
        with pytest.raises(DamagedStoreError, match=f"rounds.sqlite is damaged: the state of client {client} of round"):
            store.read_clients(EVERYBODY)
        others = [c for c in EVERYBODY if c != client]
        expected = store_process.expected_states(NEWEST)
        assert store.read_clients(others) == [expected[c] for c in others]
        with pytest.raises(DamagedStoreError, match="the row of metrics of round 1: content and digest do not match"):
            list(store.metrics())


@pytest.mark.parametrize("damage", [damage_client, swap_clients, swap_contents])
def test_damage_that_comes_while_the_store_is_open_is_found_and_fallen_back_from(
    tmp_path: pathlib.Path, damage: Callable[[pathlib.Path, int], str]
) -> None:
    path = write(tmp_path)
    with SqliteStore(tmp_path) as store:
        assert_is_round(store, NEWEST)
        damage(path, NEWEST)
        message = rf"the state of client \d+ of round {NEWEST}: content and digest do not match\. Resume the experiment"
        with pytest.raises(DamagedStoreError, match=message):
            store.read_clients(EVERYBODY)
        assert_is_round(store, NEWEST - 1)


def test_a_lost_client_of_long_ago_is_noticed_at_once(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path)
    assert change(path, "DELETE FROM clients WHERE round < ?", NEWEST - 2) > 0
    with SqliteStore(tmp_path) as store, pytest.raises(DamagedStoreError, match="keys were changed or are missing"):
        store.read_clients(EVERYBODY)


@pytest.mark.parametrize(
    "wrong",
    [b"", bytes(7), 5, "text", struct.pack("<20q", *range(-4, 16))],
    ids=["none", "cut", "number", "text", "everybody"],
)
def test_a_damaged_list_of_participants_takes_no_version_that_is_needed(tmp_path: pathlib.Path, wrong: Any) -> None:
    path = write(tmp_path)
    for number in (NEWEST - 1, NEWEST - 2):
        assert change(path, "UPDATE rounds SET participants = ? WHERE round = ?", wrong, number) == 1
    with SqliteStore(tmp_path) as store:
        for number in range(NEWEST + 1, NEWEST + 20):
            store_process.commit(store, number)
            assert_is_round(store, number)


def spoil_anywhere(content: bytes, rng: random.Random) -> bytes:
    """Changes a byte that is not zero, or a run of bytes, or a page, or two pages."""
    spoilt = bytearray(content)
    kind = rng.randrange(6)
    page = 65536 * rng.randrange(len(content) // 65536)
    if kind < 3:
        # Not in the empty parts of pages, where nobody would notice.
        place = next(i for i in iter(lambda: rng.randrange(len(content)), None) if content[i])
        length = (1, 1, 30)[kind]
        spoilt[place : place + length] = rng.randbytes(min(length, len(content) - place))
    elif kind == 3:
        spoilt[page : page + 65536] = rng.choice([bytes(65536), rng.randbytes(65536)])
    elif kind == 4:
        # The structure is at the beginning of a page, and where the pointers of its cells are.
        place = page + rng.randrange(100)
        spoilt[place] ^= 1 << rng.randrange(8)
    else:
        other = 65536 * rng.randrange(len(content) // 65536)
        spoilt[page : page + 65536] = content[other : other + 65536]
    return bytes(spoilt)


@pytest.mark.parametrize("scale", [1, 1000])
def test_no_damage_anywhere_in_the_file_goes_unnoticed(tmp_path: pathlib.Path, scale: int) -> None:
    content = write(tmp_path / "base", scale=scale).read_bytes()
    rng = random.Random(scale)
    outcomes = {"as written": 0, "fell back": 0, "refused": 0, "refused later": 0}
    for attempt in range(250):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        (folder / "rounds.sqlite").write_bytes(spoil_anywhere(content, rng))
        try:
            with SqliteStore(folder) as store:
                newest = store.latest()
                assert newest is not None, attempt
                try:
                    assert_is_round(store, newest.number, scale)
                except DamagedStoreError:
                    outcomes["refused later"] += 1
                else:
                    outcomes["as written" if newest.number == NEWEST else "fell back"] += 1
                    assert (newest.number == NEWEST) == (not store.warnings)
                assert NEWEST - 2 <= newest.number <= NEWEST
        except DamagedStoreError:
            outcomes["refused"] += 1
        shutil.rmtree(folder)
    assert min(outcomes["fell back"], outcomes["refused"]) >= 5, outcomes
    assert outcomes["as written"] < 200, outcomes


def test_an_older_state_of_the_database_is_noticed(tmp_path: pathlib.Path) -> None:
    """Whole in itself, as after a restored copy: what stands beside it knows of the rounds that are gone."""
    path = write(tmp_path, rounds=6)
    older = path.read_bytes()
    with SqliteStore(tmp_path) as store:
        for number in (7, 8):
            store_process.commit(store, number)
    path.write_bytes(older)
    with SqliteStore(tmp_path) as store:
        assert_is_round(store, 6)
        (warning,) = store.warnings
        assert "is an older state: round 8 was committed to it, the newest it holds is 6." in warning
        store_process.commit(store, 7)
    with SqliteStore(tmp_path) as store:
        assert_is_round(store, 7)
        assert not store.warnings, "it is said once"
    path.unlink()
    with SqliteStore(tmp_path) as store:
        assert store.latest() is None
        assert "round 7 was committed to it, it holds none." in store.warnings[0]


def test_a_store_without_a_witness_is_taken_as_it_is(tmp_path: pathlib.Path) -> None:
    """As earlier versions left it; so is one whose witness is damaged, or behind after a power cut."""
    write(tmp_path, rounds=3)
    for content in (None, b"", b"\xff\x00", b"2                   \n"):
        (tmp_path / "newest").unlink(missing_ok=True)
        if content is not None:
            (tmp_path / "newest").write_bytes(content)
        with SqliteStore(tmp_path) as store:
            assert_is_round(store, 3)
            assert not store.warnings
