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
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# All that a command may import, beside the standard library.
ALLOWED = {"experiments", "absl"}
# And an example, which is a script of somebody who has installed the library.
ALLOWED_IN_EXAMPLES = {"tff_fen", "tensorflow_federated", "tensorflow", "numpy", "sklearn"}


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


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} == {"own_data", "stock_tff", "coming_from_tff", "sweep"}
    assert all(path.suffix == ".py" for path in (ROOT / "examples").iterdir() if path.name != "__pycache__")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_import_what_users_have(path: pathlib.Path) -> None:
    found = {name for name in imported(path) if name not in sys.stdlib_module_names}
    assert found <= ALLOWED_IN_EXAMPLES
    assert path.stem == "stock_tff" or "tff_fen" in found


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_imports_a_command(package: str) -> None:
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    scripts = {*COMMANDS, "examples"}
    found = [str(path.relative_to(ROOT)) for path in modules if not scripts.isdisjoint(imported(path))]
    assert not found, f"{found} import a command or an example; what they need of it belongs to experiments/"


def test_the_changelog_begins_with_the_version() -> None:
    first = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first and first[1] == __version__
