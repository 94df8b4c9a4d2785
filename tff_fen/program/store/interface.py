"""What every store of rounds offers, and the rules for what it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, Self

from tff_fen.checks import check_integer, check_type

_LARGEST_ID = 2**63 - 1
_LARGEST_VALUE = 1_000_000_000 - 1024  # SQLite's limit for a row is 10^9 bytes.


class Round(NamedTuple):
    """A committed round: its number (0: the initial state), and the server's state as bytes."""

    number: int
    checkpoint: bytes


class RoundStore(Protocol):
    """The rounds of one experiment; a context manager. `str(store)` says where it is."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: Any) -> None: ...

    def close(self) -> None:
        """Closes the store. May be called twice."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What `latest` found damaged and rolled back."""

    def latest(self) -> Round | None:
        """Returns the newest round that is whole; `None` before the first commit."""

    def read_clients(self, client_ids: Iterable[int]) -> list[bytes | None]:
        """Returns the clients' states as of the newest round, in the order asked for; `None` for a newcomer."""

    def commit(self, round_number: int, checkpoint: bytes, client_states: Mapping[int, bytes], metrics: bytes) -> None:
        """Commits a round: all of it, or nothing.

        Args:
          round_number: 0 for the initial state, then one more each time.
          checkpoint: the server's state after the round.
          client_states: the participants' new states by client id; empty in round 0.
          metrics: the round's row of metrics.
        """

    def metrics(self) -> Iterator[tuple[int, bytes]]:
        """Yields all rounds' rows of metrics, in order, as `(round, row)`."""

    def client_ids(self) -> Iterator[int]:
        """Yields the ids of all clients that ever took part, in rising order."""


def check_client_id(client: Any, name: str = "A client id") -> int:
    """Returns a client's id as an `int`; raises unless it is an integer that every store takes."""
    check_integer(name, client, 0, _LARGEST_ID)
    return int(client)


def check_contents(round_number: Any, checkpoint: Any, client_states: Any, metrics: Any) -> dict[int, bytes]:
    """Raises unless a round consists of what every store takes; returns the clients' states."""
    check_integer("round_number", round_number, 0, _LARGEST_ID)
    _check_value("checkpoint", checkpoint)
    _check_value("metrics", metrics)
    check_type("client_states", client_states, Mapping, "Map client ids to states.")
    states: dict[int, bytes] = {}
    for client, state in client_states.items():
        _check_value(f"client_states[{client!r}]", state)
        states[check_client_id(client)] = state
    return states


def check_follows(round_number: int, newest: int, states: Mapping[int, bytes]) -> None:
    """Raises unless a round is the one after the newest (-1: the store is empty)."""
    if round_number != newest + 1:
        found = f"the newest is {newest}" if newest >= 0 else "the store is empty"
        raise ValueError(
            f"round_number must be {newest + 1}, found {round_number}: rounds are consecutive and {found}. "
            "Continue from the round that latest() returns."
        )
    if round_number == 0 and states:
        raise ValueError(
            f"client_states must be empty in round 0, the initial state, found {len(states)} clients. "
            "Commit the initial state first, the first round of training as round 1."
        )


def _check_value(name: str, value: Any) -> None:
    check_type(name, value, bytes, "Serialize it with tff_fen.program.serialization.to_bytes.")
    if len(value) > _LARGEST_VALUE:
        raise ValueError(f"{name} must be at most {_LARGEST_VALUE} bytes, found {len(value)}. Store a smaller model.")
