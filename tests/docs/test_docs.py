"""The documentation: its code runs, its notebook executes, its numbers are printed by its commands, its names exist."""

from __future__ import annotations

import ast
import importlib.util
import pathlib
import re
import subprocess
import sys
from typing import Any

import nbformat
import pytest

from benchmarks import decisions
from tools import run_notebook

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOTEBOOK = DOCS / "quickstart.ipynb"
README = ROOT / "README.md"
PAGES = sorted(DOCS.glob("*.md"))
CODE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SYMBOL = re.compile(r"\[`([^`]+)`\]\(\.\./([\w/]+\.py)\)")
PATH = re.compile(r"`((?:tff_fen|tasks|experiments|benchmarks|docs|results|tests|tools)/[\w/.-]*)`")
LINK = re.compile(r"\]\(([^)#:]+)\)")


def text_of(path: pathlib.Path) -> str:
    """A page's text; of a notebook, that of its Markdown cells."""
    if path.suffix == ".md":
        return path.read_text()
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


# Code.


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.long] * (page.stem in ("extending", "limits")), id=page.stem)
        for page in PAGES
        if CODE.search(page.read_text())
    ],
)
def test_code_runs(page: pathlib.Path) -> None:
    """All blocks of a page in order, in one namespace; the page's own asserts are the checks."""
    text = page.read_text()
    namespace: dict[str, Any] = {"__name__": f"docs.{page.stem}"}
    for block in CODE.finditer(text):
        line = text.count("\n", 0, block.start(1))
        # Blank lines in front, so that an error names the line of the page.
        exec(compile("\n" * line + block[1], str(page), "exec", dont_inherit=True), namespace)


def test_pages_with_code() -> None:
    """Guards the test above."""
    blocks = {page.stem: len(CODE.findall(page.read_text())) for page in PAGES}
    assert blocks["extending"] >= 6 and blocks["limits"] >= 4
    assert all(page.read_text().count("```python") == blocks[page.stem] for page in PAGES)


# Notebook.


