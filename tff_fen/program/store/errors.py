"""The errors of stores, and how SQLite's errors and the system's become them."""

from __future__ import annotations

import pathlib
import shutil
import sqlite3

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
START_ANEW = "Restore the folder from a copy, or start the experiment anew in an empty folder."


class StoreError(Exception):
    """The store cannot do what was asked; the message says why and what to do."""


class StoreInUseError(StoreError):
    """Another store object, mostly one of another process, has the folder open."""


class DamagedStoreError(StoreError):
    """What is on disk is not what was written."""


class StoreFullError(StoreError):
    """The disk does not take the round; all earlier rounds are safe."""


class Damage(Exception):
    """What of the database is not as it was written, and why; callers see it as a `DamagedStoreError`."""

    def __init__(self, what: object, reason: str) -> None:
        super().__init__(f"{what}: {reason}")


def is_damage(error: sqlite3.Error) -> bool:
    """Returns whether SQLite found the file's structure broken, as opposed to a disk that fails or is full."""
    return getattr(error, "sqlite_errorcode", -1) & 0xFF in _DAMAGE_CODES


def explain(error: Exception, path: pathlib.Path, doing: str, newest: int, keep: int) -> StoreError:
    """Returns the `StoreError` that tells a caller of an error below the store.

    Args:
      error: a `Damage`, an error of SQLite's, or one of the system's.
      path: the database.
      doing: what cannot be done with it: "opened", "read", "written".
      newest: the newest round known to be whole; -1 if there is none.
      keep: how many rounds before the newest stay loadable.
    """
    if isinstance(error, Damage):
        return DamagedStoreError(
            f"{path} is damaged: {error}. Resume the experiment: it goes on from the last whole round, if one of "
            f"the newest {keep + 1} is. If it stops here again: {START_ANEW}"
        )
    if isinstance(error, UnicodeDecodeError):
        # SQLite's message quotes a table's definition that is no text any more.
        return DamagedStoreError(f"{path} is damaged (its schema: {error}). {START_ANEW}")
    if not isinstance(error, sqlite3.Error):
        return StoreError(f"{path} cannot be {doing}: {error}. Check the disk and who may write.")
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if is_damage(error):
        return DamagedStoreError(f"{path} is damaged ({name}: {error}). {START_ANEW}")
    # A full disk is SQLITE_FULL; a quota or a limit on the size of files is SQLITE_IOERR_WRITE.
    if name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR_WRITE"):
        free = shutil.disk_usage(path.parent).free
        safe = f"All rounds up to {newest} are safe" if newest >= 0 else "No round was there yet"
        return StoreFullError(
            f"The disk does not take more of {path} ({name}: {error}): {free / 1e6:.1f} MB are free, and "
            f"quotas or limits on file sizes may be lower. {safe}. Make room, then commit again or resume."
        )
    return StoreError(f"{path} cannot be {doing} ({name}: {error}). Check the disk and who may write.")
