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
        for _ in range(12 if position == 0 else 6):
            capacity = _minimise(model, limits, capacity, level, price, watch, last=level == gamma)
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
    model: DesignModel,
    limits: CapacitySet,
    start: np.ndarray,
    gamma: float,
    budget_price: float,
    watch: Watch,
    last: bool,
) -> np.ndarray:
    leaders, member = np.unique(limits.group, return_inverse=True)
    count = np.bincount(member)
    level = np.bincount(member, start) / count
    built = np.flatnonzero(level > 0)
    if not len(built):
        return np.zeros_like(start)
    floor = model.threshold
    warm: list[Penalty] = []

    def spread(values: np.ndarray) -> np.ndarray:
        whole = np.zeros(len(leaders))
        whole[built] = values
        return whole[member]

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        capacity = spread(values)
        found = model.capacities(capacity, gamma, warm[-1].warm if warm else None)
        if float(found.follower.error) < 1e-8 and float(found.penalised.error) < 1e-8:
            warm[:] = [found]
        watch(capacity, gamma, found)
        extra = budget_price * model.network.cost
        slope = np.bincount(member, np.asarray(found.gradient) + extra)
        return float(found.value) + float(extra @ capacity), slope[built]

    most = np.minimum(limits.limit[leaders[built]], 2.0 * float(model.network.demand.sum()) + 1.0)
    bounds = [(min(floor, top), top) for top in most]
    options = {"maxiter": 400 if last else 150, "maxcor": 30, "ftol": 1e-13 if last else 1e-9, "gtol": 1e-6}
    result = minimize(objective, level[built], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    # What fell to the floor is closed, exactly.
    return spread(np.where(result.x > 2.0 * floor, result.x, 0.0))


def multipliers(
    model: DesignModel, limits: CapacitySet, solution: Limited, found: Penalty, gamma: float
) -> Multipliers:
    """The limits' multipliers that show best how little F_gamma can still fall.

    They start from the prices of both answers, which balance the cost at a solution, and maximise the bound that
    :func:`first_order_bound` computes: a concave problem, smoothed by a temperature.
    """
    capacity, budget_price = solution
    cost = model.network.cost
    whole = cost * (1.0 + budget_price)
    other = limits.partner
    first = np.flatnonzero((np.arange(len(cost)) < other) & (capacity > 0))
    second = other[first]
    full = np.flatnonzero(np.isfinite(limits.limit) & (capacity >= 0.999 * limits.limit) & (capacity > 0))
    bounded = bool(budget_price > 0)  # whether the budget binds
    if not (len(first) or len(full) or bounded):
        return Multipliers(whole, 0.0)
    prices = np.asarray(found.follower.point.price)
    worth = gamma * (np.asarray(found.penalised.point.price) - prices) - whole

    def unpack(values: np.ndarray) -> Multipliers:
        budget_price, moved, extra = values[0], values[1 : 1 + len(first)], values[1 + len(first) :]
        effective = cost * (1.0 + budget_price)
        effective[first] += moved  # of two tied links one may pay for the other
        effective[second] -= moved
        effective[full] += extra
        spent = budget_price * limits.budget if bounded else 0.0
        return Multipliers(effective, spent + float(extra @ limits.limit[full]))

    def objective(values: np.ndarray, temperature: float) -> tuple[float, np.ndarray]:
        terms = unpack(values)
        model.cost = terms.cost
        side = model.prices(prices, gamma, capacity > 0, temperature)
        flow = side.penalised.flow
        unspent = float(cost @ flow) - limits.budget if bounded else 0.0
        slope = np.concatenate([[unspent], flow[first] - flow[second], flow[full] - limits.limit[full]])
        return terms.constant - float(side.value), -slope

    moved = np.clip(0.5 * (worth[first] - worth[second]), -cost[first], cost[second])
    values = np.concatenate([[budget_price], moved, np.clip(worth[full], 0.0, None)])
    bounds = [(0.0, None) if bounded else (0.0, 0.0)]
    bounds += [(-cost[a], cost[b]) for a, b in zip(first, second, strict=True)] + [(0.0, None)] * len(full)
    options = {"maxiter": 200, "ftol": 1e-13}
    for temperature in (1e-3, 1e-4, 1e-5):
        arguments = (temperature * model.time_unit,)
        values = minimize(objective, values, arguments, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return unpack(values)


def first_order_bound(
    model: DesignModel, terms: Multipliers, capacity: np.ndarray, found: Penalty, gamma: float
) -> float:
    """What no design within the limits can beat while the follower's prices stay: F_gamma's majorant, minimised.

    F_gamma is a difference of convex functions. Linearising the one that is subtracted, at the follower's prices, gives
    a convex majorant that touches F_gamma at ``capacity``; how far its minimum lies below is how far from stationary
    the capacities are.
    """
    model.cost = terms.cost
    prices = np.asarray(found.follower.point.price)
    side = model.prices(prices, gamma, capacity > 0, 1e-9 * model.time_unit)
    model.cost = model.network.cost
    return float(side.value) - terms.constant
