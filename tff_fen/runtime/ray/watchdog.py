"""Ends what is left of a Ray cluster: `python watchdog.py NAME VALUE FOLDER`, with the owner's pipe as its input.

The input ends when the owner closes it or dies, in whatever way: kill -9 too. Then every process with `NAME=VALUE` in
the environment it was started with is killed, and the folder removed. (By itself Ray 2.51 leaves two processes, and
its folder, if the driver is killed.) Linux only, standard library only.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

# Ray ends most processes by itself, but those may just be starting others.
_QUIET_SCANS = 3
_SCAN_SECONDS = 0.1


def marked_processes(mark: bytes) -> list[int]:
    """The processes with a variable in their environment, `NAME=VALUE`; not those that have ended already."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        # Of another user, or ended meanwhile.
        with contextlib.suppress(OSError):
            if mark in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return [pid for pid in found if pid != os.getpid()]


def main(name: str, value: str, folder: str) -> None:
    """Waits for the owner's end, then cleans up."""
    while os.read(0, 4096):
        pass
    quiet = 0
    while quiet < _QUIET_SCANS:
        processes = marked_processes(f"{name}={value}".encode())
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        quiet = 0 if processes else quiet + 1
        time.sleep(_SCAN_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
