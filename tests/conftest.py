"""Test-wide set-up."""

import logging
import os
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import absl.logging
import pytest

import tff_fen

# Helpers with tests and asserts of their own, whose failures are to show values.
pytest.register_assert_rewrite("tests.support")


@pytest.fixture(autouse=True)
def absl_logs_reach_caplog() -> Iterator[None]:
    """A command that ran in this process has taken absl's logger for itself, and may have silenced it."""
    logger = logging.getLogger("absl")
    before = logger.propagate, absl.logging.get_verbosity()
    logger.propagate = True
    absl.logging.set_verbosity(absl.logging.INFO)
    yield
    logger.propagate = before[0]
    absl.logging.set_verbosity(before[1])


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Ends TFF's workers before pytest's own output streams are closed."""
    tff_fen.runtime.end_worker_processes()
