"""This project against other people's code: the same federated rounds, timed in turns.

    make bench-peers [ARGS="--workloads=mlp --rounds=5 --nowrite"]

The workloads are those of `benchmarks/peers/workloads.py`. Each peer is a process of its own in an environment of its
own, which `tools/peers.sh` builds from `benchmarks/peers/requirements-NAME.txt` the first time. All peers of a workload
are there at once and take their rounds in turns, so that a slow spell of the machine hits all. Each times its own
rounds; the first two are not counted. Figures are medians with the range of the middle half.

A peer that cannot be installed, or fails, is named with its error, and the others go on. That all have the same arrays
is checked by a digest; that they do the same work shows in the mean loss of the local steps of round 1, which differs
only by the order of the examples, by penalties and by rounding.

The tables go into docs/performance.md, between two markers, with a chart in docs/peers.png; `--nowrite` only prints.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import psutil
from absl import app, flags

from benchmarks.peers.workloads import WORKLOADS as BUILDERS

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
CHART = ROOT / "docs" / "peers.png"
BEGIN, END = "<!-- bench-peers: begin -->", "<!-- bench-peers: end -->"
PATIENCE = 900.0
"""Seconds within which a peer answers."""


class Peer(NamedTuple):
    """Code that can take a workload's rounds.

    Attributes:
      title: its name in tables.
      work: what a round of it is.
      environment: the folder in .venv-peers with its packages; `None` for this project's own.
      arguments: of Python: its module and flags, without the workload.
    """

    title: str
    work: str
    environment: str | None
    arguments: tuple[str, ...]


def _peer(title: str, work: str, environment: str | None, module: str, *arguments: str) -> Peer:
    return Peer(title, work, environment, ("-m", f"benchmarks.peers.{module}", *arguments))


PEERS = {
    "in_process": _peer("this project, in process", "Algorithm 3, client states, measurements", None, "in_process"),
    "tff": _peer("TFF, as TFF sets it up", "its FedProx", None, "tff_fed_prox"),
    "tff_tuned": _peer("TFF, worker tuned by us", "its FedProx", None, "tff_fed_prox", "--tuned"),
    "fedjax": _peer("FedJAX", "FedDyn by its `for_each_client`", "fedjax", "fedjax_loop"),
    "torch_threads": _peer("PyTorch, one process", "FedDyn, a thread per core", "torch", "torch_loop"),
    "torch_processes": _peer("PyTorch, a process per core", "FedDyn", "torch", "torch_loop", "--processes"),
    "pfl": _peer("pfl-research", "its FedProx, clipping and weight decay too", "pfl", "pfl_fed_prox"),
    "flower": _peer("Flower, simulation", "its FedProx; FedDyn's PyTorch steps", "flower", "flower_fed_prox"),
    "xla": _peer("bare XLA loop", "plain SGD and a mean, nothing else", "fedjax", "xla_loop"),
}
DESCRIPTIONS = {
    "mlp": "MLP 784-200-200-10, 10 x 600, 5 epochs, batch 10",
    "cnn": "CNN of CIFAR, 10 x 500, 1 epoch, batch 50",
    "lstm": "LSTM of Shakespeare, 10 x 100 windows, 1 epoch, batch 20",
    "softmax_1000": "softmax regression 60-10, 1000 x 20, 1 epoch, batch 10",
    "mlp_1000": "MLP 60-64-64-10, 1000 x 20, 1 epoch, batch 10",
    "tiny": "MLP 8-6-6-3, 3 x 20, 2 epochs, batch 5",
}
_USUAL = [name for name in DESCRIPTIONS if name != "tiny"]


class PeerError(Exception):
    """A peer cannot go on; the message is one line."""


class Result(NamedTuple):
    """What a peer did on a workload.

    Attributes:
      seconds: of the counted rounds; empty if it failed.
      loss: the mean loss of the local steps of round 1.
      versions: of its packages.
      error: why it failed; empty if it did not.
    """

    seconds: list[float]
    loss: float = float("nan")
    versions: str = ""
    error: str = ""


class Process:
    """A peer that runs; see `benchmarks.peers.protocol`."""

    def __init__(self, peer: Peer, workload: str, folder: str) -> None:
        """Starts it.

        Args:
          peer: what to run.
          workload: what it trains.
          folder: for what it leaves behind.
        """
        errors, self._errors = tempfile.mkstemp(dir=folder)
        self._process = subprocess.Popen(
            [_python(peer.environment), *peer.arguments, f"--workload={workload}"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            # Ctrl-C is for this command, which ends its peers in order.
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": folder, "RAY_TMPDIR": folder},
        )  # fmt: skip
        os.close(errors)

    def answer(self) -> dict[str, Any]:
        """Waits for the next answer."""
        assert self._process.stdout
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        if not readable:
            raise PeerError(f"no answer within {PATIENCE:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(self._last_error())
        return json.loads(line)

    def take_round(self) -> dict[str, Any]:
        """Asks for a round and waits for its answer."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has ended: `answer` says why
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return self.answer()

    def hang_up(self) -> None:
        """Tells it that no round will be asked for any more: it ends."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def end(self) -> None:
        """Waits for it to end after `hang_up`, and kills what is left of it."""
        family: list[psutil.Process] = []
        if self._process.returncode is None:
            process = psutil.Process(self._process.pid)
            family = [process, *process.children(recursive=True)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # of one that died, what it left
        psutil.wait_procs(family, timeout=10)
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()

    def _last_error(self) -> str:
        code = self._process.wait()
        said = pathlib.Path(self._errors).read_text(errors="replace")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)]
        reason = (named or lines or ["nothing was said"])[-1]
        return _one_line(f"ended with {code}: {reason}")


def _one_line(text: str) -> str:
    """The text as a cell of a table: short, without folders of this machine."""
    return re.sub(r"(?<![\w.])(/[^\s/:'\"]+)+/", "", text.replace("|", "/").replace("\n", " "))[:160]


def _python(environment: str | None) -> str:
    """The interpreter of an environment, which is built if need be."""
    if environment is None:
        return sys.executable
    done = subprocess.run([ROOT / "tools" / "peers.sh", environment], stdout=2, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise PeerError(_one_line(f"not installed: {(done.stderr.splitlines() or ['?'])[-1]}"))
    return str(ROOT / ".venv-peers" / environment / "bin" / "python")


def measure(
    workload: str, peers: Mapping[str, Peer], rounds: int, say: Callable[[str], object] = print
) -> dict[str, Result]:
    """The results of peers on a workload, their rounds taken in turns; all their processes have ended then."""
    digest = BUILDERS[workload]().digest()
    results: dict[str, Result] = {}
    running: dict[str, Process] = {}

    def fail(name: str, error: Exception) -> None:
        results[name] = Result([], error=str(error))
        say(f"{workload}: {peers[name].title}: {error}")

    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        ends = stack.enter_context(contextlib.ExitStack())
        # Left first: all are told to end before any is waited for.
        goodbyes = stack.enter_context(contextlib.ExitStack())
        for name, peer in peers.items():
            try:
                process = Process(peer, workload, folder)
                ends.callback(process.end)
                goodbyes.callback(process.hang_up)
                first = process.answer()
                if first["digest"] != digest:
                    raise PeerError(f"it has other arrays: {first['digest']} where {digest} is right")
            except PeerError as error:
                fail(name, error)
            else:
                running[name] = process
                results[name] = Result([], first["loss"], first["versions"])
                say(f"{workload}: {peer.title} is ready: {first['versions']}, loss {first['loss']:.4f}")
        for round_number in range(2, 2 + 1 + rounds):
            for name, process in list(running.items()):
                try:
                    seconds = process.take_round()["seconds"]
                except PeerError as error:
                    fail(name, error)
                    del running[name]
                else:
                    if round_number > 2:
                        results[name].seconds.append(seconds)
    return {name: results[name] for name in peers}


Results = Mapping[str, Mapping[str, Result]]
"""By workload and peer."""


def tables(results: Results, peers: Mapping[str, Peer]) -> str:
    """What stands between the markers."""
    names = list(results)
    parts = [
        f"Seconds per round on {len(os.sched_getaffinity(0))} cores, medians with the range of the middle half:",
        _table(["", "a round is", *names], ([p.title, p.work, *_cells(results, n, _time)] for n, p in peers.items())),
        "Mean loss of the local steps of round 1, which shows that the work is the same:",
        _table(["", *names], ([peer.title, *_cells(results, name, _loss)] for name, peer in peers.items())),
        "\n".join(f"- `{name}`: {DESCRIPTIONS[name]}." for name in names),
        "\n".join(f"- {peer.title}: {_versions(results, name)}." for name, peer in peers.items()),
        "![Medians per round, with the range of the middle half](peers.png)",
    ]
    failures = [
        f"- {peers[name].title}, `{workload}`: {result.error}."
        for workload, of_workload in results.items()
        for name, result in of_workload.items()
        if result.error
    ]
    if failures:
        parts += ["What did not run:", "\n".join(failures)]
    return "\n\n".join(parts)


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cells(results: Results, name: str, cell: Callable[[Result], str]) -> list[str]:
    return [cell(of_workload[name]) for of_workload in results.values()]


def _middle_half(result: Result) -> tuple[float, float, float]:
    low, median, high = np.percentile(result.seconds, [25, 50, 75])
    return float(low), float(median), float(high)


def _time(result: Result) -> str:
    if result.error:
        return "failed"
    low, median, high = _middle_half(result)
    return f"{median:.3g} ({low:.3g}-{high:.3g})"


def _loss(result: Result) -> str:
    return "failed" if result.error else f"{result.loss:.4f}"


def _versions(results: Results, name: str) -> str:
    found = {of_workload[name].versions for of_workload in results.values()} - {""}
    return "; ".join(sorted(found)) or "none"


def insert(page: str, text: str) -> str:
    """The page with the text between its markers, in place of what was there."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"The page must have the markers {BEGIN} and {END}, in this order.")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def draw(results: Results, peers: Mapping[str, Peer], path: pathlib.Path) -> None:
    """Writes a bar chart: medians per round, lines for the middle half, a panel per workload."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, len(results), figsize=(3.2 + 2.6 * len(results), 3.6), sharey=True, squeeze=False
    )
    titles = [peer.title for peer in peers.values()]
    for panel, (workload, of_workload) in zip(panels[0], results.items(), strict=True):
        for i, name in enumerate(peers):
            if not of_workload[name].error:
                low, median, high = _middle_half(of_workload[name])
                panel.barh(i, median, color="tab:orange" if i == 0 else "tab:blue")
                panel.plot([low, high], [i, i], color="black")
                panel.annotate(f"{median:.3g}", (high, i), (3, 0), textcoords="offset points", va="center", fontsize=8)
        panel.set_title(workload)
        panel.set_xlabel("seconds per round")
        panel.margins(x=0.2)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_yticks(range(len(titles)), titles)
    panels[0][0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def end_on_signals() -> None:
    """Has signals end this process as Ctrl-C does: what it has begun is ended first."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))


def main(argv: list[str]) -> None:
    del argv
    end_on_signals()
    peers = {name: peer for name, peer in PEERS.items() if name in flags.FLAGS.peers}
    workloads = [name for name in DESCRIPTIONS if name in flags.FLAGS.workloads]
    results = {
        workload: measure(workload, peers, flags.FLAGS.rounds, lambda text: print(text, file=sys.stderr, flush=True))
        for workload in workloads
    }
    text = tables(results, peers)
    print(text)
    if flags.FLAGS.write:
        PAGE.write_text(insert(PAGE.read_text(), text))
        draw(results, peers, CHART)


if __name__ == "__main__":
    # Here, since tests import this module beside others with flags of these names.
    flags.DEFINE_multi_enum("workloads", _USUAL, list(DESCRIPTIONS), "What to time.")
    flags.DEFINE_multi_enum("peers", list(PEERS), list(PEERS), "Whom to time.")
    flags.DEFINE_integer("rounds", 15, "Rounds counted per peer and workload.", lower_bound=1)
    flags.DEFINE_bool("write", True, "Whether to write docs/performance.md and docs/peers.png.")
    app.run(main)
