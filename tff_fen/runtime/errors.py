"""What can go wrong in the runtimes of this package, one class a cause."""

from __future__ import annotations


class UnsupportedConstructError(NotImplementedError):
    """A computation holds something that the runtime has no rule for; the message names it."""


class ClientWorkError(RuntimeError):
    """A client's work failed; the message holds the client's index and the original message.

    Attributes:
      client: the client's place in the list of arguments, from 0.
    """

    def __init__(self, client: int, num_clients: int, error: Exception) -> None:
        super().__init__(
            f"The work of client {client} (of {num_clients}, counted from 0) failed with "
            f"{type(error).__name__}: {error}"
        )
        self.client = client
