"""The examples run as they stand, for two rounds; and coming from TFF takes a handful of lines."""

from __future__ import annotations

import difflib
import pathlib
import re
import runpy
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def run(name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What an example prints; in this process, since to import TensorFlow takes longer than to run it."""
    monkeypatch.setenv("EXAMPLE_ROUNDS", "2")
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capfd.readouterr().out


def test_own_data(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    printed = run("own_data", monkeypatch, capfd)
    found = re.fullmatch(r"accuracy ([\d.]+)%, of the mean of the participants' models ([\d.]+)%\n", printed)
    assert found and all(15 < float(accuracy) < 100 for accuracy in found.groups()), printed


@pytest.mark.parametrize("name", ["stock_tff", "coming_from_tff"])
def test_coming_from_tff(name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert 0.1 < float(run(name, monkeypatch, capfd)) < 1


def test_coming_from_tff_changes_a_handful_of_lines() -> None:
    before, after = ((EXAMPLES / f"{name}.py").read_text().splitlines() for name in ("stock_tff", "coming_from_tff"))
    changes = [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ") and line[2:].strip()]
    removed = [line for line in changes if line.startswith("- ")]
    assert len(removed) <= 10 and len(changes) <= 22, changes


@pytest.mark.long
def test_sweep_goes_on_where_it_was_stopped(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    printed = run("sweep", monkeypatch, capfd, str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 9 and len(printed.splitlines()) == 4
    assert run("sweep", monkeypatch, capfd, str(tmp_path)) == printed
