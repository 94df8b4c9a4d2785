"""The transactional store behind exact resume: one database per experiment, one transaction per round.

A round's checkpoint, its participants' new states and its row of metrics are committed together, so that an end at any
instant (kill -9, power loss, full disk) leaves the last committed round, whole. Every value carries a digest of its key
and content that is checked whenever it is read, and the newest rounds stay loadable, so that damage to the newest one
costs a round and not the experiment.

Why SQLite, with a rollback journal and pages of 64 KB (`python -m benchmarks.store`; 2 idle cores, a disk of
1.8 GB/s; states of 800 KB, durable commits, ms a round):

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
import fcntl
import functools
import hashlib
import logging
import os
import pathlib
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tff_fen.checks import check_integer, check_type

_DATABASE, _LOCK = "rounds.sqlite", "lock"
_APPLICATION_ID = 0x46454E31  # "FEN1", 1 for the format: tells a store from other files, and from an emptied one.
_LARGEST_ID = 2**63 - 1
_LARGEST_VALUE = 1_000_000_000 - 1024  # SQLite's limit for a row is 10^9 bytes.
_MODULUS = 2**128

# The contents are apart from the clients' keys so that all the keys can be read in a moment: see `_scan_clients`.
_SCHEMA = (
    "CREATE TABLE contents (id INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE clients (client INTEGER NOT NULL, round INTEGER NOT NULL, digest BLOB NOT NULL,"
    " content INTEGER NOT NULL, PRIMARY KEY (client, round)) WITHOUT ROWID",
    "CREATE TABLE rounds (round INTEGER PRIMARY KEY, participants BLOB NOT NULL, population BLOB NOT NULL,"
    " digest BLOB NOT NULL, checkpoint INTEGER NOT NULL)",
    "CREATE TABLE metrics (round INTEGER PRIMARY KEY, digest BLOB NOT NULL, content BLOB NOT NULL)",
)

# What SQLite says of a file whose structure does not hold; the statements here are fixed, so that a missing table or a
# violated constraint is damage too.
_DAMAGE_CODES = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_TOOBIG,
    }
)
_START_ANEW = "Restore the folder from a copy, or start the experiment anew in an empty folder."


class StoreError(Exception):
    """The store cannot do what was asked; the message says why and what to do."""


class StoreInUseError(StoreError):
    """Another store object, mostly one of another process, has the folder open."""


class DamagedStoreError(StoreError):
    """What is on disk is not what was written."""


class StoreFullError(StoreError):
    """The disk does not take the round; all earlier rounds are safe."""


class _Damage(Exception):
    """What of the database is not as it was written, and why; callers see it as a `DamagedStoreError`."""

    def __init__(self, what: object, reason: str) -> None:
        super().__init__(f"{what}: {reason}")


class Round(NamedTuple):
    """A committed round: its number (0: the initial state), and the server's state as bytes."""

    number: int
    checkpoint: bytes


class _Version(NamedTuple):
    """The key of a client's state as of a round, with its digest and where its content is."""

    client: int
    round: int
    digest: bytes
    content: int

    def __str__(self) -> str:
        return f"the state of client {self.client} of round {self.round}"

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> _Version:
        """Of a row of table `clients`, whose types SQLite takes as they come."""
        version = cls(*row)
        if not (isinstance(version.client, int) and isinstance(version.round, int)):
            raise _Damage(version, "its key is not a pair of integers")
        if not isinstance(version.digest, bytes):
            raise _Damage(version, "its digest is missing")
        return version

    def fingerprint(self) -> int:
        """A number of 128 bits that depends on key and content."""
        return int.from_bytes(_digest("key", self.client, self.round, self.digest), "little")


class _Scan(NamedTuple):
    """What the keys of all clients' states say.

    Attributes:
      populations: for every loadable round the sum of the fingerprints of the states as of that round, mod 2^128.
      recent: for every loadable round the versions as of that round that are not older than the oldest of them.
    """

    populations: dict[int, int]
    recent: dict[int, list[_Version]]


