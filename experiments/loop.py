"""The training loop: rounds that are whole or not at all, whatever ends the process.

A round's server state, its participants' states and its row of metrics go into the store
in one transaction (`store.SqliteStore`). All other files of the folder are made from what
the store holds: whatever they say after a kill, they are written anew from it.
"""

from __future__ import annotations

import collections
import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from experiments.accounting import Accountant, PrivacyAccountant
from experiments.experiment_config import ExperimentConfig
from experiments.methods import Aggregation
from tff_fen.process import ClientInput, StatefulClientProcess
from tff_fen.program.serialization import from_bytes, to_bytes
from tff_fen.program.store import SqliteStore


class Evaluation(Protocol):
    """Of a model on the test set."""

    @property
    def accuracy(self) -> float: ...

    @property
    def loss(self) -> float: ...


class Parts(NamedTuple):
    """What a loop is made of.

    Attributes:
      process: from `algorithms.build_process`.
      aggregation: what it was built with.
      client_dataset: `(k -> tf.data.Dataset)`.
      sample: `(round -> sorted client ids)`, a pure function.
      evaluate: `(ModelWeights -> Evaluation)`.
    """

    process: StatefulClientProcess
    aggregation: Aggregation
    client_dataset: Callable[[int], Any]
    sample: Callable[[int], np.ndarray]
    evaluate: Callable[[Any], Evaluation]


class RoundRecord(NamedTuple):
    """What the store keeps of a round beside the states.

    Attributes:
      row: the columns of `metrics.csv`.
      histogram: of the magnitudes of the round's deltas, see `accounting`.
    """

    row: dict[str, Any]
    histogram: list[int]

    def to_bytes(self) -> bytes:
        """As JSON; floats as their shortest exact form."""
        return json.dumps({"row": self.row, "histogram": self.histogram}).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> RoundRecord:
        """The inverse of `to_bytes`."""
        return cls(**json.loads(content))


class Loop:
    """Runs the rounds of one experiment from wherever its store is."""

    def __init__(self, config: ExperimentConfig, parts: Parts, store: SqliteStore, header: bytes = b"") -> None:
        """Initializes the loop.

        Args:
          config: the experiment's values.
          parts: what it is made of.
          store: its rounds.
          header: what the store keeps with the initial state; see `read_header`.
        """
        self._config, self._parts, self._store = config, parts, store
        self._accountant = Accountant(config, parts.aggregation)
        self._privacy = PrivacyAccountant(config, parts.sample) if config.aggregator == "dp" else None
        initial = parts.process.initialize()
        self._client_like = parts.process.initialize_client(0)
        latest = store.latest()
        if latest is None:
            store.commit(0, to_bytes(initial), {}, header)
            self._server, self._round = initial, 0
        else:
            self._server, self._round = from_bytes(latest.checkpoint, initial), latest.number

    @property
    def round(self) -> int:
        """Rounds done."""
        return self._round

    @property
    def weights(self) -> Any:
        """theta, as `tff.learning.models.ModelWeights`."""
        return self._parts.process.get_model_weights(self._server)

    def records(self) -> Iterator[RoundRecord]:
        """What the store holds of all rounds done, in order."""
        for number, content in self._store.metrics():
            if number:
                yield RoundRecord.from_bytes(content)

    def run_round(self) -> RoundRecord:
        """Runs a round and commits it."""
        number, process = self._round, self._parts.process
        chosen = [int(k) for k in self._parts.sample(number)]
        states = [
            process.initialize_client(k) if content is None else from_bytes(content, self._client_like)
            for k, content in zip(chosen, self._store.read_clients(chosen), strict=True)
        ]
        inputs = [ClientInput(state, self._parts.client_dataset(k)) for k, state in zip(chosen, states, strict=True)]
        before = self._server
        output = process.next(before, inputs)
        row: dict[str, Any] = collections.OrderedDict(round=number + 1)
        row |= _flatten_metrics(output.metrics)
        counts, histogram = self._accountant.count_uplink(output.messages)
        shared = before.aggregator["control"] if self._config.algorithm == "scaffold" else None
        row |= counts
        row |= self._accountant.count_downlink(before.global_model_weights.trainable, shared, len(chosen))
        if self._privacy is not None:
            row["dp_epsilon"] = self._privacy.epsilon(number + 1)
        row |= self._evaluate(output.state, due=(number + 1) % self._config.evaluate_every == 0)
        record = RoundRecord(row, histogram.tolist())
        new_states = {int(state.client_id): to_bytes(state) for state in output.client_states}
        self._store.commit(number + 1, to_bytes(output.state), new_states, record.to_bytes())
        self._server, self._round = output.state, number + 1
        return record

    def evaluate(self) -> dict[str, Any]:
        """Returns test accuracy and loss of the model as it is now, as the columns of a round."""
        return self._evaluate(self._server, due=True)

    def _evaluate(self, state: Any, due: bool) -> dict[str, Any]:
        """Test accuracy and loss of theta and of the mean of the participants' models (FedDyn), where it is due."""
        models = {"": self._parts.process.get_model_weights}
        if self._config.algorithm == "fed_dyn":
            models["average_"] = self._parts.process.get_average_weights
        columns: dict[str, Any] = {}
        for prefix, get_weights in models.items():
            found = self._parts.evaluate(get_weights(state)) if due else None
            columns[f"{prefix}accuracy"] = None if found is None else found.accuracy
            columns[f"{prefix}test_loss"] = None if found is None else found.loss
        return columns


def read_header(store: SqliteStore) -> bytes | None:
    """Returns what the store keeps with the initial state; `None` if it is empty."""
    for number, content in store.metrics():
        if number == 0:
            return content
    return None


class Interruption:
    """Whether the user has asked to stop: the first Ctrl-C (or SIGTERM) sets it, the second stops at once."""

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def watched(self) -> Iterator[Interruption]:
        """Handles the signals within the block; elsewhere than in the main thread there are none."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return

        def handle(number: int, frame: Any) -> None:
            if self.requested:
                raise KeyboardInterrupt
            self.requested = True

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _flatten_metrics(metrics: Any, prefix: str = "") -> dict[str, Any]:
    """Returns nested metrics as columns `client_work/train/loss`, ..., of Python numbers; arrays are left out."""
    columns: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            columns |= _flatten_metrics(value, f"{prefix}{name}/")
        elif np.ndim(value) == 0 and not isinstance(value, tuple | list):
            columns[prefix + name] = np.asarray(value).item()
    return columns
