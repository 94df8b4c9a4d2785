"""The comparison with other people's code: the same arrays for all, tables from fake times, peers that fail."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import textwrap

import numpy as np
import psutil
import pytest

from benchmarks import bench_peers
from benchmarks.bench_peers import Peer, Result
from benchmarks.peers import workloads

ROOT = pathlib.Path(__file__).parents[2]


# Workloads.


def test_workloads_are_the_same_from_one_call_to_the_next() -> None:
    first, second = workloads.WORKLOADS["tiny"](), workloads.WORKLOADS["tiny"]()
    assert first.digest() == second.digest() == "10a29337500ee97a", "the same with any NumPy"
    for a, b in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(first.orders(3, 1), second.orders(3, 1))


def test_a_digest_tells_every_array() -> None:
    workload = workloads.WORKLOADS["tiny"]()
    digest = workload.digest()
    for arrays in (workload.weights, *workload.clients):
        arrays[0].flat[0] += 1
        assert workload.digest() != digest
        digest = workload.digest()


@pytest.mark.parametrize(
    ("name", "clients", "shape", "parameters"),
    [
        ("mlp", 10, (600, 784), 199_210),
        ("cnn", 10, (500, 32, 32, 3), 797_962),
        ("lstm", 10, (100, 80), 132_720),
        ("softmax_1000", 1000, (20, 60), 610),
        ("mlp_1000", 1000, (20, 60), 8714),
        ("tiny", 3, (20, 8), 117),
    ],
)
def test_workloads_are_what_their_table_says(name: str, clients: int, shape: tuple[int, ...], parameters: int) -> None:
    workload = workloads.WORKLOADS[name]()
    assert len(workload.clients) == clients
    assert all(x.shape == shape and y.shape == shape[:1] and y.dtype == np.int32 for x, y in workload.clients)
    assert all(y.min() >= 0 and y.max() < workload.num_classes for _, y in workload.clients)
    assert sum(w.size for w in workload.weights) == parameters
    assert {w.dtype for w in workload.weights} == {np.dtype(np.float32)}
    assert workload.steps_per_epoch * workload.batch_size == shape[0]


def test_an_order_has_every_example_once_per_epoch() -> None:
    workload = workloads.WORKLOADS["tiny"]()
    order = workload.orders(0, 0)
    assert order.shape == (8, 5)
    for epoch in order.reshape(2, 20):
        assert sorted(epoch) == list(range(20))
    assert any((order != other).any() for other in (workload.orders(1, 0), workload.orders(0, 1)))


# Tables.

PEERS = {
    "ours": Peer("ours", "all of it", None, ()),
    "theirs": Peer("theirs", "less", None, ()),
}
RESULTS = {
    "tiny": {
        "ours": Result([1.0, 2.0, 3.0, 4.0, 5.0], 1.25, "a 1.0"),
        "theirs": Result([10.0, 10.0, 10.0], 1.5, "b 2.0"),
    },
    "mlp": {"ours": Result([0.25], 0.5, "a 1.0"), "theirs": Result([], error="ended with 1: ValueError: no")},
}


def test_tables() -> None:
    text = bench_peers.tables(RESULTS, PEERS)
    assert "|  | a round is | tiny | mlp |\n| --- | --- | --- | --- |" in text
    assert "| ours | all of it | 3 (2-4) | 0.25 (0.25-0.25) |\n| theirs | less | 10 (10-10) | failed |" in text
    assert "| ours | 1.2500 | 0.5000 |\n| theirs | 1.5000 | failed |" in text
    assert "- ours: a 1.0.\n- theirs: b 2.0." in text
    assert text.endswith("What did not run:\n\n- theirs, `mlp`: ended with 1: ValueError: no.")


def test_text_goes_between_the_markers() -> None:
    page = f"above\n\n{bench_peers.BEGIN}\nold\n{bench_peers.END}\n\nbelow\n"
    once = bench_peers.insert(page, "new")
    assert once == f"above\n\n{bench_peers.BEGIN}\n\nnew\n\n{bench_peers.END}\n\nbelow\n"
    assert bench_peers.insert(once, "new") == once


@pytest.mark.parametrize("page", ["", bench_peers.BEGIN, f"{bench_peers.END}{bench_peers.BEGIN}"])
def test_a_page_without_markers_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="must have the markers"):
        bench_peers.insert(page, "new")


def test_the_page_has_the_markers() -> None:
    assert "new" in bench_peers.insert(bench_peers.PAGE.read_text(), "new")


def test_chart(tmp_path: pathlib.Path) -> None:
    bench_peers.draw(RESULTS, PEERS, tmp_path / "peers.png")
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")


# Peers.


def fake(code: str) -> Peer:
    """A peer that is a script; `turns` are its turns on the workload `tiny`."""
    start = """
        import os, sys, time
        from benchmarks.peers import protocol, workloads
        workload = workloads.WORKLOADS["tiny"]()
        turns = protocol.Turns(workload, ["numpy"])
        """
    return Peer("fake", "nothing", None, ("-c", textwrap.dedent(start) + textwrap.dedent(code)))


WELL = fake("""
    print("a library prints")
    while turns.wait():
        time.sleep(0.01)
        turns.done(1.0)
    """)


def test_a_peer_that_dies_is_named_and_the_rest_goes_on() -> None:
    peers = {
        "at once": fake("raise ValueError('no luck in /some/folder/of/mine.py')"),
        "well": WELL,
        "later": fake("turns.wait(); turns.done(1.0); turns.wait(); turns.done(1.0); turns.wait(); os._exit(3)"),
        "other arrays": fake("turns._digest = 'other'; turns.wait(); turns.done(1.0); turns.wait()"),
        "not installed": Peer("fake", "nothing", "no_such_environment", ()),
    }
    said: list[str] = []
    results = bench_peers.measure("tiny", peers, 3, said.append)
    assert list(results) == list(peers)
    assert results["at once"].error == "ended with 1: ValueError: no luck in mine.py"
    assert results["later"].error == "ended with 3: nothing was said"
    assert results["other arrays"].error.startswith("it has other arrays: other where")
    assert (
        results["not installed"].error
        == "not installed: peers: there is no benchmarks/peers/requirements-no_such_environment.txt"
    )
    assert results["well"].error == "" and results["well"].versions == f"numpy {np.__version__}"
    assert len(results["well"].seconds) == 3 and min(results["well"].seconds) >= 0.01
    assert len(said) == 6, "two are ready, and four fail"


# Says the number of a process of its own in place of a loss; neither ends by itself.
STUBBORN = fake("""
    import subprocess
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    while turns.wait():
        turns.done(child.pid)
    """)


def has_ended(pid: int) -> bool:
    """Also if nobody has collected its exit code."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_nothing_is_left_of_a_peer() -> None:
    results = bench_peers.measure("tiny", {"stubborn": STUBBORN}, 1, lambda text: None)
    assert has_ended(int(results["stubborn"].loss))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_the_command_ends_its_peers(number: int) -> None:
    script = (
        "from benchmarks import bench_peers\n"
        "bench_peers.end_on_signals()\n"
        f"peer = bench_peers.Peer('stubborn', '', None, {STUBBORN.arguments!r})\n"
        "bench_peers.measure('tiny', {'stubborn': peer}, 10**9, lambda text: print(text, flush=True))\n"
    )
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout
    assert "is ready" in process.stdout.readline()
    family = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    assert len(family) == 2
    process.send_signal(number)
    assert process.wait(timeout=30) != 0
    process.stdout.close()
    assert all(map(has_ended, family))


@pytest.mark.long
def test_ours_and_tffs_do_the_same_work() -> None:
    peers = {name: bench_peers.PEERS[name] for name in ("in_process", "tff")}
    results = bench_peers.measure("tiny", peers, 1, lambda text: None)
    assert not any(result.error for result in results.values()), results
    assert results["tff"].loss == pytest.approx(results["in_process"].loss, rel=0.05)
    assert all(len(result.seconds) == 1 for result in results.values())
