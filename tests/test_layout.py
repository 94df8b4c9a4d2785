"""What no import contract can hold: the two commands, which are no packages, and the version.

The contracts between the packages are in pyproject.toml; `make lint` checks them.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
from collections.abc import Iterator

import pytest

from tff_fen.version import __version__

ROOT = pathlib.Path(__file__).parent.parent
COMMANDS = ["run_experiment", "make_report"]
PACKAGES = ["tff_fen", "tasks", "experiments", "benchmarks", "tests", "tools"]
# All that a command may import, beside the standard library.
ALLOWED = {"experiments", "absl"}


def imported(path: pathlib.Path) -> Iterator[str]:
    """The top-level packages that a module imports, those inside its functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def test_commands_are_all_there_is_in_the_root() -> None:
    assert sorted(path.stem for path in ROOT.glob("*.py")) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_import_experiments_alone(command: str) -> None:
    found = {name for name in imported(ROOT / f"{command}.py") if name not in sys.stdlib_module_names}
    assert "experiments" in found
    assert found <= ALLOWED, f"{command}.py imports {sorted(found - ALLOWED)}; what needs them belongs to experiments/"


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_imports_a_command(package: str) -> None:
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    found = [str(path.relative_to(ROOT)) for path in modules if not {*COMMANDS}.isdisjoint(imported(path))]
    assert not found, f"{found} import a command; what they need of it belongs to experiments/"


def test_the_changelog_begins_with_the_version() -> None:
    first = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first and first[1] == __version__
