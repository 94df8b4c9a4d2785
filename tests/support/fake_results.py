"""Folders of results with numbers that are known, written by hand."""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
from typing import Any

from experiments import presets
from experiments.settings import Settings

PARTICIPANTS = 1019  # of MNIST's 100 rounds with seed 0, by which the paper's dense counts are explained
SIZES = {"mnist": 199_210, "emnist_letters": 89_610, "cifar10": 797_962, "shakespeare": 132_720, "digits": 6_310}


def write_run(
    folder: pathlib.Path, preset: str | None, *, rounds: int | None = None, share: float = 1.0, accuracy: float = 0.98,
    size: int = 1_000_000, participants: int = PARTICIPANTS, entropies: tuple[float, float] = (0.25, 3.0),
    summary: bool = True, training_set: str | None = None, **changes: Any,
) -> pathlib.Path:  # fmt: skip
    """Writes a run's folder.

    Args:
      folder: to write.
      preset: of the run.
      rounds: done; by default as many as asked for.
      share: of non-zeros in all messages.
      accuracy: after the last round; it grows to it by a thousandth a round.
      size: bytes that clients send in a round.
      participants: in all rounds, of which the first one has what does not go into the others.
      entropies: of updates and of local models, in every round.
      summary: whether the run has ended.
      training_set: as the run's task resolved it.
      **changes: values beside the preset's.
    """
    values = (presets.load_preset(preset).values if preset else {}) | changes
    if rounds is not None and summary:  # one that ended early was asked to
        values["rounds"] = rounds
    config = Settings(**values)
    done = config.rounds if rounds is None else rounds
    parameters = SIZES[config.task]
    folder.mkdir(parents=True)
    about: dict[str, Any] = {
        "config": dataclasses.asdict(config),
        "preset": preset,
        "assumed": [n for n in presets.load_preset(preset).assumed if n not in changes] if preset else [],
        "parameters": parameters,
        "resolved": {"num_clients": 100, "batch_size": config.batch_size or 10, "split": config.split or "iid"},
        "data": "0" * 64,
    }
    if training_set is not None:
        about["resolved"]["training_set"] = training_set
    (folder / "config.json").write_text(json.dumps(about))
    rows = []
    for t in range(1, done + 1):
        present = participants - (done - 1) * (participants // done) if t == 1 else participants // done
        row: dict[str, Any] = {"round": t, "client_work/train/contributing_clients": present}
        for message in config.row().messages:
            row[f"client_work/train/{message}/non_zeros"] = round(share * present * parameters)
            row[f"client_work/train/{message}/entropy_trunc"] = entropies[0]
        row["client_work/train/theta/entropy_trunc"] = entropies[1]
        row |= {"aggregator/drift": 1 / t} if config.algorithm != "fed_avg" else {}
        row |= {"uplink_bytes": size, "downlink_bytes": 5}
        row |= {"dp_epsilon": 0.5 * t} if config.aggregator == "dp" else {}
        row["accuracy"] = accuracy - 0.001 * (done - t)
        row |= {"average_accuracy": row["accuracy"]} if config.algorithm == "fed_dyn" else {}
        rows.append(row)
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    if summary:
        evaluated = {name: rows[-1][name] for name in ("accuracy", "average_accuracy") if name in rows[-1]}
        (folder / "summary.json").write_text(json.dumps({"rounds": done, **evaluated, "seconds": 1.5}))
        bins = "".join(f"{10.0**i},{10.0 ** (i + 1)},{100 * (i + 7)}\n" for i in range(-6, 0))
        (folder / "updates.csv").write_text(f"lower,upper,count\n0.0,0.0,900\n0.0,1e-06,0\n{bins}1.0,inf,0\n")
    return folder
