"""Trains FedProx and FedElasticNet's Algorithm 1 on real data and compares what they send.

    python run_experiment.py [--task=digits] [--split=iid] [--rounds=30] [--clients_per_round=10] [--l1=1e-4] ...

The digits come with scikit-learn: nothing is downloaded. Other data sets are fetched, checked and cached.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import sys
from typing import NamedTuple

import tqdm
from absl import app, flags

import tff_fen
from tasks import flags as task_flags
from tasks import sampling
from tasks.evaluation import Evaluator
from tasks.task import Task
from tff_fen.checks import check_integer

_ROUNDS = flags.DEFINE_integer("rounds", 30, "Rounds of training.", lower_bound=1)
_CLIENTS_PER_ROUND = flags.DEFINE_integer("clients_per_round", 10, "Clients drawn each round.", lower_bound=1)
_LEARNING_RATE = flags.DEFINE_float("learning_rate", 0.1, "Clients' learning rate.")
_EPOCHS = flags.DEFINE_integer("epochs", 5, "Local epochs a round.", lower_bound=1)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", None, "Local batch size; by default the task's.", lower_bound=1)
_L1 = flags.DEFINE_float("l1", 1e-4, "lambda_1 of Algorithm 1.")
_L2 = flags.DEFINE_float("l2", 1e-4, "lambda_2 of both methods.")
_THRESHOLD = flags.DEFINE_float("threshold", 5e-3, "epsilon: smaller changes are not sent (Algorithm 1).")
_L1_STEP = flags.DEFINE_enum("l1_step", "subgradient", tff_fen.L1_STEPS, "Kind of l1 step (Algorithm 1).")


class Result(NamedTuple):
    """A method's outcome: accuracy on the test set and non-zeros sent by all clients of all rounds."""

    accuracy: float
    non_zeros: int


def train(
    name: str, elastic_net: tff_fen.ElasticNet, local_training: tff_fen.LocalTraining, task: Task
) -> Result:
    """Trains one method and returns its outcome."""
    process = tff_fen.build_fed_avg(task.build_model(), elastic_net, local_training)
    evaluator = Evaluator(task)
    state = process.initialize()
    result = Result(0.0, 0)
    # A bar on a terminal; in a log a line now and then.
    interval = 0.1 if sys.stderr.isatty() else 10.0
    progress = tqdm.trange(_ROUNDS.value, desc=f"{name:17}", unit="round", mininterval=interval)
    for t in progress:
        chosen = sampling.sample_uniform(t, len(task.clients), _CLIENTS_PER_ROUND.value, task_flags.SEED.value)
        output = process.next(state, [task.client_dataset(k) for k in chosen])
        state = output.state
        result = Result(
            accuracy=evaluator.evaluate(process.get_model_weights(state)).accuracy,
            non_zeros=result.non_zeros + int(output.metrics["client_work"]["train"]["delta"]["non_zeros"]),
        )
        progress.set_postfix(accuracy=f"{result.accuracy:.2%}", refresh=False)
    return result


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {' '.join(argv[1:])}")
    # Everything a user may have got wrong is found out before the work starts.
    task, described = task_flags.load_task_from_flags()
    try:
        check_integer("clients_per_round", _CLIENTS_PER_ROUND.value, 1, len(task.clients))
        local_training = tff_fen.LocalTraining(
            _LEARNING_RATE.value,
            epochs=_EPOCHS.value,
            batch_size=_BATCH_SIZE.value or task.batch_size,
            seed=task_flags.SEED.value,
        )
        # Beside the two methods the ablations that tell what the threshold does and what the l1 penalty does.
        methods = {
            "FedProx": tff_fen.ElasticNet(l2=_L2.value),
            "Algorithm 1": tff_fen.ElasticNet(_L1.value, _L2.value, _THRESHOLD.value, _L1_STEP.value),
            "threshold alone": tff_fen.ElasticNet(0.0, _L2.value, _THRESHOLD.value),
            "proximal l1 alone": tff_fen.ElasticNet(_L1.value, _L2.value, 0.0, "proximal"),
        }
    except ValueError as error:
        raise app.UsageError(str(error)) from error
    tff_fen.runtime.set_native_context()
    print(
        f"{described}: {len(task.test[1])} test examples, {_CLIENTS_PER_ROUND.value} of {len(task.clients)} clients "
        f"a round, {_ROUNDS.value} rounds"
    )
    results = {name: train(name, elastic_net, local_training, task) for name, elastic_net in methods.items()}
    dense = results["FedProx"].non_zeros
    print(f"\n{'method':18} {'test accuracy':>14} {'non-zeros sent':>15} {'times fewer':>12}")
    for name, result in results.items():
        factor = f"{dense / result.non_zeros:.2f}" if result.non_zeros else "nothing sent"
        print(f"{name:18} {result.accuracy:>14.2%} {result.non_zeros:>15,} {factor:>12}")


if __name__ == "__main__":
    app.run(main)
