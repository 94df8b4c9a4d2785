"""docs/architecture.md: its diagrams are the import contracts, its rooms are the folders, its path leads somewhere."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pathlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import tensorflow_federated as tff

import tff_fen
from experiments.build import build_parts
from experiments.experiment_config import ExperimentConfig
from experiments.measure import Measure, build_rounds
from experiments.output import Folder
from tasks.registry import load_task
from tests.test_layout import COMMANDS
from tff_fen.program.store import SqliteStore

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
DIAGRAMS = ["", "tff_fen", "tff_fen.runtime"]  # what is drawn, in the order of the page; "" is the root
NODE = r"(\w+)(?:\[\"([^\"]+)\"\])?"
ARROW = re.compile(rf"^  {NODE} (-->|-\.->) {NODE}$", re.MULTILINE)

# (importer, imported): all imports of one module by another that are allowed.
Arrows = set[tuple[str, str]]


def drawn(diagram: str) -> Arrows:
    """The imports that a diagram allows; a node with a list for a label stands for each of it, in any order."""
    lines = [line for line in diagram.splitlines() if line.startswith("  ")]
    arrows = ARROW.findall(diagram)
    assert len(arrows) == len(lines), "a line of the diagram is no arrow"
    members: dict[str, list[str]] = {}
    for a, a_label, _, b, b_label in arrows:
        for name, label in ((a, a_label), (b, b_label)):
            members.setdefault(name, [name])
            if label:
                members[name] = label.split(", ")
    solid = {(a, b) for a, _, kind, b, _ in arrows if kind == "-->"}
    for k, i, j in itertools.product(members, repeat=3):  # k outermost: Warshall's algorithm
        if (i, k) in solid and (k, j) in solid:
            solid.add((i, j))
    nodes = solid | {(a, b) for a, _, _, b, _ in arrows}
    return {(a, b) for x, y in nodes for a in members[x] for b in members[y]}


def layers_of(contract: dict[str, Any]) -> list[list[str]]:
    return [re.split(r" [|:] ", layer) for layer in contract["layers"]]


def allowed(container: str) -> Arrows:
    """The imports between the layers of a container that no contract forbids; within a layer none are listed."""
    (layered,) = [c for c in CONTRACTS if c["type"] == "layers" and c.get("containers", [""]) == [container]]
    found = {(a, b) for uppers, lowers in itertools.combinations(layers_of(layered), 2) for a in uppers for b in lowers}
    for contract in CONTRACTS:
        if contract["type"] == "forbidden":
            sources, targets = (relative(contract[f"{kind}_modules"], container) for kind in ("source", "forbidden"))
            found -= {*itertools.product(sources, targets)}
    return found


def relative(modules: Iterable[str], container: str) -> list[str]:
    """The names of the container's own modules among these, without its name."""
    return [m.removeprefix(f"{container}.") for m in modules if m.rpartition(".")[0] == container]


