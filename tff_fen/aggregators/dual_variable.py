"""The aggregator of FedDyn (Algorithm 3): a mean of updates, and h, the mean of the clients' dual variables."""

from __future__ import annotations

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen import measurements as measurements_lib
from tff_fen.aggregators.fixed_denominator import check_shared_budget
from tff_fen.aggregators.mean_and_count import MeanAndCountFactory, check_population, federated_zeros, resolve_factory
from tff_fen.checks import check_integer, check_number


class DualVariableFactory(tff.aggregators.WeightedAggregationFactory):
    """Carries h through the rounds: `h' = h - (l2/m) sum_k delta_k - (l1/m) sum_k sign(delta_k)`, sign(0) = 0.

    The value is a client's delta, its weight 1, or 0 if the client has nothing to contribute. For
    a value type W the process is

        initialize: ( -> <h=W,delta=S1,sign=S2>@SERVER)
        next: (<<h=W,delta=S1,sign=S2>@SERVER, {W}@CLIENTS, {float32}@CLIENTS> ->
               <state=<h=W,delta=S1,sign=S2>@SERVER,
                result=<mean=W,usable=float32,h=W>@SERVER,
                measurements=<delta=M1,[sign=M2],usable=float32,[h_norm=float32,drift=float32]>@SERVER>)

    with S1, M1 and S2, M2 those of the two inner factories; `sign` is empty where l1 = 0. A round
    counts with both aggregates or, if one of them is not usable, not at all: then h stays.
    """

    def __init__(
        self,
        num_clients: int,
        *,
        l1: float = 0.0,
        l2: float,
        aggregator: tff.aggregators.AggregationFactory | None = None,
        sign_aggregator: tff.aggregators.AggregationFactory | None = None,
        measurements: bool = True,
    ) -> None:
        """Initializes the factory.

        Args:
          num_clients: m, the size of the population.
          l1: lambda_1 >= 0.
          l2: lambda_2 >= 0.
          aggregator: of delta, gives a mean; the exact mean by default.
          sign_aggregator: of the signs; by default a second process of `aggregator`. Not used when l1 = 0.
          measurements: whether to measure `h_norm` and `drift`.
        """
        check_integer("num_clients", num_clients, 1)
        check_number("l1", l1, 0.0)
        check_number("l2", l2, 0.0)
        self._num_clients, self._l1, self._l2, self._measure = num_clients, l1, l2, measurements
        self._aggregator = resolve_factory("aggregator", aggregator)
        self._sign_aggregator = resolve_factory("sign_aggregator", sign_aggregator, default=self._aggregator)
        if l1:
            check_shared_budget("aggregator", self._aggregator, "sign_aggregator", self._sign_aggregator)

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Creates the process for deltas of `value_type` with float32 weights."""
        l1, l2, num_clients = self._l1, self._l2, self._num_clients
        delta_mean = MeanAndCountFactory(self._aggregator, name="aggregator").create(value_type, weight_type)
        sign_mean = (
            MeanAndCountFactory(self._sign_aggregator, name="sign_aggregator").create(value_type, weight_type)
            if l1
            else None
        )

        @tff.federated_computation()
        def init_fn() -> Any:
            return tff.federated_zip(
                collections.OrderedDict(
                    h=federated_zeros(value_type),
                    delta=delta_mean.initialize(),
                    sign=sign_mean.initialize() if sign_mean else tff.federated_value((), tff.SERVER),
                )
            )

        aggregate_type = delta_mean.next.type_signature.result.result.member

        @tff.tensorflow.computation(value_type, aggregate_type, aggregate_type)
        def update_h(h: Any, delta: Any, sign: Any) -> Any:
            usable = delta["usable"] * sign["usable"]
            l2_share = usable * l2 / num_clients * check_population(delta["count"], num_clients)
            l1_share = usable * l1 / num_clients * sign["count"]
            new_h = tf.nest.map_structure(
                lambda h, d, s: h - l2_share * d - l1_share * s, h, delta["mean"], sign["mean"]
            )
            return collections.OrderedDict(mean=delta["mean"], usable=usable, h=new_h)

        @tff.tensorflow.computation(value_type)
        def signs(delta: Any) -> Any:
            return tf.nest.map_structure(tf.sign, delta)

        @tff.federated_computation(
            init_fn.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Any, delta: Any, weight: Any) -> tff.templates.MeasuredProcessOutput:
            delta_output = delta_mean.next(state["delta"], delta, weight)
            sign_result, sign_state = delta_output.result, state["sign"]  # weighs nothing where l1 = 0
            measured = collections.OrderedDict(delta=delta_output.measurements)
            if sign_mean:
                sign_output = sign_mean.next(sign_state, tff.federated_map(signs, delta), weight)
                sign_result, sign_state = sign_output.result, sign_output.state
                measured["sign"] = sign_output.measurements
            result = tff.federated_map(update_h, (state["h"], delta_output.result, sign_result))
            measured["usable"] = result["usable"]
            if self._measure:
                measured["h_norm"] = measurements_lib.federated_norm(result["h"])
                measured["drift"] = measurements_lib.federated_drift(delta, weight)
            new_state = collections.OrderedDict(h=result["h"], delta=delta_output.state, sign=sign_state)
            return tff.templates.MeasuredProcessOutput(
                tff.federated_zip(new_state), result, tff.federated_zip(measured)
            )

        return tff.templates.AggregationProcess(init_fn, next_fn)
