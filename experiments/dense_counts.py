"""The paper's dense message counts from the models and the sampling of clients alone, against its Table 2.

    python -m experiments.dense_counts

A method without sparsity sends all d parameters of every participant in every round, one with two
messages twice as many. Nothing is trained: the counts follow from the models' sizes and from who
takes part.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import csv
from typing import NamedTuple

from experiments.methods import METHODS
from experiments.presets import PAPER
from tasks import models
from tff_fen.program import sampling

# d as the paper counts it: its LSTM has two bias vectors a gate, Keras's has one.
_SIZES = {
    "MNIST": lambda: models.build_mlp(784, 200, 10).count_params(),
    "EMNIST-L": lambda: models.build_mlp(784, 100, 10).count_params(),
    "CIFAR-10": lambda: models.build_cnn(10).count_params(),
    "CIFAR-100": lambda: models.build_cnn(100).count_params(),
    "Shakespeare": lambda: models.build_lstm().count_params() + 2 * 4 * 100,
}
_MESSAGES = {method.title: len(method.algorithm.messages) for method in METHODS.values() if not method.is_sparse}


class DenseCount(NamedTuple):
    """A row of Table 2 and what it should be.

    Attributes:
      dataset, split, method, rounds: of the row.
      participants: summed over the rounds.
      size: d.
      sent: messages times d times participants, in 10^7.
      published: the paper's figure, as it is printed.
    """

    dataset: str
    split: str
    method: str
    rounds: int
    participants: int
    size: int
    sent: float
    published: str

    def agrees(self) -> bool:
        """Whether the paper's figure is that, rounded to as many digits as it has."""
        digits = len(self.published.partition(".")[2])
        return f"{self.sent:.{digits}f}" == self.published


def dense_counts() -> list[DenseCount]:
    """Returns all rows of the dense methods."""
    with (PAPER / "tables.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["quantity"] == "nonzeros_1e7" and row["method"] in _MESSAGES]
    sizes = {dataset: build() for dataset, build in _SIZES.items()}
    counts = []
    for row in rows:
        dataset, split, method = row["dataset"], row["split"], row["method"]
        clients = 11 if (dataset, split) == ("Shakespeare", "iid") else 100
        rounds = int(row["rounds"])
        share = float(row["participation"])
        participants = sum(len(sampling.sample_bernoulli(t, clients, share)) for t in range(rounds))
        sent = _MESSAGES[method] * sizes[dataset] * participants / 1e7
        counts.append(DenseCount(dataset, split, method, rounds, participants, sizes[dataset], sent, row["value"]))
    return counts


def main() -> None:
    counts = dense_counts()
    print("non-zeros sent by dense methods, in 10^7")
    print(f"{'data set':12} {'split':14} {'method':9} rounds participants {'d':>8} {'here':>9} {'paper':>8}")
    for row in counts:
        verdict = "" if row.agrees() else "  differs"
        print(
            f"{row.dataset:12} {row.split:14} {row.method:9} {row.rounds:>6} {row.participants:>12} {row.size:>8} "
            f"{row.sent:>9.3f} {row.published:>8}{verdict}"
        )
    print(f"{sum(row.agrees() for row in counts)} of {len(counts)} agree to the last digit printed")


if __name__ == "__main__":
    main()
