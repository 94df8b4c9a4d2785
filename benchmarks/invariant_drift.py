"""How far a lossy aggregator takes h from mean g_k, and c from mean c_k, round by round, on digits.

    python -m benchmarks.invariant_drift

FedDyn's h is the mean of its clients' g_k, SCAFFOLD's c the mean of their c_k, as long as the server receives what the
clients sent. With quantisation, clipping or noise inside it does not, and each round adds its own error. The table
gives |h - mean g_k| / |mean g_k| and |c - mean c_k| / |mean c_k| (Euclidean norms) after 1, 5 and 20 rounds of 5 of 20
clients, and the test accuracy after the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tqdm
from absl import app

import tff_fen
from tasks.evaluation import Evaluator
from tasks.registry import load_task
from tasks.task import Task

CLIENTS, PER_ROUND, REPORTED = 20, 5, (1, 5, 20)
ELASTIC_NET = tff_fen.ElasticNet(l1=1e-4, l2=0.1, threshold=1e-3)
TRAINING = tff_fen.LocalTraining(0.1, epochs=2, batch_size=10)
ALGORITHMS: dict[str, tuple[Any, str, str]] = {
    "FedDyn": (tff_fen.build_fed_dyn, "h", "gradient"),
    "SCAFFOLD": (tff_fen.build_scaffold, "control", "control"),
}
FACTORIES: dict[str, Callable[[], tff.aggregators.AggregationFactory]] = {
    "exact mean": tff.aggregators.MeanFactory,
    "secure sum in [-8, 8]": lambda: tff.aggregators.UnweightedMeanFactory(tff.aggregators.SecureSumFactory(8.0, -8.0)),
    "8-bit quantised": lambda: tff.aggregators.MeanFactory(
        tff.aggregators.EncodedSumFactory.quantize_above_threshold(quantization_bits=8, threshold=1)
    ),
    "robust (clipping)": tff.learning.robust_aggregator,
    "DP, noise 0.1, clip 1": lambda: tff_fen.FixedDenominatorFactory(
        tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(0.1, PER_ROUND, 1.0), PER_ROUND
    ),
}


def flat(structure: Any) -> np.ndarray:
    """All elements of a structure as one vector."""
    return np.concatenate([np.ravel(x) for x in tf.nest.flatten(structure)])


def run(algorithm: str, factory: tff.aggregators.AggregationFactory, task: Task) -> tuple[list[float], float]:
    """Returns the relative gaps after the reported rounds, and the final accuracy."""
    build, shared_name, own_name = ALGORITHMS[algorithm]
    process = build(task.build_model(), ELASTIC_NET, TRAINING, num_clients=CLIENTS, aggregator=factory)
    states = {k: process.initialize_client(k) for k in range(CLIENTS)}
    data_sets = [task.client_dataset(k) for k in range(CLIENTS)]
    server, gaps = process.initialize(), []
    for t in range(REPORTED[-1]):
        chosen = np.random.default_rng((0, t)).choice(CLIENTS, PER_ROUND, replace=False)
        output = process.next(server, [tff_fen.ClientInput(states[k], data_sets[k]) for k in chosen])
        server = output.state
        states.update((int(s.client_id), s) for s in output.client_states)
        if t + 1 in REPORTED:
            mean = np.mean([flat(getattr(s, own_name)) for s in states.values()], axis=0)
            gaps.append(float(np.linalg.norm(flat(server.aggregator[shared_name]) - mean) / np.linalg.norm(mean)))
    return gaps, Evaluator(task).evaluate(process.get_model_weights(server)).accuracy


def main(argv: list[str]) -> None:
    del argv
    tff.backends.test.set_sync_test_cpp_execution_context()  # the native worker with bodies for the secure intrinsics
    task = load_task("digits", num_clients=CLIENTS)
    runs = [(algorithm, name) for algorithm in ALGORITHMS for name in FACTORIES]
    rows = [(a, n, *run(a, FACTORIES[n](), task)) for a, n in tqdm.tqdm(runs, unit="run")]
    print(f"{'':9} {'aggregator':22}" + "".join(f" {f'round {t}':>10}" for t in REPORTED) + f" {'accuracy':>9}")
    for algorithm, name, gaps, accuracy in rows:
        print(f"{algorithm:9} {name:22}" + "".join(f" {gap:10.1e}" for gap in gaps) + f" {accuracy:>9.2%}")


if __name__ == "__main__":
    app.run(main)
