"""Plain functions of the leader's with kinks: what a run claims of them, and what verify believes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem
from blocc.result import Result


def _polyhedral(seed: int) -> tuple[BilevelProblem, np.ndarray, float]:
    """A convex polyhedral function of y = x in the plane, a start, and its least value by a linear program."""
    rng = np.random.default_rng(seed)
    start, rows = rng.uniform(-1, 1, 2), bool(seed % 2)
    matrix, right, weights = rng.normal(size=(3, 2)), rng.normal(size=3) * 0.3, 10 ** rng.uniform(-0.5, 1, 3)
    x, y = cp.Parameter(2, name="x", bounds=[-4, 4]), cp.Variable(2, name="y")
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - x)), [y <= x] if rows else [])
    problem = BilevelProblem(lambda a, b: jnp.sum(weights * jnp.abs(matrix @ b["y"] - right)), follower, x)
    z = cp.Variable(2, bounds=[-4, 4])
    least = cp.Problem(cp.Minimize(weights @ cp.abs(matrix @ z - right))).solve(solver=cp.HIGHS)
    return problem, start, float(least)


def _at(found: Result, x: np.ndarray, upper: float) -> Result:
    given: dict[str, Any] = {"x": {"x": x}, "y": {"y": x}, "upper_value": upper, "lower_value": 0.0}
    return replace(found, **given)


@pytest.mark.parametrize("seed", [11, 13, 36])
def test_no_minimum_is_claimed_beside_that_of_a_polyhedral_function(seed: int) -> None:
    problem, start, least = _polyhedral(seed)
    found = problem.solve(start, progress=False)
    assert found.upper_value >= least - 1e-6
    assert not found.success or found.upper_value <= least + 1e-4 * (1.0 + abs(least)), found


def test_verify_looks_along_kinks() -> None:
    """On the valley y1 = 2 |y0| - 1 f falls by a quarter of the way, beside it it rises."""
    x, y = cp.Parameter(2, name="x", bounds=[-4, 4]), cp.Variable(2, name="y")
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - x)), [y <= 5])

    def upper(a: Any, b: Any) -> Any:
        return 0.25 * jnp.abs(b["y"][0] - 1.0) + jnp.abs(b["y"][1] - 2.0 * jnp.abs(b["y"][0]) + 1.0)

    problem = BilevelProblem(upper, follower, x)
    best = problem.solve(np.array([1.0, 1.0]), progress=False)
    assert best.upper_value == pytest.approx(0.0, abs=1e-6)
    for at in (-1.0, -0.4, 0.5):
        point = np.array([at, 2.0 * abs(at) - 1.0])
        assert not problem.verify(_at(best, point, 0.25 * abs(at - 1.0))).ok
        found = problem.solve(point, progress=False)
        assert not found.success or found.upper_value < 1e-4, found
