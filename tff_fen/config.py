"""What to train with: the paper's hyperparameters as frozen, validated objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tff_fen.checks import check_integer, check_name, check_number, check_type

L1_STEPS: tuple[str, ...] = ("subgradient", "proximal")


@dataclasses.dataclass(frozen=True)
class ElasticNet:
    """The penalties on the local update `delta = w - theta` (paper, equation 4).

    With all three numbers 0 nothing is penalised; FedAvg, FedProx, SCAFFOLD and
    FedDyn are the algorithms of this package with `l1 = threshold = 0`.

    Attributes:
      l1: lambda_1 >= 0, the weight of `|w - theta|_1`.
      l2: lambda_2 >= 0, the weight of `|w - theta|^2 / 2` (FedDyn needs it > 0).
      threshold: epsilon >= 0; after the last local step every `delta[i]` with
        `|delta[i]| <= threshold` is set to zero, once.
      l1_step: `"subgradient"` adds `l1 * sign(w - theta)` to the gradient, as the
        paper's listings do (exact zeros then come from the threshold only);
        `"proximal"` soft-thresholds `w - theta` by `lr * l1` after every step,
        which gives exact zeros by itself.
    """

    l1: float = 0.0
    l2: float = 0.0
    threshold: float = 0.0
    l1_step: str = "subgradient"

    def __post_init__(self) -> None:
        for field in ("l1", "l2", "threshold"):
            check_number(f"ElasticNet.{field}", getattr(self, field), 0.0)
        check_name("ElasticNet.l1_step", self.l1_step, L1_STEPS)


@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """How a client trains: plain SGD on its own data.

    Attributes:
      learning_rate: eta_l > 0 of round 0.
      epochs: passes over the client's data in a round, >= 1.
      batch_size: `None` takes the batches of the client's data set as they come,
        one pass an epoch, as TFF's own builders do. A number >= 1 lets the client
        shuffle all its examples anew each epoch and take minibatches of that size
        (the last one may be smaller), however the data set was batched.
      lr_decay: the learning rate of round t (from 0) is `learning_rate * lr_decay^t`;
        > 0, 1 for none.
      weight_decay: `weight_decay * w` joins the step after clipping, >= 0.
      clip_norm: bound on the global norm of gradient, correction and penalties
        together, > 0; `None` for none.
      seed: of the shuffling, 0 to 2^31 - 1; a client's order of examples is a pure
        function of (seed, round, client, epoch).
      augment: `(batch, key) -> batch` of the same type, which is applied to each minibatch
        before its step; `None` for none. It draws from `key`, int32[2], alone, as with
        `tf.random.stateless_uniform`; a batch's key is a pure function of (seed, round,
        client, epoch) and of its place in the epoch. Needs a `batch_size`.
      xla: whether XLA compiles the loop over an epoch's full minibatches, for GPUs, where it
        makes a few kernels of a step's fifty. It rounds otherwise, and compiles anew for
        clients of twice as many examples. Needs a `batch_size`, and no `augment`.
    """

    learning_rate: float
    epochs: int = 1
    batch_size: int | None = None
    lr_decay: float = 1.0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    seed: int = 0
    augment: Callable[[Any, Any], Any] | None = None
    xla: bool = False

    def __post_init__(self) -> None:
        check_number("LocalTraining.learning_rate", self.learning_rate, 0.0, open_low=True)
        check_integer("LocalTraining.epochs", self.epochs, 1, 2**31 - 1)
        if self.batch_size is not None:
            check_integer("LocalTraining.batch_size", self.batch_size, 1, 2**31 - 1)
        check_number("LocalTraining.lr_decay", self.lr_decay, 0.0, open_low=True)
        check_number("LocalTraining.weight_decay", self.weight_decay, 0.0)
        if self.clip_norm is not None:
            check_number("LocalTraining.clip_norm", self.clip_norm, 0.0, open_low=True)
        check_integer("LocalTraining.seed", self.seed, 0, 2**31 - 1)
        if self.augment is not None:
            _check_augment(self.augment, self.batch_size)
        check_type("LocalTraining.xla", self.xla, bool, "True compiles the local loop, False does not.")
        if self.xla and self.batch_size is None:
            raise ValueError(
                "LocalTraining.xla needs a batch_size, found None: XLA compiles for minibatches of a known size. Set "
                "batch_size."
            )
        if self.xla and self.augment is not None:
            raise ValueError(
                f"LocalTraining.xla does not go with augment={self.augment!r}: from one key XLA draws other random "
                "numbers than TensorFlow, and results would depend on xla. Unset one of them."
            )


def _check_augment(augment: Any, batch_size: int | None) -> None:
    if not callable(augment):
        raise TypeError(
            f"LocalTraining.augment must be a function (batch, key) -> batch, found {augment!r}. None is for none."
        )
    if batch_size is None:
        raise ValueError(
            "LocalTraining.augment needs a batch_size, found None: a data set's own batches come without their epoch, "
            "which the keys depend on. Set batch_size, or augment in the data set itself, with dataset.map."
        )
