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

    Attributes:
      budget: what two factories that share a noise budget have in common (`build_dp_pair`); `None` where the user
        of the factory accounts for its noise.
    """

    def __init__(
        self,
        factory: tff.aggregators.UnweightedAggregationFactory,
        denominator: float,
        *,
        budget: object | None = None,
    ) -> None:
        """Initializes the factory.

        Args:
          factory: an unweighted factory of `tff.aggregators`.
          denominator: the number that `factory` divides by, > 0.
          budget: see the class.
        """
        check_number("denominator", denominator, 0.0, open_low=True)
        super().__init__(factory, denominator)
        self.budget = budget


def check_shared_budget(
    first_name: str,
    first: tff.aggregators.AggregationFactory,
    second_name: str,
    second: tff.aggregators.AggregationFactory,
) -> None:
    """Checks that one noise budget covers both of the messages that a client's round gives away.

    Raises:
      ValueError: if one of the factories has a budget of which the other is not the second half.
    """
    budgets = [getattr(factory, "budget", None) for factory in (first, second)]
    if budgets == [None, None] or (first is not second and budgets[0] is budgets[1]):
        return
    found = "one factory for both" if first is second else "factories that do not belong together"
    raise ValueError(
        f"{first_name} and {second_name} must share one noise budget, found {found}: the algorithm aggregates two "
        "messages of each client, so a round costs more privacy than the noise multiplier of one factory says. Pass "
        f"{first_name}, {second_name} = tff_fen.build_dp_pair(...); or, if you account for both yourself, wrap each "
        "factory in tff_fen.FixedDenominatorFactory(factory, clients_per_round)."
    )
