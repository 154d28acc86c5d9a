"""Descent of F_gamma over the capacities of the links that are built, within their limits.

The descent in prices knows only x >= 0. Where capacities are limited by a bound on each link, by a budget or by
symmetry, it supplies a start, and F_gamma itself is minimised here for growing gamma, with one variable for each group
of tied links. A budget enters through its multiplier, which raises every cost in proportion until what is spent fits.

The same descent, cut short, is the test of an answer: at a stationary point it finds (next to) nothing to gain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from blocc._lib.arrays import Float, NDArray
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.model import CapacityPenalty, DesignModel

#: Called with every evaluation: the capacities, gamma and what was found.
Observer = Callable[[Float[NDArray, "links"], float, CapacityPenalty], None]

#: gamma of the descent, up to the one wanted.
LEVELS = (30.0, 100.0, 300.0, 1e3, 3e3, 1e4)
#: How closely a budget that binds is spent.
SPENT = 2e-3


class Candidate(NamedTuple):
    """Capacities, and the multiplier of the budget that led to them."""

    capacity: Float[NDArray, "links"]
    budget_price: float = 0.0


def descend_level(
    model: DesignModel,
    limits: CapacitySet,
    start: Candidate,
    gamma: float,
    observe: Observer,
    *,
    is_first: bool,
    is_last: bool,
) -> Candidate:
    """Minimise F_gamma within the limits at one gamma of several, with a multiplier that makes the budget fit."""
    capacity, price = start
    low, high = 0.0, np.inf
    iterations, precision = (400, 1e-13) if is_last else (150, 1e-9)
    for _ in range(12 if is_first else 6):
        capacity, _ = descend_built(
            model, limits, Candidate(capacity, price), gamma, observe, iterations=iterations, precision=precision
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
    return Candidate(capacity, price)


def descend_built(
    model: DesignModel,
    limits: CapacitySet,
    start: Candidate,
    gamma: float,
    observe: Observer = lambda capacity, gamma, found: None,
    *,
    iterations: int,
    precision: float = 1e-13,
) -> tuple[Float[NDArray, "links"], float]:
    """At most so many quasi-Newton steps over the links that ``start`` builds; where they led, and what was gained.

    The gain is in F_gamma plus the budget's multiplier times what is spent: the Lagrangian of the budget.
    """
    leaders, member = np.unique(limits.group, return_inverse=True)
    mean = np.bincount(member, start.capacity) / np.bincount(member)
    built = np.flatnonzero(mean > 0)
    if not len(built):
        return np.zeros_like(start.capacity), 0.0
    budget_cost = start.budget_price * model.network.cost
    warm = None
    values_seen: list[float] = []

    def spread(values: Float[NDArray, "built"]) -> Float[NDArray, "links"]:
        whole = np.zeros(len(leaders))
        whole[built] = values
        return whole[member]

    def objective(values: Float[NDArray, "built"]) -> tuple[float, Float[NDArray, "built"]]:
        nonlocal warm
        capacity = spread(values)
        found = model.capacities(capacity, gamma, warm)
        if float(found.follower.error) < 1e-8 and float(found.penalised.error) < 1e-8:
            warm = found.warm
        observe(capacity, gamma, found)
        slope = np.bincount(member, np.asarray(found.gradient) + budget_cost)
        values_seen.append(float(found.value) + float(budget_cost @ capacity))
        return values_seen[-1], slope[built]

    floor = model.threshold
    most = np.minimum(limits.limit[leaders[built]], 2.0 * float(model.network.demand.sum()) + 1.0)
    bounds = [(min(floor, top), top) for top in most]
    # A line search may take several evaluations a step where F_gamma has kinks; twice the steps must do.
    options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 30, "ftol": precision, "gtol": 1e-6}
    result = minimize(objective, mean[built], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    # What fell to the floor is closed, exactly.
    return spread(np.where(result.x > 2.0 * floor, result.x, 0.0)), values_seen[0] - min(values_seen)