def diagram_of(container: str) -> str:
    found = re.findall(r"^```mermaid\ngraph TD\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(found) == len(DIAGRAMS)
    return found[DIAGRAMS.index(container)]


@pytest.mark.parametrize("container", DIAGRAMS)
def test_a_diagram_allows_what_the_contracts_allow(container: str) -> None:
    expected = allowed(container)
    if not container:  # what are no packages, held by tests/test_layout.py
        expected |= {(command, "experiments") for command in COMMANDS} | {("examples", "tff_fen")}
    found = drawn(diagram_of(container))
    assert not found - expected, "drawn, but forbidden by pyproject.toml"
    assert not expected - found, "allowed by pyproject.toml, but not drawn"


def test_every_contract_is_drawn() -> None:
    layered = [container for c in CONTRACTS if c["type"] == "layers" for container in c.get("containers", [""])]
    assert sorted(layered) == sorted(DIAGRAMS)
    for contract in CONTRACTS:
        if contract["type"] == "forbidden":
            modules = [*contract["source_modules"], *contract["forbidden_modules"]]
            assert len({module.rpartition(".")[0] for module in modules} & {*DIAGRAMS}) == 1, contract["name"]


def test_arrows_are_read_as_the_page_says() -> None:
    """Guards the tests above."""
    text = '  a["x, y"] --> b\n  b --> c\n  d -.-> b\n'
    assert drawn(text) == {("x", "b"), ("y", "b"), ("b", "c"), ("x", "c"), ("y", "c"), ("d", "b")}
    with pytest.raises(AssertionError, match="no arrow"):
        drawn("  a ==> b\n")


def rooms() -> list[str]:
    rows = re.findall(r"^\| (`[^|]+`) \| [^|]+ \|$", PAGE.partition("## What is where")[2].partition("\n## ")[0], re.M)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_the_rooms_are_those_that_exist() -> None:
    named = rooms()
    assert len(named) == len({*named})
    for name in named:
        assert (ROOT / name).is_dir() if name.endswith("/") else (ROOT / name).is_file(), name
    packages = [
        path.parent for top in ("tff_fen", "tasks", "experiments") for path in (ROOT / top).rglob("__init__.py")
    ]
    modules = [path for top in ("tff_fen", "tff_fen/runtime") for path in (ROOT / top).glob("[!_]*.py")]
    expected = {f"{path.relative_to(ROOT)}/" for path in packages} | {str(path.relative_to(ROOT)) for path in modules}
    expected |= {f"{command}.py" for command in COMMANDS}
    assert not expected - {*named}, "not in the table"


def hops() -> list[str]:
    rows = re.findall(r"^\| (\d+) \| `([\w.]+)` \| .+ \|$", PAGE.partition("## The path of one round")[2], re.M)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    return [name for _, name in rows]


def test_the_path_of_a_round_turns_back_nowhere() -> None:
    path = hops()
    assert 10 <= len(path) <= 20 and len({*path}) == len(path)
    assert path[0] == "run_experiment.main"
    assert {".".join(name.split(".")[:2]) for name in path} >= {
        "tff_fen.program", "tff_fen.process", "tff_fen.client_work", "tff_fen.aggregators",
    }  # fmt: skip


def resolve(name: str) -> tuple[str, Any]:
    """The module of a hop, and the hop."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            # Anything else that is missing is missing inside a module of ours.
            if not module.startswith(str(error.name)):
                raise
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return module, found
    raise AssertionError(f"no module of {name} can be imported")


@pytest.mark.parametrize("name", [name for name in hops() if name.partition(".")[0] not in COMMANDS])
def test_a_hop_exists(name: str) -> None:
    resolve(name)


def functions_of(name: str) -> set[tuple[str, str]]:
    """Module and name of what is called at a hop: of a class its methods, of a part of an algorithm FedDyn's."""
    module, found = resolve(name)
    if inspect.isclass(found):
        methods = [method for method, value in vars(found).items() if inspect.isfunction(value)]
        return {(module, method) for method in methods if method == "__call__" or not method.startswith("_")}
    of_algorithm = name.startswith("tff_fen.process.algorithm.")
    return {("tff_fen.algorithms.fed_dyn" if of_algorithm else module, name.rpartition(".")[2])}


def hops_of(act: Callable[[], Any]) -> tuple[list[int], Any]:
    """The hops that happen in an act, in the order in which they first do, and what it returns."""
    known = {function: number for number, name in enumerate(hops()[2:], 3) for function in functions_of(name)}
    found: dict[int, None] = {}

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            # TensorFlow rewrites Python for its graphs, and names the result so.
            place = frame.f_globals.get("__name__"), frame.f_code.co_name.removeprefix("tf__")
            if place in known:
                found.setdefault(known[place])

    sys.setprofile(note)
    try:
        returned = act()
    finally:
        sys.setprofile(None)
    return [*found], returned


def test_a_round_takes_the_path(tmp_path: pathlib.Path) -> None:
    """What clients do becomes a graph once, with the process: its hops are in order there, the others in the round."""
    config = ExperimentConfig(algorithm="fed_dyn", l2=0.1, epochs=1, num_clients=2, sampling="uniform:1")
    folder = Folder(tmp_path)
    with (
        tff.framework.get_context_stack().install(tff_fen.runtime.create_inprocess_context()),
        SqliteStore(folder.store) as store,
    ):
        task = load_task("digits", num_clients=2)
        in_graph, parts = hops_of(lambda: build_parts(config, task))
        rounds = build_rounds(parts, Measure(config, parts), store)
        folder.start([])
        in_round, _ = hops_of(lambda: folder.add(rounds.run_round()))
    work = [number for number in in_graph if 5 <= number <= 11]
    assert work == [*range(5, 12)] and {12, 13} <= {*in_graph}
    assert in_round == [3, 4, 14, 15, 16]


def test_a_command_begins_the_path() -> None:
    """By its text: a command defines flags when it is imported."""
    assert "\nfrom experiments.run_command import main\n" in (ROOT / "run_experiment.py").read_text()
    assert re.search(r"^def main\(", (ROOT / "experiments" / "run_command.py").read_text(), re.MULTILINE)
