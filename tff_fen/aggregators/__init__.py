"""Aggregators beside TFF's own: what carries FedDyn's h and SCAFFOLD's c, and what divides by a known number."""

from tff_fen.aggregators.broadcasting import BroadcastingAggregationProcess
from tff_fen.aggregators.control_variate import ControlVariateFactory
from tff_fen.aggregators.dp import build_dp_factory, build_dp_pair
from tff_fen.aggregators.dual_variable import DualVariableFactory
from tff_fen.aggregators.fixed_denominator import DeclaredMeanFactory, FixedDenominatorFactory
from tff_fen.aggregators.mean_and_count import MeanAndCountFactory

__all__ = [
    "BroadcastingAggregationProcess",
    "ControlVariateFactory",
    "DeclaredMeanFactory",
    "DualVariableFactory",
    "FixedDenominatorFactory",
    "MeanAndCountFactory",
    "build_dp_factory",
    "build_dp_pair",
]
