"""What a folder of results holds that a repeated or resumed run gives to the bit."""

from __future__ import annotations

import csv
import pathlib

from experiments.columns import NOT_EXACT


def exact_rows(path: pathlib.Path) -> list[dict[str, str]]:
    """The rows of a `metrics.csv` as they are written, in the order of its columns, without those of time."""
    with path.open(newline="") as file:
        return [{name: cell for name, cell in row.items() if name not in NOT_EXACT} for row in csv.DictReader(file)]
