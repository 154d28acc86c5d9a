"""Descent of ``phi(x) = f(x, y(x))`` itself, from values alone: for the ends that the penalty function cannot reach.

Where the follower is flatter than a parabola no gamma closes the penalty, and at a kink of y(x) on the edge of the
leader's own constraints no gradient points the way. Few variables then allow what is simple: quasi-Newton steps on
central differences, and polling in random orthogonal directions with a shrinking mesh (a direct search with an extreme
barrier for points that have no answer or violate the leader's constraints).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from blocc.judge.lower_level import TOUCHED
from blocc.judge.probe import Ask, Value

#: Polling asks for two values for each variable and mesh size: beyond this many variables it no longer pays.
LARGEST_DIMENSION = 12
_MESH, _FINEST = 0.1, 1e-7  #: first and last distance of polled points, in sizes of x
_DIFFERENCE = 1e-4  #: step of central differences, in sizes of x
_MOST = 150  #: values for each variable that polling may ask for


#: f, its derivative and the Jacobian of G(x, y(x)) at x; None where they cannot be had.
Differentiate = Callable[[np.ndarray], tuple[Value, np.ndarray, np.ndarray] | None]
#: The inequalities and equalities of X beyond its bounds at x, each with its Jacobian.
Rows = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]


def refine(
    differentiate: Differentiate,
    rows: Rows,
    constraint: Callable[[Value], np.ndarray],
    bounds: tuple[np.ndarray, np.ndarray],
    first: Value,
    sizes: np.ndarray,
    scale: float,
) -> Value:
    """A few steps of SLSQP on the derivative of f(x, y(x)), from a point close to stationary; the best point met.

    ``constraint`` is G. Where that becomes active at a kink of y(x) there is no derivative on it: steps along it, from
    where x is, remain.
    """
    low, high = bounds
    seen: dict[bytes, tuple[Value, np.ndarray, np.ndarray]] = {}

    def at(z: np.ndarray) -> tuple[Value, np.ndarray, np.ndarray]:
        x = np.clip(first.x + sizes * z, low, high)
        key = x.tobytes()
        if key not in seen:
            found = differentiate(x)
            if found is None:
                raise _Unusable
            seen[key] = found
        return seen[key]

    def value_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
        found, slope, _ = at(z)
        return (found.upper - first.upper) / scale, slope * sizes / scale

    start, leader = np.zeros(first.x.size), constraint(first)
    try:
        touched = leader >= -TOUCHED * np.maximum(1.0, np.abs(at(start)[2]) @ sizes)
    except _Unusable:
        return first
    for held in [np.zeros(len(leader), bool), touched][: 1 + int(touched.any())]:
        try:
            ended = scipy.optimize.minimize(
                value_and_gradient,
                start,
                jac=True,
                method="SLSQP",
                bounds=list(zip((low - first.x) / sizes, (high - first.x) / sizes, strict=True)),
                constraints=_within(at, rows, constraint, sizes, held),
                options={"maxiter": 20, "ftol": 1e-16},
            )
            return at(ended.x)[0]
        except (_Unusable, ValueError):
            continue
    candidates = [found[0] for found in seen.values() if found[0].violation <= first.violation]
    return min(candidates, key=lambda value: value.upper, default=first)


def _within(
    at: Callable[[np.ndarray], tuple[Value, np.ndarray, np.ndarray]],
    rows: Rows,
    constraint: Callable[[Value], np.ndarray],
    sizes: np.ndarray,
    held: np.ndarray,
) -> list[dict[str, Any]]:
    """What SLSQP keeps to: the rows of X, those of G, and of those that are ``held`` the tangents at the start."""
    first, _, jacobian = at(np.zeros(sizes.size))
    tangents, here = jacobian[held] * sizes, rows(first.x)
    inequality = {
        "type": "ineq",
        "fun": lambda z: -np.concatenate([constraint(at(z)[0])[~held], rows(at(z)[0].x)[0]]),
        "jac": lambda z: -np.concatenate([at(z)[2][~held], rows(at(z)[0].x)[1]]) * sizes,
    }
    equality = {
        "type": "eq",
        "fun": lambda z: np.concatenate([tangents @ z, rows(at(z)[0].x)[2]]),
        "jac": lambda z: np.concatenate([tangents, rows(at(z)[0].x)[3] * sizes]),
    }
    used = [inequality] if len(here[0]) or not held.all() else []
    return used + ([equality] if len(tangents) or len(here[2]) else [])


class _Unusable(Exception):
    """Unwinds SciPy's loop at a point without a value."""


