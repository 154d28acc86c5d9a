"""Descent of F_gamma over the capacities of the links that are built, within their limits.

The descent in prices knows only x >= 0. Where capacities are limited by a bound on each link, by a budget or by
symmetry, it supplies a start, and F_gamma itself is minimised here for growing gamma, with one variable for each group
of tied links. A budget enters through its multiplier, which makes every unit of cost dearer until what is spent fits.

The same descent, cut short, is the test of an answer: at a stationary point it finds (next to) nothing to gain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.model import DesignModel, Penalty

Watch = Callable[[np.ndarray, float, Penalty], None]

LEVELS = (30.0, 100.0, 300.0, 1e3, 3e3, 1e4)
#: How closely a budget that binds is spent.
SPENT = 2e-3


class Limited(NamedTuple):
    """Capacities within the limits, and the multiplier of the budget that led there."""

    capacity: np.ndarray
    budget_price: float


def descend_limited(
    model: DesignModel, limits: CapacitySet, start: Limited, gamma: float, watch: Watch, from_level: float = 0.0
) -> Limited:
    """Minimise F_gamma within the limits, for gamma growing up to the one given."""
    capacity, price = start
    levels = [level for level in LEVELS if from_level <= level < gamma] + [gamma]
    for position, level in enumerate(levels):
        low, high = 0.0, np.inf
        for _ in range(12 if position == 0 else 6):
            last = level == gamma
            iterations, precision = (400, 1e-13) if last else (150, 1e-9)
            capacity, _ = descend_built(
                model, limits, Limited(capacity, price), level, watch, iterations=iterations, precision=precision
            )
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


def descend_built(
    model: DesignModel,
    limits: CapacitySet,
    start: Limited,
    gamma: float,
    watch: Watch,
    *,
    iterations: int,
    precision: float = 1e-13,
) -> tuple[np.ndarray, float]:
    """At most so many quasi-Newton steps over the links that ``start`` builds; where they led, and what was gained.

    The gain is in F_gamma plus the budget's multiplier times what is spent: the Lagrangian of the budget.
    """
    capacity, budget_price = start
    leaders, member = np.unique(limits.group, return_inverse=True)
    count = np.bincount(member)
    level = np.bincount(member, capacity) / count
    built = np.flatnonzero(level > 0)
    if not len(built):
        return np.zeros_like(capacity), 0.0
    floor = model.threshold
    warm: list[Penalty] = []
    values_seen: list[float] = []

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
        values_seen.append(float(found.value) + float(extra @ capacity))
        return values_seen[-1], slope[built]

    most = np.minimum(limits.limit[leaders[built]], 2.0 * float(model.network.demand.sum()) + 1.0)
    bounds = [(min(floor, top), top) for top in most]
    # A line search may take several evaluations a step where F_gamma has kinks; twice the steps must do.
    options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 30, "ftol": precision, "gtol": 1e-6}
    result = minimize(objective, level[built], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    # What fell to the floor is closed, exactly.
    return spread(np.where(result.x > 2.0 * floor, result.x, 0.0)), values_seen[0] - min(values_seen)
