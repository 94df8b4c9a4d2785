"""`tff_fen.run_rounds`: trains with a process, stateful clients included, and goes on where it was stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow_federated as tff
import tqdm

from tff_fen.checks import check_integer, check_type
from tff_fen.program.population import Population, population_of
from tff_fen.program.records import Record, flatten
from tff_fen.program.rounds import (
    Rounds,
    check_callable,
    check_parts,
    check_process,
    read_client_state,
    read_header,
)
from tff_fen.program.store import MemoryStore, RoundStore, SqliteStore, StoreError

# What a folder keeps with the initial state; the list of all clients follows, where there is one.
_HEADER = b"tff_fen.run_rounds"
# The list in a round's record that names the columns of the evaluation.
_EVALUATED = "evaluated_columns"

# Or a tff.simulation.datasets.ClientData; TFF has no types.
ClientDatasets = Callable[[Any], Any] | Mapping[Any, Any] | Any
Evaluate = Callable[[Any], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a run came to.

    Attributes:
      state: the server's state after the last round.
      metrics: one dict per round, in order, those of earlier calls included: `round` (from 1), the process's metrics
        under names such as `client_work/train/loss`, and the columns of `evaluate`, `None` where it was not due.
    """

    state: Any
    metrics: list[dict[str, Any]]
    _process: tff.templates.IterativeProcess = dataclasses.field(repr=False)
    _population: Population = dataclasses.field(repr=False)
    _open: Callable[[], contextlib.AbstractContextManager[RoundStore]] = dataclasses.field(repr=False)

    def client_state(self, client_id: int | str) -> Any:
        """Returns a client's state after the last round: the initial one if the client never took part.

        Where clients have no state, as in a `tff.learning.templates.LearningProcess`, it is `None`.

        Raises:
          StoreError: if another call has gone on with the folder since, and so with the clients' states.
        """
        number = self._population.number(client_id, "client_id")
        with self._open() as store:
            latest, rounds = store.latest(), len(self.metrics)
            if latest is None or latest.number != rounds:
                raise StoreError(
                    f"{store} is at round {latest and latest.number}, this result at round {rounds}. Take the states "
                    "from the result of the call that went on."
                )
            return read_client_state(self._process, store, number)


