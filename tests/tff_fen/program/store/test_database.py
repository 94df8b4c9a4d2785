"""The database of a store: how it is created, and which files are none."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from tests.support.stores import NEWEST, assert_is_round, change, start, write
from tff_fen.program.store import DamagedStoreError, SqliteStore, database


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
