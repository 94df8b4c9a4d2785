"""The rounds of a process: whole or not at all, whatever ends the Python process.

A round's server state, its participants' states and its record of metrics go into the store in one transaction. The
next `Rounds` on the same store go on from there, to the bit.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_fen.checks import check_integer, check_type
from tff_fen.process import ClientInput
from tff_fen.program.records import Record, flatten, numbers
from tff_fen.program.serialization import from_bytes, to_bytes
from tff_fen.program.store.errors import START_ANEW, DamagedStoreError
from tff_fen.program.store.interface import RoundStore, check_client_id

Measure = Callable[[Any, Any, list[int]], Mapping[str, Any]]


class Rounds:
    """Runs the rounds of a process from wherever its store is; each round is one transaction."""

    def __init__(
        self,
        process: tff.templates.IterativeProcess,
        client_dataset: Callable[[int], Any],
        sample: Callable[[int], Iterable[int]],
        store: RoundStore,
        *,
        measure: Measure | None = None,
        reports: Callable[[str], bool] = lambda name: True,
        header: bytes = b"",
        release_managers: Sequence[tff.program.ReleaseManager] = (),
    ) -> None:
        """Takes the process to where the store is; an empty store gets the initial state.

        Args:
          process: of stateful clients, which are fed `ClientInput`s and whose client states carry their `client_id`:

                initialize_client: (int64 -> C)
                next: (<S@SERVER, {<state=C,data=B*>}@CLIENTS> ->
                       <state=S@SERVER,client_states={C}@CLIENTS,metrics=M@SERVER,...>)

            or a plain `tff.learning.templates.LearningProcess`, whose clients are fed their data sets:

                next: (<S@SERVER, {B*}@CLIENTS> -> <state=S@SERVER,metrics=M@SERVER>)

          client_dataset: `(client id -> tf.data.Dataset)`.
          sample: `(round, from 0 -> client ids)`: different integers >= 0. Exact resume needs a pure function.
          store: of these rounds alone.
          measure: `(server state before the round, what process.next returned, client ids -> columns)`. Its columns
            (scalars or lists; nested mappings are made flat) follow `round` and the process's metrics in the record,
            in the same transaction.
          reports: whether a metric of the process, by its column's name, enters the record.
          header: what an empty store keeps with the initial state; see `read_header`.
          release_managers: get the scalar columns of each round after its commit, with the round as key. A round may
            be committed and not released when a run is killed, so the newest round is released again on resume.

        Raises:
          ValueError: if the store holds rounds of another process.
        """
        check_parts(process, client_dataset, sample, release_managers)
        self._process, self._client_dataset, self._sample, self._store = process, client_dataset, sample, store
        self._measure, self._reports, self._managers = measure, reports, tuple(release_managers)
        self._client_like = process.initialize_client(0) if _is_stateful(process) else None
        initial = process.initialize()
        latest = store.latest()
        if latest is None:
            store.commit(0, to_bytes(initial), {}, header)
            self._state, self._round = initial, 0
            return
        try:
            self._state, self._round = from_bytes(latest.checkpoint, initial), latest.number
            for client in store.client_ids():
                if not _is_stateful(process):
                    raise ValueError("Its clients have states, those of this process have none.")
                self.client_state(client)
                break
        except ValueError as e:
            raise ValueError(f"{store} holds rounds of another process. {e}") from e
        if self._managers and self._round:
            *_, newest = self.records()
            self._release(newest)

    @property
    def round(self) -> int:
        """How many rounds are done."""
        return self._round

    @property
    def state(self) -> Any:
        """The server's state after the last round done."""
        return self._state

    def client_state(self, client_id: int) -> Any:
        """Returns a client's newest state: the initial one if it never took part, `None` if clients have no state."""
        return read_client_state(self._process, self._store, client_id)

    def records(self) -> Iterator[Record]:
        """Yields the records of all rounds done, in order, from the store.

        Raises:
          DamagedStoreError: if there is one that is no record of its round.
        """
        for number, content in self._store.metrics():
            if number:
                yield self._read_record(number, content)

    def _read_record(self, number: int, content: bytes) -> Record:
        try:
            record = Record.from_bytes(content)
            if record.row.get("round") != number:
                raise ValueError(f"it says that its round is {record.row.get('round')!r}")
        except ValueError as error:
            raise DamagedStoreError(
                f"{self._store} is damaged: the row of metrics of round {number} is none: {error}. {START_ANEW}"
            ) from error
        return record

    def run(
        self,
        rounds: int,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_round: Callable[[Record], None] | None = None,
    ) -> None:
        """Runs rounds until `rounds` are done in all, those of earlier runs included.

        Args:
          rounds: at least as many as are done.
          should_stop: is asked before each round; the run ends when it says yes.
          on_round: is told the record of each round after its commit and release.
        """
        check_integer("rounds", rounds, 0)
        if rounds < self._round:
            raise ValueError(
                f"rounds must be at least {self._round}, found {rounds}. {self._store} holds {self._round} rounds "
                "already: ask for as many or more, or begin anew elsewhere."
            )
        while self._round < rounds and not should_stop():
            record = self.run_round()
            if on_round is not None:
                on_round(record)

    def run_round(self) -> Record:
        """Runs a round, commits it and releases its record."""
        number, before = self._round + 1, self._state
        ids = _check_ids(self._round, self._sample(self._round))
        output = self._process.next(before, self._inputs(ids))
        reported = {name: value for name, value in numbers(output.metrics).items() if self._reports(name)}
        columns: dict[str, Any] = {"round": number, **reported}
        if self._measure is not None:
            measured = flatten(self._measure(before, output, ids))
            if twice := columns.keys() & measured.keys():
                raise ValueError(
                    f"What is measured or evaluated must have names of its own, found {sorted(twice)}, which are "
                    "columns of the round already. Rename them."
                )
            columns |= measured
        record = Record.from_columns(columns)
        self._store.commit(number, to_bytes(output.state), self._new_states(ids, output), record.to_bytes())
        self._state, self._round = output.state, number
        self._release(record)
        return record

    def _inputs(self, ids: list[int]) -> list[Any]:
        data = [self._client_dataset(client) for client in ids]
        if not _is_stateful(self._process):
            return data
        contents = self._store.read_clients(ids)
        states = [
            self._process.initialize_client(client) if content is None else from_bytes(content, self._client_like)
            for client, content in zip(ids, contents, strict=True)
        ]
        return [ClientInput(state, dataset) for state, dataset in zip(states, data, strict=True)]

    def _new_states(self, ids: list[int], output: Any) -> dict[int, bytes]:
        if not _is_stateful(self._process):
            return {}
        states = {int(state.client_id): to_bytes(state) for state in output.client_states}
        if states.keys() != set(ids):
            raise ValueError(
                f"process.next must return the states of clients {sorted(ids)}, found those of {sorted(states)}. "
                "A client's state keeps its client_id."
            )
        return states

    def _release(self, record: Record) -> None:
        if not self._managers:
            return
        values = {name: np.asarray(value)[()] for name, value in record.row.items() if value is not None}
        number = int(values.pop("round"))

        async def release() -> None:
            for manager in self._managers:
                await manager.release(values, key=number)

        # In a thread of its own: asyncio.run takes away the event loop of its thread, which TFF's training loops
        # need, and does not run where a loop is running already, as in a notebook.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, release()).result()


