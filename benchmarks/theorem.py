"""Theorem 3.1 of the paper, both sides by round, for Algorithm 3 on convex least squares with l2 > 27 beta.

    python -m benchmarks.theorem [--runs=10] [--rounds=20]

The statement in the paper mislays three things that its own proof has; the proof's version is checked here:

    E[R(mean_{t<T} gamma^t) - R(theta*)]  <=  (|gamma^0 - theta*|^2 + kappa C_0) / (T kappa_0)
        + (kappa'/kappa_0) l1^2 d
        - (2 l1 / (T l2 kappa_0)) sum_t <gamma^{t-1} - theta*, (1/m) sum_k sign(theta~_k^t - theta^{t-1})>

  * C_0 is the mean of the squares |grad L_k(theta_k^0) - grad L_k(theta*)|^2 (the statement has no square); Algorithm 3
    starts from grad L_k(theta_k^0) = 0, so it is the mean of |grad L_k(theta*)|^2;
  * the last term is divided by kappa_0 like the others (the statement forgets to);
  * the factor d, the number of parameters, belongs to l1^2 throughout (some lines of the proof drop it).

The proof also takes the sign of every coordinate for +1 or -1. A coordinate in which theta~_k stays at theta obeys a
subgradient condition instead; the command counts such coordinates, and the bound is proved where there are none.

Expectations are means over runs with different client samples. The local problem has a condition number near 1 here, so
that 30 proximal steps solve it to float32's precision.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tqdm
from absl import app, flags

import tff_fen
from tasks.data_sets import least_squares

_RUNS = flags.DEFINE_integer("runs", 10, "Runs that the expectations are means of.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 20, "T.", lower_bound=1)
_L1 = flags.DEFINE_float("l1", 1e-5, "lambda_1.")

CLIENTS, PER_ROUND, DIM = 10, 5, 5


def local_minimisers(
    problem: least_squares.LeastSquares, theta: np.ndarray, g: np.ndarray, net: tff_fen.ElasticNet
) -> np.ndarray:
    """theta~_k for every client of the population, by proximal gradient steps in float64; [m, d]."""
    hessians, linear = problem.hessians(), problem.linear_terms()
    step = 1.0 / (net.l2 + problem.smoothness())
    w = np.tile(theta, (len(g), 1))
    for _ in range(200):
        gradient = np.einsum("kij,kj->ki", hessians, w) - linear - g + net.l2 * (w - theta)
        move = w - step * gradient - theta
        w = theta + np.sign(move) * np.maximum(np.abs(move) - step * net.l1, 0.0)
    return w


def run(
    process: tff_fen.StatefulClientProcess, problem: least_squares.LeastSquares, net: tff_fen.ElasticNet, seed: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns, for t = 1..T, gamma^{t-1} and the mean of the signs; and the number of coordinates at rest."""
    data_sets = [tf.data.Dataset.from_tensors(c) for c in problem.clients]
    states = {k: process.initialize_client(k) for k in range(CLIENTS)}
    server = process.initialize()
    gammas, signs, at_rest = [], [], 0
    for t in range(_ROUNDS.value):
        (theta,), (gamma,) = (get(server).trainable for get in (process.get_model_weights, process.get_average_weights))
        g = np.array([states[k].gradient[0] for k in range(CLIENTS)], np.float64)
        moved = local_minimisers(problem, theta.astype(np.float64), g, net) - theta
        gammas.append(gamma.astype(np.float64))
        signs.append(np.sign(moved).mean(0))
        at_rest += int(np.sum(moved == 0))
        chosen = np.random.default_rng((seed, t)).choice(CLIENTS, PER_ROUND, replace=False)
        output = process.next(server, [tff_fen.ClientInput(states[k], data_sets[k]) for k in chosen])
        server = output.state
        states.update((int(s.client_id), s) for s in output.client_states)
    return np.array(gammas), np.array(signs), at_rest


def main(argv: list[str]) -> None:
    del argv
    problem = least_squares.generate(CLIENTS, DIM)
    beta, optimum = problem.smoothness(), problem.optimum()
    net = tff_fen.ElasticNet(l1=_L1.value, l2=28.0 * beta, l1_step="proximal")
    training = tff_fen.LocalTraining(1.0 / (net.l2 + beta), epochs=30)
    process = tff_fen.build_fed_dyn(least_squares.build_model(DIM), net, training, num_clients=CLIENTS)
    runs = [run(process, problem, net, seed) for seed in tqdm.trange(_RUNS.value, unit="run")]

    l1, l2, m, p = net.l1, net.l2, CLIENTS, PER_ROUND
    kappa = 10 * m / p / l2 * (l2 + beta) / (l2**2 - 25 * beta**2)
    kappa_0 = 2 / l2 * (l2**2 - 25 * l2 * beta - 50 * beta**2) / (l2**2 - 25 * beta**2)
    gradients = np.einsum("kij,j->ki", problem.hessians(), optimum) - problem.linear_terms()
    c_0 = np.mean(np.sum(gradients**2, axis=1))
    start = np.sum((runs[0][0][0] - optimum) ** 2) + kappa * c_0
    floor = kappa * p / (2 * m) / kappa_0 * l1**2 * DIM
    inner = np.mean([np.sum((gammas - optimum) * signs, axis=1) for gammas, signs, _ in runs], axis=0)

    print(f"m = {m}, P = {p}, d = {DIM}, beta = {beta:.3g}, l2 = 28 beta = {l2:.3g}, l1 = {l1:g}, {_RUNS.value} runs")
    print(f"kappa = {kappa:.3g}, kappa_0 = {kappa_0:.3g}, C_0 = {c_0:.3g}, second term = {floor:.2g}")
    print(f"coordinates at rest, where the proof's sign condition does not hold: {sum(r[2] for r in runs)}")
    print(f"{'T':>4} {'left side':>12} {'right side':>12} {'of it l1 terms':>15}  holds")
    for t in range(1, _ROUNDS.value + 1):
        left = np.mean([problem.risk(g[:t].mean(0)) for g, _, _ in runs]) - problem.risk(optimum)
        penalty = floor - 2 * l1 / (t * l2 * kappa_0) * inner[:t].sum()
        right = start / (t * kappa_0) + penalty
        print(f"{t:4} {left:12.4e} {right:12.4e} {penalty:15.2e}  {'yes' if left <= right else 'NO'}")


if __name__ == "__main__":
    app.run(main)
