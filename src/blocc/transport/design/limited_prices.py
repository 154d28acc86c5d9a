"""The penalty function in the prices where capacities are limited: the identity of ``prices.py``, with multipliers.

The minimum over x is taken over a set X with bounds on each link, a budget and ties. What is left of x is then a convex
problem, whose dual has one multiplier for each of the limits:

    min over x in X of F_gamma(x)  =  min over p >= 0 of  max over the multipliers of
        gamma [D(t + r; t_ext + m / gamma) - D(t + p; t_ext)]
        - (budget row) - sum (scarcity) limit + sum (idle) (gamma p + (1 + budget) c) least  -  sum w m

    gamma r  =  (1 - idle) (gamma p + (1 + budget) c) + scarcity,   in all for both directions of tied links: ``split``
                says which part of it is the first one's.

This is an identity as well: nothing is lost between the two sides, because the inner problem is convex. A budget alone
leaves one number to find, the worth of money, at which the penalised flows cost what there is. All other limits take a
quasi-Newton ascent. Both begin where they ended at the prices before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import ROUNDED
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.prices import PricePenalty

#: The penalty function of prices and of what a unit of capacity costs on each link, at one gamma and temperature.
FreePenalty = Callable[[Float[NDArray, "links"], Float[NDArray, "links"]], PricePenalty]

#: A budget counts as met when what is spent differs by less than this part of it.
MET = 1e-5
#: Where that may be rough, what is spent may differ by this part: value and gradient are extrapolated to the budget.
ROUGHLY_MET = 3e-3
#: Most evaluations in search of the worth of money.
MOST_TRIALS = 25


class LimitMultipliers(NamedTuple):
    """Multipliers of the limits. Those of a group of tied links stand at its first link."""

    budget: float  #: what one more unit of money would earn, beyond itself
    response: float  #: how what is spent answers to that, as last measured; 0 where it was not
    scarcity: Float[NDArray, "links"]  #: worth of a higher limit
    idle: Float[NDArray, "links"]  #: part of the price that is waived because the least capacity has room left
    split: Float[NDArray, "links"]  #: part of the price of tied links that the first one carries
    change: Float[NDArray, "links"]  #: how the flows answer to the worth of money, as last measured with ``response``

    @classmethod
    def none(cls, count: int) -> LimitMultipliers:
        """Nothing binds."""
        return cls(0.0, 0.0, np.zeros(count), np.zeros(count), np.full(count, 0.5), np.zeros(count))


class LimitedPrices:
    """The penalty function in the prices over a set of capacities.

    :param roughly: whether a budget need only be met about; the error is one of third order
    """

    def __init__(self, limits: CapacitySet, multipliers: LimitMultipliers, *, roughly: bool = False) -> None:
        self.limits, self.multipliers, self.roughly = limits, multipliers, roughly
        leads = limits.group == np.arange(limits.size)
        self._limited = np.flatnonzero(leads & np.isfinite(limits.limit) & (limits.limit > 0.0))
        self._least = np.flatnonzero(leads & (limits.least > 0.0))
        self._tied = np.flatnonzero(leads & (limits.partner != limits.group))

    def evaluate(self, free: FreePenalty, prices: Float[NDArray, "links"], gamma: float) -> PricePenalty:
        """Value and gradient at these prices, with the multipliers that belong to them."""
        if self.limits.is_orthant:
            return free(prices, self.limits.cost)
        at = _At(self.limits, free, prices, gamma)
        if len(self._limited) or len(self._least) or len(self._tied):
            self._ascend(at)
        elif self.limits.has_budget:
            self._afford(at)
        else:
            at(self.multipliers)
        assert at.found is not None
        return at.found

    def _afford(self, at: _At) -> None:
        """Find the worth of money at which what the flows need costs what there is: a safeguarded secant."""
        allowance, near = self.limits.allowance, MET * self.limits.spendable
        rough = ROUGHLY_MET * self.limits.spendable if self.roughly else 0.0
        low, high, worth = -1.0, np.inf, self.multipliers.budget
        slope, change = self.multipliers.response, self.multipliers.change
        before: tuple[float, float, Float[NDArray, "links"]] | None = None
        for _ in range(MOST_TRIALS):
            at(self.multipliers._replace(budget=worth))
            over, flow = at.spent - allowance, at.flow
            if abs(over) <= near or (over < 0.0 and worth == 0.0) or high - low <= ROUNDED * (1.0 + low):
                break
            low, high = (worth, high) if over > 0.0 else (low, worth)
            if before is not None and (over - before[1]) * (worth - before[0]) < 0.0:
                slope = (over - before[1]) / (worth - before[0])
                change = (flow - before[2]) / (worth - before[0])
            if abs(over) <= rough and slope < 0.0 and worth - over / slope >= 0.0:
                at.extrapolate(-over / slope, over, change)
                worth -= over / slope
                break
            before = (worth, over, flow)
            guess = worth - over / slope if slope < 0.0 else worth + np.sign(over) * 0.1 * (1.0 + worth)
            if np.isinf(high):
                worth = min(guess, 2.0 * worth + 1.0)
            elif low < 0.0:  # money may be worth nothing more than itself
                worth = max(guess, 0.0)
            else:
                edge = 0.02 * (high - low)
                worth = guess if low + edge < guess < high - edge else 0.5 * (low + high)
        self.multipliers = self.multipliers._replace(budget=worth, response=slope, change=change)

    def _ascend(self, at: _At) -> None:
        m, parts = self.multipliers, (self._limited, self._least, self._tied)
        with_budget = int(self.limits.has_budget)
        cuts = np.cumsum([with_budget, *(len(part) for part in parts)])

        def spread(values: Float[NDArray, "multipliers"]) -> LimitMultipliers:
            pieces, full = np.split(values, cuts[:-1]), [m.scarcity.copy(), m.idle.copy(), m.split.copy()]
            for vector, part, piece in zip(full, parts, pieces[1:], strict=True):
                vector[part] = piece
            budget = float(pieces[0][0]) if with_budget else 0.0
            return m._replace(budget=budget, response=0.0, scarcity=full[0], idle=full[1], split=full[2])

        def objective(values: Float[NDArray, "multipliers"]) -> tuple[float, Float[NDArray, "multipliers"]]:
            slopes = at(spread(values))
            pieces = [slope[part] for slope, part in zip(slopes, parts, strict=True)]
            budget = [[at.spent - self.limits.allowance]] if with_budget else []
            assert at.found is not None
            return -float(at.found.value), -np.concatenate([*budget, *pieces])

        start = np.concatenate([[m.budget] * with_budget, m.scarcity[parts[0]], m.idle[parts[1]], m.split[parts[2]]])
        free_above, within = with_budget + len(parts[0]), len(parts[1]) + len(parts[2])
        bounds = [(0.0, None)] * free_above + [(0.0, 1.0)] * within
        options = {"maxiter": 30, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-5}
        ended = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        self.multipliers = spread(ended.x)
        at(self.multipliers)


class _At:
    """The inner problem at one vector of prices: its value at any multipliers, and the slopes in them."""

    def __init__(self, limits: CapacitySet, free: FreePenalty, prices: Float[NDArray, "links"], gamma: float) -> None:
        self.limits, self.free, self.prices, self.gamma = limits, free, prices, gamma
        self.found: PricePenalty | None = None  #: at the last multipliers
        self.spent = 0.0  #: what the capacities there cost, were the existing ones not free
        self.flow = np.zeros(limits.size)  #: the penalised flows there

    def extrapolate(self, step: float, over: float, change: Float[NDArray, "links"]) -> None:
        """Value and gradient where the worth of money has changed by a small step that spends what there is.

        The value is concave in the worth of money, with the slope ``over``, which the step brings to 0.

        :param change: of the flows, by a unit of the worth of money
        """
        assert self.found is not None
        value = np.asarray(float(self.found.value) + 0.5 * over * step)
        gradient = np.asarray(self.found.gradient) + self.gamma * step * change
        self.found = self.found._replace(value=value, gradient=gradient)

    def __call__(self, m: LimitMultipliers) -> tuple[NDArray, NDArray, NDArray]:
        """Evaluate; returns the slopes in scarcity, idle and split."""
        limits, group = self.limits, self.limits.group
        count, is_tied = len(group), limits.partner != np.arange(limits.size)
        is_first = group == np.arange(count)
        part = np.where(is_tied, np.where(is_first, m.split[group], 1.0 - m.split[group]), 1.0)
        base = np.bincount(group, self.gamma * self.prices + (1.0 + m.budget) * limits.cost, count)
        price = (1.0 - m.idle) * base + m.scarcity
        found = self.free(self.prices, part * price[group] - self.gamma * self.prices)
        self.flow = flow = np.asarray(found.penalised.flow)
        weighted = np.bincount(group, part * flow, count)
        capacity = ((1.0 - m.idle) * weighted + m.idle * limits.least)[group]
        self.spent = float(limits.cost @ capacity)
        limit = np.where(np.isfinite(limits.limit), limits.limit, 0.0)
        value = float(found.value) + float((m.idle * base) @ limits.least - m.scarcity @ limit) - limits.refund
        value -= m.budget * limits.allowance if limits.has_budget else 0.0
        gradient = self.gamma * (capacity - np.asarray(found.follower.flow))
        self.found = found._replace(value=np.asarray(value), gradient=gradient)
        other = flow[limits.partner]
        return weighted - limit, base * (limits.least - weighted), price * (flow - other)
