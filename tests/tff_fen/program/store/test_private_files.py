"""A store's folder that somebody else has made: nothing is written elsewhere, and nothing is waited for."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3

import pytest

from tests.support import store_process
from tests.support.stores import NEWEST, assert_is_round, write
from tff_fen.program.store import SqliteStore, StoreError
from tff_fen.program.store.private_files import open_private

REFUSED = ("lock", "rounds.sqlite", "rounds.sqlite-journal")


def replace_by_link(file: pathlib.Path, target: pathlib.Path) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to(target)


@pytest.mark.parametrize("name", REFUSED)
def test_a_link_in_place_of_a_file_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    folder, target = tmp_path / "store", tmp_path / "precious"
    write(folder)
    target.write_bytes(b"precious")
    replace_by_link(folder / name, target)
    with pytest.raises(StoreError, match=r"It is a symbolic link, which is not followed: .*" + name):
        SqliteStore(folder)
    assert target.read_bytes() == b"precious"


def test_another_database_behind_a_link_is_left_as_it_is(tmp_path: pathlib.Path) -> None:
    folder, target = tmp_path / "store", tmp_path / "precious"
    with contextlib.closing(sqlite3.connect(target)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (x)")
    before = target.read_bytes()
    folder.mkdir()
    (folder / "rounds.sqlite").symlink_to(target)
    with pytest.raises(StoreError, match="symbolic link"):
        SqliteStore(folder)
    assert target.read_bytes() == before


@pytest.mark.parametrize("name", REFUSED)
def test_a_pipe_in_place_of_a_file_is_refused_at_once(tmp_path: pathlib.Path, name: str) -> None:
    write(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(StoreError, match=r"It is no plain file: .*" + name):
        SqliteStore(tmp_path)


def test_what_stands_for_the_witness_is_neither_read_nor_written(tmp_path: pathlib.Path) -> None:
    folder, target = tmp_path / "store", tmp_path / "precious"
    for kind in ("link", "pipe"):
        target.write_bytes(b"1000")
        write(folder)
        (folder / "newest").unlink()
        if kind == "link":
            (folder / "newest").symlink_to(target)
        else:
            os.mkfifo(folder / "newest")
        with SqliteStore(folder) as store:
            assert_is_round(store, NEWEST)
            store_process.commit(store, NEWEST + 1)
            assert store.warnings == ()
        assert target.read_bytes() == b"1000"
        for file in folder.iterdir():
            file.unlink()


def test_a_store_of_an_earlier_version_is_closed_to_others_when_it_is_opened(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "store"
    write(folder)
    (folder / "rounds.sqlite-journal").touch()
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)
    with SqliteStore(folder) as store:
        store_process.commit(store, NEWEST + 1)
        names = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert names == {"store": 0o700} | dict.fromkeys(
        ("lock", "newest", "rounds.sqlite", "rounds.sqlite-journal"), 0o600
    )


def test_a_descriptor_is_not_left_open(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no plain file"):
        open_private(tmp_path / "pipe", os.O_RDONLY)
    assert len(os.listdir("/proc/self/fd")) == before
