"""The store of rounds: atomic under kill -9 and a full disk, and never silently wrong on a damaged file."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import pathlib
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support import store_process
from tff_fen.program.store import DamagedStoreError, Round, SqliteStore, StoreError, StoreInUseError, database
from tff_fen.program.store.database import Database

CHILD = [sys.executable, str(pathlib.Path(store_process.__file__))]
EVERYBODY = range(store_process.POPULATION)
NEWEST = 10


@contextlib.contextmanager
def start(task: str, folder: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """A process with a task of `store_process`, which does not outlive the block."""
    with subprocess.Popen([*CHILD, task, str(folder)], stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def write(folder: pathlib.Path, rounds: int = NEWEST, scale: int = 1, keep: int = 2) -> pathlib.Path:
    """A store with rounds 0 to `rounds`; returns its file."""
    with SqliteStore(folder, keep=keep) as store:
        for number in range(rounds + 1):
            store_process.commit(store, number, scale)
    return folder / "rounds.sqlite"


def assert_is_round(store: SqliteStore, number: int, scale: int = 1) -> None:
    """Asserts that a store holds exactly what it held after a round."""
    assert store.latest() == Round(number, store_process.checkpoint(number, scale))
    assert store.read_clients(EVERYBODY) == store_process.expected_states(number, scale)
    assert list(store.metrics()) == [(r, store_process.metrics(r)) for r in range(number + 1)]
    assert list(store.client_ids()) == [c for c in EVERYBODY if store_process.last_round(c, number) is not None]


def change(path: pathlib.Path, statement: str, *values: Any) -> int:
    """Changes a database behind the store's back; returns how many rows."""
    db = sqlite3.connect(path)
    with db:
        count = db.execute(statement, values).rowcount
    db.close()
    return count


def look(path: pathlib.Path, query: str, *values: Any) -> list[Any]:
    db = sqlite3.connect(path)
    rows = db.execute(query, values).fetchall()
    db.close()
    return rows


# What is written is read.


def test_rounds_are_read_as_they_were_written_in_the_same_and_in_another_session(tmp_path: pathlib.Path) -> None:
    with SqliteStore(tmp_path / "new" / "folder") as store:
        assert store.latest() is None
        assert list(store.metrics()) == [] and list(store.client_ids()) == []
        assert store.read_clients([3, 4]) == [None, None]
        for number in range(NEWEST + 1):
            store_process.commit(store, number)
            assert_is_round(store, number)
        assert store.read_clients(np.array([3, 3, 1])) == [store_process.expected_states(NEWEST)[c] for c in (3, 3, 1)]
    with SqliteStore(str(tmp_path / "new" / "folder")) as store:
        assert_is_round(store, NEWEST)
        assert store.warnings == ()


def test_a_commit_needs_no_look_at_the_store_first(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    with SqliteStore(tmp_path) as store:
        store_process.commit(store, NEWEST + 1)
        assert_is_round(store, NEWEST + 1)


def test_clients_may_be_listed_while_rounds_are_committed(tmp_path: pathlib.Path) -> None:
    with SqliteStore(tmp_path) as store:
        store.commit(0, b"", {}, b"")
        store.commit(1, b"", {client: b"x" for client in range(0, 4000, 2)}, b"")
        for number, client in enumerate(store.client_ids()):
            if number < 3:
                store.commit(number + 2, b"", {client: b"y"}, b"")
        assert list(store.client_ids()) == list(range(0, 4000, 2))


# Rules.


@pytest.mark.parametrize("number", [0, NEWEST - 1, NEWEST, NEWEST + 2])
def test_rounds_are_consecutive(tmp_path: pathlib.Path, number: int) -> None:
    write(tmp_path)
    with SqliteStore(tmp_path) as store:
        expected = f"round_number must be {NEWEST + 1}, found {number}: .*newest is {NEWEST}"
        with pytest.raises(ValueError, match=expected):
            store.commit(number, b"", {}, b"")
        assert_is_round(store, NEWEST)


def test_the_first_round_is_0_and_has_no_clients(tmp_path: pathlib.Path) -> None:
    with SqliteStore(tmp_path) as store:
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
def test_wrong_types_are_refused_and_leave_no_trace(tmp_path: pathlib.Path, arguments: Any, message: str) -> None:
    with SqliteStore(tmp_path) as store:
        store_process.commit(store, 0)
        with pytest.raises(TypeError, match=message):
            store.commit(*arguments)
        assert_is_round(store, 0)


def test_wrong_values_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="keep must be an integer >= 0, found -1"):
        SqliteStore(tmp_path, keep=-1)
    with pytest.raises(TypeError, match="folder must be a str or Path, found 5"):
        SqliteStore(5)  # type: ignore[arg-type]
    with SqliteStore(tmp_path) as store:
        store.commit(0, b"", {}, b"")
        for client in (-1, 2**63):
            with pytest.raises(ValueError, match=f"A client id must be .*found {client}"):
                store.commit(1, b"", {client: b""}, b"")
            with pytest.raises(ValueError, match=f"A client id must be .*found {client}"):
                store.read_clients([client])
        store.commit(1, b"", {2**63 - 1: b"last"}, b"")
        assert store.read_clients([2**63 - 1]) == [b"last"]