def read_header(store: RoundStore) -> bytes | None:
    """Returns what a store keeps with the initial state; `None` if it is empty."""
    return next((content for _, content in store.metrics()), None)


def read_client_state(process: Any, store: RoundStore, client_id: int) -> Any:
    """Returns a client's newest state: the initial one if it never took part, `None` if clients have no state."""
    client_id = check_client_id(client_id, "client_id")
    if not _is_stateful(process):
        return None
    (content,) = store.read_clients([client_id])
    initial = process.initialize_client(client_id)
    return initial if content is None else from_bytes(content, initial)


def check_parts(process: Any, client_dataset: Any, sample: Any, release_managers: Any) -> None:
    """Raises unless rounds can be made of these; see `Rounds`."""
    check_process(process)
    check_callable("client_dataset", client_dataset, "a client id to its tf.data.Dataset")
    check_callable("sample", sample, "a round, from 0, to the ids of its clients")
    check_type("release_managers", release_managers, (list, tuple), "Pass a list of tff.program.ReleaseManagers.")
    for i, manager in enumerate(release_managers):
        check_type(f"release_managers[{i}]", manager, tff.program.ReleaseManager, "Pass tff.program.ReleaseManagers.")


def check_process(process: Any) -> None:
    """Raises unless `process` is one that rounds can be made of."""
    advice = "Pass what build_fed_dyn, build_scaffold, build_fed_avg or one of TFF's builders returned."
    check_type("process", process, tff.templates.IterativeProcess, advice)
    expected = {"state", "metrics"} | ({"client_states"} if _is_stateful(process) else set())
    result = process.next.type_signature.result
    found = tff.structure.name_list(result) if isinstance(result, tff.StructType) else []
    if not expected <= set(found):
        raise TypeError(f"process.next must return {sorted(expected)}, found {found}. {advice}")


def check_callable(name: str, value: Any, what: str) -> None:
    """Raises unless `value` can be called; `what` says from what to what the function is."""
    if not callable(value):
        raise TypeError(
            f"{name} must be a function from {what}, found {value!r} of type {type(value).__name__}. Pass a function."
        )


def _is_stateful(process: Any) -> bool:
    return hasattr(process, "initialize_client")


def _check_ids(round_number: int, sampled: Any) -> list[int]:
    """The ids that `sample` returned for a round as integers; raises unless they are some, and all different."""
    what = f"sample({round_number})"
    if not isinstance(sampled, Iterable):
        raise TypeError(f"{what} must return client ids, found {sampled!r} of type {type(sampled).__name__}.")
    ids = [check_client_id(client, f"{what}[{i}]") for i, client in enumerate(sampled)]
    if not ids:
        raise ValueError(f"{what} must return at least one client id, found none. Draw again where nobody joins.")
    twice = sorted({client for client in ids if ids.count(client) > 1}) if len(set(ids)) < len(ids) else []
    if twice:
        raise ValueError(f"{what} must return different client ids, found {twice[:5]} more than once. Draw each once.")
    return ids