def run_rounds(
    process: tff.templates.IterativeProcess,
    client_dataset: ClientDatasets,
    sample: Callable[[int], Iterable[Any]] | int,
    rounds: int,
    *,
    folder: pathlib.Path | str | None = None,
    evaluate: Evaluate | None = None,
    evaluate_every: int = 1,
    release_managers: Sequence[tff.program.ReleaseManager] = (),
    progress: bool = True,
) -> RunResult:
    """Trains until `rounds` rounds are done, and carries the clients' states from round to round.

    It is for processes of stateful clients what `tff.simulation.run_training_process` is for FedAvg, and takes plain
    `tff.learning.templates.LearningProcess`es too:

        data = {"alice": (x_alice, y_alice), "bob": (x_bob, y_bob), ...}
        result = tff_fen.run_rounds(
            process, data, sample=10, rounds=50,
            folder="out/my_run", evaluate=lambda weights: {"accuracy": test_accuracy(weights)}, evaluate_every=5,
        )
        result.client_state("alice")

    With a folder each round is written in one transaction. After a kill, a power cut or Ctrl-C the same call goes on
    from the last finished round and ends with the bits of a run that was never stopped; a call with more rounds
    extends it.

    Args:
      process: from `build_fed_dyn`, `build_scaffold`, `build_fed_avg`, one of TFF's builders, or
        `compose_process`; `Rounds` has the type signatures.
      client_dataset: the clients' data in one of three forms.
        - A dictionary from client ids to `tf.data.Dataset`s of batches, or to arrays `(x, y)`. Arrays go in as one
          batch, of which `LocalTraining(batch_size=...)` makes minibatches.
        - A `tff.simulation.datasets.ClientData` whose data sets are batches, as `preprocess` makes them.
        - A function `(client id -> tf.data.Dataset)`, whose ids are integers >= 0.
        All ids of a dictionary are integers >= 0, or all are strings. A process knows a string by its place in the
        list of ids; the folder keeps the list, and a resumed run needs the same ids, in any order.
      sample: who takes part in a round. An integer draws so many different clients, all equally likely; or
        `(round, from 0 -> client ids)`, a pure function, or else a resumed run draws other clients
        (`tff.simulation.build_uniform_sampling_fn` makes one, `tff_fen.program.sampling` has two).
      rounds: how many rounds are to be done in all, those of earlier calls with the same folder included; >= 1.
      folder: where rounds and client states are kept; `None` keeps them in memory.
      evaluate: `(tff.learning.models.ModelWeights -> columns)`, of the server's model. It never changes the training.
      evaluate_every: the model is evaluated after every so many rounds, and after the last.
      release_managers: get the columns of each round (numbers, without those that are `None`) with the round as key,
        after it is safe in the folder. On resume the newest round is released again.
      progress: whether to show a bar with the newest loss and evaluation, on a terminal.

    Raises:
      TypeError: if data are not of the type that the process takes; the message has the cast to write.
      ValueError: if the folder holds rounds of another process, of other clients, or more than `rounds`.
      StoreError: if the folder is in use, damaged or full; the message says what to do.
    """
    check_process(process)
    population = population_of(client_dataset, process)
    check_parts(process, population.dataset, population.sampler(sample), release_managers)
    check_integer("rounds", rounds, 1)
    check_integer("evaluate_every", evaluate_every, 1)
    if folder is not None:
        check_type("folder", folder, (str, pathlib.Path), "Pass a folder for this run alone.")
    if evaluate is not None:
        check_callable("evaluate", evaluate, "tff.learning.models.ModelWeights to a dict of columns")
        check_callable("process.get_model_weights", getattr(process, "get_model_weights", None), "state to weights")

    def is_due(number: int) -> bool:
        return number % evaluate_every == 0 or number == rounds

    def evaluated(state: Any) -> dict[str, Any]:
        assert evaluate is not None
        columns = evaluate(process.get_model_weights(state))
        check_type("What evaluate returns", columns, Mapping, "Return a dict of column names to numbers.")
        columns = flatten(columns)
        return {**columns, _EVALUATED: list(columns)}

    def measure(before: Any, output: Any, ids: list[int]) -> dict[str, Any]:
        return evaluated(output.state) if evaluate is not None and is_due(loop.round + 1) else {}

    memory = MemoryStore()

    def open_store() -> contextlib.AbstractContextManager[RoundStore]:
        if folder is None:
            return contextlib.nullcontext(memory)  # It stays open, and ends with the result.
        return SqliteStore(folder)

    with open_store() as store:
        header = read_header(store)
        if header is not None:
            if not header.startswith(_HEADER):
                raise ValueError(f"{store} was not made by run_rounds. Use another folder.")
            population = population.as_stored(header.removeprefix(_HEADER), str(store))
        loop = Rounds(
            process,
            population.dataset,
            population.sampler(sample),
            store,
            measure=measure,
            header=_HEADER + population.to_header(),
            release_managers=tuple(release_managers),
        )
        # With `disable=None` tqdm shows its bar on terminals only.
        with tqdm.tqdm(initial=loop.round, total=rounds, unit="round", disable=None if progress else True) as bar:

            def show(record: Record) -> None:
                shown.update(_shown(record))
                bar.set_postfix(shown, refresh=False)
                bar.update()

            shown: dict[str, str] = {}
            loop.run(rounds, on_round=show)
        records = list(loop.records())
        if evaluate is not None and _EVALUATED not in records[-1].lists:
            # An earlier call ended here for which this round was neither due nor the last.
            last = Record.from_columns(evaluated(loop.state))
            records[-1] = Record(records[-1].row | last.row, records[-1].lists | last.lists)
    return RunResult(loop.state, _rows(records, is_due), process, population, open_store)


def _shown(record: Record) -> dict[str, str]:
    """What the bar shows of a round: its loss, and its evaluation where it was due."""
    names = [name for name in record.row if name.endswith("train/loss")][:1] + record.lists.get(_EVALUATED, [])[:3]
    values = {name.rpartition("/")[2]: record.row.get(name) for name in names}
    return {name: f"{value:.4g}" for name, value in values.items() if isinstance(value, float | int)}


def _rows(records: list[Record], is_due: Callable[[int], bool]) -> list[dict[str, Any]]:
    """The rows of all rounds, alike in their columns.

    The last round of an earlier, shorter call was evaluated too. It is left out where this call would not evaluate it,
    so that a run in parts gives what a run in one piece gives.
    """
    names = dict.fromkeys(name for record in records for name in record.lists.get(_EVALUATED, ()))
    rows = []
    for record in records:
        columns = record.row | record.lists if is_due(record.row["round"]) else {}
        rows.append(record.row | {name: columns.get(name) for name in names})
    return rows
