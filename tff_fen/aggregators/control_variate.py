"""The aggregator of SCAFFOLD (Algorithm 2): a mean of updates, and c, the mean of the clients' control variates."""

from __future__ import annotations

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen import measurements as measurements_lib
from tff_fen.aggregators.broadcasting import BroadcastingAggregationProcess
from tff_fen.aggregators.fixed_denominator import check_shared_budget
from tff_fen.aggregators.mean_and_count import MeanAndCountFactory, check_population, federated_zeros, resolve_factory
from tff_fen.checks import check_integer


class ControlVariateFactory(tff.aggregators.WeightedAggregationFactory):
    """Carries c through the rounds: `c' = c + (1/m) sum_k (c_k' - c_k)`.

    The value is `<delta=W,control=W>`, a client's delta and the change of its c_k; its weight is 1,
    or 0 if the client has nothing to contribute. The process is

        initialize: ( -> <control=W,delta=S1,control_change=S2>@SERVER)
        next: (<<control=W,delta=S1,control_change=S2>@SERVER, {<delta=W,control=W>}@CLIENTS, {float32}@CLIENTS> ->
               <state=<control=W,delta=S1,control_change=S2>@SERVER,
                result=W@SERVER,
                measurements=<delta=M1,control_change=M2,usable=float32,[control_norm=float32,drift=float32]>@SERVER>)
        get_broadcast: (<control=W,delta=S1,control_change=S2> -> <control=W>)

    with S1, M1 and S2, M2 those of the two inner factories. The result is the mean of delta. A round
    counts with both aggregates or, if one of them is not usable, not at all: then c stays and the
    result is zero. Clients need c in their next round, hence `get_broadcast`.
    """

    def __init__(
        self,
        num_clients: int,
        *,
        aggregator: tff.aggregators.AggregationFactory | None = None,
        control_aggregator: tff.aggregators.AggregationFactory | None = None,
        measurements: bool = True,
    ) -> None:
        """Initializes the factory.

        Args:
          num_clients: m, the size of the population.
          aggregator: of delta, gives a mean; the exact mean by default.
          control_aggregator: of the change of c_k; by default a second process of `aggregator`.
          measurements: whether to measure `control_norm` and `drift`.
        """
        check_integer("num_clients", num_clients, 1)
        self._num_clients, self._measure = num_clients, measurements
        self._aggregator = resolve_factory("aggregator", aggregator)
        self._control_aggregator = resolve_factory("control_aggregator", control_aggregator, default=self._aggregator)
        check_shared_budget("aggregator", self._aggregator, "control_aggregator", self._control_aggregator)

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> BroadcastingAggregationProcess:
        """Creates the process for values `<delta=W,control=W>` with float32 weights."""
        num_clients = self._num_clients
        delta_mean = MeanAndCountFactory(self._aggregator, name="aggregator").create(value_type["delta"], weight_type)
        control_mean = MeanAndCountFactory(self._control_aggregator, name="control_aggregator").create(
            value_type["control"], weight_type
        )

        @tff.federated_computation()
        def init_fn() -> Any:
            return tff.federated_zip(
                collections.OrderedDict(
                    control=federated_zeros(value_type["control"]),
                    delta=delta_mean.initialize(),
                    control_change=control_mean.initialize(),
                )
            )

        aggregate_type = delta_mean.next.type_signature.result.result.member

        @tff.tensorflow.computation(value_type["control"], aggregate_type, aggregate_type)
        def update_control(control: Any, delta: Any, change: Any) -> Any:
            usable = delta["usable"] * change["usable"]
            share = usable * check_population(change["count"], num_clients) / num_clients
            return collections.OrderedDict(
                mean=tf.nest.map_structure(lambda d: usable * d, delta["mean"]),
                usable=usable,
                control=tf.nest.map_structure(lambda c, x: c + share * x, control, change["mean"]),
            )

        @tff.federated_computation(
            init_fn.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Any, message: Any, weight: Any) -> tff.templates.MeasuredProcessOutput:
            delta_output = delta_mean.next(state["delta"], message["delta"], weight)
            control_output = control_mean.next(state["control_change"], message["control"], weight)
            updated = tff.federated_map(update_control, (state["control"], delta_output.result, control_output.result))
            measured = collections.OrderedDict(
                delta=delta_output.measurements,
                control_change=control_output.measurements,
                usable=updated["usable"],
            )
            if self._measure:
                measured["control_norm"] = measurements_lib.federated_norm(updated["control"])
                measured["drift"] = measurements_lib.federated_drift(message["delta"], weight)
            new_state = collections.OrderedDict(
                control=updated["control"], delta=delta_output.state, control_change=control_output.state
            )
            return tff.templates.MeasuredProcessOutput(
                tff.federated_zip(new_state), updated["mean"], tff.federated_zip(measured)
            )

        @tff.tensorflow.computation(init_fn.type_signature.result.member)
        def get_broadcast(state: Any) -> Any:
            return collections.OrderedDict(control=state["control"])

        return BroadcastingAggregationProcess(init_fn, next_fn, get_broadcast)
