"""The local steps of every algorithm here: SGD on the penalised local objective, one loop for all.

    w <- w - lr * (clip(grad L_k(w) + correction + l2 (w - theta) + l1 sign(w - theta)) + weight_decay w)

and, with the proximal step, the same without the l1 term followed by
`w <- theta + soft(w - theta, lr * l1)`. The algorithms differ by `correction` alone:
0 (Algorithm 1), `c - c_k` (Algorithm 2), `-g_k` (Algorithm 3).

The loop carries `delta = w - theta`, not `w`: what is penalised and sent is never the
difference of two large numbers, and a coordinate that nothing moves stays exactly 0.
A step's terms are summed by one `tf.add_n`, which reads many tensors and writes one, and all
that treats every weight alike is marked (`elementwise.py`): passes over the weights are half of
a small model's step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen import graph_marks as elementwise
from tff_fen.client_work import batches as client_data
from tff_fen.client_work import penalties
from tff_fen.config import ElasticNet, LocalTraining


class LocalResult(NamedTuple):
    """What local training gives back.

    Attributes:
      raw_delta: `w - theta` after the last step, before the threshold.
      delta: the same after the threshold: what is sent.
      num_steps: int32, B, the steps taken.
      num_examples: int64, n_k, the examples of one pass.
      loss_sum: float32, the batch losses of all epochs, each times its examples.
      loss_count: float32, the examples of all epochs: `loss_sum / loss_count` is the mean.
      metrics_state: the model's own unfinalized metrics over all epochs.
      is_finite: bool; False if a loss, a weight or what was made of them was not finite.

    A client that is not finite, or has no examples, has deltas, losses, metrics and
    `num_examples` of zero.
    """

    raw_delta: Any
    delta: Any
    num_steps: tf.Tensor
    num_examples: tf.Tensor
    loss_sum: tf.Tensor
    loss_count: tf.Tensor
    metrics_state: Any
    is_finite: tf.Tensor

    @property
    def contributes(self) -> tf.Tensor:
        """float32, 1, or 0 for a client that has no data or is not finite."""
        return tf.cast(self.num_examples > 0, tf.float32)

    def keep_if_finite(self, *values: Any) -> LocalResult:
        """Returns the result, or one of zeros if anything in it or in `values` is not finite."""
        checked = tf.nest.flatten((self.loss_sum, self.raw_delta, values))
        is_finite = tf.reduce_all(tf.stack([tf.reduce_all(tf.math.is_finite(x)) for x in checked]))
        # A client without examples counts for nothing.
        keep = tf.logical_and(is_finite, self.num_examples > 0)
        # A branch, where a select would copy every tensor of a client that is as it should be.
        zeroed = tf.cond(keep, lambda: self, lambda: tf.nest.map_structure(tf.zeros_like, self))
        return zeroed._replace(num_steps=self.num_steps, is_finite=tf.logical_and(self.is_finite, is_finite))


Tensors = tuple[tf.Tensor, ...]


class _Carry(NamedTuple):
    delta: Tensors
    weights: Tensors  # theta + delta
    num_steps: tf.Tensor
    num_examples: tf.Tensor
    loss_sum: tf.Tensor
    metrics_state: Any


def learning_rate(local_training: LocalTraining, round_number: tf.Tensor) -> tf.Tensor:
    """Returns `learning_rate * lr_decay^round_number` (rounds from 0) as a float32 scalar."""
    # In float64: a float32 power would drift from the exact schedule over hundreds of rounds.
    decay = tf.constant(local_training.lr_decay, tf.float64) ** tf.cast(round_number, tf.float64)
    return tf.cast(local_training.learning_rate * decay, tf.float32)


def train(
    model: tff.learning.models.FunctionalModel,
    theta: tuple[Any, Any],
    batches: client_data.Batches,
    *,
    elastic_net: ElasticNet,
    local_training: LocalTraining,
    lr: tf.Tensor,
    correction: Any | None = None,
) -> LocalResult:
    """Trains the local model from `theta` over `batches`; call it inside a `tf.function`.

    Args:
      model: the `FunctionalModel` to train.
      theta: the server model, `(trainable, non_trainable)`.
      batches: the client's data of this round.
      elastic_net: penalties and threshold.
      local_training: weight decay, clipping and the number of epochs are taken from here.
      lr: float32 scalar, this round's learning rate.
      correction: a structure like the trainable weights that joins every gradient,
        or `None`.

    Returns:
      A `LocalResult`.
    """
    trainable, non_trainable = theta
    proximal = elastic_net.l1_step == "proximal"
    l1 = 0.0 if proximal else elastic_net.l1
    # Clipping is of the whole gradient, the l2 term with it; without, a factor of delta saves a pass over the weights.
    l2 = 0.0 if local_training.clip_norm is None else elastic_net.l2
    flat_theta = tf.nest.flatten(trainable)
    # Constant over the round, so scaled once.
    corrections: list[Tensors] = [] if correction is None else [tuple(-lr * c for c in tf.nest.flatten(correction))]

    def penalised(lr: tf.Tensor, delta: tf.Tensor, *terms: tf.Tensor) -> tuple[tf.Tensor]:
        """`-lr` times the gradient with its penalties, to be clipped."""
        return (tf.add_n([*terms, *penalties.descent_terms(delta, l1, l2, lr)]),)

    def move(
        lr: tf.Tensor, clip_factor: tf.Tensor, theta: tf.Tensor, delta: tf.Tensor, *terms: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The new delta, by `terms` of `-lr` times the gradient, and the new w."""
        if local_training.clip_norm is None:
            terms = (*terms, *penalties.descent_terms(delta, l1, l2, lr))
        else:
            terms = tuple(clip_factor * t for t in terms)
        if local_training.weight_decay:
            terms = (*terms, (-lr * local_training.weight_decay) * (theta + delta))
        moved = tf.add_n([penalties.shrink(delta, elastic_net.l2 - l2, lr), *terms])
        if proximal:
            moved = penalties.soft_threshold(moved, lr * elastic_net.l1)
        return moved, theta + moved

    def advance(delta: Tensors, descent: Tensors) -> list[Tensors]:
        """One step, where `descent` is `-lr * grad L_k(w)`: the new delta and the new w."""
        terms, clip_factor = [descent, *corrections], tf.constant(1.0)
        if local_training.clip_norm is not None:
            terms = elementwise.map_tensors(penalised, [lr], delta, *terms)
            # All terms are times -lr, and so is the bound: the factor is that of the plain gradient.
            clip_factor = _clip_factor(terms[0], lr * local_training.clip_norm)
        return elementwise.map_tensors(move, [lr, clip_factor], flat_theta, delta, *terms)

    def step(carry: _Carry, batch: Any) -> _Carry:
        x, y = (batch["x"], batch["y"]) if isinstance(batch, Mapping) else batch
        weights = carry.weights
        with tf.GradientTape() as tape:
            tape.watch(weights)
            packed = tf.nest.pack_sequence_as(trainable, weights)
            output = model.predict_on_batch((packed, non_trainable), x, training=True)
            loss = model.loss(output=output, label=y)
        descent = tape.gradient(loss, weights, output_gradients=-lr, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        descent = tuple(map(tf.convert_to_tensor, descent))  # an embedding's has only the rows that were looked up
        num_examples = tf.shape(tf.nest.flatten(output)[0])[0]
        batch_output = tff.learning.models.BatchOutput(loss=loss, predictions=output, num_examples=num_examples)
        new_delta, new_weights = advance(carry.delta, descent)
        return _Carry(
            delta=new_delta,
            weights=new_weights,
            num_steps=carry.num_steps + 1,
            num_examples=carry.num_examples + tf.cast(num_examples, tf.int64),
            loss_sum=carry.loss_sum + loss * tf.cast(num_examples, tf.float32),
            metrics_state=model.update_metrics_state(carry.metrics_state, labels=y, batch_output=batch_output),
        )

    end = batches.fold(
        step,
        _Carry(
            delta=tuple(tf.zeros_like(t) for t in flat_theta),
            weights=tuple(flat_theta),
            num_steps=tf.constant(0),
            num_examples=tf.constant(0, tf.int64),
            loss_sum=tf.constant(0.0),
            metrics_state=model.initialize_metrics_state(),
        ),
    )
    delta = [penalties.hard_threshold(d, elastic_net.threshold) for d in end.delta]
    return LocalResult(
        raw_delta=tf.nest.pack_sequence_as(trainable, end.delta),
        delta=tf.nest.pack_sequence_as(trainable, delta),
        num_steps=end.num_steps,
        num_examples=end.num_examples // local_training.epochs,
        loss_sum=end.loss_sum,
        loss_count=tf.cast(end.num_examples, tf.float32),
        metrics_state=end.metrics_state,
        is_finite=tf.constant(True),
    ).keep_if_finite()


def _clip_factor(tensors: Tensors, bound: tf.Tensor) -> tf.Tensor:
    """What `tf.clip_by_global_norm` multiplies the tensors with; NaN if their norm is not finite."""
    norm = tf.linalg.global_norm(tensors)
    # A learning rate may decay until the bound is 0, which makes the factor 0, not 0 times infinity.
    return tf.math.multiply_no_nan(tf.minimum(1.0 / norm, 1.0 / bound), bound) + (norm - norm)
