"""Multipliers of second-order, semidefinite and exponential constraints in the leader's objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem, dual, payment
from blocc.cvxpy.run import ConicRun
from blocc.cvxpy.run_options import RunOptions
from blocc.errors import ProblemError

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
Made = tuple[cp.Parameter, cp.Problem, cp.Constraint, cp.Expression]
TIGHT: dict[str, Any] = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}


def _ball() -> Made:
    x, y = cp.Parameter(name="x", bounds=[0.2, 2]), cp.Variable(2, name="y")
    ball = cp.SOC(x, y)
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - np.array([2.0, 1.0])) / 2), [ball])
    first, rest = dual(ball)
    return x, follower, ball, 0.7 * first + rest[0] - 0.3 * rest[1]


def _matrix() -> Made:
    x, m = cp.Parameter(name="x", bounds=[-2, 2]), cp.Variable((2, 2), symmetric=True, name="m")
    positive = m >> 0.1 * np.eye(2)
    target = np.array([[1.0, 2.0], [2.0, -1.0]])
    follower = cp.Problem(cp.Minimize(cp.sum_squares(m - target - x * np.array([[0.0, 0.3], [0.3, 1.0]]))), [positive])
    price = dual(positive)
    return x, follower, positive, price[0, 0] + 0.5 * price[0, 1] - 0.2 * price[1, 1]


def _growth() -> Made:
    x, y = cp.Parameter(name="x", bounds=[0.0, 1.5]), cp.Variable(2, name="y")
    growth = cp.ExpCone(y[0], cp.Constant(1.0), y[1])
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - np.array([1.0, 0.5]) - x)), [growth])
    parts = dual(growth)
    return x, follower, growth, parts[0] + 0.4 * parts[1] + 0.2 * parts[2]


def _parts(constraint: cp.Constraint) -> np.ndarray:
    return np.concatenate([np.ravel(one.value, order="F") for one in constraint.dual_variables])


@pytest.mark.parametrize("make", [_ball, _matrix, _growth])
def test_prices_of_cones_and_their_derivative(make: Callable[[], Made]) -> None:
    x, follower, constraint, expression = make()
    problem = BilevelProblem(cp.Minimize(expression + cp.square(x)), follower, x)
    (price,) = problem.model.price_variables

    def value(at: float) -> float:
        x.value = at
        follower.solve(**TIGHT)
        price.take()
        np.testing.assert_allclose(
            np.concatenate([np.ravel(one) for one in price.told(price.value)]), _parts(constraint), atol=1e-9
        )
        return float(np.ravel(expression.value)[0]) + at**2

    run = ConicRun(problem, RunOptions(progress=False))
    at = np.array([0.8])
    exact = run.evaluator(at, np.inf, run.leader, 1e-11)
    assert exact.usable
    np.testing.assert_allclose(float(exact.value), value(0.8), atol=1e-5)
    assert np.max(np.abs(_parts(constraint))) > 0.1
    wanted = (value(0.801) - value(0.799)) / 2e-3
    np.testing.assert_allclose(exact.gradient[0], wanted, atol=2e-3)
    # The penalised pair has the same prices where gamma is large, and its gradient is that of its value.
    found = [run.evaluator(at + step, 300.0, run.leader, 1e-11) for step in (0.0, 1e-4, -1e-4)]
    assert all(one.usable for one in found)
    np.testing.assert_allclose(
        found[0].gradient[0], float(found[1].value - found[2].value) / 2e-4, rtol=1e-3, atol=1e-4
    )


def test_a_leader_who_looks_at_the_price_of_a_ball_finds_the_best_point_of_a_closed_form() -> None:
    x, follower, ball, _ = _ball()
    first = dual(ball)[0]
    problem = BilevelProblem(cp.Minimize(cp.square(first - 1.0) + 0.1 * cp.square(x)), follower, x)
    result = problem.solve(0.5, progress=False)
    assert result.success, result
    # y = x c / |c| by hand, so that the price is |c| - x.
    radius = np.linspace(0.2, 2.0, 20001)
    best = np.min((np.sqrt(5.0) - radius - 1.0) ** 2 + 0.1 * radius**2)
    np.testing.assert_allclose(result.upper_value, best, atol=1e-6)
    assert problem.verify(result).ok
    with pytest.raises(ProblemError, match="several parts"):
        payment(ball, 1.0)
    with pytest.raises(ProblemError, match="PowCone3D is not known"):
        dual(cp.PowCone3D(x, x, cp.Variable(), 0.3))
