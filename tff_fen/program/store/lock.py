"""The lock that lets only one store at a time use a folder."""

from __future__ import annotations

import fcntl
import os
import pathlib
from typing import Any

from tff_fen.program.store.errors import StoreInUseError
from tff_fen.program.store.private_files import open_private

_LOCK = "lock"


def lock(folder: pathlib.Path) -> Any:
    """Locks the folder for this store until the file returned is closed; the system does so when a process ends."""
    file = open(folder / _LOCK, "a+", opener=lambda path, flags: open_private(folder / _LOCK, flags))  # noqa: SIM115
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
