"""The README's commands in a plain shell, in a fresh copy of the project, whose environment is this one's."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.docs.test_docs import compare
from tests.support import real_data

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
# In the order of the page; `make test` runs this test.
COMMANDS = [
    command.strip()
    for command in re.findall(r"^    ((?:make|python|source) [^#\n]*)", README, re.MULTILINE)
    if command.strip() != "make test"
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What git would commit, and an environment in which nothing is left to be installed.

    `.venv` is a folder of its own with links in it: an installation would otherwise write into this one's.
    """
    folder = tmp_path_factory.mktemp("readme") / "tff-fen"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in listed.strip("\0").split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").mkdir()
    for path in pathlib.Path(sys.prefix).iterdir():
        if path.name != ".installed":
            (folder / ".venv" / path.name).symlink_to(path)
    content = b"".join(
        (folder / name).read_bytes() for name in ("requirements.txt", "requirements.lock", "pyproject.toml")
    )
    digest = hashlib.sha256(content + f"{folder.resolve()}\n".encode()).hexdigest()
    (folder / ".venv" / ".installed").write_text(digest + "\n")
    return folder


def shell(checkout: pathlib.Path, commands: str) -> str:
    """What the commands print in a shell that knows nothing but where programs are."""
    environment = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_commands_are_those_of_the_page() -> None:
    """Guards the tests below: what begins a command on the page is found."""
    names = [command.split()[0] for command in COMMANDS]
    assert COMMANDS[0] == "make run" and names.count("source") == 1 and names.count("python") >= 3


@pytest.mark.long
def test_make_run_prints_the_table_of_the_page_and_draws_it(checkout: pathlib.Path) -> None:
    """Other machines round otherwise, which training amplifies: hence the tolerances."""
    printed = shell(checkout, "make run")
    compare(
        printed.partition("\nresults:")[0].replace(",", ""),
        README.replace(",", ""),
        points=1.0,
        relative=0.05,
        zero=0.0,
    )
    report = checkout / re.search(r"^Open (\S+) in a browser", printed, re.MULTILINE)[1]  # type: ignore[index]
    assert report.is_file() and str(report.relative_to(checkout)) in README
    tried_next = re.findall(r"^  (python [^#\n]*)", printed, re.MULTILINE)
    assert len(tried_next) == 3
    for command in tried_next:
        shell(checkout, f"source .venv/bin/activate; {short(command)} --output=out/next --noplots")


@pytest.mark.long
def test_the_other_commands_run_one_after_the_other(checkout: pathlib.Path) -> None:
    """Once activated, the environment serves all of them; the last makes the report of what the others left."""
    printed = shell(checkout, "\n".join(short(command) for command in COMMANDS[1:]))
    assert "out/report/report.html" in printed


def short(command: str) -> str:
    """A command as it stands, but for a round of what takes minutes, and for where its data are."""
    if "mnist" not in command:
        return command
    return f"{command} --rounds=1 --data_dir={real_data.folder('mnist')}"
