"""Test-wide set-up."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest

import tff_fen


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Ends TFF's workers before pytest's own output streams are closed."""
    tff_fen.runtime.end_worker_processes()
