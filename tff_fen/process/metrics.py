"""A round's metrics: sums that clients send, and what the server makes of them."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tff_fen import measurements
from tff_fen.client_work.trainer import LocalResult, Trainer

Metrics = collections.OrderedDict[str, Any]

# The main message of an algorithm goes by this name in the metrics, whatever the algorithm calls it.
_MAIN = "delta"


class ClientMetrics(NamedTuple):
    """Counts what clients do.

    Attributes:
      trainer: model and settings of the clients.
      measure: whether messages are measured (non-zeros, norms, entropies).
    """

    trainer: Trainer
    measure: bool

    def sums(
        self,
        theta: Any,
        trained: LocalResult,
        sent: Mapping[str, Any],
        contributes: tf.Tensor,
        is_finite: tf.Tensor,
    ) -> Metrics:
        """Returns a client's metrics, all of them sums, so that any of TFF's metrics aggregators fits.

        Args:
          theta: the trainable weights of the server model.
          trained: of local training, its delta as the server gets it; zeros if the client contributes nothing.
          sent: the messages by name; likewise.
          contributes: bool, whether the client counts.
          is_finite: bool, False if it was left out because something was not finite.
        """
        counts = tf.cast(contributes, tf.int32)
        sums: Metrics = collections.OrderedDict(
            # A plain list: TFF's secure metrics aggregator takes no tuples, which Keras's states are.
            model=tf.nest.flatten(trained.metrics_state),
            loss_sum=trained.loss_sum,
            loss_count=trained.loss_count,
            num_examples=trained.num_examples,
            participants=tf.constant(1),
            contributing_clients=counts,
            non_finite_clients=1 - tf.cast(is_finite, tf.int32),
        )
        if self.measure:
            vectors = {name: measurements.flatten(message) for name, message in sent.items()}
            main, *others = vectors
            sums[_MAIN] = measurements.measure_message(vectors[main])
            local_model = measurements.flatten(theta) + measurements.flatten(trained.delta)
            entropy = measurements.measure_entropy(local_model)
            sums["theta"] = tf.nest.map_structure(lambda m: tf.cast(counts, tf.float32) * m, entropy)
            for name in others:
                sums[name] = measurements.measure_message(vectors[name])
        return sums

    def finalize(self, sums: Metrics) -> Metrics:
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
                metrics[name] = measurements.finalize_message(value, sums["contributing_clients"], self.trainer.size)
        model = self.trainer.model
        own = model.finalize_metrics(tf.nest.pack_sequence_as(model.initialize_metrics_state(), sums["model"]))
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


def measure_downlink(weights: Any, broadcast: Mapping[str, Any]) -> Metrics:
    """Returns what the server sends to each participant: the model, and what the aggregator shares (`shared`)."""
    downlink = collections.OrderedDict(theta=measurements.measure_message(measurements.flatten(weights.trainable)))
    if tf.nest.flatten(broadcast):
        downlink["shared"] = measurements.measure_message(measurements.flatten(broadcast))
    return downlink
