"""Prices on their way down with the temperature: what the answer to capacities nearby begins with.

At the last temperature flows split over paths of equal cost, and prices that are a little off send everybody to one of
them: the last prices alone say little about other capacities. The prices at every temperature on the way say more. A
change of the capacities moves them all by about the same, so that an answer nearby joins them at the first temperature
that is not small compared with that, and follows them down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray

#: Rows of every path, so that all paths of a network have one shape; the last ones of a longer way are kept.
_ROWS = 24
#: Temperatures, in units of a link's time, at which prices of an unknown way may serve.
_ANYWHERE = (1e-2, 1e-3, 1e-4, 1e-5)


class PricePath(NamedTuple):
    """Prices of all links while the temperature fell; rows that are not used have the temperature NaN."""

    temperature: Float[NDArray, "rows"]
    price: Float[NDArray, "rows links"]  #: NaN for links that were closed

    def steps(self) -> list[tuple[float, Float[NDArray, "links"]]]:
        """Temperatures and prices, the hottest first."""
        used = np.isfinite(self.temperature)
        return [(float(t), price) for t, price in zip(self.temperature[used], self.price[used], strict=True)]


def price_path(steps: Sequence[tuple[float, Float[NDArray, "links"]]], links: int) -> PricePath:
    """The path with these temperatures, which fall, and prices."""
    path = PricePath(np.full(_ROWS, np.nan), np.full((_ROWS, links), np.nan))
    for row, (temperature, price) in enumerate(steps[-_ROWS:]):
        path.temperature[row], path.price[row] = temperature, price
    return path


def known_prices(price: Float[NDArray, "links"], time_unit: float, tolerance: float) -> PricePath:
    """The same prices at several temperatures, where nobody knows to which of them they belong."""
    return price_path([(relative * time_unit, price) for relative in (*_ANYWHERE, tolerance)], len(price))
