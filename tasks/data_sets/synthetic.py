"""synthetic(alpha, beta): the generated logistic data of the FedProx and FedDyn papers.

Client k draws its own labelling and its own inputs:

    u_k ~ N(0, alpha^2)   W_k ~ N(u_k, 1) [60, 10]   b_k ~ N(u_k, 1) [10]
    B_k ~ N(0, beta^2)    v_k ~ N(B_k, 1) [60]       x ~ N(v_k, diag(j^-1.2))
    y = argmax(x W_k + b_k),   n_k = 50 + floor(lognormal(4, 2))

(as in FedProx's code, where alpha and beta are standard deviations; n_k has no upper limit
there, here it is 10 000). By this definition u_k moves all logits of an example alike, so
that alpha changes no label; what makes clients disagree is W_k itself.

A client is a pure function of (seed, k), made when asked for: a population of any size
takes no memory.
"""

from __future__ import annotations

import numpy as np

from tff_fen.checks import check_integer, check_number

NUM_INPUTS, NUM_CLASSES = 60, 10
_MAX_EXAMPLES = 10_000
_MOST_DEVIATION = 1e6
_TEST_EXAMPLES, _TEST_CLIENTS = 20, 500


class Synthetic:
    """A population of synthetic clients."""

    def __init__(self, num_clients: int, alpha: float = 1.0, beta: float = 1.0, seed: int = 0) -> None:
        """Initializes the population.

        Args:
          num_clients: m.
          alpha: of u_k; >= 0.
          beta: how much their inputs differ; >= 0.
          seed: of everything.
        """
        check_integer("num_clients", num_clients, 1)
        for name, value in (("alpha", alpha), ("beta", beta)):
            check_number(name, value, 0.0)
            if value > _MOST_DEVIATION:
                raise ValueError(
                    f"{name} must be at most {_MOST_DEVIATION:g}, found {value!r}: beyond, float32 does not tell a "
                    "client's examples apart. Lower it."
                )
        check_integer("seed", seed, 0)
        self._num_clients, self._alpha, self._beta, self._seed = num_clients, alpha, beta, seed

    def client(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the training examples of client k: x float32 [n, 60] and y int32 [n]."""
        x, y = self._draw(k)
        return x[_TEST_EXAMPLES:], y[_TEST_EXAMPLES:]

    def test(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns 20 examples each, which are in no training set, of up to 500 clients spread over the population."""
        chosen = np.linspace(0, self._num_clients - 1, min(self._num_clients, _TEST_CLIENTS)).astype(int)
        # Copies: a slice would hold on to all examples of its client.
        parts = [[a[:_TEST_EXAMPLES].copy() for a in self._draw(int(k))] for k in chosen]
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])

    def _draw(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng((self._seed, 6, k))
        n = min(50 + int(rng.lognormal(4.0, 2.0)), _MAX_EXAMPLES)
        u, shift = rng.normal(0.0, self._alpha), rng.normal(0.0, self._beta)
        weights = rng.normal(u, 1.0, (NUM_INPUTS, NUM_CLASSES))
        bias = rng.normal(u, 1.0, NUM_CLASSES)
        mean = rng.normal(shift, 1.0, NUM_INPUTS)
        scale = np.arange(1, NUM_INPUTS + 1) ** -0.6  # the root of the variance
        x = mean + scale * rng.normal(size=(_TEST_EXAMPLES + n, NUM_INPUTS))
        return x.astype(np.float32), (x @ weights + bias).argmax(1).astype(np.int32)
