"""The paper's listings in NumPy (float64), written from the paper and not from the code under test.

Weights are lists of arrays. The listings are kept in the paper's form: they carry the
local model `w`, and every line is one line of an algorithm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Weights = list[np.ndarray]
# (weights, x, y) -> (mean loss of the batch, its gradient)
LossAndGradient = Callable[[Weights, np.ndarray, np.ndarray], tuple[float, Weights]]
Batch = tuple[np.ndarray, np.ndarray]


def softmax_regression(weights: Weights, x: np.ndarray, y: np.ndarray) -> tuple[float, Weights]:
    """Mean cross-entropy of logits `x w + b`."""
    w, b = weights
    loss, d_logits = _cross_entropy(x @ w + b, y)
    return loss, [x.T @ d_logits, d_logits.sum(0)]


def two_layer_mlp(weights: Weights, x: np.ndarray, y: np.ndarray) -> tuple[float, Weights]:
    """Mean cross-entropy of logits `relu(x w1 + b1) w2 + b2`."""
    w1, b1, w2, b2 = weights
    hidden = np.maximum(x @ w1 + b1, 0.0)
    loss, d_logits = _cross_entropy(hidden @ w2 + b2, y)
    d_hidden = (d_logits @ w2.T) * (hidden > 0)
    return loss, [x.T @ d_hidden, d_hidden.sum(0), hidden.T @ d_logits, d_logits.sum(0)]


def quadratic(a: float) -> LossAndGradient:
    """`L(w) = a/2 |w|^2 - <b, w>` with b the mean of the rows of x."""

    def loss_and_gradient(weights: Weights, x: np.ndarray, y: np.ndarray) -> tuple[float, Weights]:
        (w,) = weights
        b = x.mean(0)
        return 0.5 * a * float(w @ w) - float(b @ w), [a * w - b]

    return loss_and_gradient


def _cross_entropy(logits: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    shifted = logits - logits.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    rows = np.arange(len(y))
    d_logits = np.exp(log_p)
    d_logits[rows, y] -= 1.0
    return -float(log_p[rows, y].mean()), d_logits / len(y)


def soft(v: np.ndarray, amount: float) -> np.ndarray:
    """The soft-thresholding operator."""
    return np.sign(v) * np.maximum(np.abs(v) - amount, 0.0)


@dataclasses.dataclass
class Local:
    """The settings of one client's local steps, in the paper's symbols."""

    lr: float
    l1: float = 0.0
    l2: float = 0.0
    threshold: float = 0.0
    l1_step: str = "subgradient"
    weight_decay: float = 0.0
    clip_norm: float | None = None


@dataclasses.dataclass
class LocalOutcome:
    """`raw_delta` before and `delta` after the threshold, the losses and the penalised gradients of the steps."""

    raw_delta: Weights
    delta: Weights
    losses: list[float]
    gradients: list[Weights]


def local_steps(
    loss_and_gradient: LossAndGradient,
    theta: Weights,
    batches: Sequence[Batch],
    local: Local,
    correction: Weights | None = None,
) -> LocalOutcome:
    """B local steps on `L_k(w) + l2/2 |w - theta|^2 + l1 |w - theta|_1` with a correction of each gradient."""
    theta = [np.asarray(t, np.float64) for t in theta]
    w = [t.copy() for t in theta]
    losses, gradients = [], []
    for x, y in batches:
        loss, g = loss_and_gradient(w, np.asarray(x, np.float64), y)
        losses.append(loss)
        penalised = [gi + local.l2 * (wi - ti) for gi, wi, ti in zip(g, w, theta, strict=True)]
        if local.l1_step == "subgradient":
            penalised = [pi + local.l1 * np.sign(wi - ti) for pi, wi, ti in zip(penalised, w, theta, strict=True)]
        gradients.append(penalised)
        step = penalised if correction is None else [p + c for p, c in zip(penalised, correction, strict=True)]
        if local.clip_norm is not None:
            norm = np.sqrt(sum(float((s**2).sum()) for s in step))
            step = [s * min(1.0, local.clip_norm / norm) if norm > 0 else s for s in step]
        w = [wi - local.lr * (si + local.weight_decay * wi) for wi, si in zip(w, step, strict=True)]
        if local.l1_step == "proximal":
            w = [ti + soft(wi - ti, local.lr * local.l1) for wi, ti in zip(w, theta, strict=True)]
    raw = [wi - ti for wi, ti in zip(w, theta, strict=True)]
    delta = [np.where(np.abs(r) <= local.threshold, 0.0, r) for r in raw]
    return LocalOutcome(raw, delta, losses, gradients)


Compress = Callable[[np.ndarray, int, str], np.ndarray]
"""`(message as a vector, client, name of the message) -> what the server gets`."""


def top_k(v: np.ndarray, share: float) -> np.ndarray:
    """The elements of largest magnitude, and zeros elsewhere."""
    chosen = np.argsort(-np.abs(v), kind="stable")[: int(np.ceil(share * v.size))]
    kept = np.zeros_like(v)
    kept[chosen] = v[chosen]
    return kept


def stc(v: np.ndarray, share: float) -> np.ndarray:
    """Sattler et al. 2020, Algorithm 1: the signs of the largest elements, times their mean magnitude."""
    kept = top_k(v, share)
    return np.abs(kept).sum() / np.ceil(share * v.size) * np.sign(kept)


def qsgd(v: np.ndarray, levels: int, draw: np.ndarray) -> np.ndarray:
    """Alistarh et al. 2017, section 3.1: |v| sign(v_i) xi_i, with xi_i = (l + 1)/s where the draw is below p."""
    norm = np.linalg.norm(v)
    lower = np.floor(np.abs(v) / norm * levels)
    xi = (lower + (draw < np.abs(v) / norm * levels - lower)) / levels
    return norm * np.sign(v) * xi


class Sender:
    """The way of messages: threshold, compressor and error feedback, with a residual for each client and message."""

    def __init__(self, thresholds: Mapping[str, float], compress: Compress | None = None, feedback: bool = False):
        self.thresholds, self.compress, self.feedback = thresholds, compress, feedback
        self.residuals: dict[tuple[int, str], np.ndarray] = {}

    def __call__(self, client: int, name: str, message: Weights) -> Weights:
        v = np.concatenate([m.ravel() for m in message])
        if self.feedback:
            v = v + self.residuals.get((client, name), 0.0)
        sent = np.where(np.abs(v) <= self.thresholds.get(name, 0.0), 0.0, v)
        if self.compress is not None:
            sent = self.compress(sent, client, name)
        self.residuals[client, name] = v - sent
        ends = np.cumsum([m.size for m in message])
        return [part.reshape(m.shape) for part, m in zip(np.split(sent, ends[:-1]), message, strict=True)]


def algorithm_1_round(
    loss_and_gradient: LossAndGradient,
    theta: Weights,
    clients: Sequence[Sequence[Batch]],
    epochs: int,
    local: Local,
    send: Sender | None = None,
) -> Weights:
    """Algorithm 1, lines 2 to 7: `clients[k]` are the batches of all epochs of client k."""
    outcomes = [local_steps(loss_and_gradient, theta, batches, local) for batches in clients]
    for k, outcome in enumerate(outcomes):
        outcome.delta = outcome.delta if send is None else send(k, "delta", outcome.raw_delta)
    sizes = [sum(len(y) for _, y in batches) / epochs for batches in clients]
    return [
        t + sum(n * o.delta[i] for n, o in zip(sizes, outcomes, strict=True)) / sum(sizes) for i, t in enumerate(theta)
    ]


@dataclasses.dataclass
class Population:
    """The server's and all clients' states of Algorithm 2 (`shared` is c, `clients[k]` is c_k) or 3 (h, g_k)."""

    theta: Weights
    shared: Weights
    clients: list[Weights]

    @classmethod
    def start(cls, theta: Weights, num_clients: int) -> Population:
        """All states zero."""
        zeros = [np.zeros_like(t, np.float64) for t in theta]
        return cls(
            [np.asarray(t, np.float64) for t in theta], zeros, [[z.copy() for z in zeros] for _ in range(num_clients)]
        )


def algorithm_2_round(
    loss_and_gradient: LossAndGradient,
    population: Population,
    participants: Mapping[int, Sequence[Batch]],
    local: Local,
    eta_g: float = 1.0,
    send: Sender | None = None,
) -> dict[int, LocalOutcome]:
    """Algorithm 2, lines 2 to 13, on `population` in place; `participants[k]` are the batches of client k in P_t."""
    theta, c, m = population.theta, population.shared, len(population.clients)
    outcomes, changes = {}, {}
    for k, batches in participants.items():
        c_k = population.clients[k]
        outcomes[k] = local_steps(
            loss_and_gradient, theta, batches, local, [ci - cki for ci, cki in zip(c, c_k, strict=True)]
        )
        new_c_k = [
            cki - ci + (-ri) / (len(batches) * local.lr)
            for cki, ci, ri in zip(c_k, c, outcomes[k].raw_delta, strict=True)
        ]
        changes[k] = [new - old for new, old in zip(new_c_k, c_k, strict=True)]
        if send is not None:
            outcomes[k].delta = send(k, "delta", outcomes[k].raw_delta)
            changes[k] = send(k, "control", changes[k])
            new_c_k = [old + change for old, change in zip(c_k, changes[k], strict=True)]
        population.clients[k] = new_c_k
    p = len(participants)
    population.theta = [t + eta_g / p * sum(o.delta[i] for o in outcomes.values()) for i, t in enumerate(theta)]
    population.shared = [ci + sum(change[i] for change in changes.values()) / m for i, ci in enumerate(c)]
    return outcomes


def algorithm_3_round(
    loss_and_gradient: LossAndGradient,
    population: Population,
    participants: Mapping[int, Sequence[Batch]],
    local: Local,
    send: Sender | None = None,
) -> dict[int, LocalOutcome]:
    """Algorithm 3, lines 2 to 12, on `population` in place."""
    theta, h, m = population.theta, population.shared, len(population.clients)
    outcomes = {}
    for k, batches in participants.items():
        g_k = population.clients[k]
        outcomes[k] = local_steps(loss_and_gradient, theta, batches, local, [-g for g in g_k])
        outcomes[k].delta = outcomes[k].delta if send is None else send(k, "delta", outcomes[k].raw_delta)
        population.clients[k] = [
            g - local.l2 * d - local.l1 * np.sign(d) for g, d in zip(g_k, outcomes[k].delta, strict=True)
        ]
    deltas = [o.delta for o in outcomes.values()]
    h = [
        hi - local.l2 / m * sum(d[i] for d in deltas) - local.l1 / m * sum(np.sign(d[i]) for d in deltas)
        for i, hi in enumerate(h)
    ]
    mean_local = [t + sum(d[i] for d in deltas) / len(deltas) for i, t in enumerate(theta)]
    population.shared = h
    population.theta = [w - hi / local.l2 for w, hi in zip(mean_local, h, strict=True)]
    return outcomes
