"""A round's mean together with the number it was divided by, from any factory of `tff.aggregators` that gives a mean.

SCAFFOLD and FedDyn divide sums by m, the size of the population, where TFF's factories
give means over a round. The sum is the mean times the number it was divided by.
"""

from __future__ import annotations

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.aggregators.fixed_denominator import DeclaredMeanFactory
from tff_fen.checks import check_type

_FACTORIES = (tff.aggregators.WeightedAggregationFactory, tff.aggregators.UnweightedAggregationFactory)
_SUMS = (
    tff.aggregators.SumFactory,
    tff.aggregators.EncodedSumFactory,
    tff.aggregators.SecureSumFactory,
    tff.aggregators.SecureModularSumFactory,
)


class MeanAndCountFactory(tff.aggregators.WeightedAggregationFactory):
    """Gives the mean of a factory, the number it was divided by, and whether it can be used.

    Each client comes with a weight of 1, or of 0 if it has nothing to contribute. A weighted
    factory divides by the number of contributing clients, an unweighted one by that of all,
    a `DeclaredMeanFactory` by what it says. For a value type V the process is

        initialize: ( -> S@SERVER)
        next: (<S@SERVER, {V}@CLIENTS, {float32}@CLIENTS> ->
               <state=S@SERVER, result=<mean=V,count=float32,usable=float32>@SERVER, measurements=M@SERVER>)

    with S and M those of the inner factory. `usable` is 0 if nobody contributed or the mean is
    not finite, which then is zero; else 1.
    """

    def __init__(self, factory: tff.aggregators.AggregationFactory | None = None, *, name: str = "factory") -> None:
        """Initializes the factory.

        Args:
          factory: gives a mean; by default the exact mean, 0 where nobody contributes.
          name: what messages call it.
        """
        self._factory = resolve_factory(name, factory)
        self._name = name

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Creates the process for values of `value_type` with float32 weights.

        Raises:
          TypeError: if the factory is differentially private and does not say what it divides by.
        """
        weighted = isinstance(self._factory, tff.aggregators.WeightedAggregationFactory)
        inner = self._factory.create(value_type, weight_type) if weighted else self._factory.create(value_type)
        declared = isinstance(self._factory, DeclaredMeanFactory)
        fixed = self._factory.denominator if declared else None
        if not declared and _is_private(inner.initialize.type_signature.result.member):
            raise TypeError(
                f"{self._name} is differentially private ({type(self._factory).__name__}): such a factory divides by a "
                "number of its own, which this algorithm must know, and the algorithm aggregates two messages of each "
                "client, each of which costs privacy. Take tff_fen.build_dp_pair, whose two factories share one "
                "budget; or, if you account for both yourself, wrap each factory whole in "
                "tff_fen.FixedDenominatorFactory(factory, clients_per_round), or, if it divides by the number of "
                "participants, in tff_fen.aggregators.DeclaredMeanFactory(factory)."
            )

        @tff.tensorflow.computation(value_type, weight_type, weight_type)
        def conclude(mean: Any, participants: tf.Tensor, contributing: tf.Tensor) -> Any:
            refuse, _ = tff.learning.templates.reject_non_finite_update(None, mean)
            usable = tf.logical_not(refuse)
            count = contributing if weighted else participants
            if fixed is None:
                usable = tf.logical_and(usable, contributing > 0.0)
            else:
                # Nothing of what is released may hang on the number of clients.
                count = tf.constant(fixed, tf.float32)
            return collections.OrderedDict(
                mean=tf.nest.map_structure(lambda x: tf.where(usable, x, tf.zeros_like(x)), mean),
                count=tf.identity(count),
                usable=tf.cast(usable, tf.float32),
            )

        @tff.tensorflow.computation(weight_type)
        def one(weight: tf.Tensor) -> tf.Tensor:
            return tf.ones_like(weight)

        @tff.federated_computation(
            inner.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Any, value: Any, weight: Any) -> tff.templates.MeasuredProcessOutput:
            output = inner.next(state, value, weight) if weighted else inner.next(state, value)
            participants = tff.federated_sum(tff.federated_map(one, weight))
            result = tff.federated_map(conclude, (output.result, participants, tff.federated_sum(weight)))
            return tff.templates.MeasuredProcessOutput(output.state, result, output.measurements)

        return tff.templates.AggregationProcess(inner.initialize, next_fn)


def resolve_factory(
    name: str, factory: Any | None, default: tff.aggregators.AggregationFactory | None = None
) -> tff.aggregators.AggregationFactory:
    """Returns a user's factory, or `default`, or the exact weighted mean, which is 0 where all weights are 0.

    Raises:
      TypeError: unless it is a `tff.aggregators` factory, and not one that is known to give a sum.
    """
    if factory is None:
        # TFF's plain mean divides by the sum of the weights even when every client sat the round out.
        factory = tff.aggregators.MeanFactory(no_nan_division=True) if default is None else default
    check_type(name, factory, _FACTORIES, "Pass a factory of tff.aggregators, not a process.")
    if isinstance(factory, _SUMS):
        raise TypeError(
            f"{name} must give a mean, found {type(factory).__name__}, which gives a sum. "
            "Wrap it: tff.aggregators.MeanFactory(it) or tff.aggregators.UnweightedMeanFactory(it)."
        )
    return factory


def _is_private(state_type: tff.Type) -> bool:
    """Whether a process of this state has a `tff.aggregators.DifferentiallyPrivateFactory` somewhere inside.

    Told from the state, which every wrapper carries along, and not from the factories: TFF's clipping, zeroing and
    measuring ones keep what they wrap in closures, and distributed DP makes its inner factory when it creates the
    process. All of TFF's private processes have a `DPAggregatorState` with a field `dp_event`, what an accountant is
    to be told.
    """
    if not isinstance(state_type, tff.StructType):
        return False
    return any(name == "dp_event" or _is_private(inner) for name, inner in tff.structure.iter_elements(state_type))


def as_weighted(factory: tff.aggregators.AggregationFactory) -> tff.aggregators.WeightedAggregationFactory:
    """Returns `factory`, with weights that are ignored if it takes none."""
    if isinstance(factory, tff.aggregators.WeightedAggregationFactory):
        return factory
    return tff.aggregators.as_weighted_aggregator(factory)


def check_population(count: tf.Tensor, num_clients: int) -> tf.Tensor:
    """Returns `count`; stops the round if more clients take part than there are."""
    message = f"More clients took part in the round than num_clients={num_clients}, the size of the whole population."
    with tf.control_dependencies([tf.debugging.assert_less_equal(count, float(num_clients), message)]):
        return tf.identity(count)


def federated_zeros(value_type: tff.Type) -> tff.Value:
    """Returns zeros of a type, `V@SERVER`."""

    @tff.tensorflow.computation()
    def zeros() -> Any:
        return tff.types.structure_from_tensor_type_tree(lambda t: tf.zeros(t.shape, t.dtype), value_type)

    return tff.federated_eval(zeros, tff.SERVER)
