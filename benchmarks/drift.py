"""Client drift on heterogeneous least squares: who reaches the optimum of the mean loss, who stalls, who is first.

    python -m benchmarks.drift [--rounds=200]

20 clients with losses of their own, 5 of them a round, 20 full-batch local steps. Prints R(theta) - R(theta*) by round
and the rounds until it first stays below a hundredth of its start for good (within the rounds run).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm
from absl import app, flags

import tff_fen
from tasks.data_sets import least_squares

_ROUNDS = flags.DEFINE_integer("rounds", 200, "Rounds of each method.", lower_bound=1)

CLIENTS, PER_ROUND, REPORTED = 20, 5, (1, 5, 10, 20, 50, 100, 200)
TRAINING = tff_fen.LocalTraining(0.05, epochs=20)
L2 = 0.3


def train(process: Any, problem: least_squares.LeastSquares, stateful: bool) -> list[float]:
    """Returns R(theta) - R(theta*) before the first round and after each."""
    data_sets = [tf.data.Dataset.from_tensors(c) for c in problem.clients]
    states = {k: process.initialize_client(k) for k in range(CLIENTS)} if stateful else {}
    best, server = problem.risk(problem.optimum()), process.initialize()
    gaps = []
    for t in range(_ROUNDS.value + 1):
        (theta,) = process.get_model_weights(server).trainable
        gaps.append(problem.risk(theta) - best)
        chosen = np.random.default_rng((1, t)).choice(CLIENTS, PER_ROUND, replace=False)
        if stateful:
            output = process.next(server, [tff_fen.ClientInput(states[k], data_sets[k]) for k in chosen])
            states.update((int(s.client_id), s) for s in output.client_states)
        else:
            output = process.next(server, [data_sets[k] for k in chosen])
        server = output.state
    return gaps


def rounds_to(gaps: list[float], target: float) -> str:
    """The first round from which on all gaps are below `target`."""
    above = [t for t, gap in enumerate(gaps) if gap >= target]
    return str(above[-1] + 1) if above[-1] + 1 < len(gaps) else "never"


def main(argv: list[str]) -> None:
    del argv
    problem, model = least_squares.generate(CLIENTS), least_squares.build_model()
    net = tff_fen.ElasticNet

    def stateful(build: Callable[..., Any], elastic_net: tff_fen.ElasticNet) -> Any:
        return build(model, elastic_net, TRAINING, num_clients=CLIENTS)

    methods = {
        "FedAvg": tff_fen.build_fed_avg(model, net(), TRAINING),
        "FedProx": tff_fen.build_fed_avg(model, net(l2=L2), TRAINING),
        "Algorithm 1": tff_fen.build_fed_avg(model, net(l1=1e-4, l2=L2), TRAINING),
        "SCAFFOLD": stateful(tff_fen.build_scaffold, net()),
        "Algorithm 2": stateful(tff_fen.build_scaffold, net(l1=1e-4)),
        "FedDyn": stateful(tff_fen.build_fed_dyn, net(l2=L2)),
        "Algorithm 3": stateful(tff_fen.build_fed_dyn, net(l1=1e-4, l2=L2)),
    }
    gaps = {
        name: train(process, problem, hasattr(process, "initialize_client"))
        for name, process in tqdm.tqdm(methods.items(), unit="method")
    }
    target, reported = gaps["FedAvg"][0] / 100, [t for t in REPORTED if t <= _ROUNDS.value]
    print(f"R(theta) - R(theta*), from {gaps['FedAvg'][0]:.3g} before the first round")
    print(f"{'round':12}" + "".join(f"{t:>10}" for t in reported) + f"{f'below {target:.2g}':>14}")
    for name, values in gaps.items():
        print(f"{name:12}" + "".join(f"{values[t]:10.1e}" for t in reported) + f"{rounds_to(values, target):>14}")


if __name__ == "__main__":
    app.run(main)