def descend_value(
    ask: Ask,
    project: Callable[[np.ndarray], np.ndarray],
    bounds: tuple[np.ndarray, np.ndarray] | None,
    first: Value,
    sizes: np.ndarray,
    allowed: float,
    noise: float,
    seed: int = 0,
) -> Value:
    """Descend from ``first``; ``bounds`` where X is a box (None: only polling), ``sizes`` are natural sizes of x."""
    best = first
    if bounds is not None and first.violation <= 0.0:
        best = _quasi_newton(ask, bounds, best, sizes, allowed)
    return _poll(ask, project, best, sizes, allowed, noise, np.random.default_rng(seed))


def _quasi_newton(
    ask: Ask, bounds: tuple[np.ndarray, np.ndarray], first: Value, sizes: np.ndarray, allowed: float
) -> Value:
    """L-BFGS-B on central differences, until a point has no value."""
    low, high = bounds
    best = first

    def value(x: np.ndarray) -> float:
        nonlocal best
        found = ask(x)
        if found is None or found.violation > allowed:
            raise _Unusable
        if found.upper < best.upper:
            best = found
        return found.upper

    def value_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
        x = np.clip(first.x + sizes * z, low, high)
        height, slope = value(x), np.zeros(x.size)
        for index in range(x.size):
            ends = []
            for side in (1.0, -1.0):
                point = x.copy()
                point[index] = np.clip(x[index] + side * _DIFFERENCE * sizes[index], low[index], high[index])
                ends.append((point[index], value(point)))
            width = (ends[0][0] - ends[1][0]) / sizes[index]
            slope[index] = (ends[0][1] - ends[1][1]) / width if width > 0.0 else 0.0
        return (height - first.upper) / unit, slope / unit

    unit = 1.0
    try:
        unit = max(float(np.max(np.abs(value_and_gradient(np.zeros(first.x.size))[1]))), 1e-300)
        scipy.optimize.minimize(
            value_and_gradient,
            np.zeros(first.x.size),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip((low - first.x) / sizes, (high - first.x) / sizes, strict=True)),
            options={"maxiter": 30, "maxfun": 60, "ftol": 1e-15, "gtol": 1e-10},
        )
    except _Unusable:
        pass
    return best


def _poll(
    ask: Ask,
    project: Callable[[np.ndarray], np.ndarray],
    first: Value,
    sizes: np.ndarray,
    allowed: float,
    noise: float,
    generator: np.random.Generator,
) -> Value:
    """Direct search: go where it is lower; where it is nowhere lower, look closer."""
    best, mesh, asked = first, _MESH, 0
    n = first.x.size
    last: np.ndarray | None = None  # the step that was successful last is tried first
    while mesh >= _FINEST and asked < _MOST * n:
        basis = np.linalg.qr(generator.standard_normal((n, n)))[0]
        steps = [sign * row for row in basis for sign in (1.0, -1.0)]
        if last is not None:
            steps.insert(0, last)
        moved = False
        for step in steps:
            point = project(best.x + mesh * sizes * step)
            if not np.any(point != best.x):
                continue
            found = ask(point)
            asked += 1
            if found is None or found.violation > max(allowed, 0.99 * best.violation):
                continue
            less_violated = best.violation > allowed and found.violation < best.violation
            if less_violated or found.upper < best.upper - noise:
                best, last, moved = found, step, True
                break
        mesh = min(2.0 * mesh, _MESH) if moved else 0.5 * mesh
    return best
