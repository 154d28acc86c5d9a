"""Whether a problem meets a method's demands, found by evaluating its functions; what is missing is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from blocc.errors import ProblemError
from blocc.methods.base import Demand, Method, constraints
from blocc.problem import FlatProblem

Point = tuple[np.ndarray, np.ndarray]
Pair = tuple[Point, Point]
Function = Callable[[Any, Any], Any]

SAMPLES = 12
ROUNDING = 1e-7


def missing(flat: FlatProblem, method: Method, x: np.ndarray, y: np.ndarray, seed: int = 0) -> list[Demand]:
    """The demands of the method that the problem does not meet."""
    return [demand for demand in method.demands if not _meets(flat, demand, x, y, seed)]


def require(flat: FlatProblem, method: Method, x: np.ndarray, y: np.ndarray, seed: int = 0) -> None:
    """Refuse a problem outside the method's assumptions."""
    lacking = missing(flat, method, x, y, seed)
    if lacking:
        wants = "; ".join(demand.value for demand in lacking)
        raise ProblemError(f"method {method.name!r} does not apply to this problem: it needs {wants}")


def _meets(flat: FlatProblem, demand: Demand, x: np.ndarray, y: np.ndarray, seed: int) -> bool:
    if demand is Demand.NO_EQUALITY:
        return flat.n_equality == 0
    if demand is Demand.NO_INEQUALITY:
        return flat.n_inequality == 0
    if demand is Demand.SOME_EQUALITY:
        return flat.n_equality > 0
    if demand is Demand.NO_LEADER_CONSTRAINT:
        return flat.n_upper_inequality == 0
    if demand is Demand.FREE_Y:
        low, high = flat.y_set.bounds_flat()
        bare = np.asarray(flat.y_set.inequality_flat(y)).size == 0 and np.asarray(flat.y_set.equality_flat(y)).size == 0
        return bool(bare and np.isneginf(low).all() and np.isposinf(high).all())
    pairs = _pairs(flat, x, y, seed)
    if demand is Demand.AFFINE:
        return _affine(jax.jit(lambda a, b: constraints(flat, a, b)), pairs)
    if demand is Demand.AFFINE_IN_Y:
        jacobian = jax.jit(jax.jacfwd(flat.equality, argnums=1))
        slopes = [np.asarray(jacobian(*point)) for point, _ in pairs]
        size = 1.0 + np.abs(slopes[0]).max(initial=0.0)
        return all(np.abs(slope - slopes[0]).max(initial=0.0) <= ROUNDING * size for slope in slopes)
    return _affine(jax.jit(flat.equality), pairs) and _convex(jax.jit(flat.inequality), pairs)


def is_affine(flat: FlatProblem, x: np.ndarray, y: np.ndarray, seed: int = 0) -> bool:
    """Whether the coupled constraints are affine in x and y together."""
    return _meets(flat, Demand.AFFINE, x, y, seed)


def _pairs(flat: FlatProblem, x: np.ndarray, y: np.ndarray, seed: int) -> list[Pair]:
    """Pairs of points of X x Y: near the start, and further away."""
    generator = np.random.default_rng(seed)
    inside = flat.x_set.interior_flat(), flat.y_set.interior_flat()
    project_x, project_y = jax.jit(flat.x_set.project_flat), jax.jit(flat.y_set.project_flat)

    def draw(scale: float) -> Point:
        a = np.asarray(project_x(x + scale * generator.standard_normal(x.shape)))
        b = np.asarray(project_y(y + scale * generator.standard_normal(y.shape)))
        # A little inside, where a logarithm is finite.
        return 0.95 * a + 0.05 * inside[0], 0.95 * b + 0.05 * inside[1]

    return [(draw(scale), draw(scale)) for scale in (0.1, 1.0, 3.0) for _ in range(SAMPLES // 3)]


def _middle(function: Function, pair: Pair) -> tuple[np.ndarray, np.ndarray]:
    """The function in the middle of a pair, and the mean of its values at the ends."""
    (a, b), (c, d) = pair
    ends = np.asarray(function(a, b)), np.asarray(function(c, d))
    return np.asarray(function(0.5 * (a + c), 0.5 * (b + d))), 0.5 * (ends[0] + ends[1])


def _affine(function: Function, pairs: list[Pair]) -> bool:
    for pair in pairs:
        middle, mean = _middle(function, pair)
        if np.isfinite(middle).all() and (np.abs(middle - mean) > ROUNDING * (1.0 + np.abs(mean))).any():
            return False
    return True


def _convex(function: Function, pairs: list[Pair]) -> bool:
    for pair in pairs:
        middle, mean = _middle(function, pair)
        if np.isfinite(middle).all() and (middle > mean + ROUNDING * (1.0 + np.abs(mean))).any():
            return False
    return True
