"""docs/architecture.md: its diagrams are the import contracts, its rooms are the folders, its path leads somewhere."""

from __future__ import annotations

import importlib
import itertools
import pathlib
import re
import tomllib
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import tensorflow as tf
import tensorflow_federated as tff
from absl import flags

import tff_fen
from experiments import prepare, run, run_command
from experiments.measure import Measure
from experiments.output import Folder
from experiments.report import read
from tests.test_layout import COMMANDS
from tff_fen.aggregators import dual_variable
from tff_fen.algorithms import fed_dyn
from tff_fen.client_work.step import LocalStep
from tff_fen.client_work.trainer import Trainer
from tff_fen.process import compose, uplink
from tff_fen.process.metrics import ClientMetrics
from tff_fen.program import Rounds, SqliteStore
from tff_fen.runtime.inprocess.context import InProcessContext

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


PATH = PAGE.partition("## The path of one round")[2]


def hops() -> list[str]:
    rows = re.findall(r"^\| (\d+) \| `([\w.]+)` \| .+ \|$", PATH, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    return [name for _, name in rows]


def returns() -> list[tuple[int, str]]:
    """What callers do when a call has returned: the hop that does it, and the function's name."""
    rows = re.findall(r"^\| (\d+) \| `(\w+\.\w+)`.+ \|$", PATH.partition("| caller |")[2], re.MULTILINE)
    return [(int(number), name) for number, name in rows]


def folder_of(name: str) -> str:
    """The folder of a hop's module."""
    return name.partition(".")[0] if name.partition(".")[0] in COMMANDS else resolve(name)[0].rpartition(".")[0]


def test_the_path_of_a_round_turns_back_nowhere() -> None:
    path = hops()
    assert 10 <= len(path) <= 13 and len({*path}) == len(path)
    assert path[0] == "run_experiment.main"
    folders = [folder for folder, _ in itertools.groupby(map(folder_of, path))]
    assert len({*folders}) == len(folders), "a folder is entered again"
    steps = {
        f"tff_fen.{room}" for room in ("program", "process", "algorithms", "client_work", "compressors", "aggregators")
    }
    assert steps <= {*folders}


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


class Trace:
    """Writes down by name what is called, whether Python calls it or a graph that was made of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: pathlib.Path) -> None:
        self._monkeypatch, self._path = monkeypatch, path

    def found(self) -> list[str]:
        """The names in the order of their first calls in the round; those of before it come first."""
        before, round_begins, after = self._path.read_text().partition("tff_fen.program.rounds.Rounds.run_round\n")
        in_round = dict.fromkeys((round_begins + after).split())
        return [*(name for name in dict.fromkeys(before.split()) if name not in in_round), *in_round]

    def called(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which writes its name down when Python calls it."""

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._path.open("a") as file:
                file.write(f"{name}\n")
            return function(*args, **kwargs)

        return wrapped

    def executed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The TensorFlow code, which writes its name down when its graph is executed."""

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            note = tf.print(name, output_stream=f"file://{self._path}")
            if tf.compat.v1.get_default_graph().building_function:
                return function(*args, **kwargs)  # a tf.function executes what it prints, and in its order
            with tf.control_dependencies([note]):
                return function(*args, **kwargs)

        return tf.autograph.experimental.do_not_convert(wrapped)

    def patch(self, place: Any, attribute: str, name: str, kind: Callable[..., Any]) -> None:
        """Puts a function's writing form in its place."""
        self._monkeypatch.setattr(place, attribute, kind(name, getattr(place, attribute)))


def trace_a_round(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets all hops and what callers do after them write themselves down, under the page's names."""

    def compose_traced(trainer: Any, algorithm: tff_fen.Algorithm, **kwargs: Any) -> Any:
        names = dict(
            update="tff_fen.algorithms.fed_dyn.build_fed_dyn", absorb="build_fed_dyn.absorb", move="build_fed_dyn.move"
        )
        parts: dict[str, Any] = {part: trace.executed(name, getattr(algorithm, part)) for part, name in names.items()}
        return tff_fen.compose_process(trainer, algorithm._replace(**parts), **kwargs)

    monkeypatch.setattr(fed_dyn, "compose_process", compose_traced)
    for place, attribute, name in (
        (compose, "run_client", "tff_fen.process.client.run_client"),
        (Trainer, "train", "tff_fen.client_work.trainer.Trainer.train"),
        (LocalStep, "__call__", "tff_fen.client_work.step.LocalStep"),
        (uplink, "hard_threshold", "tff_fen.compressors.threshold.hard_threshold"),
        (ClientMetrics, "sums", "ClientMetrics.sums"),
        # Called where h moves.
        (dual_variable, "check_population", "tff_fen.aggregators.dual_variable.DualVariableFactory"),
    ):
        trace.patch(place, attribute, name, trace.executed)
    for place, attribute, name in (
        (run_command, "main", "run_experiment.main"),
        (run, "run_one", "experiments.run.run_one"),
        (Rounds, "run_round", "tff_fen.program.rounds.Rounds.run_round"),
        (SqliteStore, "read_clients", "tff_fen.program.store.sqlite.SqliteStore.read_clients"),
        (InProcessContext, "invoke", "tff_fen.runtime.inprocess.context.InProcessContext.invoke"),
        (Measure, "__call__", "Measure.__call__"),
        (SqliteStore, "commit", "SqliteStore.commit"),
        (Folder, "add", "Folder.add"),
        (read, "read_run", "experiments.report.read.read_run"),
    ):
        trace.patch(place, attribute, name, trace.called)


def test_a_round_takes_the_path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of one client and one round, and its report: all hops in order, and what their callers do."""
    trace = Trace(monkeypatch, tmp_path / "trace")
    trace_a_round(trace, monkeypatch)
    monkeypatch.setattr(prepare, "prepare_runs", lambda *arguments: None)  # it would set this process's runtime
    asked = (
        "--task=digits --algorithm=fed_dyn --l2=0.1 --threshold=1e-3 --epochs=1 --num_clients=2 --sampling=uniform:1 "
        f"--rounds=1 --quiet --noplots --output={tmp_path / 'out'}"
    )
    try:
        with tff.framework.get_context_stack().install(tff_fen.runtime.create_inprocess_context()):
            run_command.main(flags.FLAGS(["run_experiment.py", *asked.split()]))
    finally:
        for name in flags.FLAGS:
            flags.FLAGS[name].unparse()
    read.search([tmp_path / "out"])
    found, path, rest = trace.found(), hops(), [name for _, name in returns()]
    assert [name for name in found if name in path] == path
    assert [name for name in found if name in rest] == rest


def test_callers_are_hops_in_whose_calls_the_rest_happens() -> None:
    """A caller returns before the hops that called it do."""
    callers = [number for number, _ in returns()]
    assert callers == sorted(callers, reverse=True) and {*callers} <= {*range(1, len(hops()))}


def test_a_command_begins_the_path() -> None:
    """By its text: a command defines flags when it is imported."""
    assert "\nfrom experiments.run_command import main\n" in (ROOT / "run_experiment.py").read_text()
    assert re.search(r"^def main\(", (ROOT / "experiments" / "run_command.py").read_text(), re.MULTILINE)