class RoundStore:
    """The rounds of one experiment, in one folder; a context manager.

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
        self._path = self._folder / _DATABASE
        self._keep = int(keep)
        self._db: sqlite3.Connection | None = None
        self._recovered = False
        self._newest = -1
        self._population = 0
        self._warnings: list[str] = []
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self._folder)
        except OSError as e:
            raise StoreError(f"The folder {self._folder} cannot be used: {e}. Choose a folder to write in.") from e
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RoundStore:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the store and frees its folder. May be called twice."""
        if self._db is not None:
            self._db.close()
            self._db = None
        self._lock.close()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What `latest` found damaged and rolled back; it is logged as well."""
        return tuple(self._warnings)

    def latest(self) -> Round | None:
        """The newest round that is whole; `None` before the first commit.

        A round is whole if its checkpoint, its metrics, and the states as of it that were written in the rounds still
        loadable match their digests, and no client's state is missing. (States older than that are in all loadable
        rounds the same; they are checked when they are read.) Newer rounds, damaged ones, are removed in one
        transaction, so that everything is as it was after the round returned; `warnings` names what was damaged.

        Raises:
          DamagedStoreError: if no round is whole.
        """
        with self._translated("read"):
            self._recover()
            if self._newest < 0:
                return None
            return Round(self._newest, self._checked_round(self._newest)[0])

    def read_clients(self, client_ids: Iterable[int]) -> list[bytes | None]:
        """The states of clients as of the newest round, in the order asked for; `None` for one that never took part."""
        ids = [_client_id(client) for client in client_ids]
        with self._translated("read"):
            self._recover()
            versions = [self._version(client) for client in ids]
            return [version and self._checked_state(version) for version in versions]

    def commit(
        self, round_number: int, checkpoint: bytes, client_states: Mapping[int, bytes], metrics: bytes
    ) -> None:
        """Commits a round in one transaction: all of it, or nothing.

        Args:
          round_number: 0 for the initial state, then one more each time.
          checkpoint: the server's state after the round.
          client_states: the participants' new states by client id; empty in round 0.
          metrics: the round's row of metrics.

        Raises:
          StoreFullError: if the disk does not take it. The store can still be read, and the commit tried again.
        """
        check_integer("round_number", round_number, 0, _LARGEST_ID)
        _check_value("checkpoint", checkpoint)
        _check_value("metrics", metrics)
        check_type("client_states", client_states, Mapping, "Map client ids to states.")
        states: dict[int, bytes] = {}
        for client, state in client_states.items():
            _check_value(f"client_states[{client!r}]", state)
            states[_client_id(client)] = state
        with self._translated("read"):
            self._recover()
        if round_number != self._newest + 1:
            found = f"the newest is {self._newest}" if self._newest >= 0 else "the store is empty"
            raise ValueError(
                f"round_number must be {self._newest + 1}, found {round_number}: rounds are consecutive and {found}. "
                "Continue from the round that latest() returns."
            )
        if round_number == 0 and states:
            raise ValueError(
                f"client_states must be empty in round 0, the initial state, found {len(states)} clients. "
                "Commit the initial state first, the first round of training as round 1."
            )
        # Until all of it is done: an exception at any instant, and the next call looks which round is the newest.
        self._recovered = False
        with self._translated("written"):
            population = self._write_round(int(round_number), checkpoint, states, metrics)
        self._recovered, self._newest, self._population = True, int(round_number), population

    def metrics(self) -> Iterator[tuple[int, bytes]]:
        """All rounds' rows of metrics, in order, as `(round, row)`."""
        with self._translated("read"):
            self._recover()
        for number in range(self._newest + 1):
            with self._translated("read"):
                row = self._checked_metrics(number)
            yield number, row

    def client_ids(self) -> Iterator[int]:
        """The ids of all clients that ever took part, in rising order."""
        with self._translated("read"):
            self._recover()
        last = -1
        while True:
            with self._translated("read"):
                # In portions: a statement left open while rounds are committed would see half of them.
                query = "SELECT DISTINCT client FROM clients WHERE client > ? ORDER BY client LIMIT 1000"
                portion = [client for (client,) in self._execute(query, last)]
            yield from portion
            if not portion:
                return
            last = portion[-1]

    # Opening.

    def _open(self) -> None:
        with self._translated("opened"):
            if not self._path.exists():
                self._create()
            self._db = _connect(self._path)
            application = self._execute("PRAGMA application_id").fetchone()[0]
            schema = self._execute("SELECT sql FROM sqlite_master ORDER BY rowid").fetchall()
        # A definition that a damaged byte made another one would give the rows another meaning.
        if application != _APPLICATION_ID or schema != [(statement.encode(),) for statement in _SCHEMA]:
            raise DamagedStoreError(
                f"{self._path} is damaged, or not a store of this version of the package: its application id is "
                f"{application:#x} (expected {_APPLICATION_ID:#x}), or its tables are others. {_START_ANEW}"
            )

    def _create(self) -> None:
        # Under another name first: a file of the final name without tables is then always damage, never a creation
        # that did not end.
        new = self._path.with_suffix(".new")
        # A journal without its database would be played back into the new one.
        for stale in (new, pathlib.Path(f"{new}-journal"), pathlib.Path(f"{self._path}-journal")):
            stale.unlink(missing_ok=True)
        with contextlib.closing(_connect(new)) as db:
            db.executescript(f"BEGIN; {'; '.join(_SCHEMA)}; PRAGMA application_id = {_APPLICATION_ID}; COMMIT;")
        pathlib.Path(f"{new}-journal").unlink(missing_ok=True)
        new.rename(self._path)
        _sync_folder(self._folder)
        with contextlib.suppress(PermissionError):  # A folder above may be one to enter, not to open.
            _sync_folder(self._folder.resolve().parent)

    # Reading, with every digest checked.

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if self._db is None:
            raise StoreError(f"The store in {self._folder} is closed. Open it anew.")
        return self._db.execute(statement, values)

    def _content(self, what: object, content_id: Any) -> bytes:
        """The content of that id, unchecked."""
        try:
            row = self._execute("SELECT content FROM contents WHERE id = ?", content_id).fetchone()
        except sqlite3.DatabaseError as e:
            if not _is_damage(e):
                raise
            raise _Damage(what, str(e)) from e
        if row is None or not isinstance(row[0], bytes):
            raise _Damage(what, "its content is missing")
        return row[0]

    def _version(self, client: int) -> _Version | None:
        """The newest version of a client's state."""
        query = "SELECT client, round, digest, content FROM clients WHERE client = ? ORDER BY round DESC LIMIT 1"
        row = self._execute(query, client).fetchone()
        return None if row is None else _Version.from_row(row)

    def _checked_state(self, version: _Version) -> bytes:
        content = self._content(version, version.content)
        if _digest("client", version.client, version.round, content) != version.digest:
            raise _Damage(version, "content and digest do not match")
        return content

    def _checked_metrics(self, number: int) -> bytes:
        what = f"the row of metrics of round {number}"
        row = self._execute("SELECT digest, content FROM metrics WHERE round = ?", number).fetchone()
        if row is None:
            raise _Damage(what, "it is missing")
        digest, content = row
        if not isinstance(content, bytes) or _digest("metrics", number, content) != digest:
            raise _Damage(what, "content and digest do not match")
        return content

    def _checked_round(self, number: int) -> tuple[bytes, int]:
        """Checkpoint and population of a loadable round."""
        what = f"the checkpoint of round {number}"
        query = "SELECT participants, population, digest, checkpoint FROM rounds WHERE round = ?"
        row = self._execute(query, number).fetchone()
        if row is None:
            raise _Damage(what, "it is missing")
        participants, population, digest, content = row
        checkpoint = self._content(what, content)
        if not isinstance(participants, bytes) or not isinstance(population, bytes):
            raise _Damage(what, "its row is not as it was written")
        if _digest("round", number, checkpoint, participants, population) != digest:
            raise _Damage(what, "content and digest do not match")
        return checkpoint, int.from_bytes(population, "little")

    # Recovery: the last whole round, and nothing newer.

    def _recover(self) -> None:
        if self._recovered:
            return
        rounds = [n for (n,) in self._execute("SELECT round FROM rounds ORDER BY round")]
        newest, population, faults = -1, 0, []
        if rounds:
            scan = self._scan_clients(rounds)
            for number in reversed(rounds):
                try:
                    population = self._check_whole(number, rounds[0], scan)
                except _Damage as e:
                    faults.append(f"Round {number} in {self._path} is damaged: {e}.")
                else:
                    newest = number
                    break
            else:
                raise DamagedStoreError(
                    f"No round is whole of those still loadable, {rounds[0]} to {rounds[-1]}. {' '.join(faults)} "
                    f"{_START_ANEW}"
                )
        if self._execute(
            "SELECT EXISTS (SELECT 1 FROM rounds WHERE round > ?1) OR EXISTS (SELECT 1 FROM metrics WHERE round > ?1)"
            " OR EXISTS (SELECT 1 FROM clients WHERE round > ?1)",
            newest,
        ).fetchone()[0]:
            if newest < 0:
                raise DamagedStoreError(f"{self._path} is damaged: its checkpoints are missing. {_START_ANEW}")
            faults = faults or [f"{self._path} is damaged: the checkpoint of round {newest + 1} is missing."]
            self._remove_after(newest)
            for fault in faults:
                logging.getLogger(__name__).warning("%s Rolled back to round %d.", fault, newest)
            self._warnings += faults
        self._recovered, self._newest, self._population = True, newest, population

    def _scan_clients(self, rounds: list[int]) -> _Scan:
        """Reads the keys of all clients' states.

        A damaged key could hide a client's state, which would then begin anew without anybody noticing: hence the sum
        over the population that each round holds. Keys are small; 100 000 take a fraction of a second.
        """
        populations = dict.fromkeys(rounds, 0)
        recent: dict[int, list[_Version]] = {number: [] for number in rounds}
        query = "SELECT client, round, digest, content FROM clients ORDER BY client DESC, round DESC"
        client, remaining = None, rounds
        for version in map(_Version.from_row, self._execute(query)):
            if version.client != client:
                client, remaining = version.client, rounds
            # Newest first: a version is the state as of those rounds that no newer version has taken.
            taken = [number for number in remaining if number >= version.round]
            remaining = [number for number in remaining if number < version.round]
            fingerprint = version.fingerprint()
            for number in taken:
                populations[number] += fingerprint
                if version.round >= rounds[0]:
                    recent[number].append(version)
        return _Scan({number: total % _MODULUS for number, total in populations.items()}, recent)

    def _check_whole(self, number: int, oldest: int, scan: _Scan) -> int:
        """Raises unless the round is whole; returns its population."""
        _, population = self._checked_round(number)
        for earlier in range(oldest, number + 1):
            self._checked_metrics(earlier)
        if population != scan.populations[number]:
            raise _Damage(f"the clients' states as of round {number}", "keys were changed or are missing")
        for version in scan.recent[number]:
            self._checked_state(version)
        return population

    def _remove_after(self, number: int) -> None:
        """Removes all rounds after this one, in one transaction."""
        with self._transaction():
            versions = self._execute("SELECT client, round, digest, content FROM clients WHERE round > ?", number)
            for version in map(_Version.from_row, versions.fetchall()):
                self._remove_if_whole(version.content, functools.partial(self._checked_state, version))
            rounds = self._execute("SELECT round, checkpoint FROM rounds WHERE round > ?", number)
            for newer, content in rounds.fetchall():
                self._remove_if_whole(content, functools.partial(self._checked_round, newer))
            for table in ("clients", "rounds", "metrics"):
                self._execute(f"DELETE FROM {table} WHERE round > ?", number)

    def _remove_if_whole(self, content: int, check: Callable[[], object]) -> None:
        # The pages of a damaged content may be those of another: their space is given up rather than used again.
        with contextlib.suppress(_Damage):
            check()
            self._execute("DELETE FROM contents WHERE id = ?", content)

    # Writing.

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            if self._db is not None and self._db.in_transaction:
                self._execute("ROLLBACK")
            raise

    def _write_round(self, number: int, checkpoint: bytes, states: Mapping[int, bytes], metrics: bytes) -> int:
        """Writes a round and drops what is no longer needed; returns the new population."""
        total = self._population
        with self._transaction():
            for client, state in states.items():
                old = self._version(client)
                new = _Version(client, number, _digest("client", client, number, state), self._insert(state))
                total += new.fingerprint() - (old.fingerprint() if old else 0)
                self._execute("INSERT INTO clients VALUES (?, ?, ?, ?)", *new)
            participants = struct.pack(f"<{len(states)}q", *states)
            population = (total % _MODULUS).to_bytes(16, "little")
            digest = _digest("round", number, checkpoint, participants, population)
            row = (number, participants, population, digest, self._insert(checkpoint))
            self._execute("INSERT INTO rounds VALUES (?, ?, ?, ?, ?)", *row)
            self._execute("INSERT INTO metrics VALUES (?, ?, ?)", number, _digest("metrics", number, metrics), metrics)
            self._drop_before(number - self._keep)
        return total % _MODULUS

    def _insert(self, content: bytes) -> int:
        content_id = self._execute("INSERT INTO contents (content) VALUES (?)", content).lastrowid
        assert content_id is not None
        return content_id

    def _drop_before(self, oldest: int) -> None:
        """Drops checkpoints before round `oldest`, and versions that are not the state as of it or a later round."""
        rounds = self._execute("SELECT round, participants, checkpoint FROM rounds WHERE round <= ?", oldest).fetchall()
        # Lists of participants only say where to look: one that is damaged (only that of the newest round was checked)
        # leaves versions in place that could go, and never takes one that is needed.
        for client in {client for _, ids, _ in rounds for client in _participants(ids)}:
            query = "SELECT round, content FROM clients WHERE client = ? AND round <= ? ORDER BY round DESC"
            for number, content in self._execute(query, client, oldest).fetchall()[1:]:
                self._execute("DELETE FROM contents WHERE id = ?", content)
                self._execute("DELETE FROM clients WHERE client = ? AND round = ?", client, number)
        for number, _, content in rounds:
            if number < oldest:
                self._execute("DELETE FROM contents WHERE id = ?", content)
                self._execute("DELETE FROM rounds WHERE round = ?", number)

    # Errors.

    @contextlib.contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Turns SQLite's errors and the system's into this module's; `doing` is what cannot be done."""
        try:
            yield
        except _Damage as e:
            # The next call looks for the last whole round, as opening anew would.
            self._recovered = False
            raise DamagedStoreError(
                f"{self._path} is damaged: {e}. Resume the experiment: it goes on from the last whole round, if one of "
                f"the newest {self._keep + 1} is. If it stops here again: {_START_ANEW}"
            ) from e
        except sqlite3.Error as e:
            name = getattr(e, "sqlite_errorname", type(e).__name__)
            if _is_damage(e):
                raise DamagedStoreError(f"{self._path} is damaged ({name}: {e}). {_START_ANEW}") from e
            # A full disk is SQLITE_FULL; a quota or a limit on the size of files is SQLITE_IOERR_WRITE.
            if name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR_WRITE"):
                free = shutil.disk_usage(self._folder).free
                safe = f"All rounds up to {self._newest} are safe" if self._newest >= 0 else "No round was there yet"
                raise StoreFullError(
                    f"The disk does not take more of {self._path} ({name}: {e}): {free / 1e6:.1f} MB are free, and "
                    f"quotas or limits on file sizes may be lower. {safe}. Make room, then commit again or resume."
                ) from e
            raise StoreError(f"{self._path} cannot be {doing} ({name}: {e}). Check the disk and who may write.") from e
        except UnicodeDecodeError as e:
            # SQLite's message quotes a table's definition that is no text any more.
            raise DamagedStoreError(f"{self._path} is damaged (its schema: {e}). {_START_ANEW}") from e
        except OSError as e:
            raise StoreError(f"{self._path} cannot be {doing}: {e}. Check the disk and who may write.") from e


