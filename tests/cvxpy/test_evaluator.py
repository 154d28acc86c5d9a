"""F_gamma and its gradient, with and without prices, against finite differences of programs written out in CVXPY."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem, dual
from blocc.cvxpy.run import ConicRun
from blocc.cvxpy.run_options import RunOptions
from blocc.errors import ProblemError

#: Clarabel is asked for more digits than it can be sure of.
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
TIGHT: dict[str, Any] = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}


def _quadratic() -> tuple[BilevelProblem, np.ndarray]:
    x = cp.Parameter((2, 2), name="x", bounds=[-5, 5])
    y, t = cp.Variable((2, 2), name="y"), cp.Variable(nonneg=True, name="t")
    follower = cp.Problem(
        cp.Minimize(cp.sum_squares(y - x) + 0.3 * cp.norm1(y) + cp.square(t) - t), [cp.sum(y) + t <= 1 + x[0, 1]]
    )
    upper = cp.sum_squares(x) + cp.sum(cp.multiply(x, y)) + cp.sum_squares(y - 1) + cp.norm2(y[:, 0]) - x[1, 0] ** 3
    return BilevelProblem(cp.Minimize(upper), follower, x), np.array([0.4, -0.3, 1.2, 0.7])


def _cones() -> tuple[BilevelProblem, np.ndarray]:
    a, b = cp.Parameter(2, name="a", nonneg=True), cp.Parameter(name="b")
    y, m = cp.Variable(2, name="y"), cp.Variable((2, 2), PSD=True, name="m")
    follower = cp.Problem(
        cp.Maximize(-a @ cp.exp(y) - cp.norm2(y - b) - cp.sum_squares(m - 1 + b * np.eye(2))), [cp.sum(y) >= b]
    )
    upper = cp.sum_squares(y) + b * y[0] + cp.lambda_max(m) - cp.log(a[0] + 1)
    return BilevelProblem(cp.Minimize(upper), follower, [a, b]), np.array([0.8, 0.6, 0.4])


def _follower_value(problem: BilevelProblem) -> float:
    one = problem.followers[0]
    return problem.lower_signs[0] * float(one.solve(**TIGHT))


def _penalty_value(problem: BilevelProblem, x: np.ndarray, gamma: float) -> float:
    """F_gamma, by CVXPY from the user's expressions."""
    model = problem.model
    for one, value in zip(model.parameters, model.values(x), strict=True):
        one.value = value
    lower = _follower_value(problem)
    upper = problem.sign * problem.objective.args[0]
    below = problem.lower_signs[0] * problem.followers[0].objective.args[0]
    joint = cp.Problem(cp.Minimize(upper + gamma * below), problem.followers[0].constraints)
    return float(joint.solve(ignore_dpp=True, **TIGHT)) - gamma * lower


@pytest.mark.parametrize("make", [_quadratic, _cones])
def test_the_penalty_function_and_its_gradient(make: Callable[[], tuple[BilevelProblem, np.ndarray]]) -> None:
    problem, x = make()
    run = ConicRun(problem, RunOptions())
    found = run.evaluator(x, 7.0, run.leader, 1e-11)
    assert found.usable
    np.testing.assert_allclose(float(found.value), _penalty_value(problem, x, 7.0), atol=1e-6)
    for index in range(len(x)):
        step = 1e-4 * np.eye(len(x))[index]
        wanted = (_penalty_value(problem, x + step, 7.0) - _penalty_value(problem, x - step, 7.0)) / 2e-4
        assert abs(found.gradient[index] - wanted) < 1e-4 * (1.0 + abs(wanted))


@pytest.mark.parametrize("gamma", [3.0, 300.0])
def test_the_penalty_function_with_prices(gamma: float) -> None:
    d = cp.Parameter(2, name="d", bounds=[0, 3])
    g = cp.Variable(2, nonneg=True, name="g")
    balance, cap = cp.sum(g) == d[0], g[0] <= d[1]
    follower = cp.Problem(cp.Minimize(g[0] + 2 * g[1] + d[1] * g[1] + 0.5 * cp.sum_squares(g)), [balance, cap])
    upper = cp.square(dual(balance) + 2) + d[0] * dual(cap) + g[1]
    problem = BilevelProblem(cp.Minimize(upper), follower, d)
    run = ConicRun(problem, RunOptions())
    x = np.array([1.5, 0.8])
    found = run.evaluator(x, gamma, run.leader, 1e-11)

    def written_out(at: np.ndarray) -> float:
        """Feasible below, feasible above, and gamma times the difference of the two values, by hand."""
        z, price, high, low = cp.Variable(2), cp.Variable(), cp.Variable(nonneg=True), cp.Variable(2, nonneg=True)
        cost = np.array([1.0, 2.0 + at[1]])
        rules = [z >= 0, cp.sum(z) == at[0], z[0] <= at[1], cost + z + price + cp.hstack([high, 0]) - low == 0]
        gap = cost @ z + cp.sum_squares(z) + at[0] * price + at[1] * high
        value = cp.square(price + 2) + at[0] * high + z[1]
        return float(cp.Problem(cp.Minimize(value + gamma * gap), rules).solve(**TIGHT))

    np.testing.assert_allclose(float(found.value), written_out(x), atol=1e-5)
    for index in range(2):
        step = 1e-4 * np.eye(2)[index]
        wanted = (written_out(x + step) - written_out(x - step)) / 2e-4
        assert abs(found.gradient[index] - wanted) < 2e-3 * (1.0 + abs(wanted))


