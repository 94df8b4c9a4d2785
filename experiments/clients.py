"""What single clients come to, `clients.csv`: for questions of fairness.

A row per client: its examples, the rounds it took part in, the bytes it sent, and loss and accuracy on its own training
data of the model that tables quote, after the last round.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tqdm

from experiments.columns import CLIENT_BYTES

if TYPE_CHECKING:  # the library imports TensorFlow, which a report does without
    from tff_fen.program.records import Record

FILE = "clients.csv"
COLUMNS = ("client", "examples", "rounds", "share_of_rounds", "uplink_bytes", "loss", "accuracy")
MOST = 10_000
"""Of a larger population so many clients are evaluated, drawn by the seed."""

EvaluateClients = Callable[[Any, Iterable[int]], Iterator[tuple[int, Any]]]


def measure_clients(
    records: Sequence[Record],
    sample: Callable[[int], Any],
    num_clients: int,
    evaluate_clients: EvaluateClients,
    weights: Any,
    *,
    seed: int = 0,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Returns the rows of `clients.csv`, in the order of the clients.

    Args:
      records: of all rounds.
      sample: `(round, from 0 -> client ids)`, who took part.
      num_clients: m.
      evaluate_clients: `(weights, client ids -> (examples, Evaluation) of each)`.
      weights: the model.
      seed: of the draw from a population of more than `MOST`.
      quiet: whether to show no progress.
    """
    rounds, sent = np.zeros(num_clients, int), np.zeros(num_clients, int)
    for number, record in enumerate(records):
        ids = np.asarray(sample(number), int)
        rounds[ids] += 1
        # A process that does not give messages back has no bytes.
        sent[ids] += np.asarray(record.lists.get(CLIENT_BYTES, [0] * len(ids)), int)
    counted = all(CLIENT_BYTES in record.lists for record in records)
    chosen = np.arange(num_clients)
    if num_clients > MOST:
        chosen = np.sort(np.random.default_rng(seed).choice(num_clients, MOST, replace=False))
    evaluations = evaluate_clients(weights, map(int, chosen))
    # With `disable=None` tqdm shows its bar on terminals only.
    bar = tqdm.tqdm(evaluations, "evaluating clients", len(chosen), disable=True if quiet else None, leave=False)
    return [
        {
            "client": int(client),
            "examples": examples,
            "rounds": int(rounds[client]),
            "share_of_rounds": float(rounds[client] / max(len(records), 1)),
            "uplink_bytes": int(sent[client]) if counted else None,
            "loss": found.loss if examples else None,
            "accuracy": found.accuracy if examples else None,
        }
        for client, (examples, found) in zip(chosen, bar, strict=True)
    ]


def format_clients(rows: Sequence[dict[str, Any]]) -> str:
    """Returns the content of `clients.csv`."""
    lines = io.StringIO()
    writer = csv.DictWriter(lines, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    return lines.getvalue()
