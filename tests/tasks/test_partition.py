"""Splits: whole, disjoint, reproducible, and distributed as they should be."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tasks import partition

LABELS = np.random.default_rng(0).integers(0, 10, 6000)
SPLITS: dict[str, Any] = {
    "iid": lambda **kw: partition.split_iid(LABELS, 50, **kw),
    "iid_lognormal": lambda **kw: partition.split_iid(LABELS, 50, sigma=0.5, **kw),
    "dirichlet": lambda **kw: partition.split_dirichlet(LABELS, 50, 0.3, **kw),
    "dirichlet_lognormal": lambda **kw: partition.split_dirichlet(LABELS, 50, 0.6, sigma=0.5, **kw),
    "shards": lambda **kw: partition.split_shards(LABELS, 50, **kw),
}


def label_counts(labels: np.ndarray, split: partition.Split) -> np.ndarray:
    """Returns how many examples of each label each client has, [m, classes]."""
    classes, numbers = np.unique(labels, return_inverse=True)
    return np.array([np.bincount(numbers[part], minlength=len(classes)) for part in split])


@pytest.mark.parametrize("name", sorted(SPLITS))
def test_every_example_has_exactly_one_client(name: str) -> None:
    split = SPLITS[name]()
    assert len(split) == 50 and all(len(part) for part in split)
    np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(len(LABELS)))


@pytest.mark.parametrize("name", sorted(SPLITS))
def test_a_split_is_a_function_of_its_seed(name: str) -> None:
    first, again, other = SPLITS[name](seed=3), SPLITS[name](seed=3), SPLITS[name](seed=4)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_sizes() -> None:
    np.testing.assert_array_equal(partition.client_sizes(103, 4), [26, 26, 26, 25])
    sizes = partition.client_sizes(60_000, 1000, sigma=0.5, seed=2)
    assert sizes.sum() == 60_000 and sizes.min() >= 1
    # log sizes are normal with the standard deviation asked for
    assert np.std(np.log(sizes)) == pytest.approx(0.5, rel=0.1)
    assert stats.kstest(stats.zscore(np.log(sizes)), "norm").pvalue > 0.01
    assert partition.client_sizes(5, 5, sigma=3.0).tolist() == [1] * 5
    extreme = partition.client_sizes(1400, 20, sigma=1000.0)
    assert extreme.sum() == 1400 and extreme.min() == 1


@pytest.mark.parametrize("alpha", [0.3, 0.6])
def test_dirichlet_shares_follow_the_theory(alpha: float) -> None:
    """A client's share of a label is Beta(alpha, 9 alpha) before labels run out: ample labels, few clients."""
    n = 50
    labels = np.repeat(np.arange(10), 100 * n)
    shares = []
    for seed in range(20):
        # Of 1000 clients together the wishes are near to what there is, so that labels run out only at the very end.
        split = partition.split_dirichlet(labels, 1000, alpha, seed=seed)
        counts = label_counts(labels, split)[:20]
        shares.append((counts / n)[:, seed % 10])
    observed = np.concatenate(shares)
    # Counts out of n are beta-binomial.
    expected = stats.betabinom(n, alpha, 9 * alpha)
    assert observed.mean() == pytest.approx(0.1, abs=3 * expected.std() / n / np.sqrt(observed.size))
    assert stats.ks_2samp(observed * n, expected.rvs(4000, random_state=1)).pvalue > 0.01


def test_dirichlet_never_stalls_when_labels_run_out() -> None:
    """Clients that want one label alone, and a label of which there are few: the rest is taken as it comes."""
    labels = np.array([0] * 5 + [1] * 995)
    split = partition.split_dirichlet(labels, 10, 1e-3, seed=1)
    assert sum(map(len, split)) == 1000
    assert label_counts(labels, split).sum(0).tolist() == [5, 995]


@pytest.mark.parametrize("alpha", [1e-4, 1e-10, 1e-300, 5e-324])
def test_dirichlet_in_the_limit_is_one_label_per_client(alpha: float) -> None:
    """Where drawn without the logarithm all of it but one label is 0, or, from 1e-10 on, the draw never ends."""
    rng = np.random.default_rng(0)
    restrict = partition._draw_priors(rng, alpha, (1000, 10))
    everything, some = np.ones(10, bool), np.arange(10) % 3 == 0
    for is_left in (everything, some):
        mass = np.array([restrict(k, is_left) for k in range(1000)])
        assert mass.max(1).tolist() == [1.0] * 1000 and np.mean(mass.sum(1) - 1) < 1e-2 and not mass[:, ~is_left].any()
        # Each label that is left is as likely as any other.
        favourites = np.bincount(mass.argmax(1), minlength=10)[is_left]
        assert stats.chisquare(favourites).pvalue > 0.001
    # Ample labels: what clients wish for is near to what there is, and only the rest goes to second choices.
    labels = np.repeat(np.arange(10), 5000)
    counts = label_counts(labels, partition.split_dirichlet(labels, 1000, alpha))
    assert np.mean(counts.max(1) / counts.sum(1)) > 0.9 and np.mean((counts > 0).sum(1)) < 2.0


def test_dirichlet_draws_of_usual_alphas_are_kept() -> None:
    """Results and resumed runs rest on these splits: their digest, as the first version drew them."""
    digest = hashlib.sha256()
    for alpha in (0.1, 0.3, 0.6, 100.0):
        for part in partition.split_dirichlet(LABELS, 50, alpha, sigma=0.5, seed=1):
            digest.update(part.tobytes())
    assert digest.hexdigest()[:16] == "a8f2a083a890d8ca"


def test_dirichlet_shares_below_the_switch_follow_the_theory() -> None:
    """In the logarithm: a label's share is Beta(alpha, 9 alpha)."""
    restrict = partition._draw_priors(np.random.default_rng(2), 0.05, (4000, 10))
    mass = np.array([restrict(k, np.ones(10, bool)) for k in range(4000)])
    share = (mass / mass.sum(1, keepdims=True))[:, 3]
    assert stats.kstest(share, stats.beta(0.05, 0.45).cdf).pvalue > 0.01


def test_shards_give_few_labels() -> None:
    counts = label_counts(LABELS, SPLITS["shards"]())
    assert np.mean((counts > 0).sum(1)) < 3.5
    assert np.ptp(counts.sum(1)) <= 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: partition.split_iid(LABELS, 0), "num_clients must be an integer >= 1, found 0"),
        (lambda: partition.split_iid(LABELS[:3], 5), "num_examples must be an integer >= 5, found 3"),
        (lambda: partition.split_dirichlet(LABELS, 5, 0.0), "alpha must be a finite number > 0, found 0.0"),
        (lambda: partition.split_dirichlet(LABELS, 5, 1e308), r"alpha must be at most 1e\+15, found 1e\+308"),
        (lambda: partition.client_sizes(10, 2, sigma=-1.0), "sigma must be a finite number >= 0, found -1.0"),
        (lambda: partition.split_shards(LABELS, 5000), "number of examples must be an integer >= 10000, found 6000"),
    ],
)
def test_rejections(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