def test_the_nearest_member_of_a_leaders_set() -> None:
    x = cp.Parameter((2, 2), name="x", nonneg=True)
    p = cp.Parameter(name="p", bounds=[-1, 2])
    y = cp.Variable(2)
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - cp.sum(x, axis=0)) + p * y[0]))
    rules = [cp.sum(x) + p <= 1, cp.norm2(x[:, 1]) <= 0.5, x[0, 0] == x[1, 1]]
    model = BilevelProblem(cp.Minimize(cp.sum(y)), follower, [x, p], rules).model
    generator = np.random.default_rng(3)
    for _ in range(5):
        point = 2.0 * generator.standard_normal(5)
        free, other = cp.Variable((2, 2), nonneg=True), cp.Variable()
        same = [cp.sum(free) + other <= 1, cp.norm2(free[:, 1]) <= 0.5, free[0, 0] == free[1, 1]]
        far = cp.sum_squares(free - point[1:].reshape(2, 2)) + cp.square(other - point[0])  # by their names
        cp.Problem(cp.Minimize(far), [*same, other >= -1, other <= 2]).solve(**TIGHT)
        np.testing.assert_allclose(model.project_x(point), [other.value, *free.value.ravel()], atol=1e-5)
    assert not model.x_set.is_box


def test_members_of_a_leaders_set_stay_where_they_are() -> None:
    x, y = cp.Parameter(3, name="x", nonneg=True), cp.Variable(3)
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - x)))
    model = BilevelProblem(cp.Minimize(cp.sum(y)), follower, x, [cp.sum(x) <= 2, cp.norm2(x) <= 1.5]).model
    for inside in ([0.3, 0.2, 0.1], [0.0, 0.5, 0.25], [2.0 / 3, 2.0 / 3, 2.0 / 3], [0.0, 0.0, 1.5]):
        np.testing.assert_allclose(model.project_x(np.array(inside)), inside, atol=1e-10)
    # By hand: the simplex of sum 2, then the ball.
    np.testing.assert_allclose(model.project_x(np.array([1.5, 1.2, -0.4])), [1.15, 0.85, 0.0], atol=1e-10)
    np.testing.assert_allclose(model.project_x(np.array([3.0, -1.0, 0.0])), [1.5, 0.0, 0.0], atol=1e-10)


def test_bounds_are_a_box_and_an_empty_set_is_told() -> None:
    x, y = cp.Parameter(2, name="x", bounds=[0, 5]), cp.Variable(2)
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - x)))
    model = BilevelProblem(cp.Minimize(cp.sum(y)), follower, x, [x[0] <= 2, 2 * x[1] >= 1]).model
    assert model.x_set.is_box
    np.testing.assert_allclose(model.x_set.bounds_flat(), [[0.0, 0.5], [2.0, 5.0]])
    empty = BilevelProblem(cp.Minimize(cp.sum(y)), follower, x, [cp.sum(x) >= 11])
    with pytest.raises(ProblemError, match="no member"):
        empty.solve()


def test_parameters_keep_their_names_in_any_order() -> None:
    """Dicts are flattened by name: the values must not change places."""
    z, a = cp.Parameter(name="z", bounds=[0, 1]), cp.Parameter(name="a", bounds=[5, 6])
    y = cp.Variable(name="y")
    problem = BilevelProblem(cp.Minimize(cp.square(y - 5.7)), cp.Problem(cp.Minimize(cp.square(y - z - a))), [z, a])
    result = problem.solve({"z": 0.5, "a": 5.5})
    assert 0.0 <= result.x["z"] <= 1.0
    assert 5.0 <= result.x["a"] <= 6.0
    assert abs(result.x["z"] + result.x["a"] - 5.7) < 1e-3
    assert abs(z.value + a.value - 5.7) < 1e-3
