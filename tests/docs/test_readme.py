"""The README's library example runs as it stands."""

from __future__ import annotations

import pathlib
import re

import pytest

from experiments.flags import parse_grid
from experiments.methods import METHODS
from experiments.progress import print_table

ROOT = pathlib.Path(__file__).parents[2]
README = ROOT / "README.md"
DEMO = ROOT / "experiments" / "studies" / "demo.flags"


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    losses = []
    exec(compile(example, str(README), "exec"), {"print": lambda t, loss, accuracy: losses.append(float(loss))})
    assert len(losses) == 10 and losses[-1] < losses[0] / 2


def demo_presets() -> list[str]:
    (grid,) = re.findall(r"^--grid=(.*)$", DEMO.read_text(), re.MULTILINE)
    return [point["preset"] for point in parse_grid([grid], also=["preset"])]


def test_the_table_is_that_of_make_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Its heading and its runs; what they came to is held by test_readme_commands.py."""
    presets = demo_presets()
    assert {METHODS[preset.split("/")[2]].algorithm.number for preset in presets} == {1, 2, 3} and len(presets) == 6
    names = [preset.replace("/", "-") for preset in presets]
    print_table({name: {"rounds": 0} for name in names})
    printed = capsys.readouterr().out.strip("\n").splitlines()
    quoted = [line.strip() for line in README.read_text().splitlines() if line.startswith(("    run ", "    digits-"))]
    assert quoted[0] == printed[0] and [line.split()[0] for line in quoted[1:]] == names
