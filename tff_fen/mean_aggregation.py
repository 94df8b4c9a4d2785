"""Sums over a round's contributing clients by way of any `tff.aggregators` factory that gives a mean.

SCAFFOLD and FedDyn divide sums by m, the size of the population, where TFF's factories
give means over a round. The sum is the mean times the number of clients in it.
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.checks import check_type

FACTORIES = (tff.aggregators.WeightedAggregationFactory, tff.aggregators.UnweightedAggregationFactory)


def default_factory() -> tff.aggregators.WeightedAggregationFactory:
    """Returns the exact weighted mean, 0 where all weights are 0."""
    # TFF's plain mean divides by the sum of the weights even when every client sat the round out.
    return tff.aggregators.MeanFactory(no_nan_division=True)


def check_factory(name: str, factory: Any) -> None:
    """Raises unless `factory` is a weighted or unweighted `tff.aggregators` factory."""
    check_type(name, factory, FACTORIES, "Pass a factory of tff.aggregators, not a process.")


def as_weighted(factory: tff.aggregators.AggregationFactory) -> tff.aggregators.WeightedAggregationFactory:
    """Returns `factory`, with weights that are ignored if it takes none."""
    if isinstance(factory, tff.aggregators.WeightedAggregationFactory):
        return factory
    return tff.aggregators.as_weighted_aggregator(factory)


def build_mean_and_count(
    factory: tff.aggregators.AggregationFactory, value_type: tff.Type
) -> tff.templates.AggregationProcess:
    """Builds the mean of `factory` together with the number of clients it is of.

    Each client comes with a weight of 1, or of 0 if it has nothing to contribute. An
    unweighted factory counts every client. A mean that is not finite is refused: it
    becomes zero with a count of zero.

        next: (<S@SERVER, {V}@CLIENTS, {float32}@CLIENTS> ->
               <state=S@SERVER, result=<mean=V,count=float32>@SERVER,
                measurements=<update_non_finite=int32,inner=M>@SERVER>)
    """
    counts_all = not isinstance(factory, tff.aggregators.WeightedAggregationFactory)
    inner = as_weighted(factory).create(value_type, tff.TensorType(np.float32))

    @tff.tensorflow.computation(value_type, tff.TensorType(np.float32))
    def refuse_non_finite(mean: Any, count: tf.Tensor) -> Any:
        # With a count of zero TFF's mean may be 0/0: nothing to refuse, nothing to add either.
        refuse, measured = tff.learning.templates.reject_non_finite_update(None, mean)
        drop = tf.logical_or(refuse, tf.equal(count, 0.0))
        mean = tf.nest.map_structure(lambda x: tf.where(drop, tf.zeros_like(x), x), mean)
        refused = tf.where(tf.equal(count, 0.0), 0, measured["update_non_finite"])
        return collections.OrderedDict(mean=mean, count=tf.where(drop, 0.0, count)), refused

    @tff.tensorflow.computation(tff.TensorType(np.float32))
    def one(weight: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(weight)

    @tff.federated_computation(
        inner.initialize.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
        tff.FederatedType(tff.TensorType(np.float32), tff.CLIENTS),
    )
    def next_fn(state: Any, value: Any, weight: Any) -> tff.templates.MeasuredProcessOutput:
        output = inner.next(state, value, weight)
        count = tff.federated_sum(tff.federated_map(one, weight) if counts_all else weight)
        result, refused = tff.federated_map(refuse_non_finite, (output.result, count))
        measured = collections.OrderedDict(update_non_finite=refused, inner=output.measurements)
        return tff.templates.MeasuredProcessOutput(output.state, result, tff.federated_zip(measured))

    return tff.templates.AggregationProcess(inner.initialize, next_fn)
