"""Descent in the capacities where they are limited: by a bound on each link, by a budget, by symmetry.

The descent in prices knows only x >= 0. It supplies a start; here F_gamma itself is minimised over the capacities of
the links that are built, one variable for each group of tied links, for growing gamma. A budget enters through its
multiplier, which makes every unit of cost dearer until what is spent fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from blocc.applications.transport.capacity_set import CapacitySet
from blocc.applications.transport.model import DesignModel, Penalty

Watch = Callable[[np.ndarray, float, Penalty], None]

LEVELS = (30.0, 100.0, 300.0, 1e3, 3e3, 1e4)
#: How closely a budget that binds is spent.
SPENT = 2e-3


class Limited(NamedTuple):
    """Capacities within the limits, and the multiplier of the budget that led there."""

    capacity: np.ndarray
    budget_price: float


class Multipliers(NamedTuple):
    """The limits as prices: what a unit of capacity costs with them, and what they pay back in all."""

    cost: np.ndarray
    constant: float


def descend_limited(
    model: DesignModel, limits: CapacitySet, start: Limited, gamma: float, watch: Watch, from_level: float = 0.0
) -> Limited:
    """Minimise F_gamma within the limits, for gamma growing up to the one given."""
    capacity, price = start
    levels = [level for level in LEVELS if from_level <= level < gamma] + [gamma]
    for position, level in enumerate(levels):
        low, high = 0.0, np.inf
        for _ in range(12 if position == 0 else 4):
            capacity = _minimise(model, limits, capacity, level, price, watch)
            spent = float(model.network.cost @ capacity)
            if spent <= limits.budget and (price == 0.0 or spent >= (1.0 - SPENT) * limits.budget):
                break
            if spent > limits.budget:
                low = price
                price = 0.5 * (low + high) if np.isfinite(high) else 2.0 * price + 0.05
            else:
                high = price
                price = 0.5 * (low + high) if high > 1e-6 else 0.0
    return Limited(limits.cover(capacity), price)


def _minimise(
    model: DesignModel, limits: CapacitySet, start: np.ndarray, gamma: float, budget_price: float, watch: Watch
) -> np.ndarray:
    leaders, member = np.unique(limits.group, return_inverse=True)
    count = np.bincount(member)
    level = np.bincount(member, start) / count
    built = np.flatnonzero(level > 0)
    if not len(built):
        return np.zeros_like(start)
    floor = model.threshold
    last: list[Penalty] = []

    def spread(values: np.ndarray) -> np.ndarray:
        whole = np.zeros(len(leaders))
        whole[built] = values
        return whole[member]

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        capacity = spread(values)
        found = model.capacities(capacity, gamma, last[-1].warm if last else None)
        if float(found.follower.error) < 1e-8 and float(found.penalised.error) < 1e-8:
            last[:] = [found]
        watch(capacity, gamma, found)
        extra = budget_price * model.network.cost
        slope = np.bincount(member, np.asarray(found.gradient) + extra)
        return float(found.value) + float(extra @ capacity), slope[built]

    most = np.minimum(limits.limit[leaders[built]], 2.0 * float(model.network.demand.sum()) + 1.0)
    bounds = [(min(floor, top), top) for top in most]
    options = {"maxiter": 200, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-6}
    result = minimize(objective, level[built], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    # What fell to the floor is closed, exactly.
    return spread(np.where(result.x > 2.0 * floor, result.x, 0.0))


def multipliers(limits: CapacitySet, cost: np.ndarray, solution: Limited, found: Penalty, gamma: float) -> Multipliers:
    """Estimates of the limits' multipliers from the prices of both answers: at a solution they balance the cost."""
    capacity, budget_price = solution
    worth = gamma * (np.asarray(found.penalised.point.price) - np.asarray(found.follower.point.price))
    whole = cost * (1.0 + budget_price)
    other = limits.partner
    pair = whole + whole[other]
    total = worth + worth[other]
    # Tied links: together they pay both costs; who pays what follows the worth of each.
    tied = other != np.arange(len(cost))
    part = np.where(total > 0, np.clip(worth, 0.0, None) / np.where(total > 0, total, 1.0), 0.5)
    part = np.clip(np.where(tied, part / np.maximum(part + part[other], 1e-12), 0.5), 0.0, 1.0)
    effective = np.where(tied, pair * part, whole)
    at_limit = np.isfinite(limits.limit) & (capacity >= 0.999 * limits.limit) & (limits.limit > 0)
    extra = np.where(tied, np.clip(total - pair, 0.0, None) * part, np.clip(worth - whole, 0.0, None))
    extra = np.where(at_limit, extra, 0.0)
    finite = np.where(np.isfinite(limits.limit), limits.limit, 0.0)
    constant = float(extra @ finite)
    if budget_price > 0:
        constant += budget_price * limits.budget
    return Multipliers(effective + extra, constant)
