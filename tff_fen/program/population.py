"""Who the clients of a run are: the ids that a user knows them by, the numbers behind these, and their data.

Process and store know a client by a number (int64): its shuffling, its state and its rows rest on it. Integer ids are
the numbers themselves. Strings, as TFF's `ClientData` has them, are numbered in the order in which they are listed; a
folder keeps the list, so that a resumed run gives each client the number it had.
"""

from __future__ import annotations

import json
import numbers
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.checks import check_integer, check_name, check_type
from tff_fen.program import client_data
from tff_fen.program.sampling import sample_uniform
from tff_fen.program.store.interface import check_client_id

_IDS = "client_ids"


class Population:
    """The clients of a run."""

    def __init__(self, read: Callable[[Any], Any], ids: Iterable[Any] | None, element_type: tff.Type | None) -> None:
        """Initializes the population.

        Args:
          read: `(client id -> tf.data.Dataset)`.
          ids: of all clients, different integers or different strings; `None` if any integer is one.
          element_type: of the batches that the process takes; `None` where that is not known.
        """
        self._read, self._element_type = read, element_type
        self.ids = None if ids is None else _check_listed(ids)
        self._numbers = {client: number for number, client in _numbered(self.ids or ())}
        self._by_number = {number: client for client, number in self._numbers.items()}

    def number(self, client: Any, name: str) -> int:
        """Returns a client's number; raises if there is no such client. `name` is what the id is called in errors."""
        if self.ids is None:
            if isinstance(client, str | bytes):
                raise TypeError(
                    f"{name} must be an integer >= 0, found {client!r} of type {type(client).__name__}. For ids that "
                    "are strings pass as client_dataset a tff.simulation.datasets.ClientData or a dictionary: they "
                    "list all clients."
                )
            return check_client_id(client, name)
        plain = client.item() if isinstance(client, np.generic) else client
        if isinstance(plain, int | str) and not isinstance(plain, bool) and plain in self._numbers:
            return self._numbers[plain]
        if _has_strings(self.ids):
            check_name(name, plain, self.ids)
        raise ValueError(f"{name} must be one of the {len(self.ids)} client ids, found {client!r}.")

    def dataset(self, number: int) -> Any:
        """Returns a client's data; raises if their type is plainly not what the process takes."""
        client = number if self.ids is None else self._by_number[number]
        dataset = self._read(client)
        if isinstance(dataset, tf.data.Dataset):
            client_data.check_spec(client, dataset.element_spec, self._element_type)
        return dataset

    def sampler(self, sample: Any) -> Any:
        """Returns `(round, from 0 -> numbers of clients)` for a user's `sample`; what is none is left to be refused."""
        if isinstance(sample, numbers.Integral):
            return self._uniform(sample)
        if not callable(sample):
            return sample

        def draw(round_number: int) -> Any:
            name, sampled = f"sample({round_number})", sample(round_number)
            if not isinstance(sampled, Iterable):
                return sampled
            ids = list(sampled)
            found = [self.number(client, f"{name}[{i}]") for i, client in enumerate(ids)]
            if _has_strings(self.ids) and len({*found}) < len(found):
                twice = sorted({str(client) for client in ids if ids.count(client) > 1})
                raise ValueError(f"{name} must return different client ids, found {twice[:5]} more than once.")
            return found

        return draw

    def _uniform(self, clients_per_round: Any) -> Callable[[int], list[int]]:
        if self.ids is None:
            raise TypeError(
                f"sample={clients_per_round!r} draws from all clients, which a function as client_dataset does not "
                "list. Pass client_dataset as a dictionary or a tff.simulation.datasets.ClientData, or sample as a "
                "function from a round, from 0, to the ids of its clients."
            )
        listed = [self._numbers[client] for client in self.ids]
        check_integer("sample", clients_per_round, 1, len(listed))
        return lambda number: [listed[i] for i in sample_uniform(number, len(listed), int(clients_per_round))]

    def to_header(self) -> bytes:
        """Returns the list of ids for a folder, empty if there is none."""
        return b"" if self.ids is None else json.dumps({_IDS: self.ids}).encode()

    def as_stored(self, header: bytes, where: str) -> Population:
        """Returns this population with the numbers that its clients have in a folder.

        Args:
          header: what the folder keeps of the population that it was begun with.
          where: the folder, for the error.

        Raises:
          ValueError: if the folder was begun with other clients.
        """
        stored = json.loads(header)[_IDS] if header else None
        if _has_strings(stored) == _has_strings(self.ids):
            if stored is None or self.ids is None:
                return self  # Integers are their own numbers, listed or not.
            if {*stored} == {*self.ids}:
                return Population(self._read, stored, self._element_type)
        raise ValueError(
            f"{where} was begun with other clients: {_show(stored)} there, {_show(self.ids)} now. A client's state "
            "goes by its number among all clients. Pass the same ids, or use another folder."
        )


def population_of(client_dataset: Any, process: Any) -> Population:
    """Returns the population that a user's `client_dataset` describes; see `run_rounds`.

    Raises:
      TypeError, ValueError: if it is none of the forms, or holds data that the process does not take.
    """
    element_type = client_data.element_type_of(process)
    if isinstance(client_dataset, tff.simulation.datasets.ClientData):
        client_data.check_spec(None, client_dataset.element_type_structure, element_type)
        _check_population(len(client_dataset.client_ids), process)
        return Population(client_dataset.create_tf_dataset_for_client, client_dataset.client_ids, element_type)
    if isinstance(client_dataset, Mapping):
        client_data.check_values(client_dataset, element_type)
        _check_population(len(client_dataset), process)
        return Population(lambda client: client_data.to_dataset(client_dataset[client]), client_dataset, element_type)
    if not callable(client_dataset):
        raise TypeError(
            f"client_dataset must be {client_data.FORMS}, found {reprlib.repr(client_dataset)} of type "
            f"{type(client_dataset).__name__}."
        )
    return Population(client_dataset, None, element_type)


def _check_population(listed: int, process: Any) -> None:
    """Raises if there are more clients than the process was built for: it divides what they send by their number."""
    expected = getattr(process, "num_clients", None)
    if expected is not None and listed > expected:
        raise ValueError(
            f"client_dataset must list at most num_clients={expected} clients, for which the process was built, found "
            f"{listed}. Build it with num_clients={listed}."
        )


def _numbered(ids: Sequence[Any]) -> Iterable[tuple[int, Any]]:
    return enumerate(ids) if _has_strings(ids) else ((client, client) for client in ids)


def _has_strings(ids: Sequence[Any] | None) -> bool:
    return ids is not None and len(ids) > 0 and isinstance(ids[0], str)


def _show(ids: Sequence[Any] | None) -> str:
    if ids is None:
        return "integers as a function takes them"
    return f"{len(ids)} ids from {min(ids)!r} to {max(ids)!r}"


def _check_listed(ids: Iterable[Any]) -> tuple[Any, ...]:
    """The ids as plain integers or strings."""
    listed = tuple(client.item() if isinstance(client, np.generic) else client for client in ids)
    if not listed:
        raise ValueError("client_dataset must have at least one client, found none.")
    kind = str if isinstance(listed[0], str) else int
    for client in listed:
        check_type("A client id", client, kind, "Let all ids be integers >= 0, or all strings.")
        if kind is int:
            check_client_id(client)
    if len({*listed}) < len(listed):
        raise ValueError("client_dataset must list each client id once, found some twice.")
    return listed