def _connect(path: pathlib.Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    try:
        # Text is never stored: where damage makes it appear, it must not fail to decode.
        db.text_factory = bytes
        for setting in (
            "page_size = 65536",
            "journal_mode = TRUNCATE",  # With FULL it is synced when it is emptied, which is the instant of the commit.
            "synchronous = FULL",
            "secure_delete = OFF",  # Debian turns it on: dropped versions would be overwritten with zeros first.
            "cell_size_check = ON",
        ):
            db.execute(f"PRAGMA {setting}")
    except BaseException:
        db.close()
        raise
    return db


def _lock(folder: pathlib.Path) -> Any:
    """Locks the folder for this store until the file returned is closed; the system does so when a process ends."""
    file = open(folder / _LOCK, "a+")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise StoreInUseError(
            f"The store in {folder} is open in process {holder}"
            f"{', which is this one' if holder == str(os.getpid()) else ''}. "
            "Only one can use it at a time: wait for it to end, end it, or choose another folder."
        ) from None
    except BaseException:
        file.close()
        raise
    return file


def _sync_folder(folder: pathlib.Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(kind: str, *parts: int | bytes) -> bytes:
    """The first 16 bytes of SHA-256 of kind, key and content, each with its length."""
    hasher = hashlib.sha256(kind.encode())
    for part in parts:
        part = struct.pack("<q", part) if isinstance(part, int) else part
        hasher.update(struct.pack("<q", len(part)))
        hasher.update(part)
    return hasher.digest()[:16]


def _participants(content: Any) -> tuple[int, ...]:
    """The ids in the list of participants of a round; none if the list is damaged."""
    if not isinstance(content, bytes) or len(content) % 8:
        return ()
    return struct.unpack(f"<{len(content) // 8}q", content)


def _is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", -1) & 0xFF in _DAMAGE_CODES


def _client_id(client: Any) -> int:
    check_integer("A client id", client, 0, _LARGEST_ID)
    return int(client)


def _check_value(name: str, value: Any) -> None:
    check_type(name, value, bytes, "Serialize it with tff_fen.program.serialization.to_bytes.")
    if len(value) > _LARGEST_VALUE:
        raise ValueError(f"{name} must be at most {_LARGEST_VALUE} bytes, found {len(value)}. Store a smaller model.")
