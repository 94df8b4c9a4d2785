"""Files of a store's folder, which may be somebody else's: no link is followed, nothing is waited for."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import stat


def open_private(path: pathlib.Path, flags: int) -> int:
    """Opens a plain file and takes it from everybody but its owner; returns the descriptor.

    Raises:
      OSError: also where there is something else than a plain file.
    """
    try:
        # O_NONBLOCK: opening a pipe would wait for somebody at its other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "It is a symbolic link, which is not followed", str(path)) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "It is no plain file", str(path))
        # Those of earlier versions could be read by all.
        close_to_others(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def close_to_others(place: int | pathlib.Path, mode: int) -> None:
    """Takes a file's or a folder's rights from group and others, where it is ours."""
    if os.stat(place).st_mode & 0o077:
        with contextlib.suppress(PermissionError):
            os.chmod(place, mode)
