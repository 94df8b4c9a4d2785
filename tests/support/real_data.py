"""Where tests find the real data sets: `$TFF_FEN_TEST_DATA`, or `shared/data` beside the checkout."""

from __future__ import annotations

import os
import pathlib

import pytest

_BESIDE = pathlib.Path(__file__).parents[3] / "shared" / "data"


def folder(name: str) -> pathlib.Path:
    """Returns the folder of a data set, or skips the test with the reason."""
    root = pathlib.Path(os.environ.get("TFF_FEN_TEST_DATA") or _BESIDE)
    if not (root / name).is_dir():
        pytest.skip(f"no real data: {root / name} does not exist (set TFF_FEN_TEST_DATA)")
    return root / name