def test_a_closed_store_says_so(tmp_path: pathlib.Path) -> None:
    store = SqliteStore(tmp_path)
    store.close()
    store.close()
    with pytest.raises(StoreError, match=r"is closed\. Open it anew"):
        store.latest()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=r"file cannot be used: .*Choose a folder"):
        SqliteStore(tmp_path / "file")


# Versions and space.


@pytest.mark.parametrize("keep", [0, 1, 2, 5])
def test_just_the_versions_that_loadable_rounds_need_are_kept(tmp_path: pathlib.Path, keep: int) -> None:
    for newest in (1, 4, NEWEST):
        folder = tmp_path / str(newest)
        path = write(folder, newest, keep=keep)
        loadable = range(max(0, newest - keep), newest + 1)
        needed = {(c, store_process.last_round(c, r)) for c in EVERYBODY for r in loadable}
        needed = {(client, number) for client, number in needed if number is not None}
        assert set(look(path, "SELECT client, round FROM clients")) == needed
        assert look(path, "SELECT round FROM rounds ORDER BY round") == [(r,) for r in loadable]
        assert look(path, "SELECT count(*) FROM contents") == [(len(needed) + len(loadable),)]
        assert look(path, "SELECT count(*) FROM metrics") == [(newest + 1,)]


def test_keep_may_be_changed_between_sessions(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, keep=5)
    with SqliteStore(tmp_path, keep=1) as store:
        store_process.commit(store, NEWEST + 1)
    assert look(path, "SELECT round FROM rounds ORDER BY round") == [(NEWEST,), (NEWEST + 1,)]
    needed = {(c, store_process.last_round(c, r)) for c in EVERYBODY for r in (NEWEST, NEWEST + 1)}
    assert set(look(path, "SELECT client, round FROM clients")) == {key for key in needed if key[1] is not None}
    with SqliteStore(tmp_path, keep=3) as store:
        for number in range(NEWEST + 2, NEWEST + 9):
            store_process.commit(store, number)
        assert_is_round(store, NEWEST + 8)
    assert look(path, "SELECT min(round) FROM rounds") == [(NEWEST + 5,)]


def test_the_file_does_not_grow_when_the_same_clients_take_part_again(tmp_path: pathlib.Path) -> None:
    with SqliteStore(tmp_path) as store:
        store.commit(0, b"", {}, b"")
        for number in range(1, 201):
            size = 100_000 + 1_000 * (number % 7)
            store.commit(number, bytes(size), {client: bytes(size) for client in range(5)}, b"")
            if number == 20:
                early = (tmp_path / "rounds.sqlite").stat().st_size
    kept = 4 * 6 * 106_000
    assert early < 2 * kept
    assert (tmp_path / "rounds.sqlite").stat().st_size <= 1.1 * early
    assert (tmp_path / "rounds.sqlite-journal").stat().st_size == 0


