"""The SQLite database of a store: its schema, its creation, and reads that check every digest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tff_fen.program.store.errors import START_ANEW, Damage, DamagedStoreError, StoreError, is_damage
from tff_fen.program.store.private_files import open_private

_APPLICATION_ID = 0x46454E31  # "FEN1", 1 for the format: tells a store from other files, and from an emptied one.

# The contents are apart from the clients' keys so that all the keys can be read in a moment: see `recovery`.
_SCHEMA = (
    "CREATE TABLE contents (id INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE clients (client INTEGER NOT NULL, round INTEGER NOT NULL, digest BLOB NOT NULL,"
    " content INTEGER NOT NULL, PRIMARY KEY (client, round)) WITHOUT ROWID",
    "CREATE TABLE rounds (round INTEGER PRIMARY KEY, participants BLOB NOT NULL, population BLOB NOT NULL,"
    " digest BLOB NOT NULL, checkpoint INTEGER NOT NULL)",
    "CREATE TABLE metrics (round INTEGER PRIMARY KEY, digest BLOB NOT NULL, content BLOB NOT NULL)",
)


class Version(NamedTuple):
    """The key of a client's state as of a round, with its digest and where its content is."""

    client: int
    round: int
    digest: bytes
    content: int

    def __str__(self) -> str:
        return f"the state of client {self.client} of round {self.round}"

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Version:
        """Of a row of table `clients`, whose types SQLite takes as they come."""
        version = cls(*row)
        if not (isinstance(version.client, int) and isinstance(version.round, int)):
            raise Damage(version, "its key is not a pair of integers")
        if not isinstance(version.digest, bytes):
            raise Damage(version, "its digest is missing")
        return version

    def fingerprint(self) -> int:
        """Returns a number of 128 bits that depends on key and content."""
        return int.from_bytes(digest("key", self.client, self.round, self.digest), "little")


class Database:
    """A store's database. Its errors are SQLite's, and `Damage` for what does not match its digest."""

    def __init__(self, path: pathlib.Path) -> None:
        """Opens the database, and creates it where there is none."""
        self.path = path
        if not path.exists():
            _create(path)
        # SQLite follows a link to a database, and would change another one's settings before its format is checked.
        for file in (path, pathlib.Path(f"{path}-journal")):
            with contextlib.suppress(FileNotFoundError):
                os.close(open_private(file, os.O_RDONLY))
        self._db: sqlite3.Connection | None = _connect(path)
        try:
            self._check_format()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the database. May be called twice."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Executes a statement of SQL."""
        if self._db is None:
            raise StoreError(f"The store in {self.path.parent} is closed. Open it anew.")
        return self._db.execute(statement, values)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Makes the statements of a block take effect together, or not at all."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._db is not None and self._db.in_transaction:
                self.execute("ROLLBACK")
            raise

    def newest_version(self, client: int) -> Version | None:
        """Returns the newest version of a client's state."""
        query = "SELECT client, round, digest, content FROM clients WHERE client = ? ORDER BY round DESC LIMIT 1"
        row = self.execute(query, client).fetchone()
        return None if row is None else Version.from_row(row)

    def read_state(self, version: Version) -> bytes:
        """Returns a client's state."""
        content = self._content(version, version.content)
        if digest("client", version.client, version.round, content) != version.digest:
            raise Damage(version, "content and digest do not match")
        return content

    def read_metrics(self, number: int) -> bytes:
        """Returns the row of metrics of a round."""
        what = f"the row of metrics of round {number}"
        row = self.execute("SELECT digest, content FROM metrics WHERE round = ?", number).fetchone()
        if row is None:
            raise Damage(what, "it is missing")
        expected, content = row
        if not isinstance(content, bytes) or digest("metrics", number, content) != expected:
            raise Damage(what, "content and digest do not match")
        return content

    def read_round(self, number: int) -> tuple[bytes, int]:
        """Returns checkpoint and population of a loadable round."""
        what = f"the checkpoint of round {number}"
        query = "SELECT participants, population, digest, checkpoint FROM rounds WHERE round = ?"
        row = self.execute(query, number).fetchone()
        if row is None:
            raise Damage(what, "it is missing")
        participants, population, expected, content = row
        checkpoint = self._content(what, content)
        if not isinstance(participants, bytes) or not isinstance(population, bytes):
            raise Damage(what, "its row is not as it was written")
        if digest("round", number, checkpoint, participants, population) != expected:
            raise Damage(what, "content and digest do not match")
        return checkpoint, int.from_bytes(population, "little")

    def _content(self, what: object, content_id: Any) -> bytes:
        """The content of that id, unchecked."""
        try:
            row = self.execute("SELECT content FROM contents WHERE id = ?", content_id).fetchone()
        except sqlite3.DatabaseError as e:
            if not is_damage(e):
                raise
            raise Damage(what, str(e)) from e
        if row is None or not isinstance(row[0], bytes):
            raise Damage(what, "its content is missing")
        return row[0]

    def _check_format(self) -> None:
        application = self.execute("PRAGMA application_id").fetchone()[0]
        schema = self.execute("SELECT sql FROM sqlite_master ORDER BY rowid").fetchall()
        # A definition that a damaged byte made another one would give the rows another meaning.
        if application != _APPLICATION_ID or schema != [(statement.encode(),) for statement in _SCHEMA]:
            raise DamagedStoreError(
                f"{self.path} is damaged, or not a store of this version of the package: its application id is "
                f"{application:#x} (expected {_APPLICATION_ID:#x}), or its tables are others. {START_ANEW}"
            )


def digest(kind: str, *parts: int | bytes) -> bytes:
    """Returns the first 16 bytes of SHA-256 of kind, key and content, each with its length."""
    hasher = hashlib.sha256(kind.encode())
    for part in parts:
        part = struct.pack("<q", part) if isinstance(part, int) else part
        hasher.update(struct.pack("<q", len(part)))
        hasher.update(part)
    return hasher.digest()[:16]


def _create(path: pathlib.Path) -> None:
    # Under another name first: a file of the final name without tables is then always damage, never a creation
    # that did not end.
    new = path.with_suffix(".new")
    # A journal without its database would be played back into the new one.
    for stale in (new, pathlib.Path(f"{new}-journal"), pathlib.Path(f"{path}-journal")):
        stale.unlink(missing_ok=True)
    # The clients' states are nobody else's; SQLite gives its journal the mode of the database.
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with contextlib.closing(_connect(new)) as db:
        db.executescript(f"BEGIN; {'; '.join(_SCHEMA)}; PRAGMA application_id = {_APPLICATION_ID}; COMMIT;")
    pathlib.Path(f"{new}-journal").unlink(missing_ok=True)
    new.rename(path)
    _sync_folder(path.parent)
    with contextlib.suppress(PermissionError):  # A folder above may be one to enter, not to open.
        _sync_folder(path.parent.resolve().parent)


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


def _sync_folder(folder: pathlib.Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
