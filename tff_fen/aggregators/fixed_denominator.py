"""A mean by a number that is known beforehand, as differentially private aggregators form it."""

from __future__ import annotations

import tensorflow_federated as tff

from tff_fen.checks import check_number, check_type


class FixedDenominatorFactory(tff.aggregators.UnweightedAggregationFactory):
    """An unweighted factory that divides its sum by a number of its own, however many clients take part.

    TFF's differentially private factories divide by the `clients_per_round` they are given.
    The algorithms with client states need to know it, to get the sum back; and the number of
    actual participants, which is not private, must not scale what is released.
    """

    def __init__(self, factory: tff.aggregators.UnweightedAggregationFactory, denominator: float) -> None:
        """Initializes the factory.

        Args:
          factory: an unweighted factory of `tff.aggregators`.
          denominator: the number that `factory` divides by, > 0.
        """
        advice = "Pass a differentially private factory of tff.aggregators."
        check_type("factory", factory, tff.aggregators.UnweightedAggregationFactory, advice)
        check_number("denominator", denominator, 0.0, open_low=True)
        self._factory = factory
        self.denominator = float(denominator)

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        """Returns the inner factory's process."""
        return self._factory.create(value_type)
