"""What the decisions make of it where the paper is silent: one small table each, quoted in `docs/decisions.md`.

    python -m benchmarks.decisions [--rounds=30] [--seeds=3]

Algorithm 3 and its ablations on digits (20 clients, Dirichlet 0.3, 10 a round), and the paper's recursions in NumPy on
scalar quadratics, where a wrong choice can be told from a noisy one. Means over seeds, which set split, initial weights
and sampling; +- is the standard deviation over seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff
import tqdm
from absl import app, flags

import tff_fen
from tasks.evaluation import Evaluator
from tasks.registry import load_task
from tasks.task import Task
from tff_fen.program import sampling

CLIENTS, PER_ROUND, LAST = 20, 10, 10
TRAINING = tff_fen.LocalTraining(0.1, epochs=5, batch_size=10)
L1, L2, THRESHOLD = 1e-4, 0.05, 5e-3

NETS = {
    "FedDyn": tff_fen.ElasticNet(l2=L2),
    "l1 alone": tff_fen.ElasticNet(l1=L1, l2=L2),
    "threshold alone": tff_fen.ElasticNet(l2=L2, threshold=THRESHOLD),
    "both (Algorithm 3)": tff_fen.ElasticNet(l1=L1, l2=L2, threshold=THRESHOLD),
    "proximal, same l1": tff_fen.ElasticNet(l1=L1, l2=L2, l1_step="proximal"),
    "proximal, l1 = 0.01": tff_fen.ElasticNet(l1=1e-2, l2=L2, l1_step="proximal"),
}

Sampler = Callable[[int, int], np.ndarray]
"""`(seed, round) -> client ids`."""

SAMPLERS: dict[str, Sampler] = {
    "uniform:10": lambda seed, t: sampling.sample_uniform(t, CLIENTS, PER_ROUND, seed),
    "bernoulli:0.5": lambda seed, t: sampling.sample_bernoulli(t, CLIENTS, PER_ROUND / CLIENTS, 1000 * seed),
}


class Run(NamedTuple):
    """A run, round by round; entropies in bits per parameter.

    Attributes:
      theta, gamma: test accuracy of the server model, and of the participants' mean.
      participants: their number.
      non_zeros: elements sent.
      delta_trunc, delta_round, model_trunc, model_round: entropy of delta and of theta + delta, by the two ways to bin.
    """

    theta: np.ndarray
    gamma: np.ndarray
    participants: np.ndarray
    non_zeros: np.ndarray
    delta_trunc: np.ndarray
    delta_round: np.ndarray
    model_trunc: np.ndarray
    model_round: np.ndarray


def train(process: tff_fen.StatefulClientProcess, task: Task, seed: int, sample: Sampler) -> Run:
    """Trains a process on a task, whose initial weights replace the process's own."""
    initial = tff.learning.models.ModelWeights(*task.build_model().initial_weights)
    evaluator, server = Evaluator(task), process.set_model_weights(process.initialize(), initial)
    states = {k: process.initialize_client(k) for k in range(CLIENTS)}
    rows: list[tuple[Any, ...]] = []
    for t in range(flags.FLAGS.rounds):
        chosen = [int(k) for k in sample(seed, t)]
        output = process.next(server, [tff_fen.ClientInput(states[k], task.client_dataset(k)) for k in chosen])
        server = output.state
        states.update((int(s.client_id), s) for s in output.client_states)
        weights = process.get_model_weights(server), process.get_average_weights(server)
        measured = output.metrics["client_work"]["train"]
        delta, local_model = measured["delta"], measured["theta"]
        rows.append(
            (
                *(evaluator.evaluate(w).accuracy for w in weights),
                measured["participants"],
                delta["non_zeros"],
                *(m[f"entropy_{way}"] for m in (delta, local_model) for way in ("trunc", "round")),
            )
        )
    return Run(*np.array(rows, np.float64).T)


