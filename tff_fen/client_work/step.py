"""The local step of Algorithms 1 to 3: one step of SGD on the penalised local objective.

    w <- w - lr * (clip(grad L_k(w) + correction + l2 (w - theta) + l1 sign(w - theta)) + weight_decay w)

and, with the proximal step, the same without the l1 term followed by
`w <- theta + soft(w - theta, lr * l1)`. The algorithms differ by `correction` alone:
0 (Algorithm 1), `c - c_k` (Algorithm 2), `-g_k` (Algorithm 3).

The step is written in `delta = w - theta`, not in `w`: what is penalised and sent is never the
difference of two large numbers, and a coordinate that nothing moves stays exactly 0. Every
term comes multiplied by `-lr`. One `tf.add_n` sums the terms, since it reads many tensors and
writes one, and arithmetic that treats every weight alike is marked (`graph_marks`): passes over
the weights are half of a small model's step. The order of the terms decides the bits of a result.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tff_fen import graph_marks
from tff_fen.client_work import penalties
from tff_fen.config import ElasticNet, LocalTraining

Tensors = tuple[tf.Tensor, ...]


class LocalStep:
    """The step of one client in one round: `step(delta, gradient)` gives the new delta and the new w."""

    def __init__(
        self,
        elastic_net: ElasticNet,
        local_training: LocalTraining,
        *,
        lr: tf.Tensor,
        theta: Any,
        correction: Any | None = None,
    ) -> None:
        """Initializes the step.

        Args:
          elastic_net: l1, l2 and the kind of l1 step.
          local_training: weight decay and clipping are taken from here.
          lr: float32 scalar, this round's learning rate.
          theta: the trainable weights of the server model.
          correction: a structure like `theta` that joins every gradient, or `None`.
        """
        self._proximal_l1 = elastic_net.l1 if elastic_net.l1_step == "proximal" else 0.0
        self._l1 = elastic_net.l1 - self._proximal_l1
        self._l2 = elastic_net.l2
        self._weight_decay = local_training.weight_decay
        self._clip_norm = local_training.clip_norm
        self._lr = lr
        self._theta = tf.nest.flatten(theta)
        # Constant over the round, so scaled once.
        scaled = () if correction is None else tuple(-lr * c for c in tf.nest.flatten(correction))
        self._corrections = [scaled] if scaled else []

    def __call__(self, delta: Tensors, gradient: Tensors) -> list[Tensors]:
        """Takes the step of the module's docstring; `gradient` is `-lr * grad L_k(w)` at `w = theta + delta`."""
        gradients = [gradient, *self._corrections]
        if self._clip_norm is None:
            return graph_marks.map_tensors(self._step, [self._lr], self._theta, delta, *gradients)
        descent, half_squares = graph_marks.map_tensors(self._descent, [self._lr], delta, *gradients)
        # All terms are times -lr, and so is the bound: the factor is that of the plain gradient.
        clip = _clip_factor(half_squares, self._lr * self._clip_norm)
        return graph_marks.map_tensors(self._clipped_step, [self._lr, clip], self._theta, delta, descent)

    # The three below are the step. All terms are times -lr; one that is off is `None`.

    def _step(
        self,
        lr: tf.Tensor,
        theta: tf.Tensor,
        delta: tf.Tensor,
        gradient: tf.Tensor,
        correction: tf.Tensor | None = None,
    ) -> Tensors:
        """w <- w - lr * (grad L_k(w) + correction + l2 (w - theta) + l1 sign(w - theta) + weight_decay w)."""
        delta = _sum(
            penalties.shrink(delta, self._l2, lr),  # delta and the l2 term in one, which saves a pass over the weights
            gradient,
            correction,
            penalties.l1_descent(delta, self._l1, lr),
            self._decay(lr, theta, delta),
        )
        return self._end(lr, theta, delta)

    def _descent(
        self, lr: tf.Tensor, delta: tf.Tensor, gradient: tf.Tensor, correction: tf.Tensor | None = None
    ) -> Tensors:
        """-lr * (grad L_k(w) + correction + l2 (w - theta) + l1 sign(w - theta)), and half the sum of its squares."""
        descent = _sum(
            gradient,
            correction,
            penalties.l2_descent(delta, self._l2, lr),
            penalties.l1_descent(delta, self._l1, lr),
        )
        return descent, tf.nn.l2_loss(descent)

    def _clipped_step(
        self, lr: tf.Tensor, clip: tf.Tensor, theta: tf.Tensor, delta: tf.Tensor, descent: tf.Tensor
    ) -> Tensors:
        """w <- w + clip(descent) - lr weight_decay w."""
        return self._end(lr, theta, _sum(delta, clip * descent, self._decay(lr, theta, delta)))

    def _decay(self, lr: tf.Tensor, theta: tf.Tensor, delta: tf.Tensor) -> tf.Tensor | None:
        return (-lr * self._weight_decay) * (theta + delta) if self._weight_decay else None

    def _end(self, lr: tf.Tensor, theta: tf.Tensor, delta: tf.Tensor) -> Tensors:
        """The new delta, after the proximal map if it is asked for, and the new w."""
        if self._proximal_l1:
            delta = penalties.soft_threshold(delta, lr * self._proximal_l1)
        return delta, theta + delta


def _sum(*terms: tf.Tensor | None) -> tf.Tensor:
    """Adds the terms there are, in this order, which decides the bits."""
    return tf.add_n([term for term in terms if term is not None])


def learning_rate(local_training: LocalTraining, round_number: tf.Tensor) -> tf.Tensor:
    """Returns `learning_rate * lr_decay^round_number` (rounds from 0) as a float32 scalar."""
    # In float64: a float32 power would drift from the exact schedule over hundreds of rounds.
    decay = tf.constant(local_training.lr_decay, tf.float64) ** tf.cast(round_number, tf.float64)
    return tf.cast(local_training.learning_rate * decay, tf.float32)


def _clip_factor(half_squares: Tensors, bound: tf.Tensor) -> tf.Tensor:
    """What `tf.clip_by_global_norm` multiplies tensors with; NaN if their norm is not finite.

    Args:
      half_squares: `tf.nn.l2_loss` of each tensor.
      bound: of the norm of all tensors together.
    """
    norm = tf.sqrt(2.0 * tf.reduce_sum(tf.stack(half_squares)))
    # A learning rate may decay until the bound is 0, which makes the factor 0, not 0 times infinity. The factor of
    # tensors within the bound has the same bits whatever their norm.
    return tf.math.multiply_no_nan(tf.minimum(1.0 / norm, 1.0 / bound), bound) + (norm - norm)
