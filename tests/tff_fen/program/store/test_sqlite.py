"""The store on disk: atomic under kill -9 and a full disk, and no larger than it must be."""

from __future__ import annotations

import itertools
import json
import pathlib
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import store_process
from tests.support.stores import CHILD, EVERYBODY, NEWEST, assert_is_round, look, start, write
from tff_fen.program.store import SqliteStore, StoreError, StoreInUseError
from tff_fen.program.store.database import Database


def test_rounds_are_read_as_they_were_written_in_another_session(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "new" / "folder")
    with SqliteStore(str(tmp_path / "new" / "folder")) as store:
        assert_is_round(store, NEWEST)
        assert store.warnings == ()


def test_a_commit_needs_no_look_at_the_store_first(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    with SqliteStore(tmp_path) as store:
        store_process.commit(store, NEWEST + 1)
        assert_is_round(store, NEWEST + 1)


def test_wrong_values_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="keep must be an integer >= 0, found -1"):
        SqliteStore(tmp_path, keep=-1)
    with pytest.raises(TypeError, match="folder must be a str or Path, found 5"):
        SqliteStore(5)  # type: ignore[arg-type]


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


@pytest.mark.long
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


@pytest.mark.long
def test_kill_9_at_any_instant_leaves_the_last_committed_round(tmp_path: pathlib.Path) -> None:
    rng = random.Random(0)
    reported, in_transaction = -1, 0
    attempt = 0
    # A busy machine commits less until it is hit: as often as it takes, within bounds.
    while attempt < 30 or (attempt < 150 and (reported <= 20 or in_transaction < 5)):
        attempt += 1
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