def over_seeds(values: list[float], digits: int, percent: bool = False) -> str:
    """`mean +- deviation`."""
    scale, unit = (100.0, "%") if percent else (1.0, "")
    return f"{scale * np.mean(values):.{digits}f}{unit} +- {scale * np.std(values):.{digits}f}"


def print_zeros(runs: dict[str, list[Run]], size: int) -> None:
    """Where the zeros come from."""
    print(f"\nwhere zeros come from; accuracy of gamma, mean of the last {LAST} rounds")
    print(f"{'':20} {'accuracy':>16} {'non-zeros':>16} {'bits (trunc)':>16}")
    for name, each in runs.items():
        accuracy = over_seeds([r.gamma[-LAST:].mean() for r in each], 2, percent=True)
        share = over_seeds([r.non_zeros.sum() / (r.participants.sum() * size) for r in each], 2, percent=True)
        print(f"{name:20} {accuracy:>16} {share:>16} {over_seeds([r.delta_trunc.mean() for r in each], 3):>16}")


def print_models(runs: dict[str, list[Run]]) -> None:
    """theta against gamma."""
    print(f"\ntheta against gamma; accuracy by round, mean over seeds; swing: deviation over the last {LAST} rounds")
    rounds = [t for t in (1, 2, 5, 10, 20, 30) if t <= flags.FLAGS.rounds]
    print(f"{'':28}" + "".join(f"{t:>8}" for t in rounds) + f"{'swing':>8}")
    for name in ("FedDyn", "both (Algorithm 3)"):
        for model in ("theta", "gamma"):
            values = np.array([getattr(r, model) for r in runs[name]])
            swing = values[:, -LAST:].std(axis=1).mean()
            print(f"{name:20} {model:7}" + "".join(f"{values[:, t - 1].mean():8.2%}" for t in rounds) + f"{swing:8.2%}")


def print_entropies(runs: dict[str, list[Run]]) -> None:
    """trunc against round."""
    rounds = flags.FLAGS.rounds
    print(f"\nentropy, bits per parameter and client, summed over {rounds} rounds, as the paper's Table 3 sums")
    print(f"{'':20} {'delta trunc':>12} {'round':>9} {'theta trunc':>12} {'round':>9}")
    for name in ("FedDyn", "threshold alone", "both (Algorithm 3)"):
        sums = [
            np.mean([getattr(r, field).sum() for r in runs[name]])
            for field in ("delta_trunc", "delta_round", "model_trunc", "model_round")
        ]
        print(f"{name:20} {sums[0]:12.2f} {sums[1]:9.2f} {sums[2]:12.2f} {sums[3]:9.2f}")


def print_sampling(runs: dict[str, list[Run]]) -> None:
    """Bernoulli with redraw against uniform."""
    print(f"\nsampling, Algorithm 3; accuracy of gamma, mean of the last {LAST} rounds; participants of a round")
    print(f"{'':20} {'accuracy':>16} {'fewest':>7} {'mean':>7} {'most':>5} {'10^5 non-zeros':>16}")
    for name, each in runs.items():
        counts = np.array([r.participants for r in each])
        accuracy = over_seeds([r.gamma[-LAST:].mean() for r in each], 2, percent=True)
        sent = over_seeds([r.non_zeros.sum() / 1e5 for r in each], 2)
        print(f"{name:20} {accuracy:>16} {counts.min():7.0f} {counts.mean():7.2f} {counts.max():5.0f} {sent:>16}")


def print_participants() -> None:
    """How many take part in all, by the two ways to sample."""
    print("\nparticipants summed over the paper's rounds, a tenth of the clients each; redrawn: nobody joined at first")
    print(f"{'clients':>8} {'rounds':>7} {'bernoulli':>10} {'redrawn':>8} {'uniform':>8}")
    for clients, rounds in ((100, 100), (100, 200), (100, 500), (11, 100)):
        joined = sum(len(sampling.sample_bernoulli(t, clients)) for t in range(rounds))
        redrawn = sum((np.random.RandomState(t).uniform(size=clients) > 0.1).all() for t in range(rounds))
        print(f"{clients:8} {rounds:7} {joined:10} {redrawn:8} {rounds * max(1, round(clients / 10)):8}")


