"""Splits of a labelled data set among clients: each example to exactly one client, reproducible from the seed.

A split is a list of sorted index arrays, one a client: the data itself is never copied here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tff_fen.checks import check_integer, check_number

Split = list[np.ndarray]

_MOST_ALPHA = 1e15


def client_sizes(num_examples: int, num_clients: int, *, sigma: float = 0.0, seed: int = 0) -> np.ndarray:
    """Returns how many examples each client gets: at least one, `num_examples` in all.

    Args:
      num_examples: to hand out, >= `num_clients`.
      num_clients: m.
      sigma: of the lognormal distribution the sizes are drawn from, as in FedDyn's code; 0
        for equal sizes (up to one).
      seed: of the draw.
    """
    check_integer("num_clients", num_clients, 1)
    check_integer("num_examples", num_examples, num_clients)
    check_number("sigma", sigma, 0.0)
    logs = sigma * np.random.default_rng((seed, 0)).normal(size=num_clients)
    share = np.exp(logs - logs.max())  # at most 1, whatever sigma
    # Largest remainders: the sum is exact, and sigma = 0 gives equal sizes up to one.
    exact = share / share.sum() * (num_examples - num_clients)
    sizes = np.floor(exact).astype(np.int64)
    left = num_examples - num_clients - sizes.sum()
    sizes[np.argsort(sizes - exact, kind="stable")[:left]] += 1
    return sizes + 1


def split_iid(labels: np.ndarray, num_clients: int, *, sigma: float = 0.0, seed: int = 0) -> Split:
    """Deals the shuffled examples out to clients of `client_sizes`."""
    sizes = client_sizes(len(labels), num_clients, sigma=sigma, seed=seed)
    order = np.random.default_rng((seed, 1)).permutation(len(labels))
    return [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]


def split_dirichlet(labels: np.ndarray, num_clients: int, alpha: float, *, sigma: float = 0.0, seed: int = 0) -> Split:
    """Gives each client a label distribution of its own, drawn from Dirichlet(alpha, ..., alpha).

    As FedDyn's code draws it: clients are filled one example at a time in random order,
    each time with a label from the client's own distribution. Where that code redraws
    until a label is left, and stalls when a client's distribution has hardly any mass on
    the labels that are left, the distribution is restricted to these labels at once: the
    same draw, without the waiting.

    As alpha goes to 0 each client has one label, and takes another only once that label has
    no examples left: all examples are dealt, and clients draw their labels independently.

    Args:
      labels: integers, [n].
      num_clients: m.
      alpha: > 0; small for clients of few labels.
      sigma: of the sizes, see `client_sizes`.
      seed: of all draws.
    """
    check_number("alpha", alpha, 0.0, open_low=True)
    if alpha > _MOST_ALPHA:
        raise ValueError(
            f"alpha must be at most {_MOST_ALPHA:g}, found {alpha!r}: beyond, all shares are equal. Lower it."
        )
    sizes = client_sizes(len(labels), num_clients, sigma=sigma, seed=seed)
    rng = np.random.default_rng((seed, 2))
    classes, numbers = np.unique(labels, return_inverse=True)
    restrict = _draw_priors(rng, alpha, (num_clients, len(classes)))
    # Each class's examples in random order, taken from the end.
    pools = [rng.permutation(np.flatnonzero(numbers == c)) for c in range(len(classes))]
    left = np.array([len(pool) for pool in pools])
    # All places in random order: the same as drawing a client with places left, in proportion to these.
    places = rng.permutation(np.repeat(np.arange(num_clients), sizes))
    draws = rng.random(len(labels))
    taken: list[list[int]] = [[] for _ in range(num_clients)]
    cumulated: dict[int, np.ndarray] = {}
    for k, draw in zip(places.tolist(), draws.tolist(), strict=True):
        if k not in cumulated:
            cumulated[k] = np.cumsum(restrict(k, left > 0))
        c = int(np.searchsorted(cumulated[k], draw * cumulated[k][-1], side="right"))
        left[c] -= 1
        taken[k].append(int(pools[c][left[c]]))
        if left[c] == 0:
            cumulated.clear()
    return [np.sort(np.array(indices, np.int64)) for indices in taken]


# Below it NumPy draws in another way too, and what it draws is soon rounded to zero.
_LEAST_ALPHA_WITHOUT_LOGARITHM = 0.1


def _draw_priors(
    rng: np.random.Generator, alpha: float, shape: tuple[int, int]
) -> Callable[[int, np.ndarray], np.ndarray]:
    """Draws clients' label distributions; returns `(client, labels that are left) -> masses`, zero elsewhere."""
    if alpha >= _LEAST_ALPHA_WITHOUT_LOGARITHM:
        priors = rng.dirichlet([alpha] * shape[1], size=shape[0])
        return lambda k, is_left: priors[k] * is_left
    # A Dirichlet draw is one of gamma(alpha), normalised, and gamma(alpha) = gamma(alpha + 1) U^(1/alpha), which is
    # far below the smallest double: alpha times its logarithm is not.
    scaled = alpha * np.log(rng.standard_gamma(alpha + 1.0, shape)) - rng.standard_exponential(shape)

    def restrict(k: int, is_left: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):  # far below the largest: their mass is 0
            return np.exp((scaled[k] - scaled[k][is_left].max()) / alpha, where=is_left, out=np.zeros(shape[1]))

    return restrict


def split_shards(labels: np.ndarray, num_clients: int, shards_per_client: int = 2, *, seed: int = 0) -> Split:
    """Sorts the examples by label, cuts them into equal shards, and deals each client `shards_per_client`.

    The pathological split of McMahan et al.: with two shards most clients see two labels.
    """
    check_integer("num_clients", num_clients, 1)
    check_integer("shards_per_client", shards_per_client, 1)
    num_shards = num_clients * shards_per_client
    check_integer("number of examples", len(labels), num_shards)
    rng = np.random.default_rng((seed, 3))
    shuffled = rng.permutation(len(labels))
    shards = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], num_shards)
    dealt = rng.permutation(num_shards).reshape(num_clients, shards_per_client)
    return [np.sort(np.concatenate([shards[s] for s in hand])) for hand in dealt]
