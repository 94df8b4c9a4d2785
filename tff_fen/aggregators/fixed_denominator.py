"""Aggregators whose user says what their mean is divided by, where that does not follow from their type."""

from __future__ import annotations

import tensorflow_federated as tff

from tff_fen.checks import check_number, check_type


class DeclaredMeanFactory(tff.aggregators.UnweightedAggregationFactory):
    """An unweighted factory of a mean, with what its user says of the mean's denominator.

    The algorithms with client states turn a mean back into a sum, and so need that number. It does not follow from
    the type of a differentially private factory, which is refused unless it is declared.

    Attributes:
      denominator: the number that the factory divides by; `None` for the number of the round's participants.
    """

    def __init__(self, factory: tff.aggregators.UnweightedAggregationFactory, denominator: float | None = None) -> None:
        """Initializes the factory.

        Args:
          factory: an unweighted factory of `tff.aggregators`.
          denominator: what `factory` divides by, > 0; `None` for the number of the round's participants, as
            `tff.aggregators.UnweightedMeanFactory` and `tff.learning.ddp_secure_aggregator` do.
        """
        advice = "Pass a differentially private factory of tff.aggregators."
        check_type("factory", factory, tff.aggregators.UnweightedAggregationFactory, advice)
        if denominator is not None:
            check_number("denominator", denominator, 0.0, open_low=True)
        self._factory = factory
        self.denominator = None if denominator is None else float(denominator)

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        """Returns the inner factory's process."""
        return self._factory.create(value_type)


class FixedDenominatorFactory(DeclaredMeanFactory):
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
        check_number("denominator", denominator, 0.0, open_low=True)
        super().__init__(factory, denominator)