class Quadratics(NamedTuple):
    """Clients with losses `a_k w^2 / 2 - b_k w`, whose mean has its minimum at `optimum`."""

    a: np.ndarray
    b: np.ndarray

    @property
    def optimum(self) -> float:
        """argmin of the mean loss."""
        return float(self.b.mean() / self.a.mean())


def quadratics() -> Quadratics:
    """As many clients as digits has, which disagree."""
    rng = np.random.default_rng(0)
    return Quadratics(rng.uniform(0.5, 2.0, CLIENTS), rng.normal(size=CLIENTS))


def participants(t: int, seed: int = 0) -> np.ndarray:
    """5 of the 20."""
    return sampling.sample_uniform(t, CLIENTS, 5, seed)


def fed_dyn_with(raw: bool, rounds: int, l1: float = 1e-3, l2: float = 0.3) -> tuple[float, float]:
    """Algorithm 3 with exact local minimisers, threshold 0.05; `raw` lets g_k take delta before the threshold.

    Returns:
      |h - mean g_k| and |gamma - optimum| after the last round.
    """
    problem = quadratics()
    theta, h, gamma, g = 0.0, 0.0, 0.0, np.zeros(CLIENTS)
    for t in range(rounds):
        chosen = participants(t)
        a, b = problem.a[chosen], problem.b[chosen]
        pull = b + g[chosen] - a * theta
        delta = np.sign(pull) * np.maximum(np.abs(pull) - l1, 0.0) / (a + l2)
        sent = np.where(np.abs(delta) <= 0.05, 0.0, delta)
        own = delta if raw else sent
        g[chosen] -= l2 * own + l1 * np.sign(own)
        h -= (l2 * sent.sum() + l1 * np.sign(sent).sum()) / CLIENTS
        gamma = theta + sent.mean()
        theta = gamma - h / l2
    return abs(h - g.mean()), abs(gamma - problem.optimum)


def scaffold_with(
    rounds: int, *, decay: float = 1.0, current_lr: bool = True, threshold: float = 0.0, raw: bool = True
) -> float:
    """SCAFFOLD with 10 full-batch steps.

    Args:
      rounds: number of rounds.
      decay: of the learning rate, a round.
      current_lr: whether c_k' divides by the round's learning rate; else by the first round's.
      threshold: epsilon.
      raw: whether c_k' takes delta before the threshold.

    Returns:
      |theta - optimum| after the last round.
    """
    problem, steps, first = quadratics(), 10, 0.1
    theta, c, controls = 0.0, 0.0, np.zeros(CLIENTS)
    for t in range(rounds):
        chosen, lr = participants(t), first * decay**t
        w = np.full(len(chosen), theta)
        for _ in range(steps):
            w -= lr * (problem.a[chosen] * w - problem.b[chosen] - controls[chosen] + c)
        delta = w - theta
        sent = np.where(np.abs(delta) <= threshold, 0.0, delta)
        change = -c - (delta if raw else sent) / (steps * (lr if current_lr else first))
        controls[chosen] += change
        theta += sent.mean()
        c += change.sum() / CLIENTS
    return abs(theta - problem.optimum)


def fed_prox_with(over_all: bool, rounds: int, l2: float = 1e-2, seeds: int = 100) -> float:
    """FedProx with exact local minimisers from theta = 5; `over_all` divides by all clients' data, not the round's.

    Returns:
      |theta - optimum| after the last round, root mean square over seeds of the sampling.
    """
    problem, squares = quadratics(), []
    for seed in range(seeds):
        theta = 5.0
        for t in range(rounds):
            chosen = participants(t, seed)
            delta = (problem.b[chosen] - problem.a[chosen] * theta) / (problem.a[chosen] + l2)
            theta += delta.sum() / (CLIENTS if over_all else len(chosen))
        squares.append((theta - problem.optimum) ** 2)
    return float(np.sqrt(np.mean(squares)))


