"""Rounds of FedProx and Algorithm 1 here against TFF's own FedProx, on TFF's native runtime.

    python -m benchmarks.local_training [--rounds=15]

10 clients of 600 x 784 examples, 5 epochs, batch 10, MLP 784-200-200-10, all metrics on. Every contender has a worker
process of its own; the rounds are interleaved, so that a slow spell of the machine hits all. Ratios are of medians;
the spread is the range of the middle half. The first two rounds of each (tracing, warm-up) are not counted.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import psutil
import tensorflow as tf
import tensorflow_federated as tff
from absl import app, flags

import tff_fen

CLIENTS, EXAMPLES, FEATURES, CLASSES = 10, 600, 784, 10
EPOCHS, BATCH_SIZE, LEARNING_RATE, L2 = 5, 10, 0.1, 1e-4
SPEC = (tf.TensorSpec([None, FEATURES], tf.float32), tf.TensorSpec([None], tf.int32))


class Contender(NamedTuple):
    """A process with its data, in a worker of its own."""

    name: str
    process: tff.learning.templates.LearningProcess
    data: list[tf.data.Dataset]
    context: Any
    worker: psutil.Process


def keras_model() -> tf.keras.Model:
    """The paper's MLP for MNIST."""
    layers = [tf.keras.layers.InputLayer((FEATURES,))]
    layers += [tf.keras.layers.Dense(200, "relu"), tf.keras.layers.Dense(200, "relu"), tf.keras.layers.Dense(CLASSES)]
    return tf.keras.Sequential(layers)


def stock_fed_prox() -> tff.learning.templates.LearningProcess:
    """TFF's own, with a Keras model."""

    def model_fn() -> tff.learning.models.VariableModel:
        return tff.learning.models.from_keras_model(
            keras_model(),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=SPEC,
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
        )

    return tff.learning.algorithms.build_weighted_fed_prox(
        model_fn, proximal_strength=L2, client_optimizer_fn=tff.learning.optimizers.build_sgdm(LEARNING_RATE)
    )


def ours(elastic_net: tff_fen.ElasticNet) -> tff.learning.templates.LearningProcess:
    """The same training by this package."""
    model = tff.learning.models.functional_model_from_keras(
        keras_model(),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        SPEC,
        collections.OrderedDict(accuracy=tf.keras.metrics.SparseCategoricalAccuracy),
    )
    training = tff_fen.LocalTraining(LEARNING_RATE, epochs=EPOCHS, batch_size=BATCH_SIZE)
    return tff_fen.build_fed_avg(model, elastic_net, training)


def examples() -> list[tuple[np.ndarray, np.ndarray]]:
    """Gaussian inputs: the time of a step does not depend on their values."""
    rng = np.random.default_rng(0)
    return [
        (rng.normal(size=(EXAMPLES, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, EXAMPLES).astype(np.int32))
        for _ in range(CLIENTS)
    ]


def start_worker(create: Callable[[], Any]) -> tuple[Any, psutil.Process]:
    """Starts a context and says which worker process is its."""
    before = set(psutil.Process().children())
    context = create()
    with tff.framework.get_context_stack().install(context):
        tff.federated_computation(lambda: tff.federated_value(np.int32(0), tff.SERVER))()
    (worker,) = set(psutil.Process().children()) - before
    return context, worker


def peak_megabytes(worker: psutil.Process) -> float:
    """The largest resident size the worker has had."""
    with open(f"/proc/{worker.pid}/status") as status:
        (line,) = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def main(argv: list[str]) -> None:
    del argv
    clients = examples()
    pipelines = [
        tf.data.Dataset.from_tensor_slices(c).shuffle(EXAMPLES).repeat(EPOCHS).batch(BATCH_SIZE) for c in clients
    ]
    tensors = [tf.data.Dataset.from_tensors(c) for c in clients]
    fed_prox = tff_fen.ElasticNet(l2=L2)
    algorithm_1 = tff_fen.ElasticNet(l1=1e-6, l2=L2, threshold=1e-3)
    contexts = {
        "as TFF sets it up": tff.backends.native.create_sync_local_cpp_execution_context,
        "set_native_context": tff_fen.runtime.create_native_context,
    }
    contenders = [
        Contender(f"{name:34} {setting}", build(), data, *start_worker(create))
        for setting, create in contexts.items()
        for name, build, data in (
            ("TFF build_weighted_fed_prox", stock_fed_prox, pipelines),
            ("tff_fen FedProx", lambda: ours(fed_prox), tensors),
            ("tff_fen Algorithm 1", lambda: ours(algorithm_1), tensors),
        )
    ]
    times: dict[str, list[float]] = {c.name: [] for c in contenders}
    states = {c.name: c.process.initialize() for c in contenders}
    for _ in range(2 + flags.FLAGS.rounds):
        for c in contenders:
            with tff.framework.get_context_stack().install(c.context):
                start = time.perf_counter()
                c.process.next(states[c.name], c.data)
                times[c.name].append(time.perf_counter() - start)
    stock = [float(np.median(times[c.name][2:])) for c in contenders if c.name.startswith("TFF")]
    print(f"{'':34} {'worker':20} {'s/round':>8} {'middle half':>13} {'peak MB':>8}  times faster than TFF's FedProx")
    print(f"{'':34} {'':20} {'':8} {'':13} {'':8}  {'as TFF sets it up':>17} {'tuned alike':>12}")
    for i, c in enumerate(contenders):
        low, median, high = np.percentile(times[c.name][2:], [25, 50, 75])
        ratios = f"{stock[0] / median:17.2f} {stock[i // 3] / median:12.2f}"
        print(f"{c.name:55} {median:8.2f} {low:6.2f}-{high:6.2f} {peak_megabytes(c.worker):8.0f}  {ratios}")


def define_flags() -> None:
    """Not on import: tests import benchmarks beside an experiment's flags, of which some have the same names."""
    flags.DEFINE_integer("rounds", 15, "Rounds timed per contender.", lower_bound=3)


if __name__ == "__main__":
    define_flags()
    app.run(main)
