"""Stores of `store_process`'s rounds: written, checked, and changed behind the store's back."""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tests.support import store_process
from tff_fen.program.store import Round, RoundStore, SqliteStore

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


def assert_is_round(store: RoundStore, number: int, scale: int = 1) -> None:
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
