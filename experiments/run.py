"""Runs experiments to their ends, each in its folder, from wherever it was stopped."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from experiments import columns
from experiments.build import Parts, build_parts, describe_method
from experiments.clients import FILE as CLIENTS_FILE
from experiments.clients import format_clients, measure_clients
from experiments.config_file import FILE, format_config
from experiments.experiment_config import ExperimentConfig
from experiments.files import UnreadableFileError, write_whole
from experiments.histogram import lowest_sent
from experiments.loading import load_task_of, split_of, task_title
from experiments.measure import Measure, build_rounds
from experiments.models import models_of, to_keras
from experiments.output import ConfigMismatchError, Folder
from experiments.plan import PlannedRun, folders_of
from experiments.progress import Interruption, Progress, print_table, say
from experiments.releases import Releases
from experiments.summary import summarize, untimed_seconds
from tasks.task import Task
from tff_fen.program.records import Record
from tff_fen.program.rounds import read_header
from tff_fen.program.store import SqliteStore, StoreError
from tff_fen.program.weights import weights_to_bytes


def run_all(
    runs: Sequence[PlannedRun],
    output: str | None,
    *,
    quiet: bool = False,
    plots: bool = True,
    export: bool = False,
    allow_other_numerics: bool = False,
) -> None:
    """Runs experiments one after the other and prints what they came to.

    Args:
      runs: at least one.
      output: the folder; by default one below out/ named after the runs.
      quiet: whether to print nothing but errors and the result.
      plots: whether to draw pictures at the end.
      export: whether to write the final model for Keras.
      allow_other_numerics: whether runs go on where packages, processor or settings would change bits.

    Raises:
      SystemExit: if a folder cannot be used or written, or after an interruption; the message says what to do.
    """
    folder, paths = folders_of(runs, output)
    for run in runs:
        _warn_of_noise(run, quiet)
    results = {}
    with Interruption().watched() as interruption:
        for number, (run, path) in enumerate(zip(runs, paths, strict=True), 1):
            if interruption.requested:
                break
            try:
                if path != folder and path.is_symlink():  # the folder itself is where the user wants it
                    raise UnreadableFileError(f"{path} is a symbolic link, which is not followed")
                title = f"run {number} of {len(runs)}, {run.name}" if len(runs) > 1 else run.name
                results[run.name] = run_one(
                    run, path, interruption, title=title, quiet=quiet, plots=plots, export=export,
                    allow_other_numerics=allow_other_numerics,
                )  # fmt: skip
            except (StoreError, ConfigMismatchError) as error:
                raise SystemExit(f"{run.name}: {error}") from error
            except OSError as error:
                raise SystemExit(
                    f"{run.name}: {error}. All committed rounds are safe: mend it, then run the command again."
                ) from error
    if len(runs) > 1:
        write_whole(folder / "summary.json", json.dumps(results, indent=2).encode() + b"\n")
    if results:
        print_table(results)
    print(f"\nresults: {folder}")
    unfinished = [run for run in runs if results.get(run.name, {"rounds": 0})["rounds"] < run.config.rounds]
    if interruption.requested and unfinished:
        raise SystemExit("Interrupted; all finished rounds are saved. Run the same command to go on.")


def run_one(
    run: PlannedRun,
    path: pathlib.Path,
    interruption: Interruption,
    *,
    title: str,
    quiet: bool = False,
    plots: bool = True,
    export: bool = False,
    allow_other_numerics: bool = False,
) -> dict[str, Any]:
    """Runs an experiment to its end, or until the user interrupts it, from wherever its folder is.

    Args:
      run: its values.
      path: its folder.
      interruption: asks for the end, and is told what has to be finished first.
      title: of the bar and of what is printed.
      quiet, plots, export, allow_other_numerics: as for `run_all`.

    Returns:
      Its summary.

    Raises:
      ConfigMismatchError: if the folder's experiment is another one.
      StoreError, OSError: if the folder cannot be read or written.
    """
    config = run.config
    folder = Folder(path)
    path.mkdir(parents=True, exist_ok=True)
    with SqliteStore(folder.store) as store:
        task = load_task_of(config)
        about = _describe(run, task)
        latest = store.latest()
        done = latest.number if latest else 0
        header = folder.claim(config, about, read_header(store), done, allow_other_numerics=allow_other_numerics)
        write_whole(path / FILE, format_config(config, run.about["preset"]).encode())
        config = _as_begun(config, json.loads(header)["config"])
        parts = build_parts(config, task)
        releases = Releases(folder.releases, done) if config.aggregator == "dp" else None
        measure = Measure(config, parts, releases)
        rounds = build_rounds(parts, measure, store, header)
        records = list(rounds.records())
        folder.start(records)
        for warning in store.warnings:
            logging.warning("%s", warning)
        if rounds.round:
            _say(f"{title}: {rounds.round} rounds are done already", quiet)
        sent = sum(columns.bytes_sent(record.row) for record in records)
        with Progress(title, rounds.round, config.rounds, sent, quiet) as progress:

            def show(record: Record) -> None:
                folder.add(record)
                records.append(record)
                progress.show(record.row)
                last = rounds.round >= config.rounds
                interruption.doing = "the results" if last else f"round {rounds.round + 1}"

            interruption.doing = f"round {rounds.round + 1}"
            rounds.run(config.rounds, should_stop=lambda: interruption.requested, on_round=show)
        interruption.doing = "the results"
        rows = [record.row for record in records]
        untimed = untimed_seconds(rows, folder.earlier_summary())
        summary = summarize(rows, measure.evaluate(rounds.state), about["parameters"], untimed)
        _write_results(
            folder, config, task, parts, rounds.state, records, summary, quiet=quiet, plots=plots, export=export
        )
    interruption.doing = ""
    return summary


def _write_results(
    folder: Folder,
    config: ExperimentConfig,
    task: Task,
    parts: Parts,
    state: Any,
    records: list[Record],
    summary: Mapping[str, Any],
    *,
    quiet: bool,
    plots: bool,
    export: bool,
) -> None:
    """Writes what a folder has at a run's end; `state` is the server's."""
    models = models_of(parts.process, state)
    folder.finish(summary, weights_to_bytes(models, task.build_keras_model), records[-1] if records else None)
    table_model = [*models.values()][-1]
    if config.per_client_metrics:
        rows = measure_clients(
            records, parts.sample, len(task.clients), parts.evaluator.evaluate_clients, table_model,
            seed=config.seed, quiet=quiet,
        )  # fmt: skip
        write_whole(folder.path / CLIENTS_FILE, format_clients(rows).encode())
    if export:
        folder.export(to_keras(table_model, task))
    if plots:
        from experiments.plots import draw  # here, since Matplotlib takes a second to import

        for name, picture in draw(records, lowest_sent(config.threshold, config.uplink)).items():
            write_whole(folder.path / name, picture)


def _as_begun(config: ExperimentConfig, stored: Mapping[str, Any]) -> ExperimentConfig:
    """The values; an experiment of an earlier version, which always measured clients, goes on doing so."""
    known = "client_measurements" in stored
    return config if known else dataclasses.replace(config, client_measurements="on")


def _describe(run: PlannedRun, task: Task) -> dict[str, Any]:
    """What `config.json` says beside the values."""
    title = task_title(run.config)
    return {
        **run.about,
        "parameters": int(sum(np.size(w) for w in task.build_keras_model().trainable_weights)),
        "resolved": {
            "num_clients": len(task.clients),
            "batch_size": run.config.batch_size or task.batch_size,
            "split": split_of(run.config),
            **({} if task.training_set is None else {"training_set": task.training_set}),
            "test_examples": len(task.test[1]),
        },
        "method": describe_method(run.config),
        **({} if title is None else {"task": title}),
        "data": task.fingerprint(),
    }


def _warn_of_noise(run: PlannedRun, quiet: bool) -> None:
    config = run.config
    if config.aggregator == "dp" and config.dp_test_seed is not None:
        logging.warning("--dp_test_seed: the noise of %s can be repeated. This run is NOT private.", run.name)
    if config.aggregator == "compression" or (config.aggregator == "dp" and config.dp_test_seed is None):
        _say(
            f"{run.name}: aggregator {config.aggregator!r} draws random numbers of its own; such a run cannot be "
            "repeated to the bit",
            quiet,
        )


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        say(text)
