"""`run_rounds` against the loop that one writes by hand, killed and resumed, and what it refuses."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import small_run
from tests.support.new_process import ROOT
from tests.support.small_run import CLIENTS, KINDS, ROUNDS, client_dataset, evaluate, sample
from tff_fen.program.store import SqliteStore, StoreError

STATEFUL = ("fed_dyn", "scaffold")


@pytest.fixture(scope="module")
def processes() -> dict[str, Any]:
    return {kind: small_run.build(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def by_hand(processes: dict[str, Any]) -> dict[str, tuple[Any, dict[int, Any], list[Any]]]:
    """Server state, client states and metrics of all processes after `ROUNDS` rounds."""
    return {kind: run_by_hand(process) for kind, process in processes.items()}


def run_by_hand(process: Any) -> tuple[Any, dict[int, Any], list[Any]]:
    server, metrics = process.initialize(), []
    stateful = hasattr(process, "initialize_client")
    states = {k: process.initialize_client(k) if stateful else None for k in range(CLIENTS)}
    for number in range(ROUNDS):
        ids = sample(number).tolist()
        data = [client_dataset(k) for k in ids]
        inputs = [tff_fen.ClientInput(states[k], d) for k, d in zip(ids, data, strict=True)] if stateful else data
        output = process.next(server, inputs)
        server = output.state
        metrics.append(output.metrics)
        if stateful:
            states |= {int(state.client_id): state for state in output.client_states}
    return server, states, metrics


def leaves(structure: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in tf.nest.flatten(structure)]


def assert_same(found: Any, expected: Any) -> None:
    """Asserts that two structures are equal to the bit."""
    pairs = list(zip(leaves(found), leaves(expected), strict=True))
    assert all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def assert_equal_results(found: Any, expected: Any) -> None:
    assert found.metrics == expected.metrics
    assert_same(found.state, expected.state)
    for client in range(CLIENTS):
        assert_same(found.client_state(client), expected.client_state(client))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "folder"])
def test_it_is_the_loop_written_by_hand(
    processes: dict[str, Any], by_hand: Any, kind: str, on_disk: bool, tmp_path: pathlib.Path
) -> None:
    server, states, metrics = by_hand[kind]
    folder = tmp_path / "run" if on_disk else None
    result = tff_fen.run_rounds(processes[kind], client_dataset, sample, ROUNDS, folder=folder)
    assert_same(result.state, server)
    for client, state in states.items():
        assert_same(result.client_state(client), state)
    assert (result.client_state(0) is None) == (kind not in STATEFUL)
    assert [row["round"] for row in result.metrics] == [1, 2, 3, 4]
    for row, expected in zip(result.metrics, metrics, strict=True):
        trained = {name: v for name, v in expected["client_work"]["train"].items() if not isinstance(v, dict)}
        assert "accuracy" in trained
        assert {name: row[f"client_work/train/{name}"] for name in trained} == trained


@pytest.mark.parametrize("kind", STATEFUL)
def test_client_states_matter_and_a_newcomer_has_the_initial_one(processes: dict[str, Any], kind: str) -> None:
    result = tff_fen.run_rounds(processes[kind], client_dataset, sample, 1)
    initial = [processes[kind].initialize_client(k) for k in range(CLIENTS)]
    changed = [k for k in range(CLIENTS) if any(map(np.any, leaves(result.client_state(k))[1:]))]
    assert changed == sample(0).tolist()
    assert_same(result.client_state(4), initial[4])


@pytest.mark.parametrize(
    ("kind", "place", "number"),
    [
        ("fed_dyn", "evaluate", 2),
        pytest.param("scaffold", "sample", 3, marks=pytest.mark.long),
        pytest.param("fed_avg", "evaluate", 0, marks=pytest.mark.long),
    ],
)
def test_killed_and_resumed_it_gives_the_bits_of_an_uninterrupted_run(
    processes: dict[str, Any], kind: str, place: str, number: int, tmp_path: pathlib.Path
) -> None:
    command = [sys.executable, "-m", "tests.support.small_run", kind, str(tmp_path / "killed"), place, str(number)]
    with (tmp_path / "log").open("w") as log:
        code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, timeout=180, check=False).returncode
    assert code == -9, (tmp_path / "log").read_text()
    with SqliteStore(tmp_path / "killed") as store:
        latest = store.latest()
        assert latest is not None and latest.number == number
    arguments = (processes[kind], client_dataset, sample, ROUNDS)
    resumed = tff_fen.run_rounds(*arguments, folder=tmp_path / "killed", evaluate=evaluate)
    assert_equal_results(resumed, tff_fen.run_rounds(*arguments, evaluate=evaluate))


def test_ctrl_c_leaves_all_finished_rounds(processes: dict[str, Any], by_hand: Any, tmp_path: pathlib.Path) -> None:
    def interrupted(number: int) -> np.ndarray:
        if number == 2:
            raise KeyboardInterrupt
        return sample(number)

    with pytest.raises(KeyboardInterrupt):
        tff_fen.run_rounds(processes["fed_dyn"], client_dataset, interrupted, ROUNDS, folder=tmp_path)
    asked: list[int] = []

    def watched(number: int) -> np.ndarray:
        asked.append(number)
        return sample(number)

    result = tff_fen.run_rounds(processes["fed_dyn"], client_dataset, watched, ROUNDS, folder=str(tmp_path))
    assert asked == [2, 3]
    assert_same(result.state, by_hand["fed_dyn"][0])


# Evaluation.


def test_evaluation_is_where_it_is_due_and_at_the_end(processes: dict[str, Any], by_hand: Any) -> None:
    result = tff_fen.run_rounds(
        processes["fed_dyn"], client_dataset, sample, ROUNDS, evaluate=evaluate, evaluate_every=3
    )
    assert [row["norm"] is not None for row in result.metrics] == [False, False, True, True]
    assert [row["shape/layers"] for row in result.metrics] == [None, None, 2, 2]
    assert len({tuple(sorted(row)) for row in result.metrics}) == 1
    weights = processes["fed_dyn"].get_model_weights(by_hand["fed_dyn"][0])
    assert result.metrics[-1]["norm"] == evaluate(weights)["norm"]
    assert_same(result.state, by_hand["fed_dyn"][0])


def test_a_run_in_parts_is_a_run_in_one_piece(processes: dict[str, Any], tmp_path: pathlib.Path) -> None:
    def run(rounds: int, folder: pathlib.Path | None) -> Any:
        return tff_fen.run_rounds(
            processes["fed_dyn"], client_dataset, sample, rounds, folder=folder, evaluate=evaluate, evaluate_every=2
        )

    first = run(3, tmp_path)
    assert first.metrics[-1]["norm"] is not None
    longer = run(ROUNDS, tmp_path)
    assert_equal_results(longer, run(ROUNDS, None))
    with pytest.raises(StoreError, match=r"is at round 4, this result at round 3\. Take the states from"):
        first.client_state(0)


def test_the_last_round_is_evaluated_even_if_an_earlier_call_did_not(
    processes: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    arguments = (processes["fed_avg"], client_dataset, sample, 2)
    tff_fen.run_rounds(*arguments, folder=tmp_path)
    result = tff_fen.run_rounds(*arguments, folder=tmp_path, evaluate=evaluate)
    assert result.metrics[0]["norm"] is None
    assert result.metrics[1]["norm"] == evaluate(processes["fed_avg"].get_model_weights(result.state))["norm"]


def test_release_managers_get_every_round_and_the_newest_again_on_resume(
    processes: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    for rounds, keys in ((2, [1, 2]), (ROUNDS, [2, 3, 4])):
        manager = tff.program.MemoryReleaseManager()
        result = tff_fen.run_rounds(
            processes["fed_dyn"], client_dataset, sample, rounds,
            folder=tmp_path, evaluate=evaluate, release_managers=[manager],
        )  # fmt: skip
        assert list(manager.values()) == keys
    released = {key: {name: v.item() for name, v in row.items()} for key, row in manager.values().items()}
    expected = {row.pop("round"): row for row in result.metrics}
    assert released == {key: expected[key] for key in keys}


# What is refused, before anything is written.


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"rounds": 0}, ValueError, "rounds must be an integer >= 1, found 0"),
        ({"rounds": 2.0}, TypeError, "rounds must be an integer >= 1, found 2.0 of type float"),
        ({"evaluate_every": 0}, ValueError, "evaluate_every must be an integer >= 1, found 0"),
        ({"evaluate": 5}, TypeError, "evaluate must be a function from .*ModelWeights.* found 5 of type int"),
        ({"client_dataset": {0: 1}}, TypeError, "client_dataset must be a function from a client id .*of type dict"),
        ({"sample": [0, 1]}, TypeError, "sample must be a function from a round.* found .* of type list"),
        ({"process": "fed_dyn"}, TypeError, "process must be a IterativeProcess, found 'fed_dyn'.*build_fed_dyn"),
        ({"release_managers": [3]}, TypeError, r"release_managers\[0\] must be a ReleaseManager, found 3"),
    ],
)
def test_bad_arguments_leave_no_trace(
    processes: dict[str, Any], changed: dict[str, Any], error: type[Exception], message: str, tmp_path: pathlib.Path
) -> None:
    arguments = {"process": processes["fed_dyn"], "client_dataset": client_dataset, "sample": sample, "rounds": 1}
    with pytest.raises(error, match=message):
        tff_fen.run_rounds(**(arguments | changed), folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_bad_folder_is_refused(processes: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="folder must be a str or Path, found 5 of type int"):
        tff_fen.run_rounds(processes["fed_dyn"], client_dataset, sample, 1, folder=5)  # type: ignore[arg-type]


def test_a_folder_with_more_rounds_or_of_something_else_is_refused(
    processes: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    run = tff_fen.run_rounds
    run(processes["fed_dyn"], client_dataset, sample, 2, folder=tmp_path / "a")
    with pytest.raises(ValueError, match=r"rounds must be at least 2, found 1\. .*/a holds 2 rounds already: ask for"):
        run(processes["fed_dyn"], client_dataset, sample, 1, folder=tmp_path / "a")
    for other in (processes["scaffold"], processes["tff_fed_avg"], small_run.build("fed_dyn", features=7)):
        with pytest.raises(ValueError, match=r"/a holds rounds of another process\. .*([Ll]eaf|leaves|states)"):
            run(other, client_dataset, sample, 3, folder=tmp_path / "a")
    with SqliteStore(tmp_path / "b") as store:
        store.commit(0, b"", {}, b"{}")
    with pytest.raises(ValueError, match=r"/b was not made by run_rounds\. Use another folder"):
        run(processes["fed_dyn"], client_dataset, sample, 3, folder=tmp_path / "b")
