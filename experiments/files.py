"""Files that are there whole or not at all, names that stay in their folder, and reading what others wrote."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import stat
import tempfile


class UnreadableFileError(OSError):
    """A file that is not there, or that is not read; the message names it and says why."""


def write_whole(path: pathlib.Path, content: bytes) -> None:
    """Writes a file so that it is there whole or not at all.

    The name it has until then is drawn: a link that somebody put there beforehand is never followed.
    """
    descriptor, new = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".new", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(descriptor, _mode_of(path))
            os.fsync(descriptor)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def remove_unfinished(folder: pathlib.Path) -> None:
    """Removes what a killed `write_whole` left in a folder that nobody else writes to."""
    for left in folder.glob(".*.new"):
        left.unlink(missing_ok=True)


def open_regular(path: pathlib.Path, flags: int) -> int:
    """Opens a plain file and returns its descriptor; never waits, and follows no link at the end.

    The store has the same for its own files: a report, which reads by this, does without the library.

    Raises:
      UnreadableFileError: for anything else.
    """
    try:
        # O_NONBLOCK: opening a pipe would wait for somebody at its other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except FileNotFoundError as error:
        raise UnreadableFileError(f"{path} is missing") from error
    except OSError as error:
        what = "is a symbolic link, which is not followed" if path.is_symlink() else f"cannot be read: {error.strerror}"
        raise UnreadableFileError(f"{path} {what}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFileError(f"{path} is no plain file")
    return descriptor


def read_regular(path: pathlib.Path, most: int) -> bytes:
    """Returns the content of a plain file of at most so many bytes; as for the rest see `open_regular`."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise UnreadableFileError(f"{path} has {size:,} bytes, more than {most:,}")
        content = b""
        try:
            # One byte more than there is: it may grow meanwhile.
            while len(content) <= most and (part := file.read(max(size - len(content), 0) + 1)):
                content += part
        except OSError as error:
            raise UnreadableFileError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise UnreadableFileError(f"{path} has more than {most:,} bytes")
    return content


def file_name(text: str) -> str:
    """Returns text as a name of a file: of known harmless characters, without a path in it, and not too long.

    A name that had to be changed ends with a digest, so that two texts never have the same one.
    """
    name = re.sub(r"[^A-Za-z0-9_.,=:+-]", "_", text)[:180].lstrip(".-")
    return name if name == text and name else f"{name}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}"


def _mode_of(path: pathlib.Path) -> int:
    """The rights of the file that is replaced, or those that the user gives to new files."""
    try:
        return stat.S_IMODE(os.lstat(path).st_mode) if not path.is_symlink() else _new_mode()
    except FileNotFoundError:
        return _new_mode()


def _new_mode() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask
