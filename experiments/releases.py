"""The list of releases: which rounds' results have left the process, those that were rolled back later included."""

from __future__ import annotations

import os
import pathlib

from experiments.files import open_regular, read_regular, write_whole

_UNKNOWN = "unknown"
_MOST = 2**26  # bytes


class Releases:
    """The releases of an experiment, in a file beside its store that no rollback touches.

    A release is a round that is committed: from then on its model can be read in the folder. Each is written down,
    durably, before its commit, so that the list may hold one too many, if the process ends between the two, and never
    one too few. A line is the number of a round, in the order of the releases.

    Attributes:
      rounds: released, in order; a round that was rolled back and run again is there twice.
      complete: whether there can be no others. There can in a folder of an earlier version, which had no list, and
        where the list was lost or cut.
    """

    def __init__(self, path: pathlib.Path | None = None, done: int = 0) -> None:
        """Reads the list.

        Args:
          path: of the file; `None` keeps the list in memory.
          done: rounds that are in the store.
        """
        self._path = path
        content = read_regular(path, _MOST).decode(errors="replace") if path and os.path.lexists(path) else ""
        # A line that did not end was followed by no commit.
        lines = content.split("\n")[:-1]
        self.rounds = [int(line) for line in lines if line.isascii() and line.isdigit()]
        missing = sorted(set(range(1, done + 1)) - set(self.rounds))
        self.complete = len(self.rounds) == len(lines) and not missing
        self.rounds += missing
        wanted = "".join(f"{line}\n" for line in ([] if self.complete else [_UNKNOWN]) + list(map(str, self.rounds)))
        if path is not None and wanted != content:
            write_whole(path, wanted.encode())

    def add(self, number: int) -> None:
        """Writes a release down; returns when it is on the disk."""
        if self._path is not None:
            with open(open_regular(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a") as file:
                file.write(f"{number}\n")
                file.flush()
                os.fsync(file.fileno())
        self.rounds.append(number)
