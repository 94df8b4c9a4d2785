"""Local training: a client's data, folded through the local step from theta. Shared by all algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.client_work import batches, step
from tff_fen.config import ElasticNet, LocalTraining


class LocalResult(NamedTuple):
    """What local training gives back.

    Attributes:
      delta: `w - theta` after the last step.
      num_steps: int32, B, the steps taken.
      num_examples: int64, n_k, the examples of one pass.
      loss_sum: float32, the batch losses of all epochs, each times its examples.
      loss_count: float32, the examples of all epochs: `loss_sum / loss_count` is the mean.
      metrics_state: the model's own unfinalized metrics over all epochs.
      lr: float32, the learning rate of the round.
    """

    delta: Any
    num_steps: tf.Tensor
    num_examples: tf.Tensor
    loss_sum: tf.Tensor
    loss_count: tf.Tensor
    metrics_state: Any
    lr: tf.Tensor


class _Carry(NamedTuple):
    delta: step.Tensors
    weights: step.Tensors  # theta + delta
    num_steps: tf.Tensor
    num_examples: tf.Tensor
    loss_sum: tf.Tensor
    metrics_state: Any


class Trainer(NamedTuple):
    """What every client of an algorithm trains with.

    Attributes:
      model: the `FunctionalModel`.
      elastic_net: the penalties.
      local_training: the local steps.
    """

    model: tff.learning.models.FunctionalModel
    elastic_net: ElasticNet
    local_training: LocalTraining

    @property
    def weights_type(self) -> tff.StructWithPythonType:
        """The type of `tff.learning.models.ModelWeights` of the model."""
        weights = tff.learning.models.ModelWeights(*self.model.initial_weights)
        spec = tf.nest.map_structure(lambda w: tf.TensorSpec(np.shape(w), np.asarray(w).dtype), weights)
        return tff.types.tensorflow_to_type(spec)

    @property
    def data_type(self) -> tff.SequenceType:
        """The type of a client's data: a sequence of batches."""
        return tff.SequenceType(tff.types.tensorflow_to_type(self.model.input_spec))

    def initial_weights(self) -> tff.learning.models.ModelWeights:
        """theta of round 0, as tensors."""
        weights = tff.learning.models.ModelWeights(*self.model.initial_weights)
        return tf.nest.map_structure(tf.convert_to_tensor, weights)

    def zeros(self) -> Any:
        """Zeros like the trainable weights."""
        return tf.nest.map_structure(tf.zeros_like, self.initial_weights().trainable)

    @property
    def size(self) -> int:
        """d, the number of trainable parameters."""
        return sum(int(np.size(w)) for w in tf.nest.flatten(self.model.initial_weights[0]))

    def train(
        self,
        weights: tff.learning.models.ModelWeights,
        dataset: tf.data.Dataset,
        round_number: tf.Tensor,
        *,
        client_id: tf.Tensor | None = None,
        correction: Any | None = None,
    ) -> LocalResult:
        """Trains on a client's data in round `round_number` (from 0); call it inside a `tf.function`.

        Args:
          weights: theta, the server model.
          dataset: the client's data.
          round_number: int32 scalar.
          client_id: int64 scalar that seeds the shuffling; a client without one is
            known by a digest of its data, never by its place in a list.
          correction: a structure like the trainable weights that joins every gradient, or `None`.
        """
        lr = step.learning_rate(self.local_training, round_number)
        return self.train_on(weights, self._batches(dataset, round_number, client_id), lr, correction)

    def train_on(
        self,
        weights: tff.learning.models.ModelWeights,
        client_batches: batches.Batches,
        lr: tf.Tensor,
        correction: Any | None = None,
    ) -> LocalResult:
        """Folds the local step over batches, from theta; call it inside a `tf.function`."""
        take_step = step.LocalStep(
            self.elastic_net, self.local_training, lr=lr, theta=weights.trainable, correction=correction
        )
        flat_theta = tf.nest.flatten(weights.trainable)

        def advance(carry: _Carry, batch: Any) -> _Carry:
            x, y = (batch["x"], batch["y"]) if isinstance(batch, Mapping) else batch
            with tf.GradientTape() as tape:
                tape.watch(carry.weights)
                w = tf.nest.pack_sequence_as(weights.trainable, carry.weights)
                output = self.model.predict_on_batch((w, weights.non_trainable), x, training=True)
                loss = self.model.loss(output=output, label=y)
            gradient = tape.gradient(
                loss, carry.weights, output_gradients=-lr, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            gradient = tuple(map(tf.convert_to_tensor, gradient))  # an embedding's has only the rows looked up
            new_delta, new_weights = take_step(carry.delta, gradient)
            num_examples = tf.shape(tf.nest.flatten(output)[0])[0]
            batch_output = tff.learning.models.BatchOutput(loss=loss, predictions=output, num_examples=num_examples)
            return _Carry(
                delta=new_delta,
                weights=new_weights,
                num_steps=carry.num_steps + 1,
                num_examples=carry.num_examples + tf.cast(num_examples, tf.int64),
                loss_sum=carry.loss_sum + loss * tf.cast(num_examples, tf.float32),
                metrics_state=self.model.update_metrics_state(carry.metrics_state, labels=y, batch_output=batch_output),
            )

        end = client_batches.fold(
            advance,
            _Carry(
                delta=tuple(tf.zeros_like(t) for t in flat_theta),
                weights=tuple(flat_theta),
                num_steps=tf.constant(0),
                num_examples=tf.constant(0, tf.int64),
                loss_sum=tf.constant(0.0),
                metrics_state=self.model.initialize_metrics_state(),
            ),
        )
        return LocalResult(
            delta=tf.nest.pack_sequence_as(weights.trainable, end.delta),
            num_steps=end.num_steps,
            num_examples=end.num_examples // self.local_training.epochs,
            loss_sum=end.loss_sum,
            loss_count=tf.cast(end.num_examples, tf.float32),
            metrics_state=end.metrics_state,
            lr=lr,
        )

    def _batches(
        self, dataset: tf.data.Dataset, round_number: tf.Tensor, client_id: tf.Tensor | None
    ) -> batches.Batches:
        settings = self.local_training
        if settings.batch_size is None:
            return batches.DatasetBatches(dataset, settings.epochs)
        examples = batches.load_examples(dataset)
        key = batches.digest(examples) if client_id is None else client_id
        seed = batches.shuffle_seed(settings.seed, round_number, key)
        minibatches = batches.CompiledMinibatches if settings.xla else batches.ShuffledMinibatches
        return minibatches(examples, settings.epochs, settings.batch_size, seed, settings.augment)
