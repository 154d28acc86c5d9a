"""Descents of a smooth function within bounds and a budget, and bounds by convexity.

The methods see values and decisions without units: gains relative to the size of values, decisions in the units that a
question measures them by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import KEPT, ROUNDED, TINY
from blocc.roads.question import Question

Function = Callable[[Float[NDArray, "n"]], tuple[float, Float[NDArray, "n"]]]

#: Up to so many decisions a dense quasi-Newton method needs fewer assignments.
MOST_DENSE = 150
#: How far the first step of a descent goes, in the units of the decision that it changes most.
FIRST_STEP = 0.2


class Budget(NamedTuple):
    """The leader may spend so much: ``spent(x)`` with its gradient, and the limit."""

    spent: Function
    limit: float

    def over(self, x: Float[NDArray, "n"]) -> float:
        """What is spent beyond the limit, relative to it."""
        return (self.spent(x)[0] - self.limit) / max(self.limit, TINY)


class Descended(NamedTuple):
    """Where a descent ended."""

    x: Float[NDArray, "n"]
    lowest: float  #: value that was met
    bend: float  #: how much slopes were taken to change with one unit of a decision


def descend(
    function: Function,
    x: Float[NDArray, "n"],
    question: Question,
    budget: Budget | None,
    accuracy: float,
    size: float = 1.0,
    bend: float = 0.0,
) -> Descended:
    """Minimise a smooth function within the bounds and the budget.

    :param size: of its values; ``accuracy`` is relative to it. The methods see values and decisions without units
    :param bend: of a descent of a similar function before, which tells how far first steps should go
    """
    units, first = question.units, function(x)
    movable = np.where(first[1] < 0.0, x < question.upper, x > question.lower)
    steep = float(np.max(np.abs(units * first[1])[movable], initial=0.0))
    if not 0.0 < steep < np.inf:
        return Descended(x, first[0], bend)
    bend = max(bend, steep / FIRST_STEP)
    start, lowest = x / units, first[0]

    def scaled(at: Float[NDArray, "n"]) -> tuple[float, Float[NDArray, "n"]]:
        nonlocal lowest
        value, slope = first if np.array_equal(at, start) else function(units * at)
        lowest = min(lowest, value)
        return value / bend, units * slope / bend

    spending = None
    if budget is not None:
        spent, limit = budget

        def spending(at: Float[NDArray, "n"]) -> tuple[float, Float[NDArray, "n"]]:
            value, slope = spent(units * at)
            return value / limit, units * slope / limit

    bounds = list(zip(question.lower / units, question.upper / units, strict=True))
    method = _descend_few if len(x) <= MOST_DENSE else _descend_many
    found = within(units * method(scaled, start, bounds, spending, accuracy, size / bend), question, budget)
    return Descended(found, lowest, bend)


def _descend_few(
    function: Function,
    x: Float[NDArray, "n"],
    bounds: list[tuple[float, float]],
    spending: Function | None,
    accuracy: float,
    size: float,
) -> Float[NDArray, "n"]:
    """By a dense quasi-Newton method."""
    rows: list[dict[str, Any]] = []
    if spending is not None:
        rows = [{"type": "ineq", "fun": lambda at: 1.0 - spending(at)[0], "jac": lambda at: -spending(at)[1]}]
    options = {"ftol": accuracy * size, "maxiter": 300}
    found = minimize(function, x, jac=True, method="SLSQP", bounds=bounds, constraints=rows, options=options)
    return np.asarray(found.x)


def _descend_many(
    function: Function,
    x: Float[NDArray, "n"],
    bounds: list[tuple[float, float]],
    spending: Function | None,
    accuracy: float,
    size: float,
) -> Float[NDArray, "n"]:
    """The same for many decisions: L-BFGS-B, with an augmented Lagrangian of the budget."""
    options = {"maxiter": 300, "maxfun": 400, "ftol": accuracy, "gtol": 1e-10, "maxcor": 30}
    if spending is None:
        return np.asarray(minimize(function, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)
    price, stiffness = 0.0, 10.0 * size

    def augmented(at: Float[NDArray, "n"]) -> tuple[float, Float[NDArray, "n"]]:
        value, slope = function(at)
        spent, rate = spending(at)
        over = max(0.0, price + stiffness * (spent - 1.0))
        return value + (over**2 - price**2) / (2.0 * stiffness), slope + over * rate

    for _ in range(12):
        x = np.asarray(minimize(augmented, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)
        over = spending(x)[0] - 1.0
        price = max(0.0, price + stiffness * over)
        if over <= 1e-8 and (price == 0.0 or over >= -KEPT):
            break
    return x


def within(x: Float[NDArray, "n"], question: Question, budget: Budget | None) -> Float[NDArray, "n"]:
    """The nearest decision below x, in proportion, that keeps to the bounds and the budget."""
    x = np.clip(x, question.lower, question.upper)
    if budget is None or budget.over(x) <= 0.0:
        return x
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        at = question.lower + middle * (x - question.lower)
        low, high = (middle, high) if budget.over(at) <= 0.0 else (low, middle)
    return question.lower + low * (x - question.lower)


def largest_price(slope: Float[NDArray, "n"], rate: Float[NDArray, "n"]) -> float:
    """A price of money beyond which no slope points upwards; those of decisions that hardly cost anything are left out.

    Whatever the price, it proves a bound: this only says where to look for the best.
    """
    costly = np.abs(rate) > ROUNDED * np.max(np.abs(rate), initial=0.0)
    return float(np.max(np.abs(slope[costly]) / np.abs(rate[costly]), initial=0.0))


def highest(lifted: Callable[[float], float], most: float) -> float:
    """The highest bound that prices of money up to ``most`` prove; it is concave in the price."""
    if most <= 0.0:
        return lifted(0.0)
    best = minimize_scalar(
        lambda share: -lifted(share * most), bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-9}
    )
    return -float(best.fun)


def convex_bound(value: float, slope: Float[NDArray, "n"], x: Float[NDArray, "n"], question: Question) -> float:
    """No decision has a value below this, if the function is convex with this value and slope at x."""
    to_lower, to_upper = question.lower - x, question.upper - x
    return value + float(np.minimum(slope * to_lower, slope * to_upper).sum())
