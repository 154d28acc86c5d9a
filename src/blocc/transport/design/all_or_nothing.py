"""Capacities out of prices alone: everybody on cheapest paths, and links just as large as what flows.

Smooth flows share many nearly cheapest paths, and their exact answer can take a minute. At the same prices, but the
lowest temperature, flows fill their own cheapest paths: with those as capacities the prices are the travellers' own.
The exact answer, and so the utility, is then known for the price of one evaluation. Limits other than a budget cut
such flows, and what is left is worth about as much as is left of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray
from blocc._lib.rounding import TINY
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.model import DesignModel
from blocc.transport.design.prices import FINEST, PricePenalty

#: Where no prices are known yet, these multiples of the links' costs are tried.
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
#: Links for next to nobody are taken away where that costs no more than so much of the utility.
WORTHLESS = 1e-6
#: Flows below this part of a market's mean demand are none: capacities as small are taken for closed.
_NOTHING = 1e-9
#: At most so many halvings until flows fit the budget, and multiples of the costs until nobody comes.
HALVINGS, _DEAREST = 14, 1e18
#: Of the flows, those below this part of the largest are left out, where none misses them.
_DUSTY = 1e-6


class Met(NamedTuple):
    """Prices that a descent has met."""

    prices: Float[NDArray, "links"]
    is_open: Bool[NDArray, "links"]
    gamma: float


class Load(NamedTuple):
    """Flows on cheapest paths at some prices, and the capacities for them."""

    part: float  #: of the costs, in the prices
    utility: float  #: without what existing capacity would cost; exact where nothing but a budget limits capacities
    spent: float
    prices: Float[NDArray, "links"]
    capacity: Float[NDArray, "links"]


def nothing(limits: CapacitySet) -> Load:
    """Before any flows were looked at."""
    return Load(0.0, -np.inf, 0.0, np.zeros(limits.size), limits.least)


def incomes(model: DesignModel, found: PricePenalty) -> list[float]:
    """Income at both answers."""
    return [float(np.vdot(model.earnings, np.asarray(side.share))) for side in (found.follower, found.penalised)]


class SharpFlows:
    """Loads within the limits of one design."""

    def __init__(self, model: DesignModel, limits: CapacitySet, gamma: float) -> None:
        self.model, self.limits, self.gamma = model, limits, gamma
        self._lowest = model.lowest_temperature if limits.is_simple else FINEST[-1] * model.time_unit

    def unpriced(self) -> Met:
        """What there is before any prices are met."""
        return Met(np.zeros(self.limits.size), self.limits.limit > 0.0, 1.0)

    def best(self, met: Met, parts: tuple[float, ...] = (0.0, 1.0), halvings: int = HALVINGS) -> Load:
        """The best load at prices between what both sides pay.

        Higher prices keep flows within a budget, and are the travellers' own as well. Other limits cut the flows.

        :param parts: of the links' costs over gamma that are added to the prices, the smallest first
        """
        tried = self.tried(met, parts)
        affordable = [trial for trial in tried if trial.spent <= self.limits.allowance]
        if self.limits.is_simple and (not affordable or (len(parts) > 2 and len(affordable) < len(tried))):
            low = max(trial.part for trial in tried if trial.spent > self.limits.allowance)
            high = max(4.0 * low, 1.0)
            while (trial := self._load(met, high)).spent > self.limits.allowance:
                if high > _DEAREST:  # nothing is expensive enough that nobody comes
                    return nothing(self.limits)
                low, high = high, 4.0 * high
            affordable.append(trial)
            for _ in range(halvings):
                trial = self._load(met, 0.5 * (low + high))
                if trial.spent <= self.limits.allowance:
                    high, affordable = trial.part, [*affordable, trial]
                else:
                    low = trial.part
        best = max(affordable or tried, key=lambda trial: trial.utility)
        return self._without_dust(met, best) if self.limits.is_simple else best

    def tried(self, met: Met, parts: tuple[float, ...]) -> list[Load]:
        """A load for each part of the costs."""
        return [self._load(met, part) for part in parts]

    def _load(self, met: Met, part: float, closed: Bool[NDArray, "links"] | None = None) -> Load:
        """Everybody on cheapest paths, at the prices met and so much of the costs."""
        is_open, cost = met.is_open | (self.limits.least > 0.0), self.limits.cost
        is_open = is_open if closed is None else is_open & ~closed
        prices = met.prices + (part / met.gamma) * cost
        found = self.model.prices(prices, self.gamma, is_open, self._lowest, cost)
        flow = np.asarray(found.follower.flow)
        flow = np.where(is_open & (flow > _NOTHING * float(np.mean(self.model.network.demand))), flow, 0.0)
        income = incomes(self.model, found)[0]
        if self.limits.is_simple:
            spent = float(cost @ flow)
            return Load(part, income - spent, spent, prices, flow)
        flow = np.where(flow > self.model.threshold, flow, 0.0)
        # Where both directions are tied, the larger flow leaves capacity idle, and the smaller one loses passengers.
        other = flow[self.limits.partner]
        rivals = [self._within(part, prices, wanted, flow, income) for wanted in (flow, np.minimum(flow, other))]
        return max(rivals, key=lambda load: load.utility)

    def _within(
        self,
        part: float,
        prices: Float[NDArray, "links"],
        wanted: Float[NDArray, "links"],
        flow: Float[NDArray, "links"],
        income: float,
    ) -> Load:
        """A load with capacities within the limits; where those cut the flows down, income falls with them."""
        capacity = self.limits.cover(wanted)
        left = float(np.minimum(capacity, flow).sum()) / max(float(flow.sum()), TINY)
        spent = float(self.limits.cost @ capacity)
        return Load(part, left * income - spent, spent, prices, capacity)

    def _without_dust(self, met: Met, best: Load) -> Load:
        """The same prices without links for next to nobody, whose few passengers find other ways, or none."""
        closed = np.zeros(self.limits.size, dtype=bool)
        for _ in range(3):
            is_dust = (best.capacity > 0.0) & (best.capacity < _DUSTY * float(np.max(best.capacity, initial=0.0)))
            if not is_dust.any():
                break
            closed = closed | is_dust
            trial = self._load(met, best.part, closed)
            worse = trial.utility < best.utility - WORTHLESS * (1.0 + abs(best.utility))
            if worse or trial.spent > self.limits.allowance:
                break
            best = trial
        return best
