"""Rounds on disk, the store behind exact resume: one SQLite database per experiment, one transaction per round.

A round's checkpoint, its participants' new states and its row of metrics are committed together, so that an end at any
instant (kill -9, power loss, full disk) leaves the last committed round, whole. Every value carries a digest of its key
and content that is checked whenever it is read, and the newest rounds stay loadable, so that damage to the newest one
costs a round and not the experiment.

Why SQLite, with a rollback journal and pages of 64 KB (`python -m benchmarks.store`; 2 idle cores, a disk of
1.8 GB/s; states of 800 KB, durable commits, ms per round):

                              read 10   commit 10   read 100   commit 100   memory, 5 000 clients   file cut in half
    SQLite, journal               8.4        16.5         84          148                    4 MB   an error
    SQLite, journal, 4 KB pages   9.1        22.0         90          207                   84 MB   an error
    SQLite, WAL                   8.3        15.8         85          219                    4 MB   an error
    LMDB                          6.9        12.3         75          144                3 996 MB   killed by SIGBUS

LMDB is faster, in a round of seconds by a few ms on an idle machine and by up to 70 on a busy one. But it reads through
a memory map: a damaged file ends the process where SQLite raises an error, its pages count as memory of the process,
and it is one more dependency. All of them use the pages of dropped versions again (file size 1.0 to 1.2 times what is
kept). For many participants the journal beats the write-ahead log since large new values go to free pages, which need
no journal: they are written once and not twice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from tff_fen.checks import check_integer, check_type
from tff_fen.program.store.database import Database, Version, digest
from tff_fen.program.store.errors import Damage, StoreError, explain
from tff_fen.program.store.interface import Round, check_client_id, check_contents, check_follows
from tff_fen.program.store.lock import lock
from tff_fen.program.store.private_files import close_to_others, open_private
from tff_fen.program.store.recovery import MODULUS, recover

_DATABASE = "rounds.sqlite"
# Beside the database: the newest round committed, which an older state of the database does not know of.
_WITNESS = "newest"


class SqliteStore:
    """A `RoundStore` on disk: the rounds of one experiment, in one folder.

    Only one store at a time can have a folder open; the end of a process, however it comes, frees it. A store is for
    use by the thread that opened it.
    """

    def __init__(self, folder: pathlib.Path | str, *, keep: int = 2) -> None:
        """Opens the store, and creates it where there is none.

        Args:
          folder: of this experiment alone.
          keep: how many rounds before the newest stay loadable, in case the newest is damaged.

        Raises:
          StoreInUseError: if the folder is open already.
          DamagedStoreError: if there is a database that cannot be opened.
        """
        check_type("folder", folder, (str, pathlib.Path), "Pass the experiment's folder.")
        check_integer("keep", keep, 0)
        self._folder = pathlib.Path(folder)
        self._keep = int(keep)
        self._recovered = False
        self._newest = -1
        self._population = 0
        self._warnings: list[str] = []
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            close_to_others(self._folder, 0o700)
            self._lock = lock(self._folder)
        except OSError as e:
            raise StoreError(f"The folder {self._folder} cannot be used: {e}. Choose a folder to write in.") from e
        try:
            with self._explained("opened"):
                self._db = Database(self._folder / _DATABASE)
        except BaseException:
            self._lock.close()
            raise

    def __str__(self) -> str:
        return f"The store in {self._folder}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the store and frees its folder. May be called twice."""
        self._db.close()
        self._lock.close()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What `latest` found damaged and rolled back, or gone back by itself; it is logged as well."""
        return tuple(self._warnings)

    def latest(self) -> Round | None:
        """Returns the newest round that is whole; `None` before the first commit.

        Newer rounds, damaged ones, are removed in one transaction, so that everything is as it was after the round
        returned; `warnings` names what was damaged. `recovery.recover` says what whole means.

        Raises:
          DamagedStoreError: if no round is whole.
        """
        with self._explained("read"):
            self._recover()
            if self._newest < 0:
                return None
            return Round(self._newest, self._db.read_round(self._newest)[0])

    def read_clients(self, client_ids: Iterable[int]) -> list[bytes | None]:
        """Returns the clients' states as of the newest round, in the order asked for; `None` for a newcomer."""
        ids = [check_client_id(client) for client in client_ids]
        with self._explained("read"):
            self._recover()
            versions = [self._db.newest_version(client) for client in ids]
            return [version and self._db.read_state(version) for version in versions]

    def commit(self, round_number: int, checkpoint: bytes, client_states: Mapping[int, bytes], metrics: bytes) -> None:
        """Commits a round in one transaction; see `RoundStore.commit`.

        Raises:
          StoreFullError: if the disk does not take it. The store can still be read, and the commit tried again.
        """
        states = check_contents(round_number, checkpoint, client_states, metrics)
        with self._explained("read"):
            self._recover()
        check_follows(round_number, self._newest, states)
        # Until all of it is done: an exception at any instant, and the next call looks which round is the newest.
        self._recovered = False
        with self._explained("written"):
            population = self._write_round(int(round_number), checkpoint, states, metrics)
        self._recovered, self._newest, self._population = True, int(round_number), population
        self._write_witness(int(round_number))

    def metrics(self) -> Iterator[tuple[int, bytes]]:
        """Yields all rounds' rows of metrics, in order, as `(round, row)`."""
        with self._explained("read"):
            self._recover()
        for number in range(self._newest + 1):
            with self._explained("read"):
                row = self._db.read_metrics(number)
            yield number, row

    def client_ids(self) -> Iterator[int]:
        """Yields the ids of all clients that ever took part, in rising order."""
        with self._explained("read"):
            self._recover()
        last = -1
        while True:
            with self._explained("read"):
                # In portions: a statement left open while rounds are committed would see half of them.
                query = "SELECT DISTINCT client FROM clients WHERE client > ? ORDER BY client LIMIT 1000"
                portion = [client for (client,) in self._db.execute(query, last)]
            yield from portion
            if not portion:
                return
            last = portion[-1]

    def _recover(self) -> None:
        """Goes back to the last whole round, unless that is known to be the newest."""
        if self._recovered:
            return
        self._newest, self._population, faults = recover(self._db)
        witnessed = self._read_witness()
        if witnessed > self._newest and not faults:
            holds = f"the newest it holds is {self._newest}" if self._newest >= 0 else "it holds none"
            faults = [f"{self._folder / _DATABASE} is an older state: round {witnessed} was committed to it, {holds}."]
        if faults:
            self._write_witness(self._newest)  # It is said once.
        for fault in faults:
            logging.getLogger(__name__).warning("%s Rolled back to round %d.", fault, self._newest)
        self._warnings += faults
        self._recovered = True

    def _read_witness(self) -> int:
        """The newest round that is known to have been committed; -1 if none is."""
        try:
            descriptor = open_private(self._folder / _WITNESS, os.O_RDONLY)
            try:
                return int(os.read(descriptor, 100))
            finally:
                os.close(descriptor)
        except (OSError, ValueError):
            return -1  # Of an earlier version, or damaged: it takes no part in what the store holds.

    def _write_witness(self, number: int) -> None:
        # After the commit and without waiting for the disk: it may lag behind the database, never lead. In place, so
        # that a full disk takes it, and at one length, so that a shorter number leaves nothing of a longer one.
        with contextlib.suppress(OSError):
            descriptor = open_private(self._folder / _WITNESS, os.O_WRONLY | os.O_CREAT)
            try:
                os.pwrite(descriptor, b"%-20d\n" % number, 0)
            finally:
                os.close(descriptor)

    def _write_round(self, number: int, checkpoint: bytes, states: Mapping[int, bytes], metrics: bytes) -> int:
        """Writes a round and drops what is no longer needed; returns the new population."""
        db, total = self._db, self._population
        with db.transaction():
            for client, state in states.items():
                old = db.newest_version(client)
                new = Version(client, number, digest("client", client, number, state), self._insert(state))
                total += new.fingerprint() - (old.fingerprint() if old else 0)
                db.execute("INSERT INTO clients VALUES (?, ?, ?, ?)", *new)
            participants = struct.pack(f"<{len(states)}q", *states)
            population = (total % MODULUS).to_bytes(16, "little")
            row = (number, participants, population, digest("round", number, checkpoint, participants, population))
            db.execute("INSERT INTO rounds VALUES (?, ?, ?, ?, ?)", *row, self._insert(checkpoint))
            db.execute("INSERT INTO metrics VALUES (?, ?, ?)", number, digest("metrics", number, metrics), metrics)
            self._drop_before(number - self._keep)
        return total % MODULUS

    def _insert(self, content: bytes) -> int:
        content_id = self._db.execute("INSERT INTO contents (content) VALUES (?)", content).lastrowid
        assert content_id is not None
        return content_id

    def _drop_before(self, oldest: int) -> None:
        """Drops checkpoints before round `oldest`, and versions that are not the state as of it or a later round."""
        db = self._db
        rounds = db.execute("SELECT round, participants, checkpoint FROM rounds WHERE round <= ?", oldest).fetchall()
        # Lists of participants only say where to look: one that is damaged (only that of the newest round was checked)
        # leaves versions in place that could go, and never takes one that is needed.
        for client in {client for _, ids, _ in rounds for client in _participants(ids)}:
            query = "SELECT round, content FROM clients WHERE client = ? AND round <= ? ORDER BY round DESC"
            for number, content in db.execute(query, client, oldest).fetchall()[1:]:
                db.execute("DELETE FROM contents WHERE id = ?", content)
                db.execute("DELETE FROM clients WHERE client = ? AND round = ?", client, number)
        for number, _, content in rounds:
            if number < oldest:
                db.execute("DELETE FROM contents WHERE id = ?", content)
                db.execute("DELETE FROM rounds WHERE round = ?", number)

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turns SQLite's errors and the system's into the store's; `doing` is what cannot be done."""
        try:
            yield
        except (Damage, sqlite3.Error, UnicodeDecodeError, OSError) as e:
            if isinstance(e, Damage):
                # The next call looks for the last whole round, as opening anew would.
                self._recovered = False
            raise explain(e, self._folder / _DATABASE, doing, self._newest, self._keep) from e


def _participants(content: Any) -> tuple[int, ...]:
    """The ids in the list of participants of a round; none if the list is damaged."""
    if not isinstance(content, bytes) or len(content) % 8:
        return ()
    return struct.unpack(f"<{len(content) // 8}q", content)
