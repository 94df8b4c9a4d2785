"""What flipping and shifting the training images costs of a round, in process.

    python -m benchmarks.augmentation [--rounds=10]

FedDyn with the CIFAR network; 2 clients of 500 images, 1 epoch, batches of 50. Rounds with and without are run in turn,
so that a slow spell of the machine hits both. Ratios are medians over pairs, with the range of the middle half; that of
processor time is not touched by what else the machine does. The first two pairs (tracing, warm-up) are not counted.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl import app, flags

import tff_fen
from tasks import models
from tasks.augmentations import flip_crop

ROUNDS = flags.DEFINE_integer("rounds", 10, "Pairs of rounds timed.", lower_bound=3)

CLIENTS, EXAMPLES = 2, 500
SPEC = (tf.TensorSpec([None, 32, 32, 3], tf.float32), tf.TensorSpec([None], tf.int32))


class Contender:
    """A process that runs round after round on the same clients."""

    def __init__(self, augment: Any) -> None:
        model = tff.learning.models.functional_model_from_keras(
            models.build_cnn(10), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), SPEC
        )
        training = tff_fen.LocalTraining(0.1, batch_size=50, clip_norm=10.0, weight_decay=1e-3, augment=augment)
        self._process = tff_fen.build_fed_dyn(model, tff_fen.ElasticNet(l2=0.01), training, num_clients=CLIENTS)
        self._state = self._process.initialize()
        self._clients = [self._process.initialize_client(k) for k in range(CLIENTS)]
        rng = np.random.default_rng(0)
        self._data = [
            (rng.normal(size=(EXAMPLES, 32, 32, 3)).astype(np.float32), rng.integers(0, 10, EXAMPLES).astype(np.int32))
            for _ in range(CLIENTS)
        ]

    def round(self) -> tuple[float, float]:
        """Runs a round and returns its seconds, by the clock and of processor time."""
        data = map(tf.data.Dataset.from_tensors, self._data)
        inputs = [tff_fen.ClientInput(c, d) for c, d in zip(self._clients, data, strict=True)]
        start = time.perf_counter(), time.process_time()
        self._state, self._clients, _ = self._process.next(self._state, inputs)
        return time.perf_counter() - start[0], time.process_time() - start[1]


def main(argv: list[str]) -> None:
    del argv
    tff_fen.runtime.set_inprocess_context()
    plain, augmented = Contender(None), Contender(flip_crop)
    pairs = np.array([(plain.round(), augmented.round()) for _ in range(2 + ROUNDS.value)])[2:]
    print(f"{len(pairs)} pairs of rounds  without     with  with / without  middle half")
    for name, without, augmented_too in zip(("seconds", "processor time"), *pairs.transpose(1, 2, 0), strict=True):
        low, median, high = np.percentile(augmented_too / without, [25, 50, 75])
        medians = f"{np.median(without):8.2f} {np.median(augmented_too):8.2f}"
        print(f"{name:18} {medians} {median:15.3f}  {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    app.run(main)
