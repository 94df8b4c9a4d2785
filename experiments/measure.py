"""What is measured of a round: bytes, privacy spent, and the model on the test set."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from experiments import columns
from experiments.build import Parts
from experiments.bytes import ByteCounter
from experiments.experiment_config import ExperimentConfig
from experiments.privacy import PrivacyAccountant
from experiments.releases import Releases
from tff_fen.program.rounds import Rounds
from tff_fen.program.store import RoundStore


class Measure:
    """The columns of a round beside the process's own metrics, as `tff_fen.program.rounds.Rounds` asks for them."""

    def __init__(self, config: ExperimentConfig, parts: Parts, releases: Releases | None = None) -> None:
        """Initializes the measure.

        Args:
          config: of the experiment.
          parts: of the experiment.
          releases: so far; by default none, in memory.
        """
        self._config, self._parts, self._process = config, parts, parts.process
        self.bytes = ByteCounter(
            parts.process,
            codec=config.codec(),
            counted=config.counted_codecs(),
            message_bytes=parts.aggregation.message_bytes,
        )
        self._privacy = (
            PrivacyAccountant(config.dp_noise_multiplier, config.dp_delta, parts.sample)
            if config.aggregator == "dp"
            else None
        )
        self._clock = time.monotonic()
        self._releases = Releases() if releases is None else releases
        if self._privacy is not None:
            for number in self._releases.rounds:
                self._privacy.count(number)
        self._broadcasts = len(parts.process.get_broadcast.type_signature.result) > 0

    def __call__(self, before: Any, output: Any, ids: Sequence[int]) -> dict[str, Any]:
        """Returns the columns of a round, and the histogram of its updates.

        Args:
          before: the server's state before the round.
          output: what `process.next` returned. Without messages, which a builder without `release_messages` does
            not give, there are no columns of the uplink's bytes and no histogram.
          ids: of the participants.
        """
        done = int(output.state.client_work)
        found: dict[str, Any] = {}
        if hasattr(output, "messages"):
            of_clients: dict[int, int] = {}
            counts, histogram = self.bytes.count_uplink(output.messages, of_clients)
            found |= counts | {columns.HISTOGRAM: histogram.tolist()}
            if self._config.per_client_metrics:
                found[columns.CLIENT_BYTES] = [of_clients[client] for client in ids]
        broadcast = self._process.get_broadcast(before) if self._broadcasts else {}
        found |= self.bytes.count_downlink(before.global_model_weights.trainable, broadcast, len(ids))
        evaluated = self.evaluate(output.state, due=done % self._config.evaluate_every == 0)
        before_this, self._clock = self._clock, time.monotonic()
        evaluated |= {columns.SECONDS.name: round(self._clock - before_this, 3)}
        # Last, since the commit follows.
        return found | self._release(done) | evaluated

    def reports(self, name: str) -> bool:
        """Whether a metric of the process is written down."""
        return self._config.measures_clients or columns.is_public(name)

    def _release(self, number: int) -> dict[str, Any]:
        """Counts a round as released, and returns the columns of privacy spent."""
        if self._privacy is None:
            return {}
        self._releases.add(number)
        self._privacy.count(number)
        found = {columns.EPSILON.name: self._privacy.epsilon(), columns.RELEASES.name: len(self._releases.rounds)}
        return found if self._releases.complete else found | {columns.LOWER_BOUND.name: 1}

    def evaluate(self, state: Any, due: bool = True) -> dict[str, Any]:
        """Returns test accuracy and loss of the server's model and of the participants' mean; `None` if not due."""
        models = [(columns.ACCURACY, columns.TEST_LOSS, self._process.get_model_weights)]
        if self._process.has_average_model:
            models.append((columns.AVERAGE_ACCURACY, columns.AVERAGE_TEST_LOSS, self._process.get_average_weights))
        found: dict[str, Any] = {}
        for accuracy, loss, get_weights in models:
            result = self._parts.evaluator.evaluate(get_weights(state)) if due else None
            found[accuracy.name] = None if result is None else result.accuracy
            found[loss.name] = None if result is None else result.loss
        return found


def build_rounds(parts: Parts, measure: Measure, store: RoundStore, header: bytes = b"") -> Rounds:
    """Returns the rounds of an experiment, from wherever its store is."""
    return Rounds(
        parts.process, parts.client_dataset, parts.sample, store,
        measure=measure, reports=measure.reports, header=header,
    )  # fmt: skip
