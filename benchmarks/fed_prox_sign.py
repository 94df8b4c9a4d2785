"""TFF's FedProx pushes clients away from the server model: how far they get, by strength of the proximal term.

    python -m benchmarks.fed_prox_sign

One client trains on all digits for a round. The proximal term `l2/2 |w - theta|^2` is there to hold the local model
`w` near the server model `theta`, so the distance must fall as `l2` grows. TFF 0.87 adds `l2 (theta - w)` to the
gradient (`learning/templates/proximal_client_work.py`), the negative of the term's gradient: it grows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl import app

import tff_fen
from tasks.registry import load_task

STRENGTHS = (0.0, 0.1, 0.5, 1.0)
LEARNING_RATE, BATCH_SIZE, EPOCHS = 0.1, 50, 5


def distance(process: tff.learning.templates.LearningProcess, data: tf.data.Dataset) -> float:
    """Returns |w - theta| after a round of one client."""
    state = process.initialize()
    before, after = (process.get_model_weights(s).trainable for s in (state, process.next(state, [data]).state))
    return float(np.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(after, before, strict=True))))


def main(argv: list[str]) -> None:
    del argv
    task = load_task("digits", num_clients=1)
    data = tf.data.Dataset.from_tensor_slices(task.clients[0]).batch(BATCH_SIZE).repeat(EPOCHS)
    model = task.build_model()

    def stock(l2: float) -> Any:
        optimizer = tff.learning.optimizers.build_sgdm(LEARNING_RATE)
        return tff.learning.algorithms.build_weighted_fed_prox(model, l2, optimizer)

    def ours(l2: float) -> Any:
        return tff_fen.build_fed_avg(model, tff_fen.ElasticNet(l2=l2), tff_fen.LocalTraining(LEARNING_RATE))

    print(f"{'l2':>6} {'|w - theta| TFF':>16} {'|w - theta| tff_fen':>20}")
    for l2 in STRENGTHS:
        print(f"{l2:6g} {distance(stock(l2), data):16.4f} {distance(ours(l2), data):20.4f}")


if __name__ == "__main__":
    app.run(main)
