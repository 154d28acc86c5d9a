"""Descent of F_gamma over the capacities of the links that are built, within their limits.

The descent in prices supplies a start; here F_gamma itself is minimised, with one variable for each group of tied links
between its bounds. A budget enters by an augmented Lagrangian: a multiplier, and a parabola beyond the budget. The
parabola matters. Where the utility grows in proportion with what is spent, no multiplier alone spends a given budget:
a little less of it and everything is worth building, a little more and nothing is.

The same descent, cut short, is the test of an answer: at a stationary point it finds (next to) nothing to gain.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from blocc._lib.arrays import Float, NDArray
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.model import CapacityPenalty, DesignModel, never

#: Called with every evaluation: the capacities, gamma and what was found.
Observer = Callable[[Float[NDArray, "links"], float, CapacityPenalty], None]

#: gamma of the descent, up to the one wanted.
LEVELS = (30.0, 100.0, 300.0, 1e3, 3e3, 1e4)
#: Spending so much more of a budget than there is changes its multiplier by 1.
_SLACK = 0.05
#: A first step may change capacities by this part of their mean, where every evaluation is costly.
_FIRST_STEP = 1e-3
#: Answers with a larger error say nothing about the capacities that were tried.
_UNSOLVED = 1e-6
#: Rounds of descent with a multiplier of the budget that is put right in between, and what counts as spent exactly.
_ROUNDS, _EXACT = 3, 1e-4


def evaluate(
    model: DesignModel,
    limits: CapacitySet,
    capacity: Float[NDArray, "links"],
    gamma: float,
    warm: Any = None,
    stop: Callable[[], bool] = never,
) -> CapacityPenalty:
    """F_gamma at these capacities, where only what stands above the existing ones is paid for."""
    found = model.capacities(capacity, gamma, warm, stop)
    utility, penalised = found.utility + limits.refund, found.utility_penalised + limits.refund
    return found._replace(value=found.value - limits.refund, utility=utility, utility_penalised=penalised)


def worth_of_money(limits: CapacitySet, capacity: Float[NDArray, "links"], found: CapacityPenalty) -> float:
    """What one more unit of money would earn beyond itself, were it spent in proportion on all that is built."""
    above = capacity - limits.least
    spent = float(limits.cost @ above)
    return max(0.0, -float(np.asarray(found.gradient) @ above) / spent) if spent > 0.0 else 0.0


class Descended(NamedTuple):
    """Where a descent led, within the limits, and what it gained in F_gamma."""

    capacity: Float[NDArray, "links"]
    gain: float
    warm: Any  #: of an evaluation there


def descend_built(
    model: DesignModel,
    limits: CapacitySet,
    start: Float[NDArray, "links"],
    gamma: float,
    observe: Observer = lambda capacity, gamma, found: None,
    *,
    iterations: int,
    precision: float = 1e-13,
    known: CapacityPenalty | None = None,
    stop: Callable[[], bool] = never,
) -> Descended:
    """At most so many quasi-Newton steps a round, over the links that ``start``, a member of the limits, builds.

    :param known: what an evaluation at ``start`` has found
    :param stop: as for ``evaluate``; ``observe`` must then raise
    """
    descent = _Descent(model, limits, start, gamma, observe)
    descent.stop = stop
    descent.known = known
    if not len(descent.built):
        return Descended(start, 0.0, None if known is None else known.warm)
    before, slope = descent.objective(descent.start)
    unit = _units(descent.start, slope) if model.network.n_links > 150 else np.ones(len(slope))
    penalty = 0.0
    if limits.has_budget:
        assert descent.found is not None
        descent.worth = worth_of_money(limits, start, descent.found)
        penalty = 1.0 / (_SLACK * (limits.spendable or 1.0))
    descent.parabola = penalty
    values = descent.start
    # A line search may take several evaluations a step where F_gamma has kinks; twice the steps must do.
    options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 30, "ftol": precision, "gtol": 1e-6}
    for _ in range(_ROUNDS if limits.has_budget else 1):
        descent.least = np.inf
        bounds = [(low / own, high / own) for (low, high), own in zip(descent.bounds, unit, strict=True)]
        descent.left = 2 * iterations + (1 if model.network.n_links <= 1000 else 0)
        with suppress(_Enough):  # SciPy looks at maxfun between line searches alone
            minimize(
                descent.scaled, values / unit, (unit,), jac=True, method="L-BFGS-B", bounds=bounds, options=options
            )
        values = descent.best
        over = float(limits.cost @ descent.spread(values)) - limits.allowance
        worth = max(0.0, descent.worth + penalty * over) if limits.has_budget else 0.0
        if worth == descent.worth or abs(over) <= _EXACT * limits.spendable:
            break
        descent.worth = worth
    capacity = limits.cover(descent.closed(values))
    if descent.worth > 0.0:
        capacity = limits.spend(capacity)
    ended = descent.known_at(capacity) or evaluate(model, limits, capacity, gamma, descent.warm, stop)
    gain = before - float(ended.value)
    if gain > 0.0 and ended.error <= _UNSOLVED:
        return Descended(capacity, gain, ended.warm)
    return Descended(start, 0.0, descent.warm)


def _units(start: Float[NDArray, "built"], slope: Float[NDArray, "built"]) -> Float[NDArray, "built"]:
    """Units in which the first step of L-BFGS-B, which is the whole gradient, changes no capacity much.

    A link far below the mean changes by that part of itself: down to next to nothing, its exact price would be found
    late, or not at all.
    """
    mean = float(np.mean(start))
    far = float(np.max(np.abs(slope), initial=0.0)) / (_FIRST_STEP * mean)
    return np.sqrt(np.minimum(1.0, start / mean) / max(1.0, far))


class _Enough(Exception):
    """There have been as many evaluations as were allowed."""


class _Descent:
    """F_gamma over the groups of links that are built, with the budget's row in it."""

    def __init__(
        self, model: DesignModel, limits: CapacitySet, start: Float[NDArray, "links"], gamma: float, observe: Observer
    ) -> None:
        self.model, self.limits, self.gamma, self.observe = model, limits, gamma, observe
        self.leaders, self.member = np.unique(limits.group, return_inverse=True)
        whole = start[self.leaders]
        self.built = np.flatnonzero(whole > 0.0)
        self.start = whole[self.built]
        lead = self.leaders[self.built]
        enough = 2.0 * float(model.network.demand.sum()) + 1.0
        most = np.minimum(limits.limit[lead], np.maximum(limits.least[lead], enough))
        #: What falls to the floor is closed in the end, exactly.
        self.floor = np.minimum(np.maximum(limits.least[lead], model.threshold), most)
        self.bounds = list(zip(self.floor, most, strict=True))
        self.worth = self.parabola = 0.0
        self.warm: Any = None
        self.found: CapacityPenalty | None = None
        self.least, self.best = np.inf, self.start
        self.best_found: CapacityPenalty | None = None
        self.left = 0  #: evaluations that are still allowed
        self.known: CapacityPenalty | None = None  #: what is known of the start
        self.stop: Callable[[], bool] = never

    def spread(self, values: Float[NDArray, "built"]) -> Float[NDArray, "links"]:
        whole = np.zeros(len(self.leaders))
        whole[self.built] = values
        return whole[self.member]

    def known_at(self, capacity: Float[NDArray, "links"]) -> CapacityPenalty | None:
        """What was found at these capacities, where they are the best that were tried."""
        return self.best_found if np.array_equal(self.spread(self.best), capacity) else None

    def closed(self, values: Float[NDArray, "built"]) -> Float[NDArray, "links"]:
        stays = (values > 2.0 * self.model.threshold) | (self.limits.least[self.leaders[self.built]] > 0.0)
        return self.spread(np.where(stays, values, 0.0))

    def scaled(
        self, values: Float[NDArray, "built"], unit: Float[NDArray, "built"]
    ) -> tuple[float, Float[NDArray, "built"]]:
        if self.left == 0:
            raise _Enough
        self.left -= 1
        value, slope = self.objective(unit * values)
        return value, unit * slope

    def objective(self, values: Float[NDArray, "built"]) -> tuple[float, Float[NDArray, "built"]]:
        capacity, limits = self.spread(values), self.limits
        if self.known is not None and values is self.start:
            found = self.known
        else:
            found = evaluate(self.model, limits, capacity, self.gamma, self.warm, self.stop)
        self.found = found
        if found.error < 1e-8:
            self.warm = found.warm
        self.observe(capacity, self.gamma, found)
        value, slope = float(found.value), np.asarray(found.gradient)
        if found.error > _UNSOLVED and np.isfinite(self.least):  # nobody knows what it is worth: not there
            value = self.least + 1.0 + abs(self.least)
        if self.parabola:
            over = float(limits.cost @ capacity) - limits.allowance
            worth = max(0.0, self.worth + self.parabola * over)
            value += (worth**2 - self.worth**2) / (2.0 * self.parabola)
            slope = slope + worth * limits.cost
        if value < self.least:
            self.least, self.best, self.best_found = value, values.copy(), found
        return value, np.bincount(self.member, slope, len(self.leaders))[self.built]
