"""Trains one of the algorithms on real data, counts what it sends, and can be stopped and resumed at any instant.

    python run_experiment.py --task=mnist --split=dirichlet:0.3 --algorithm=fed_dyn --l1=1e-4 --l2=5e-2 --threshold=5e-3
    python run_experiment.py --preset=mnist/dirichlet_0.3/algorithm_3          # a cell of the paper's tables
    python run_experiment.py --preset=mnist/iid/algorithm_3 --grid=l1=1e-2,1e-4,1e-6,1e-8
    python run_experiment.py --flagfile=my.flags

The same command again goes on where the last one ended. `--helpfull` lists all flags.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff
import tqdm
from absl import app, flags, logging

import tff_fen
from experiments import presets
from experiments.accounting import SENT_COLUMNS
from experiments.experiment_config import ExperimentConfig, parse_sampling
from experiments.flags import build_config, define_flags, explicit_values, parse_grid
from experiments.loop import Interruption, Loop, Parts, RoundRecord, read_header
from experiments.methods import build_aggregation, build_process
from experiments.output import ConfigMismatchError, Folder, summarize, write_whole
from experiments.task_flags import check_task_of, load_task_of
from tasks import registry
from tasks.data_sets.sources import DataUnavailableError
from tasks.evaluation import Evaluator
from tasks.task import Task
from tff_fen.checks import check_integer, check_name
from tff_fen.program import sampling
from tff_fen.program.store import SqliteStore, StoreError

define_flags()
_PRESET = flags.DEFINE_string("preset", None, "DATA SET/SPLIT/METHOD, as in mnist/dirichlet_0.3/algorithm_3.")
_GRID = flags.DEFINE_multi_string("grid", [], "FIELD=VALUE,VALUE,...: one experiment for each; may be repeated.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder of the results; by default one below out/ named after the run.")
_RUNTIME = flags.DEFINE_string(
    "runtime", "inprocess", "inprocess: this process's TensorFlow; native: TFF's worker; ray: clients on a Ray cluster."
)
_RAY_ADDRESS = flags.DEFINE_string(
    "ray_address", None, "HOST:PORT of a Ray cluster's head node, or auto; by default a new one on this machine."
)
_QUIET = flags.DEFINE_bool("quiet", False, "Print nothing but errors and the result.")
_PLOTS = flags.DEFINE_bool("plots", True, "Draw pictures at the end.")


class Run(NamedTuple):
    """One experiment of a command: its name, its values, and what is said of them in `config.json`."""

    name: str
    config: ExperimentConfig
    about: dict[str, Any]


def plan_runs() -> list[Run]:
    """Returns the experiments that the flags ask for; raises `ValueError` or `TypeError` if any cannot be."""
    runs = []
    explicit = explicit_values()
    for point in parse_grid(_GRID.value, also=["preset"]):
        for name in point:
            if flags.FLAGS[name].present:
                raise ValueError(f"--grid and --{name} both give {name!r}. Give it once.")
        preset_name = point.pop("preset", _PRESET.value)
        preset = presets.load_preset(preset_name) if preset_name else presets.Preset({}, ())
        config = build_config(preset.values, explicit, point)
        changed = {*explicit, *point}
        assumed = [name for name in preset.assumed if name not in changed]
        label = preset_name.replace("/", "-") if preset_name else f"{config.task}-{config.algorithm}"
        own = ",".join(f"{name}={value}" for name, value in point.items())
        runs.append(Run(" ".join(filter(None, [label, own])), config, {"preset": preset_name, "assumed": assumed}))
    return runs


def build_parts(config: ExperimentConfig, task: Task) -> Parts:
    """Builds what the loop is made of."""
    kind, amount = parse_sampling(config.sampling)
    m = len(task.clients)
    aggregation = build_aggregation(config, amount if kind == "uniform" else amount * m)
    process = build_process(config, task.build_model(), task.batch_size, m, aggregation)
    evaluator = Evaluator(task)

    def sample(round_number: int) -> np.ndarray:
        if kind == "uniform":
            return sampling.sample_uniform(round_number, m, int(amount), config.seed)
        return sampling.sample_bernoulli(round_number, m, amount, config.seed)

    return Parts(process, aggregation, task.client_dataset, sample, evaluator.evaluate)


def run_one(run: Run, path: pathlib.Path, interruption: Interruption) -> dict[str, Any]:
    """Runs an experiment to its end, or until the user interrupts it, and returns its summary."""
    config = run.config
    folder = Folder(path)
    path.mkdir(parents=True, exist_ok=True)
    with SqliteStore(folder.store) as store:
        task = load_task_of(config)
        size = int(sum(np.size(w) for w in task.build_keras_model().trainable_weights))
        latest = store.latest()
        header = folder.claim(
            config,
            {
                **run.about,
                "parameters": size,
                "resolved": {
                    "num_clients": len(task.clients),
                    "batch_size": config.batch_size or task.batch_size,
                    "split": config.split or registry.default_split(config.task),
                },
                "data": task.fingerprint(),
            },
            read_header(store),
            latest.number if latest else 0,
        )
        loop = Loop(config, build_parts(config, task), store, header)
        records = list(loop.records())
        folder.start(records)
        for warning in store.warnings:
            logging.warning("%s", warning)
        if loop.round:
            _say(f"{run.name}: {loop.round} rounds are done already")
        start = time.monotonic()
        with _Progress(run.name, loop.round, config.rounds, records) as progress:
            while loop.round < config.rounds and not interruption.requested:
                record = loop.run_round()
                folder.add(record)
                records.append(record)
                progress.show(record)
        summary = summarize(records, loop.evaluate(), size, time.monotonic() - start)
        folder.finish(summary, loop.weights, records[-1] if records else None)
        if _PLOTS.value:
            from experiments import plots

            for name, picture in plots.draw(records).items():
                write_whole(path / name, picture)
    return summary


class _Progress:
    """A bar on a terminal; in a log a line now and then."""

    def __init__(self, name: str, done: int, rounds: int, records: list[RoundRecord]) -> None:
        self._name, self._rounds = name, rounds
        self._bytes = sum(_sent(record) for record in records)
        terminal = sys.stderr.isatty() and not _QUIET.value
        self._bar = tqdm.tqdm(total=rounds, initial=done, desc=name, unit="round", disable=not terminal)
        self._lines = not terminal and not _QUIET.value
        self._next = 0.0

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.close()

    def show(self, record: RoundRecord) -> None:
        """Shows a round."""
        self._bytes += _sent(record)
        participants, lost = (record.row[f"client_work/train/{n}"] for n in ("participants", "non_finite_clients"))
        if lost == participants:
            logging.log_first_n(logging.WARNING, "round %d: no client is finite; is the learning rate too high?", 1,
                                record.row["round"])  # fmt: skip
        accuracy = record.row.get("average_accuracy", record.row["accuracy"])
        text = f"{accuracy:.2%}" if accuracy is not None else "-"
        self._bar.set_postfix(accuracy=text, MB=f"{self._bytes / 1e6:.2f}", refresh=False)
        self._bar.update()
        number = record.row["round"]
        if self._lines and (time.monotonic() >= self._next or number == self._rounds):
            self._next = time.monotonic() + 10.0
            loss = record.row["client_work/train/loss"]
            print(f"{self._name}: round {number}/{self._rounds} accuracy {text} loss {loss:.4f} "
                  f"sent {self._bytes / 1e6:.2f} MB", file=sys.stderr, flush=True)  # fmt: skip


def _sent(record: RoundRecord) -> int:
    return sum(int(record.row.get(name, 0)) for name in SENT_COLUMNS)


def _say(text: str) -> None:
    if not _QUIET.value:
        print(text, file=sys.stderr, flush=True)


def print_table(results: dict[str, dict[str, Any]]) -> None:
    """Prints what the experiments came to; factors are against sending every element as float32."""
    width = max(len("run"), *map(len, results))
    print(
        f"\n{'run':{width}} {'rounds':>6} {'accuracy':>9} {'non-zeros sent':>15} {'times fewer':>12} "
        f"{'MB sent':>9} {'times fewer':>12}"
    )
    for name, result in results.items():
        if not result["rounds"]:
            print(f"{name:{width}} {0:>6}")
            continue
        accuracy = result.get("average_accuracy", result.get("accuracy"))
        sent = sum(result.get(name, 0) for name in SENT_COLUMNS)
        dense = result["dense_elements"]
        ratios = ((dense, result["non_zeros"]), (4 * dense, sent))
        fewer = [f"{a / b:.2f}" if a and b else "nothing sent" for a, b in ratios]
        print(
            f"{name:{width}} {result['rounds']:>6} {'-' if accuracy is None else f'{accuracy:.2%}':>9} "
            f"{result['non_zeros']:>15,} {fewer[0]:>12} {sent / 1e6:>9.2f} {fewer[1]:>12}"
        )
        if "dp_epsilon" in result:
            print(f"{'':{width}} privacy spent: epsilon {result['dp_epsilon']:.3f}")


_RUNTIMES: dict[str, Callable[[], None]] = {
    "inprocess": tff_fen.runtime.set_inprocess_context,
    "native": lambda: tff_fen.runtime.set_native_context(ignore_interrupts=True),
    "ray": lambda: tff_fen.runtime.set_ray_context(_RAY_ADDRESS.value),
}


def set_runtime(secure: bool = False) -> None:
    """Sets the runtime that the flags name; TFF's worker needs another one for secure aggregation."""
    if secure and _RUNTIME.value == "native":
        tff.backends.test.set_sync_test_cpp_execution_context()
    else:
        _RUNTIMES[_RUNTIME.value]()


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {' '.join(argv[1:])}")
    logging.set_verbosity(logging.WARNING)
    # Everything a user may have got wrong is found out before the work starts.
    try:
        runs = plan_runs()
        check_name("runtime", _RUNTIME.value, _RUNTIMES)
        if _RAY_ADDRESS.value is not None and _RUNTIME.value != "ray":
            raise ValueError(f"ray_address={_RAY_ADDRESS.value} has no effect: it is for --runtime=ray.")
        for run in runs:
            check_task_of(run.config)
        # Before the first model is made: TensorFlow takes its settings only until then.
        set_runtime(secure=any(run.config.aggregator == "secure" for run in runs))
        for run in runs:
            check_participants(run.config, len(load_task_of(run.config).clients))
    except (ValueError, TypeError) as error:
        raise app.UsageError(str(error)) from error
    except DataUnavailableError as error:
        raise SystemExit(str(error)) from error
    output = pathlib.Path(_OUTPUT.value) if _OUTPUT.value else pathlib.Path("out") / default_name(runs)
    paths = [output if len(runs) == 1 else output / run.name.replace(" ", "_") for run in runs]
    for run in runs:
        if run.config.aggregator == "dp" and run.config.dp_test_seed is not None:
            logging.warning("--dp_test_seed: the noise of %s can be repeated. This run is NOT private.", run.name)
        if run.config.aggregator == "compression" or (
            run.config.aggregator == "dp" and run.config.dp_test_seed is None
        ):
            _say(f"{run.name}: aggregator {run.config.aggregator!r} draws random numbers of its own; "
                 "such a run cannot be repeated to the bit")  # fmt: skip
    results = {}
    with Interruption().watched() as interruption:
        for run, path in zip(runs, paths, strict=True):
            if interruption.requested:
                break
            try:
                results[run.name] = run_one(run, path, interruption)
            except (StoreError, ConfigMismatchError) as error:
                raise SystemExit(f"{run.name}: {error}") from error
            except OSError as error:
                raise SystemExit(
                    f"{run.name}: {error}. All committed rounds are safe: mend it, then run the command again."
                ) from error
    if len(runs) > 1:
        write_whole(output / "summary.json", json.dumps(results, indent=2).encode() + b"\n")
    if results:
        print_table(results)
    print(f"\nresults: {output}")
    if interruption.requested:
        raise SystemExit("Interrupted; all finished rounds are saved. Run the same command to go on.")


def check_participants(config: ExperimentConfig, num_clients: int) -> None:
    """Raises if a round asks for more clients than there are."""
    kind, amount = parse_sampling(config.sampling)
    if kind == "uniform":
        check_integer("number of clients in sampling", int(amount), 1, num_clients)


def default_name(runs: list[Run]) -> str:
    """A folder's name for these runs."""
    return runs[0].name.replace(" ", "_") if len(runs) == 1 else "grid-" + runs[0].name.split(" ")[0]


if __name__ == "__main__":
    app.run(main)
