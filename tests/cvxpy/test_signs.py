"""Minimize and Maximize at both levels, and prices of every kind of constraint, in CVXPY's own signs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem, dual
from blocc.cvxpy.run import ConicRun
from blocc.cvxpy.run_options import RunOptions


def _sense(kind: str, expression: cp.Expression) -> cp.Minimize | cp.Maximize:
    """The same objective in either words."""
    return cp.Minimize(expression) if kind == "min" else cp.Maximize(-expression)


@pytest.mark.parametrize("upper", [pytest.param("min", marks=pytest.mark.slow), "max"])
@pytest.mark.parametrize("lower", ["min", "max"])
def test_all_four_senses_find_the_best_point_of_a_grid(upper: str, lower: str) -> None:
    x = cp.Parameter(name="x", bounds=[-2, 3])
    y = cp.Variable(name="y")
    follower = cp.Problem(_sense(lower, cp.square(y - x) + cp.abs(y)), [y <= 1, y + x >= -1])
    leader = cp.square(x - 2) - x * y + cp.square(y)
    problem = BilevelProblem(_sense(upper, leader), follower, x)
    result = problem.solve(0.5, progress=False)
    assert result.success
    grid = []
    for value in np.linspace(-2, 3, 251):
        x.value = value
        follower.solve(solver=cp.CLARABEL)
        if follower.status == cp.OPTIMAL:
            grid.append((float(leader.value), float(follower.value), value))
    best = min(grid)
    sign = 1.0 if upper == "min" else -1.0
    np.testing.assert_allclose(result.x["x"], best[2], atol=0.011)
    assert sign * result.upper_value <= best[0] + 1e-6
    np.testing.assert_allclose(sign * result.upper_value, best[0], atol=1e-3)
    np.testing.assert_allclose(result.lower_value, best[1], atol=2e-2)
    # The values stay with the user's objects.
    problem.solve(0.5, progress=False)
    np.testing.assert_allclose(x.value, result.x["x"])
    np.testing.assert_allclose(problem.objective.value, result.upper_value, atol=1e-9)
    np.testing.assert_allclose(result.history.upper_value[-1], result.upper_value, atol=1e-3)


def _rows(d: cp.Parameter, g: cp.Variable) -> dict[str, Callable[[], cp.Constraint]]:
    return {
        "==": lambda: cp.sum(g) == d,
        "== turned": lambda: d == cp.sum(g),
        "<=": lambda: -cp.sum(g) <= -d,
        ">=": lambda: cp.sum(g) >= d,
        "vector": lambda: g[0] >= 0.2 * d + np.array([0.3, 0.1]),
        "matrix": lambda: g >= np.array([[0.2, 0.1], [0.4, 0.0]]) + 0.1 * d,
        "matrix ==": lambda: 2 * g == np.array([[0.2, 0.1], [0.4, 0.0]]) + d,
    }


@pytest.mark.parametrize("kind", ["==", "== turned", "<=", ">=", "vector", "matrix", "matrix =="])
@pytest.mark.parametrize("lower", ["min", "max"])
def test_prices_have_cvxpys_signs_and_shapes(kind: str, lower: str) -> None:
    d, g = cp.Parameter(name="d", bounds=[0, 3]), cp.Variable((2, 2), name="g")
    rule = _rows(d, g)[kind]()
    cost = cp.sum(cp.multiply(np.array([[1.0, 2.0], [0.5, 3.0]]), g)) + cp.sum_squares(g)
    follower = cp.Problem(_sense(lower, cost), [rule])
    problem = BilevelProblem(cp.Minimize(cp.sum_squares(dual(rule)) + cp.square(d)), follower, d)
    run = ConicRun(problem, RunOptions())
    run.evaluator(np.array([1.5]), 1e6, run.leader, 1e-11)  # the penalised pair stays in the user's variables
    pair = np.array(dual(rule).value)
    d.value = 1.5
    follower.solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(pair, rule.dual_value, atol=1e-4)
    assert np.max(np.abs(pair)) > 0.1


@pytest.mark.parametrize("lower", [pytest.param("min", marks=pytest.mark.slow), "max"])
@pytest.mark.parametrize("kind", ["==", "<="])
def test_a_leader_that_looks_at_a_price_finds_the_best_point_of_a_grid(lower: str, kind: str) -> None:
    d, g = cp.Parameter(name="d", bounds=[0, 3]), cp.Variable(2, nonneg=True, name="g")
    rule = cp.sum(g) == d if kind == "==" else d <= cp.sum(g)
    follower = cp.Problem(_sense(lower, g[0] + 3 * g[1] + 0.5 * cp.sum_squares(g)), [rule, g[0] <= 1])
    paid = -dual(rule) if kind == "==" else dual(rule)
    problem = BilevelProblem(cp.Maximize(4 * d - cp.square(d) - paid), follower, d)
    result = problem.solve(1.0, progress=False)
    assert result.success
    values = []
    for value in np.linspace(0.01, 3, 300):
        d.value = value
        follower.solve(solver=cp.CLARABEL)
        price = float(np.asarray(rule.dual_value)) * (-1.0 if kind == "==" else 1.0)
        values.append((4 * value - value**2 - price, value))
    best: Any = max(values)
    assert result.upper_value >= best[0] - 1e-5
    np.testing.assert_allclose(result.x["d"], best[1], atol=0.02)