def print_quadratics() -> None:
    """The decisions whose wrong side is no option of the library."""
    print("\nwhich delta enters g_k (Algorithm 3, quadratics, 5 of 20 clients, threshold 0.05)")
    print(f"{'after rounds':24} {'10':>10} {'100':>10} {'1000':>10}")
    for measure, i in (("|h - mean g_k|", 0), ("|gamma - optimum|", 1)):
        for name, raw in (("sent", False), ("raw", True)):
            values = [fed_dyn_with(raw, rounds)[i] for rounds in (10, 100, 1000)]
            print(f"{measure:18} {name:5}" + "".join(f" {v:10.1e}" for v in values))
    print("\nwhich learning rate enters c_k' (SCAFFOLD, quadratics, 200 rounds); |theta - optimum|")
    decays = (1.0, 0.99, 0.98)
    print(f"{'lr_decay':24}" + "".join(f" {d:>10}" for d in decays))
    for name, current in (("the round's, decayed", True), ("the first round's", False)):
        values = [scaffold_with(200, decay=d, current_lr=current) for d in decays]
        print(f"{name:24}" + "".join(f" {v:10.1e}" for v in values))
    print("\nwhich delta enters c_k' (SCAFFOLD, quadratics, threshold 0.01); |theta - optimum|")
    print(f"{'after rounds':24} {'10':>10} {'100':>10} {'1000':>10}")
    for name, raw in (("raw", True), ("sent", False)):
        values = [scaffold_with(rounds, threshold=0.01, raw=raw) for rounds in (10, 100, 1000)]
        print(f"{name:24}" + "".join(f" {v:10.1e}" for v in values))
    print("\nn in Algorithm 1 (FedProx, quadratics, 5 of 20 clients); |theta - optimum| from 5, rms over 100 seeds")
    print(f"{'after rounds':24}" + "".join(f" {t:>8}" for t in (1, 5, 20, 100)))
    for name, over_all in (("of the participants", False), ("of all clients", True)):
        print(f"{name:24}" + "".join(f" {fed_prox_with(over_all, t):8.3f}" for t in (1, 5, 20, 100)))


def main(argv: list[str]) -> None:
    del argv
    tff_fen.runtime.set_inprocess_context()
    tasks = [load_task("digits", split="dirichlet:0.3", num_clients=CLIENTS, seed=s) for s in range(flags.FLAGS.seeds)]
    model = tasks[0].build_model()
    size = sum(np.size(w) for w in model.initial_weights[0])
    jobs = [(name, "uniform:10") for name in NETS] + [("both (Algorithm 3)", "bernoulli:0.5")]
    runs: dict[tuple[str, str], list[Run]] = {}
    with tqdm.tqdm(total=len(jobs) * len(tasks), unit="run") as bar:
        for net, sampler in jobs:
            process = tff_fen.build_fed_dyn(model, NETS[net], TRAINING, num_clients=CLIENTS)
            for seed, task in enumerate(tasks):
                runs.setdefault((net, sampler), []).append(train(process, task, seed, SAMPLERS[sampler]))
                bar.update()
    uniform = {net: runs[net, "uniform:10"] for net in NETS}
    print(f"digits, Dirichlet 0.3, {flags.FLAGS.rounds} rounds, {flags.FLAGS.seeds} seeds")
    print_zeros(uniform, size)
    print_models(uniform)
    print_entropies(uniform)
    print_sampling({name: runs["both (Algorithm 3)", name] for name in SAMPLERS})
    print_participants()
    print_quadratics()


if __name__ == "__main__":
    # Here, since tests import this module beside others with flags of these names.
    flags.DEFINE_integer("rounds", 30, "Rounds of each run on digits.", lower_bound=1)
    flags.DEFINE_integer("seeds", 3, "Runs of each setting on digits.", lower_bound=1)
    app.run(main)
