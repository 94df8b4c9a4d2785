"""One client's round as TensorFlow code: data, local training, weight, metrics. Shared by all algorithms."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen import measurements
from tff_fen.client_work import batches as client_data
from tff_fen.client_work import step as local_training_lib
from tff_fen.codec import Codec
from tff_fen.compressors import uplink
from tff_fen.config import ElasticNet, LocalTraining

Metrics = collections.OrderedDict[str, Any]


class Trainer(NamedTuple):
    """What every client of an algorithm trains with.

    Attributes:
      model: the `FunctionalModel`.
      elastic_net: penalties and threshold.
      local_training: the local steps.
      measure: whether messages are measured (non-zeros, norms, entropies).
      codec: what messages go through on their way, `None` for float32 as it is.
    """

    model: tff.learning.models.FunctionalModel
    elastic_net: ElasticNet
    local_training: LocalTraining
    measure: bool
    codec: Codec | None = None

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

    def federated_zeros(self) -> tff.Value:
        """Zeros like the trainable weights, `W@SERVER`."""
        return tff.federated_eval(tff.tensorflow.computation(self.zeros), tff.SERVER)

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
    ) -> local_training_lib.LocalResult:
        """Trains on a client's data in round `round_number` (from 0); call it inside a `tf.function`.

        Args:
          weights: theta, the server model.
          dataset: the client's data.
          round_number: int32 scalar.
          client_id: int64 scalar that seeds the shuffling; a client without one is
            known by a digest of its data, never by its place in a list.
          correction: joins every gradient, see `local_training.train`.
        """
        settings = self.local_training
        if settings.batch_size is None:
            batches: client_data.Batches = client_data.DatasetBatches(dataset, settings.epochs)
        else:
            examples = client_data.load_examples(dataset)
            key = client_data.digest(examples) if client_id is None else client_id
            seed = client_data.shuffle_seed(settings.seed, round_number, key)
            batches = client_data.ShuffledMinibatches(examples, settings.epochs, settings.batch_size, seed)
        result = local_training_lib.train(
            self.model,
            (weights.trainable, weights.non_trainable),
            batches,
            elastic_net=self.elastic_net,
            local_training=settings,
            lr=local_training_lib.learning_rate(settings, round_number),
            correction=correction,
        )
        if self.codec is None:
            return result
        sent = self.transmit(result.delta)
        return result._replace(delta=sent).keep_if_finite(sent)

    def transmit(self, message: Any) -> Any:
        """Returns a message as the server gets it."""
        return uplink.transmit(self.codec, message)

    def unfinalized_metrics(self, theta: Any, result: local_training_lib.LocalResult, **messages: Any) -> Metrics:
        """Returns a client's metrics, all of them sums, so that any of TFF's metrics aggregators fits.

        Args:
          theta: the trainable weights of the server model.
          result: of `train`.
          **messages: further messages the client sends beside `delta`, by name.
        """
        sums: Metrics = collections.OrderedDict(
            # A plain list: TFF's secure metrics aggregator takes no tuples, which Keras's states are.
            model=tf.nest.flatten(result.metrics_state),
            loss_sum=result.loss_sum,
            loss_count=result.loss_count,
            num_examples=result.num_examples,
            participants=tf.constant(1),
            contributing_clients=tf.cast(result.contributes, tf.int32),
            non_finite_clients=1 - tf.cast(result.is_finite, tf.int32),
        )
        if self.measure:
            delta = measurements.flatten(result.delta)
            sums["delta"] = measurements.measure_message(delta)
            local_model = measurements.measure_entropy(measurements.flatten(theta) + delta)
            sums["theta"] = tf.nest.map_structure(lambda m: result.contributes * m, local_model)
            for name, message in messages.items():
                sums[name] = measurements.measure_message(measurements.flatten(message))
        return sums

    def finalize_metrics(self, sums: Metrics) -> Metrics:
        """Returns a round's metrics from the sums over clients; the model's own metrics go by their own names."""
        metrics: Metrics = collections.OrderedDict(
            loss=tf.math.divide_no_nan(sums["loss_sum"], sums["loss_count"]),
            num_examples=sums["num_examples"],
            participants=sums["participants"],
            contributing_clients=sums["contributing_clients"],
            non_finite_clients=sums["non_finite_clients"],
        )
        for name, value in sums.items():
            if isinstance(value, collections.OrderedDict):
                metrics[name] = measurements.finalize_message(value, sums["contributing_clients"], self.size)
        state = tf.nest.pack_sequence_as(self.model.initialize_metrics_state(), sums["model"])
        own = self.model.finalize_metrics(state)
        if not isinstance(own, Mapping):
            raise TypeError(
                f"The model's metrics must be a mapping of names to metrics, found {own!r}. Pass an OrderedDict of "
                "names to Keras metrics as metrics_constructor to functional_model_from_keras."
            )
        taken = sorted((set(own) & set(metrics)) - {"loss", "num_examples"})
        if taken:
            raise ValueError(f"The model has metrics of the names {taken}, which this package reports; rename them.")
        metrics.update(own)
        return metrics