def test_memory_grows_with_the_participants_of_a_round_only(tmp_path: pathlib.Path) -> None:
    with start("memory", tmp_path) as child:
        output, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    # 200 MB in all, 5 MB a round.
    assert float(output) < 20


# One at a time.


def test_a_second_process_is_refused_at_once_until_the_first_is_gone(tmp_path: pathlib.Path) -> None:
    with start("hold", tmp_path) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        begin = time.monotonic()
        with pytest.raises(StoreInUseError, match=f"open in process {child.pid}\\. Only one can use it at a time"):
            SqliteStore(tmp_path)
        assert time.monotonic() - begin < 1
        child.kill()
        child.wait()
    with SqliteStore(tmp_path) as store:
        store_process.commit(store, 0)
        with pytest.raises(StoreInUseError, match="which is this one"):
            SqliteStore(tmp_path)
        assert_is_round(store, 0)
    SqliteStore(tmp_path).close()


# Atomic.


def test_kill_9_at_any_instant_leaves_the_last_committed_round(tmp_path: pathlib.Path) -> None:
    rng = random.Random(0)
    reported, in_transaction = -1, 0
    for attempt in range(30):
        with start("commit", tmp_path) as child:
            assert child.stdout is not None
            # Some are killed while they start: when the database is created or the last transaction rolled back.
            if attempt % 5:
                assert child.stdout.readline() == "open\n"
                time.sleep(rng.uniform(0, 0.06))
            else:
                time.sleep(rng.uniform(0.05, 0.25))
            child.send_signal(signal.SIGKILL)
            lines = child.stdout.read().split("\n")
            child.wait()
        reported = max([reported, *(int(line) for line in lines[:-1] if line != "open")])
        journal = tmp_path / "rounds.sqlite-journal"
        in_transaction += journal.exists() and journal.stat().st_size > 0
        with SqliteStore(tmp_path) as store:
            newest = store.latest()
            if newest is None:
                assert reported < 0
                continue
            # The last one may have been committed and not yet reported.
            assert reported <= newest.number <= reported + 1
            reported = newest.number
            assert_is_round(store, newest.number)
            assert store.warnings == ()
    assert reported > 20
    assert in_transaction >= 5, "the test did not hit what it aims at"


def test_a_commit_that_fails_at_any_statement_changes_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = write(tmp_path / "base", scale=1000).parent
    execute = Database.execute
    failed = 0
    while True:
        folder = tmp_path / str(failed)
        shutil.copytree(base, folder)
        with SqliteStore(folder) as store:
            store.latest()
            countdown = itertools.count(failed, -1)

            def interrupted(self: Database, statement: str, *values: Any, countdown: Iterator[int] = countdown) -> Any:
                if next(countdown) == 0:
                    raise KeyboardInterrupt
                return execute(self, statement, *values)

            monkeypatch.setattr(Database, "execute", interrupted)
            try:
                store_process.commit(store, NEWEST + 1, scale=1000)
            except KeyboardInterrupt:
                pass
            else:
                break
            finally:
                monkeypatch.undo()
            # As another process would see it that begins now.
            shutil.copytree(folder, tmp_path / f"copy{failed}")
            with SqliteStore(tmp_path / f"copy{failed}") as copy:
                assert_is_round(copy, NEWEST, scale=1000)
                assert copy.warnings == ()
            assert_is_round(store, NEWEST, scale=1000)
            store_process.commit(store, NEWEST + 1, scale=1000)
            assert_is_round(store, NEWEST + 1, scale=1000)
            assert store.warnings == ()
        failed += 1
    assert failed > 20


