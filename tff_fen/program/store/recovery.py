"""Recovery of a store's database: finds the last whole round, says what is damaged, removes what is newer."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import NamedTuple

from tff_fen.program.store.database import Database, Version
from tff_fen.program.store.errors import START_ANEW, Damage, DamagedStoreError

MODULUS = 2**128  # Of the sum of fingerprints over the population.


class Recovered(NamedTuple):
    """What a recovery found.

    Attributes:
      newest: the last whole round; -1 if the store is empty.
      population: the sum of the fingerprints of all clients' states as of it, mod 2^128.
      faults: what was damaged and is removed now.
    """

    newest: int
    population: int
    faults: list[str]


class _Scan(NamedTuple):
    """What the keys of all clients' states say.

    Attributes:
      populations: for every loadable round the sum of the fingerprints of the states as of that round, mod 2^128.
      recent: for every loadable round the versions as of that round that are not older than the oldest of them.
    """

    populations: dict[int, int]
    recent: dict[int, list[Version]]


def recover(db: Database) -> Recovered:
    """Finds the last whole round and removes what is newer, in one transaction.

    A round is whole if its checkpoint, its metrics, and the states as of it that were written in the rounds still
    loadable match their digests, and no client's state is missing. States older than that are the same in all
    loadable rounds; they are checked when they are read.

    Raises:
      DamagedStoreError: if no round is whole.
    """
    rounds = [n for (n,) in db.execute("SELECT round FROM rounds ORDER BY round")]
    newest, population, faults = -1, 0, []
    if rounds:
        scan = _scan_clients(db, rounds)
        for number in reversed(rounds):
            try:
                population = _check_whole(db, number, rounds[0], scan)
            except Damage as e:
                faults.append(f"Round {number} in {db.path} is damaged: {e}.")
            else:
                newest = number
                break
        else:
            raise DamagedStoreError(
                f"No round is whole of those still loadable, {rounds[0]} to {rounds[-1]}. {' '.join(faults)} "
                f"{START_ANEW}"
            )
    if db.execute(
        "SELECT EXISTS (SELECT 1 FROM rounds WHERE round > ?1) OR EXISTS (SELECT 1 FROM metrics WHERE round > ?1)"
        " OR EXISTS (SELECT 1 FROM clients WHERE round > ?1)",
        newest,
    ).fetchone()[0]:
        if newest < 0:
            raise DamagedStoreError(f"{db.path} is damaged: its checkpoints are missing. {START_ANEW}")
        faults = faults or [f"{db.path} is damaged: the checkpoint of round {newest + 1} is missing."]
        _remove_after(db, newest)
    return Recovered(newest, population, faults)


def _scan_clients(db: Database, rounds: list[int]) -> _Scan:
    """Reads the keys of all clients' states.

    A damaged key could hide a client's state, which would then begin anew without anybody noticing: hence the sum
    over the population that each round holds. Keys are small; 100 000 take a fraction of a second.
    """
    populations = dict.fromkeys(rounds, 0)
    recent: dict[int, list[Version]] = {number: [] for number in rounds}
    query = "SELECT client, round, digest, content FROM clients ORDER BY client DESC, round DESC"
    client, remaining = None, rounds
    for version in map(Version.from_row, db.execute(query)):
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
    return _Scan({number: total % MODULUS for number, total in populations.items()}, recent)


def _check_whole(db: Database, number: int, oldest: int, scan: _Scan) -> int:
    """Raises unless the round is whole; returns its population."""
    _, population = db.read_round(number)
    for earlier in range(oldest, number + 1):
        db.read_metrics(earlier)
    if population != scan.populations[number]:
        raise Damage(f"the clients' states as of round {number}", "keys were changed or are missing")
    for version in scan.recent[number]:
        db.read_state(version)
    return population


def _remove_after(db: Database, number: int) -> None:
    """Removes all rounds after this one, in one transaction."""
    with db.transaction():
        versions = db.execute("SELECT client, round, digest, content FROM clients WHERE round > ?", number)
        for version in map(Version.from_row, versions.fetchall()):
            _remove_if_whole(db, version.content, functools.partial(db.read_state, version))
        rounds = db.execute("SELECT round, checkpoint FROM rounds WHERE round > ?", number)
        for newer, content in rounds.fetchall():
            _remove_if_whole(db, content, functools.partial(db.read_round, newer))
        for table in ("clients", "rounds", "metrics"):
            db.execute(f"DELETE FROM {table} WHERE round > ?", number)


def _remove_if_whole(db: Database, content: int, check: Callable[[], object]) -> None:
    # The pages of a damaged content may be those of another: their space is given up rather than used again.
    with contextlib.suppress(Damage):
        check()
        db.execute("DELETE FROM contents WHERE id = ?", content)
