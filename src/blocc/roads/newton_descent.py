"""Descents by second derivatives: Newton steps within the bounds, the budget and a trust region.

An evaluation is one assignment or two, which on large networks is all the time there is; second derivatives cost less
than a tenth of that and save most of the evaluations of a quasi-Newton method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import ROUNDED, TINY
from blocc.roads.descents import Budget, Descended, within
from blocc.roads.question import Question

#: How far the first step of a descent may go, in the units of each decision; no step is tried below the least.
FIRST_RADIUS, LEAST_RADIUS = 1.0, 1e-4
#: Steps of one descent, at most.
MOST_STEPS = 60


class Bent(NamedTuple):
    """Value, slope and second derivatives at one decision."""

    value: float
    slope: Float[NDArray, "n"]
    curvature: Float[NDArray, "n n"]


def newton_descend(
    function: Callable[[Float[NDArray, "n"]], Bent],
    x: Float[NDArray, "n"],
    question: Question,
    budget: Budget | None,
    accuracy: float,
    size: float,
    radius: float = FIRST_RADIUS,
) -> Descended:
    """Minimise a function with known second derivatives within the bounds and the budget.

    :param accuracy: the descent ends when a step promises less than this, relative to ``size``
    """
    units, here = question.units, function(x)
    for _ in range(MOST_STEPS):
        # The model is made without units: decisions in theirs, gains in those that matter.
        worth = accuracy * size
        slope, bend = units * here.slope / worth, upwards(units[:, None] * here.curvature * units / worth)
        while True:
            ahead = _best_of_model(slope, bend, x, question, budget, radius)
            step = (ahead - x) / units
            promised = -float(step @ (slope + 0.5 * bend @ step))
            if promised <= 1.0 or radius < LEAST_RADIUS:
                return Descended(x, here.value, 0.0)
            there = function(ahead)
            kept = (here.value - there.value) / (promised * worth)
            length = float(np.max(np.abs(step)))
            if kept < 0.25:
                radius = 0.3 * length
            elif kept > 0.7:
                radius = max(radius, 3.0 * length)
            if kept > 0.01:
                x, here = ahead, there
                break
    return Descended(x, here.value, 0.0)


def _best_of_model(
    slope: Float[NDArray, "n"],
    bend: Float[NDArray, "n n"],
    x: Float[NDArray, "n"],
    question: Question,
    budget: Budget | None,
    radius: float,
) -> Float[NDArray, "n"]:
    """Where the quadratic model is least."""
    units = question.units
    low = np.maximum((question.lower - x) / units, -radius)
    high = np.minimum((question.upper - x) / units, radius)
    if budget is None:
        return within(x + units * least_in_box(slope, bend, low, high), question, budget)
    limit = {
        "type": "ineq",
        "fun": lambda step: -budget.over(x + units * step),
        "jac": lambda step: -units * budget.spent(x + units * step)[1] / max(budget.limit, TINY),
    }
    scale = max(1.0, float(np.max(np.abs(slope))))
    found = minimize(
        lambda step: (float(step @ (slope + 0.5 * bend @ step)) / scale, (slope + bend @ step) / scale),
        np.zeros(len(x)),
        jac=True,
        method="SLSQP",
        bounds=list(zip(low, np.maximum(low, high), strict=True)),
        constraints=[limit],
        options={"ftol": 0.01 / scale, "maxiter": 500},
    )
    return within(x + units * np.clip(found.x, low, high), question, budget)


def upwards(bend: Float[NDArray, "n n"]) -> Float[NDArray, "n n"]:
    """The same with negative eigenvalues turned around: how fast a slope changes tells how far it can be trusted."""
    values, vectors = np.linalg.eigh(0.5 * (bend + bend.T))
    values = np.maximum(np.abs(values), ROUNDED * float(np.max(np.abs(values), initial=0.0)) + TINY)
    return (vectors * values) @ vectors.T


def least_in_box(
    slope: Float[NDArray, "n"], bend: Float[NDArray, "n n"], low: Float[NDArray, "n"], high: Float[NDArray, "n"]
) -> Float[NDArray, "n"]:
    """The least of ``slope s + s bend s / 2`` between two limits around zero, by projected Newton steps.

    ``bend`` is positive definite. Gains are in units of what matters, so that a thousandth of one ends it.
    """
    step = np.zeros(len(slope))
    for _ in range(200):
        rate = slope + bend @ step
        free = ~(((step <= low) & (rate > 0.0)) | ((step >= high) & (rate < 0.0)))
        ahead = np.zeros(len(slope))
        if free.any():
            ahead[free] = -np.linalg.solve(bend[np.ix_(free, free)], rate[free])
        if -float(rate @ ahead) <= 1e-3:
            break
        share = 1.0
        while share > 1e-12:
            moved = np.clip(step + share * ahead, low, high) - step
            if float(moved @ (rate + 0.5 * bend @ moved)) <= 1e-4 * min(float(rate @ moved), 0.0) < 0.0:
                break
            share *= 0.5
        else:
            break
        step = step + moved
    return step