def test_an_interrupt_just_after_the_commit_is_noticed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    with SqliteStore(tmp_path) as store:
        execute = Database.execute

        def interrupted(self: Database, statement: str, *values: Any) -> Any:
            cursor = execute(self, statement, *values)
            if statement == "COMMIT":
                raise KeyboardInterrupt
            return cursor

        monkeypatch.setattr(Database, "execute", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store_process.commit(store, NEWEST + 1)
        monkeypatch.undo()
        assert_is_round(store, NEWEST + 1)
        store_process.commit(store, NEWEST + 2)
        assert_is_round(store, NEWEST + 2)


def test_a_creation_that_did_not_end_is_begun_anew(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = database._connect

    def interrupted(path: pathlib.Path) -> None:
        connect(path).close()
        raise KeyboardInterrupt

    monkeypatch.setattr(database, "_connect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SqliteStore(tmp_path)
    monkeypatch.undo()
    assert list(tmp_path.glob("rounds.*")), "the test did not hit what it aims at"
    write(tmp_path)


def check_full(done: subprocess.CompletedProcess[str], error: str) -> None:
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    failed = result["failed"]
    assert failed > 1
    assert error in result["message"] and "MB are free" in result["message"]
    assert f"All rounds up to {failed - 1} are safe. Make room" in result["message"]
    assert result["newest"] == failed - 1 and result["readable"]
    assert result["then"] == failed and result["then readable"]
    assert result["warnings"] == []


def test_a_limit_on_file_sizes_leaves_all_rounds_safe_and_the_commit_can_be_repeated(tmp_path: pathlib.Path) -> None:
    done = subprocess.run([*CHILD, "fill", str(tmp_path)], capture_output=True, text=True, check=False, timeout=60)
    check_full(done, "SQLITE_IOERR_WRITE")


def test_a_full_disk_leaves_all_rounds_safe_and_the_commit_can_be_repeated(tmp_path: pathlib.Path) -> None:
    # A mount that only this process sees, and that ends with it.
    private = ["unshare", "--map-root-user", "--mount", "sh", "-ec"]
    mount = 'mount -t tmpfs -o size=5m tmpfs "$1"'
    if not shutil.which("unshare") or subprocess.run([*private, mount, "sh", tmp_path], check=False).returncode:
        pytest.skip("This system does not let a process mount a small disk for itself.")
    script = mount + '; head -c 2000000 /dev/zero > "$1/ballast"; shift; exec "$@"'
    command = [*private, script, "sh", str(tmp_path), *CHILD, "fill", str(tmp_path)]
    check_full(subprocess.run(command, capture_output=True, text=True, check=False, timeout=60), "SQLITE_FULL")


# Damage.


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


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"",
        lambda content: content[:50],
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: bytes(len(content)),
        lambda content: b"not a database at all " * 10_000,
        lambda content: bytes(100) + content[100:],
        lambda content: content[:65536] + bytes(len(content) - 65536),
    ],
    ids=["empty", "50 bytes", "half", "cut by a byte", "zeros", "text", "head", "all but the head"],
)
def test_a_file_that_is_no_database_any_more_is_a_damaged_store(
    tmp_path: pathlib.Path, spoil: Callable[[bytes], bytes]
) -> None:
    path = write(tmp_path)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(DamagedStoreError, match=r"rounds\.sqlite.*Restore the folder"), SqliteStore(tmp_path) as store:
        store.latest()
    # And it does not stay locked.
    with pytest.raises(DamagedStoreError), SqliteStore(tmp_path) as store:
        store.latest()


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


@pytest.mark.parametrize("statement", ["PRAGMA application_id = 7", "ALTER TABLE clients RENAME client TO clients"])
def test_a_store_of_another_format_is_refused(tmp_path: pathlib.Path, statement: str) -> None:
    path = write(tmp_path)
    change(path, statement)
    with pytest.raises(DamagedStoreError, match="damaged, or not a store of this version of the package"):
        SqliteStore(tmp_path)


def test_a_journal_without_its_database_does_not_spoil_a_new_one(tmp_path: pathlib.Path) -> None:
    with start("commit", tmp_path) as child:
        assert child.stdout is not None
        for _ in range(10):
            child.stdout.readline()
        child.kill()
    path = tmp_path / "rounds.sqlite"
    (tmp_path / "rounds.sqlite-journal").write_bytes(path.read_bytes())
    path.unlink()
    write(tmp_path)
    with SqliteStore(tmp_path) as store:
        assert_is_round(store, NEWEST)
