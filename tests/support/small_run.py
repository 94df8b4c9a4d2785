"""A small federation for the tests of rounds: five clients with random examples, and processes of all kinds.

    python -m tests.support.small_run <kind> <folder> <place> <round>

runs four rounds in the folder and kills its process with signal 9 in `sample` or `evaluate` of that round (from 0).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models

CLIENTS, ROUNDS = 5, 4
KINDS = ("fed_dyn", "scaffold", "fed_avg", "tff_fed_avg")


def build(kind: str, features: int = 6) -> Any:
    """A process: two of stateful clients, a `LearningProcess` of ours, and one of TFF's."""
    model = models.softmax_regression(features)
    net = tff_fen.ElasticNet(l1=1e-4, l2=0.1, threshold=1e-3)
    local = tff_fen.LocalTraining(0.1, epochs=2, batch_size=4, lr_decay=0.9)
    builders: dict[str, Callable[[], Any]] = {
        "fed_dyn": lambda: tff_fen.build_fed_dyn(model, net, local, num_clients=CLIENTS),
        "scaffold": lambda: tff_fen.build_scaffold(model, net, local, num_clients=CLIENTS),
        "fed_avg": lambda: tff_fen.build_fed_avg(model, net, local),
        "tff_fed_avg": lambda: tff.learning.algorithms.build_weighted_fed_avg(
            model, tff.learning.optimizers.build_sgdm(0.1)
        ),
    }
    return builders[kind]()


def client_dataset(client: int) -> tf.data.Dataset:
    return models.dataset(*models.examples(6 + client, seed=client), batch_size=4)


def sample(number: int) -> np.ndarray:
    """Three of the five; client 4 never takes part."""
    return np.sort(np.random.default_rng(number).choice(CLIENTS - 1, 3, replace=False))


def evaluate(weights: Any) -> dict[str, Any]:
    return {"norm": float(sum(np.sum(np.square(w)) for w in weights.trainable)), "shape": {"layers": 2}}


def killed(place: str, wanted: int) -> dict[str, Any]:
    """`sample` and `evaluate`, one of which ends the process in a round."""
    calls = {"sample": 0, "evaluate": 0}

    def wrap(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(argument: Any) -> Any:
            if name == place and calls[name] == wanted:
                tff_fen.runtime.end_worker_processes()  # They would outlive a kill.
                os.kill(os.getpid(), 9)
            calls[name] += 1
            return function(argument)

        return call

    return {"sample": wrap("sample", sample), "evaluate": wrap("evaluate", evaluate)}


if __name__ == "__main__":
    kind, folder, place, number = sys.argv[1:]
    tff_fen.run_rounds(
        build(kind), client_dataset, rounds=ROUNDS, folder=folder, progress=False, **killed(place, int(number))
    )
