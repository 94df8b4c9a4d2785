"""What an experiment came to, from its rows: for `summary.json`, for the table at the end, and for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.columns import (
    CONTRIBUTING,
    ENTROPY,
    EPSILON,
    LOWER_BOUND,
    NON_ZEROS,
    PARTICIPANTS,
    RELEASES,
    SECONDS,
    evaluation,
    is_summed,
)


def summarize(
    rows: Sequence[Mapping[str, Any]], last: Mapping[str, Any], size: int, untimed_seconds: float = 0.0
) -> dict[str, Any]:
    """Returns what an experiment came to; nothing of what its rounds did not measure.

    Args:
      rows: the columns of all rounds.
      last: the evaluation after the last round.
      size: d, the number of parameters.
      untimed_seconds: of the rounds that have no column of seconds, see `untimed_seconds`.
    """
    if not rows:
        return {"rounds": 0}

    def total(name: str) -> Any:
        return sum(row.get(name) or 0 for row in rows)

    non_zeros = {message: int(total(NON_ZEROS.of(message))) for message in NON_ZEROS.messages(rows[0])}
    participants = int(total((CONTRIBUTING if CONTRIBUTING.name in rows[0] else PARTICIPANTS).name))
    summary: dict[str, Any] = {
        "rounds": len(rows),
        "participants": participants,
        "parameters": size,
        **({"non_zeros": sum(non_zeros.values())} if non_zeros else {}),
        **{f"non_zeros_{message}": count for message, count in non_zeros.items()},
        **({"dense_elements": participants * size * len(non_zeros)} if non_zeros else {}),
        **{f"entropy_{message}_sum": total(ENTROPY.of(message)) for message in ENTROPY.messages(rows[0])},
        **{name: int(total(name)) for name in rows[0] if is_summed(name)},
    }
    for name, value in evaluation(last).items():
        found = [row[name] for row in rows if row.get(name) is not None]
        summary |= {name: value, f"best_{name}": max([value, *found])}
    for column in (EPSILON, RELEASES, LOWER_BOUND):
        if rows[-1].get(column.name) is not None:
            summary[column.name] = rows[-1][column.name]
    return summary | {SECONDS.name: round(untimed_seconds + total(SECONDS.name), 1)}


def untimed_seconds(rows: Sequence[Mapping[str, Any]], earlier: Mapping[str, Any]) -> float:
    """Returns how long those rounds took that have no column of seconds, as version 0.1 left them.

    Args:
      rows: the columns of all rounds.
      earlier: the folder's `summary.json`, which says so in sum; empty if it has none.
    """
    if all(row.get(SECONDS.name) is not None for row in rows):
        return 0.0
    timed = sum(row.get(SECONDS.name) or 0.0 for row in rows[: earlier.get("rounds", 0)])
    return max(0.0, float(earlier.get(SECONDS.name, 0.0)) - timed)
