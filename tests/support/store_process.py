"""What the tests of the store write, and processes that write it until they are killed.

    python tests/support/store_process.py <task> <folder>

Contents are pure functions of client and round, so that a test can say what must be there without having seen it.
"""

from __future__ import annotations

import json
import pathlib
import random
import resource
import signal
import sys
import time
import types
from typing import Any

POPULATION, PARTICIPANTS = 12, 4


def participants(number: int) -> list[int]:
    """Who takes part in a round; nobody in round 0."""
    return sorted(random.Random(number).sample(range(POPULATION), PARTICIPANTS)) if number else []


def content(size: int, *key: int) -> bytes:
    """Bytes that depend on all of the key."""
    return random.Random(repr(key)).randbytes(size)


def state(client: int, number: int, scale: int = 1) -> bytes:
    """A client's state written in a round: from nothing to 200 KB, so that some need pages of their own."""
    return content((client % 5) * 50_000 // scale, 1, client, number)


def checkpoint(number: int, scale: int = 1) -> bytes:
    return content(100_000 // scale, 2, number)


def metrics(number: int) -> bytes:
    return content(20, 3, number)


def last_round(client: int, number: int) -> int | None:
    """The last round up to `number` in which a client took part."""
    return next((r for r in range(number, 0, -1) if client in participants(r)), None)


def expected_states(number: int, scale: int = 1) -> list[bytes | None]:
    """The states of the whole population as of a round."""
    rounds = [last_round(client, number) for client in range(POPULATION)]
    return [None if r is None else state(client, r, scale) for client, r in enumerate(rounds)]


def commit(store: Any, number: int, scale: int = 1) -> None:
    """Commits a round with the contents above."""
    states = {client: state(client, number, scale) for client in participants(number)}
    store.commit(number, checkpoint(number, scale), states, metrics(number))


def commit_for_ever(folder: pathlib.Path) -> None:
    with store.SqliteStore(folder) as rounds:
        newest = rounds.latest()
        number = newest.number + 1 if newest else 0
        print("open", flush=True)
        while True:
            commit(rounds, number)
            print(number, flush=True)
            number += 1


def hold(folder: pathlib.Path) -> None:
    with store.SqliteStore(folder):
        print("open", flush=True)
        time.sleep(600)


def measure_memory(folder: pathlib.Path) -> None:
    """Commits and reads 2 000 clients of 100 KB, 50 a round, and prints by how many MB the peak of memory rose."""
    with store.SqliteStore(folder) as rounds:
        rounds.commit(0, b"", {}, b"")
        before = 0
        for number in range(1, 41):
            clients = range(50 * number, 50 * number + 50)
            rounds.commit(number, b"", {client: content(100_000, client) for client in clients}, b"")
            assert None not in rounds.read_clients(clients)
            if number == 1:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def fill(folder: pathlib.Path) -> None:
    """Commits until the disk takes no more, makes room, and goes on; prints what happened as JSON.

    Room is made by deleting the file `ballast`; if there is none, the disk is made small by a limit on file sizes.
    """
    ballast = folder / "ballast"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not ballast.exists():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, hard))
    with store.SqliteStore(folder) as rounds:
        number = 0
        try:
            while True:
                commit(rounds, number)
                number += 1
        except store.StoreFullError as e:
            message = str(e)
        newest = rounds.latest()
        readable = rounds.read_clients(range(POPULATION)) == expected_states(number - 1)
        if ballast.exists():
            ballast.unlink()
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        commit(rounds, number)
        result = {
            "failed": number,
            "message": message,
            "newest": newest.number if newest else None,
            "readable": readable,
            "warnings": rounds.warnings,
        }
    with store.SqliteStore(folder) as rounds:
        newest = rounds.latest()
        result["then"] = newest.number if newest else None
        result["then readable"] = rounds.read_clients(range(POPULATION)) == expected_states(number)
    print(json.dumps(result))


if __name__ == "__main__":
    # The package without its __init__, which takes seconds to import TensorFlow: most would be killed there.
    root = pathlib.Path(__file__).parents[2]
    package = types.ModuleType("tff_fen")
    package.__path__ = [str(root / "tff_fen")]
    sys.modules["tff_fen"] = package
    from tff_fen.program import store

    tasks = {"commit": commit_for_ever, "hold": hold, "memory": measure_memory, "fill": fill}
    tasks[sys.argv[1]](pathlib.Path(sys.argv[2]))
