"""SQLite against LMDB as the store of client states: the same access pattern, durable commits.

    python -m benchmarks.store [--rounds=15]

A population of 100 000 clients with states of 800 KB (199 210 float32). A round reads its participants' states and
writes new ones in one durable transaction, each with a digest that is checked when it is read; a state stays for two
rounds after a newer one replaced it. What is measured:

- ms a round, to read and to write, 10 and 100 participants: median and the range of the middle half. The rounds are
  interleaved, so that a slow spell of the machine hits all. Participants come from 1 000 clients who all have a state.
- file size over the size of what must be kept, after those rounds: are the pages of replaced states used again?
- memory (RSS) of a process of its own after it wrote and then read 5 000 different clients, 4 GB.
- what a reader gets from a file that was cut in half, in a process of its own.

Needs the package lmdb, 5 GB of disk at a time below $TMPDIR or the current folder, all of it given back, and about
2 minutes.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import signal
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import psutil
from absl import app, flags

ROUNDS = flags.DEFINE_integer("rounds", 15, "Rounds timed per contender and number of participants.", lower_bound=3)
CHILD = flags.DEFINE_enum("child", None, ["memory", "cut"], "Used by the benchmark itself: what to do in a process.")
CONTENDER = flags.DEFINE_string("contender", None, "Used by the benchmark itself: with which contender.")
FOLDER = flags.DEFINE_string("folder", None, "Used by the benchmark itself: in which folder.")

POPULATION, POOL, TOUCHED, KEEP = 100_000, 1_000, 5_000, 2
STATE = 199_210 * 4
DIGEST = 16


class Contender(Protocol):
    """The minimal store: versions of client states by round."""

    path: pathlib.Path

    def read(self, clients: Iterable[int]) -> list[bytes | None]:
        """The newest states, with their digests checked."""

    def commit(self, number: int, states: Mapping[int, bytes]) -> None:
        """Writes the states of a round and drops those replaced `KEEP` rounds ago, durably and in one transaction."""

    def close(self) -> None:
        """Closes the files."""


def digest(client: int, number: int, content: Any) -> bytes:
    """The first 16 bytes of SHA-256 of key and content."""
    hasher = hashlib.sha256(struct.pack("<qq", client, number))
    hasher.update(content)
    return hasher.digest()[:DIGEST]


def check(client: int, number: int, content: Any, expected: bytes) -> None:
    """Raises unless the digest is that of key and content."""
    if digest(client, number, content) != expected:
        raise ValueError(f"The state of client {client} of round {number} does not match its digest.")


class SqliteStore:
    """SQLite, the contents in a table of their own, so that the table of keys stays small."""

    def __init__(self, folder: pathlib.Path, journal: str = "TRUNCATE", page_size: int = 65536) -> None:
        self.path = folder / "store.sqlite"
        self._db = sqlite3.connect(self.path, isolation_level=None)
        self._db.execute(f"PRAGMA page_size = {page_size}")
        self._db.execute(f"PRAGMA journal_mode = {journal}")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = OFF")
        self._db.execute("CREATE TABLE IF NOT EXISTS contents (id INTEGER PRIMARY KEY, content BLOB)")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS clients (client INTEGER, round INTEGER, digest BLOB, content INTEGER,"
            " PRIMARY KEY (client, round)) WITHOUT ROWID"
        )
        self._participants: dict[int, list[int]] = {}

    def read(self, clients: Iterable[int]) -> list[bytes | None]:
        states: list[bytes | None] = []
        for client in clients:
            row = self._db.execute(
                "SELECT round, digest, contents.content FROM clients JOIN contents ON contents.id = clients.content"
                " WHERE client = ? ORDER BY round DESC LIMIT 1",
                (client,),
            ).fetchone()
            if row:
                check(client, row[0], row[2], row[1])
            states.append(row and row[2])
        return states

    def commit(self, number: int, states: Mapping[int, bytes]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for client, state in states.items():
            row = self._db.execute("INSERT INTO contents (content) VALUES (?)", (state,)).lastrowid
            self._db.execute(
                "INSERT INTO clients VALUES (?, ?, ?, ?)", (client, number, digest(client, number, state), row)
            )
        self._participants[number] = list(states)
        for client in self._participants.pop(number - KEEP, []):
            old = (client, number - KEEP)
            self._db.execute(
                "DELETE FROM contents WHERE id IN (SELECT content FROM clients WHERE client = ? AND round < ?)", old
            )
            self._db.execute("DELETE FROM clients WHERE client = ? AND round < ?", old)
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


class LmdbStore:
    """LMDB, keys (client, round) in big-endian order, the digest before the content."""

    def __init__(self, folder: pathlib.Path) -> None:
        import lmdb

        self.path = folder / "data.mdb"
        self._env = lmdb.open(str(folder), map_size=2**40, readahead=False)
        self._participants: dict[int, list[int]] = {}

    def read(self, clients: Iterable[int]) -> list[bytes | None]:
        states: list[bytes | None] = []
        with self._env.begin(buffers=True) as transaction, transaction.cursor() as cursor:
            for client in clients:
                found = cursor.set_range(struct.pack(">qq", client + 1, 0))
                found = cursor.prev() if found else cursor.last()
                if not found or struct.unpack(">qq", cursor.key())[0] != client:
                    states.append(None)
                    continue
                value = cursor.value()
                content = bytes(value[DIGEST:])
                check(client, struct.unpack(">qq", cursor.key())[1], content, bytes(value[:DIGEST]))
                states.append(content)
        return states

    def commit(self, number: int, states: Mapping[int, bytes]) -> None:
        with self._env.begin(write=True, buffers=True) as transaction:
            for client, state in states.items():
                value = digest(client, number, state) + state
                transaction.put(struct.pack(">qq", client, number), value)
            self._participants[number] = list(states)
            with transaction.cursor() as cursor:
                for client in self._participants.pop(number - KEEP, []):
                    while cursor.set_range(struct.pack(">qq", client, 0)):
                        if bytes(cursor.key()) >= struct.pack(">qq", client, number - KEEP):
                            break
                        cursor.delete()

    def close(self) -> None:
        self._env.close()


CONTENDERS: dict[str, Callable[[pathlib.Path], Contender]] = {
    "SQLite, journal": SqliteStore,
    "SQLite, journal, 4 KB pages": lambda folder: SqliteStore(folder, page_size=4096),
    "SQLite, WAL": lambda folder: SqliteStore(folder, journal="WAL"),
    "LMDB": LmdbStore,
}


def make_states(clients: Iterable[int], number: int) -> dict[int, bytes]:
    """Contents that no disk can compress to nothing, different for every client and round."""
    noise = np.random.default_rng(number).bytes(STATE)
    return {int(client): struct.pack("<qq", int(client), number) + noise[16:] for client in clients}


def disk(path: pathlib.Path) -> int:
    """Bytes on disk of a store, journals included, holes of sparse files not."""
    return sum(file.stat().st_blocks * 512 for file in path.parent.iterdir())


def describe(samples: list[float]) -> str:
    """Median and the range of the middle half, in ms."""
    low, middle, high = (1e3 * q for q in statistics.quantiles(samples, n=4))
    return f"{middle:6.1f} ({low:.1f} to {high:.1f})"


def time_rounds(root: pathlib.Path, rounds: int) -> None:
    """Prints the times of interleaved rounds, and the size of the files after them."""
    rng = np.random.default_rng(0)
    pool = rng.choice(POPULATION, POOL, replace=False)
    stores: dict[str, Contender] = {}
    for name, build in CONTENDERS.items():
        folder = root / str(len(stores))
        folder.mkdir()
        stores[name] = build(folder)
    number = 0
    for part in np.split(pool, 10):
        number += 1
        for store in stores.values():
            store.commit(number, make_states(part, number))
    print(f"{'':28} {'clients':>7}  {'read, ms':>22}  {'commit, ms':>24}  {'file / kept':>11}")
    for participants in (10, 100):
        read: dict[str, list[float]] = {name: [] for name in stores}
        write: dict[str, list[float]] = {name: [] for name in stores}
        recent: list[np.ndarray] = []
        for _ in range(rounds):
            number += 1
            clients = rng.choice(pool, participants, replace=False)
            recent = [*recent, clients][-KEEP:]
            states = make_states(clients, number)
            for name in rng.permutation(list(stores)):
                start = time.perf_counter()
                assert None not in stores[name].read(map(int, clients))
                middle = time.perf_counter()
                stores[name].commit(number, states)
                read[name].append(middle - start)
                write[name].append(time.perf_counter() - middle)
        kept = (POOL + sum(map(len, recent))) * STATE
        for name, store in stores.items():
            print(
                f"{name:28} {participants:7}  {describe(read[name]):>22}  {describe(write[name]):>24}"
                f"  {disk(store.path) / kept:11.2f}"
            )
    for store in stores.values():
        store.close()


def touch_many(name: str, folder: pathlib.Path) -> None:
    """Writes and reads 5 000 clients and prints the memory of this process."""
    store = CONTENDERS[name](folder)
    clients = np.random.default_rng(0).choice(POPULATION, TOUCHED, replace=False)
    process = psutil.Process()
    before = process.memory_info().rss
    parts = np.split(clients, TOUCHED // 100)
    for number, part in enumerate(parts):
        store.commit(number, make_states(part, number))
    written = process.memory_info().rss
    for part in parts:
        for client in part:
            store.read([int(client)])
    mb = [(rss - before) / 1e6 for rss in (written, process.memory_info().rss)]
    print(f"{name:28} {mb[0]:8.0f} MB after writing, {mb[1]:8.0f} MB after reading, {disk(store.path) / 1e9:.2f} GB")


def cut(name: str, folder: pathlib.Path) -> None:
    """Cuts a store's file in half and reads from it."""
    store = CONTENDERS[name](folder)
    for number in range(3):
        store.commit(number, make_states(range(number * 10, number * 10 + 10), number))
    store.close()
    os.truncate(store.path, store.path.stat().st_size // 2)
    try:
        CONTENDERS[name](folder).read(range(30))
    except Exception as e:
        print(f"{name:28} {type(e).__name__}: {e}")
    else:
        print(f"{name:28} no error")


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Below $TMPDIR or the current folder, not in /tmp, which may be in memory."""
    return tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", os.getcwd()), prefix="benchmark_store_")


def run_child(task: str, name: str) -> None:
    """Runs one task in a process of its own and prints what it said, or which signal ended it."""
    with temporary_folder() as folder:
        arguments = [f"--child={task}", f"--contender={name}", f"--folder={folder}"]
        command = [sys.executable, "-m", "benchmarks.store", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode < 0:
            print(f"{name:28} the process is ended by {signal.Signals(-done.returncode).name}")
        else:
            print(done.stdout + done.stderr, end="")


def main(_: list[str]) -> None:
    if CHILD.value:
        {"memory": touch_many, "cut": cut}[CHILD.value](CONTENDER.value, pathlib.Path(FOLDER.value))
        return
    with temporary_folder() as root:
        time_rounds(pathlib.Path(root), ROUNDS.value)
    for title, task in ((f"memory, {TOUCHED} clients", "memory"), ("file cut in half", "cut")):
        print(f"\n{title}")
        for name in CONTENDERS:
            run_child(task, name)


if __name__ == "__main__":
    app.run(main)