def outputs_of(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def final_table(notebook: Any) -> dict[str, tuple[float, int]]:
    """Accuracy and non-zeros by method, as the last code cell prints them."""
    (output,) = [cell for cell in notebook.cells if cell.cell_type == "code"][-1].outputs
    rows = re.findall(r"^(\S.*?)\s+([\d.]+)%\s+([\d,]+)", output.text, re.MULTILINE)
    return {name: (float(accuracy), int(sent.replace(",", ""))) for name, accuracy, sent in rows}


def test_notebook_is_stored_with_its_outputs() -> None:
    assert NOTEBOOK.stat().st_size < 300_000
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "executed whole, in order"
    outputs = outputs_of(notebook)
    assert {output.output_type for output in outputs} == {"stream", "display_data"}
    assert all(output.name == "stdout" for output in outputs if output.output_type == "stream"), "no warnings"
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
    printed = "".join(output.get("text", "") for output in outputs)
    assert not re.search(r"(?<![\w.])/\w+/\w+", printed), "no paths of a machine"
    assert len(final_table(notebook)) == 4


@pytest.mark.long
def test_notebook_executes() -> None:
    fresh = run_notebook.execute(NOTEBOOK)
    stored, found = final_table(nbformat.read(NOTEBOOK, as_version=4)), final_table(fresh)
    assert list(found) == list(stored) == ["FedDyn", "Algorithm 3", "with DP", "with 8-bit compression"]
    for name in ("FedDyn", "Algorithm 3"):  # the other two draw random numbers of their own
        assert found[name][0] == pytest.approx(stored[name][0], abs=1.0)
        assert found[name][1] == pytest.approx(stored[name][1], rel=0.02)
    assert found["with 8-bit compression"][0] > 90 and found["with DP"][0] > 80
    assert found["Algorithm 3"][1] < found["FedDyn"][1] / 3


def test_a_notebook_that_fails_is_reported_and_left_alone(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fails.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import tools.lock\n1 / 0")]), path)
    before = path.read_bytes()
    assert run_notebook.main([str(path)]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert path.read_bytes() == before


# Numbers.


def compare(printed: str, page: str, points: float, relative: float, zero: float) -> None:
    """Raises unless each table that was printed stands on the page, with the same words and nearly the same numbers.

    Args:
      printed: the output of a command, tables parted by empty lines.
      page: the page's text.
      points: by how much percentages may differ, and deviations (`+- 0.31`).
      relative: by how much other numbers may.
      zero: what counts as zero.
    """
    number = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?%?")
    quoted = page.split("\n\n")
    for table in printed.strip("\n").split("\n\n"):
        heading = table.partition("\n")[0]
        found = [block for block in quoted if block.strip().startswith(heading)]
        assert len(found) == 1, heading
        words, expected = table.split(), found[0].split()
        assert len(words) == len(expected), heading
        for i, (a, b) in enumerate(zip(words, expected, strict=True)):
            if not (number.fullmatch(a) and number.fullmatch(b)):
                assert a == b, heading
                continue
            x, y = float(a.rstrip("%")), float(b.rstrip("%"))
            spread = "%" in a or (i > 0 and words[i - 1] == "+-")
            close = pytest.approx(y, abs=points) if spread else pytest.approx(y, rel=relative, abs=zero)
            assert x == close, f"{heading}: {a} is printed, {b} is quoted"


def test_decisions_quotes_what_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    decisions.print_participants()
    decisions.print_quadratics()
    printed = capsys.readouterr().out
    assert len(printed.strip().split("\n\n")) == 5
    compare(printed, (DOCS / "decisions.md").read_text(), points=0.0, relative=1e-6, zero=1e-11)


@pytest.mark.long
def test_decisions_quotes_what_is_trained() -> None:
    """Other machines round otherwise, which training amplifies: hence the tolerances."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.decisions"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tables = done.stdout.partition("\n\n")[2]
    assert len(tables.strip().split("\n\n")) == 9
    compare(tables, (DOCS / "decisions.md").read_text(), points=1.5, relative=0.1, zero=0.05)


@pytest.mark.parametrize(
    ("printed", "problem"),
    [("head\nx 1.0", None), ("head\nx 1.1", "1.1 is printed"), ("head\ny 1.0", "head"), ("other\nx 1.0", "other")],
)
def test_decisions_are_compared(printed: str, problem: str | None) -> None:
    """Guards the two tests above."""
    page = "text\n\n    head\n    x 1.0\n\ntext"
    if problem is None:
        compare(printed, page, points=0.0, relative=1e-6, zero=0.0)
    else:
        with pytest.raises(AssertionError, match=problem):
            compare(printed, page, points=0.0, relative=1e-6, zero=0.0)


# Names.


def symbols_of(path: pathlib.Path) -> set[str]:
    """The names that a module defines; a function inside `f` as `f.g`."""
    found = set()

    def visit(nodes: list[Any], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
                visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign | ast.AnnAssign) and not prefix:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update(target.id for target in targets if isinstance(target, ast.Name))

    visit(ast.parse(path.read_text()).body, "")
    return found


def named_tests(path: pathlib.Path) -> set[str]:
    """The names of a module's tests, those that it shares by way of `tests.support` included."""
    modules = re.findall(r"^from (tests\.support\.\w+) import", path.read_text(), re.MULTILINE)
    files = [path, *(ROOT / f"{module.replace('.', '/')}.py" for module in modules)]
    names = {symbol.rpartition(".")[2] for file in files for symbol in symbols_of(file)}
    return {name for name in names if name.startswith("test_")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_functions_exist(page: pathlib.Path) -> None:
    for symbol, file in SYMBOL.findall(page.read_text()):
        assert (ROOT / file).is_file(), file
        if symbol != file:
            assert symbol in symbols_of(ROOT / file), f"{symbol} in {file}"


def test_named_lines_are_all_lines_of_the_listings() -> None:
    """Algorithms 1 to 3 have 8, 14 and 13 lines; a line that does something names a function."""
    text = (DOCS / "algorithms.md").read_text()
    sections = re.split(r"^## Algorithm \d.*$", text, flags=re.MULTILINE)[1:]
    for section, lines in zip(sections, (8, 14, 13), strict=True):
        rows = re.findall(r"^\| (\d+) \| (.*?) \| (.*?) ?\|$", section, re.MULTILINE)
        assert [int(number) for number, _, _ in rows] == list(range(1, lines + 1))
        for number, what, code in rows:
            assert SYMBOL.search(code) or what == "end" or "not take part" in what, number
    assert len(SYMBOL.findall(text)) > 50


@pytest.mark.parametrize("page", [*PAGES, README], ids=lambda page: page.stem)
def test_a_page_with_commands_says_what_they_need(page: pathlib.Path) -> None:
    text = page.read_text()
    if re.search(r"(?<![\w/])python (-m |\w+\.py|tools/)", text):
        assert "source .venv/bin/activate" in text, "commands that begin with python need the environment"


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *PAGES], ids=lambda page: page.stem)
def test_no_section_is_empty(page: pathlib.Path) -> None:
    """A heading is followed by text, or by a heading of a section within."""
    headings: list[tuple[int, str]] = []
    in_code = filled = False
    for line in [*page.read_text().splitlines(), "# end"]:
        in_code ^= line.startswith("```")
        heading = None if in_code else re.match(r"(#+) +(.*)", line)
        if heading is None:
            filled |= bool(line.strip())
            continue
        level = len(heading[1])
        assert filled or not headings or level > headings[-1][0], f"nothing below {headings[-1][1]!r}"
        headings.append((level, heading[2]))
        filled = False


@pytest.mark.parametrize("page", [*PAGES, NOTEBOOK, README], ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_and_commands_exist(page: pathlib.Path) -> None:
    text = " ".join(text_of(page).split())
    for link in LINK.findall(text):
        assert (page.parent / link).exists(), link
    for path in PATH.findall(text):
        assert (ROOT / path).exists(), path
    for module in re.findall(r"python -m ([\w.]+)", text):
        assert importlib.util.find_spec(module) is not None, module
    for script in re.findall(r"python ([\w/]+\.py)", text):
        assert (ROOT / script).is_file(), script
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"`make ([a-z-]+)`", text):
        assert target in targets, target
    for command in re.findall(r"`pytest ([^`]+)`", text):
        named = [ROOT / name for name in re.findall(r"tests[\w/.]*", command)]
        assert all(path.exists() for path in named), command
        files = [file for path in named for file in ([path] if path.is_file() else path.rglob("test_*.py"))]
        assert files, command
        names = [name for file in files for name in named_tests(file)]
        names += [page.stem for page in PAGES]  # ids of the tests above
        for expression in re.findall(r"-k (?:\"([^\"]+)\"|(\S+))", command):
            for word in "".join(expression).split(" or "):
                assert any(word in name for name in names), f"{command}: no test matches {word}"
