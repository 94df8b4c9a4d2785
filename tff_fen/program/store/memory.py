"""Rounds in memory: the store for runs that need not outlive their process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from tff_fen.program.store.errors import StoreError
from tff_fen.program.store.interface import Round, check_client_id, check_contents, check_follows


class _Content(NamedTuple):
    """All that the store holds: one value, so that a commit replaces it at one instant."""

    checkpoint: bytes
    clients: dict[int, bytes]
    metrics: tuple[bytes, ...]


class MemoryStore:
    """A `RoundStore` in memory; it keeps the newest checkpoint, each client's newest state and all rows of metrics."""

    def __init__(self) -> None:
        self._open: _Content | None = _Content(b"", {}, ())

    def __str__(self) -> str:
        return "The store in memory"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the store, which forgets its rounds. May be called twice."""
        self._open = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Nothing: memory is not damaged."""
        return ()

    def latest(self) -> Round | None:
        """Returns the newest round; `None` before the first commit."""
        content = self._content
        return Round(len(content.metrics) - 1, content.checkpoint) if content.metrics else None

    def read_clients(self, client_ids: Iterable[int]) -> list[bytes | None]:
        """Returns the clients' states as of the newest round, in the order asked for; `None` for a newcomer."""
        return [self._content.clients.get(check_client_id(client)) for client in client_ids]

    def commit(self, round_number: int, checkpoint: bytes, client_states: Mapping[int, bytes], metrics: bytes) -> None:
        """Commits a round; see `RoundStore.commit`."""
        states = check_contents(round_number, checkpoint, client_states, metrics)
        content = self._content
        check_follows(round_number, len(content.metrics) - 1, states)
        self._open = _Content(checkpoint, content.clients | states, (*content.metrics, metrics))

    def metrics(self) -> Iterator[tuple[int, bytes]]:
        """Yields all rounds' rows of metrics, in order, as `(round, row)`."""
        yield from enumerate(self._content.metrics)

    def client_ids(self) -> Iterator[int]:
        """Yields the ids of all clients that ever took part, in rising order."""
        yield from sorted(self._content.clients)

    @property
    def _content(self) -> _Content:
        if self._open is None:
            raise StoreError(f"{self} is closed. Open it anew.")
        return self._open
