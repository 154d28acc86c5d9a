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
from blocc.roads.descents import Budget, Descended, within
from blocc.roads.question import Question

#: How far the first step of a descent may go, in the units of each decision; no step is tried below the least.
FIRST_RADIUS, LEAST_RADIUS = 1.0, 1e-5
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
    here = function(x)
    for _ in range(MOST_STEPS):
        ahead = _best_of_model(here, x, question, budget, radius, accuracy * size)
        step = ahead - x
        promised = -float(here.slope @ step + 0.5 * step @ here.curvature @ step)
        if promised <= accuracy * size or radius < LEAST_RADIUS:
            break
        length = float(np.max(np.abs(step) / question.units))
        there = function(ahead)
        kept = (here.value - there.value) / promised
        if kept < 0.25:
            radius = 0.3 * length
        elif kept > 0.7:
            radius = max(radius, 3.0 * length)
        if kept > 0.01:
            x, here = ahead, there
    return Descended(x, here.value, 0.0)


def _best_of_model(
    here: Bent,
    x: Float[NDArray, "n"],
    question: Question,
    budget: Budget | None,
    radius: float,
    worth: float,
) -> Float[NDArray, "n"]:
    """Where the quadratic model is least; ``worth`` is the gain that matters."""
    units = question.units
    low = np.maximum((question.lower - x) / units, -radius)
    high = np.minimum((question.upper - x) / units, radius)
    slope, bend = units * here.slope / worth, units[:, None] * here.curvature * units / worth

    def model(step: Float[NDArray, "n"]) -> tuple[float, Float[NDArray, "n"]]:
        turned = bend @ step
        return float(step @ (slope + 0.5 * turned)), slope + turned

    bounds = list(zip(low, np.maximum(low, high), strict=True))
    nothing = np.zeros(len(x))
    if budget is None:
        options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-15, "gtol": 1e-3, "maxcor": 30}
        found = minimize(model, nothing, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    else:
        limit = {
            "type": "ineq",
            "fun": lambda step: -budget.over(x + units * step),
            "jac": lambda step: -units * budget.spent(x + units * step)[1] / max(budget.limit, 1e-300),
        }
        scale = max(1.0, float(np.max(np.abs(slope))))
        found = minimize(
            lambda step: tuple(part / scale for part in model(step)),
            nothing,
            jac=True,
            method="SLSQP",
            bounds=bounds,
            constraints=[limit],
            options={"ftol": 0.01 / scale, "maxiter": 500},
        )
    return within(x + units * np.clip(found.x, low, high), question, budget)
