"""Which points no other one beats."""

from __future__ import annotations

from collections.abc import Sequence


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Returns the places of the points on the front, by rising cost.

    Args:
      points: `(cost, gain)` each. A point is beaten by one that costs no more and gains no less, and is better in
        one of the two.
    """

    def beaten(point: tuple[float, float]) -> bool:
        return any(other != point and other[0] <= point[0] and other[1] >= point[1] for other in points)

    return sorted((i for i, point in enumerate(points) if not beaten(point)), key=lambda i: points[i])
