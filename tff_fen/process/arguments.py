"""Checks of what users ask a process to report, made before TFF sees it."""

from __future__ import annotations

from typing import Any

from tff_fen.checks import check_type


def check_reporting(measurements: Any, metrics_aggregator: Any, release_messages: Any = False) -> None:
    """Raises unless these are a bool, `None` or a function, and a bool."""
    check_type("measurements", measurements, bool, "True measures the messages, False does not.")
    check_type("release_messages", release_messages, bool, "True gives back what each client sent, False does not.")
    if metrics_aggregator is not None and not callable(metrics_aggregator):
        raise TypeError(
            f"metrics_aggregator must be a function such as tff.learning.metrics.sum_then_finalize, "
            f"found {metrics_aggregator!r}."
        )
