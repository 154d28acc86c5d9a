"""Optimal values, answers and their derivatives in all parameters, for every cone, against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy.cone_program import ConeProgram, canonical
from blocc.cvxpy.elastic import least_violation
from blocc.cvxpy.solvers import Outcome, solve

#: Clarabel is asked for more digits than it can be sure of.
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")

Made = tuple[cp.Expression, list[cp.Constraint], list[cp.Parameter]]


def _linear() -> Made:
    p, b = cp.Parameter(3, value=[1.0, 2.0, 3.5]), cp.Parameter(value=2.0)
    y = cp.Variable(3, nonneg=True)
    return p @ y, [cp.sum(y) == b, y[0] <= 0.7, y[1] >= 0.1 * b], [p, b]


def _quadratic() -> Made:
    matrix = cp.Parameter((2, 3), value=np.array([[1.0, 0.5, -0.2], [0.3, 1.5, 1.0]]))
    b = cp.Parameter(2, value=[1.0, 2.0])
    y = cp.Variable(3)
    return cp.sum_squares(y) + cp.sum_squares(matrix @ y - b), [matrix @ y <= b - 0.2], [matrix, b]


def _second_order() -> Made:
    center, r = cp.Parameter(3, value=[1.0, 2.0, -1.0]), cp.Parameter(nonneg=True, value=1.5)
    y = cp.Variable(3)
    return cp.norm2(y - center) + 0.1 * cp.sum_squares(y), [cp.norm2(y[:2]) <= r], [center, r]


def _exponential() -> Made:
    weight, b = cp.Parameter(2, nonneg=True, value=[1.0, 2.0]), cp.Parameter(value=1.3)
    y = cp.Variable(2)
    return weight @ cp.exp(y) + cp.sum_squares(y) - cp.sum(cp.log(y + 3)), [cp.sum(y) == b], [weight, b]


def _power() -> Made:
    b = cp.Parameter(2, value=[1.2, 2.2])
    y = cp.Variable(2)
    return (
        cp.sum(cp.power(y, 3, approx=False)) + cp.sum_squares(y - b),
        [cp.power(y[0], 0.3, approx=False) >= 0.8 * b[0]],
        [b],
    )


def _semidefinite() -> Made:
    target = cp.Parameter((2, 2), value=[[1.0, -2.0], [-2.0, 0.5]])
    y, z = cp.Variable((2, 2), PSD=True), cp.Variable((2, 2), symmetric=True)
    return cp.sum_squares(y - target) + cp.sum_squares(z - y) + cp.lambda_max(z), [cp.trace(y) <= 2.0], [target]


CASES = [_linear, _quadratic, _second_order, _exponential, _power, _semidefinite]


def _theta(program: ConeProgram, parameters: list[cp.Parameter]) -> np.ndarray:
    return program.theta({one.id: one.value for one in parameters})


@pytest.mark.parametrize("make", CASES)
def test_the_slope_of_the_value_agrees_with_differences_of_cvxpys_own_values(make: Callable[[], Made]) -> None:
    objective, constraints, parameters = make()
    program = canonical(objective, constraints, "it")
    problem = cp.Problem(cp.Minimize(objective), constraints)
    found = solve(program.at(_theta(program, parameters)), program.cones, 1e-11)
    assert found.is_usable
    assert max(found.stationarity, found.feasibility, found.complementarity) < 1e-7
    tight: dict[str, Any] = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
    np.testing.assert_allclose(found.value, problem.solve(solver=cp.CLARABEL, **tight), atol=1e-7)
    slope = program.slope(found.z, found.prices)
    for one in parameters:
        block, value = program.parameters[one.id], np.array(one.value, dtype=float)
        for index in range(one.size):
            values = []
            for step in (1e-4, -1e-4):
                moved = value.ravel(order="F").copy()
                moved[index] += step
                one.value = moved.reshape(one.shape, order="F") if one.shape else float(moved[0])
                values.append(float(problem.solve(solver=cp.CLARABEL, **tight)))
            one.value = value if one.shape else float(value)
            wanted = (values[0] - values[1]) / 2e-4
            assert abs(slope[block.start + index] - wanted) < 2e-5 * (1.0 + abs(wanted))


@pytest.mark.parametrize("make", CASES)
def test_forged_answers_and_prices_are_measured_to_be_wrong(make: Callable[[], Made]) -> None:
    from blocc.cvxpy.solvers import measured

    objective, constraints, parameters = make()
    program = canonical(objective, constraints, "it")
    numbers = program.at(_theta(program, parameters))
    found = solve(numbers, program.cones, 1e-11)
    for z, prices in ((found.z + 0.1, found.prices), (found.z, found.prices + 0.1)):
        other = measured(numbers, program.cones, Outcome.SOLVED, z, prices)
        assert max(other.stationarity, other.feasibility, other.complementarity) > 1e-3


def test_highs_and_clarabel_agree_on_a_linear_program() -> None:
    objective, constraints, parameters = _linear()
    program = canonical(objective, constraints, "it")
    numbers = program.at(_theta(program, parameters))
    one, other = (solve(numbers, program.cones, 1e-10, name) for name in ("clarabel", "highs"))
    np.testing.assert_allclose(one.value, other.value, atol=1e-8)
    np.testing.assert_allclose(one.prices, other.prices, atol=1e-6)
    assert max(other.stationarity, other.feasibility, other.complementarity) < 1e-8


@pytest.mark.parametrize("solver", ["clarabel", "highs"])
def test_infeasible_and_unbounded_programs_are_told(solver: Any) -> None:
    y = cp.Variable(2)
    nothing = canonical(cp.sum(y), [y >= 1, cp.sum(y) <= 1], "it")
    assert solve(nothing.at(np.ones(1)), nothing.cones, 1e-9, solver).outcome is Outcome.INFEASIBLE
    endless = canonical(cp.sum(y), [y[0] >= 1, y[1] <= 3], "it")
    assert solve(endless.at(np.ones(1)), endless.cones, 1e-9, solver).outcome is Outcome.UNBOUNDED


def test_the_least_violation_and_its_slope() -> None:
    b = cp.Parameter(2, value=[3.0, 1.0])
    y = cp.Variable(2)
    program = canonical(cp.sum_squares(y), [cp.norm2(y) <= 1, y[0] >= b[0], y[0] + y[1] == b[1]], "it")

    def violation(value: np.ndarray) -> float:
        t, free, length = cp.Variable(), cp.Variable(2), cp.Variable()  # CVXPY gives the norm a variable of its own
        rules = [cp.norm2(free) <= length + t, length <= 1 + t, free[0] + t >= value[0]]
        rules.append(cp.abs(free[0] + free[1] - value[1]) <= t)
        return float(cp.Problem(cp.Minimize(t), rules).solve(solver=cp.CLARABEL))

    found = least_violation(program, _theta(program, [b]))
    assert found.solved
    np.testing.assert_allclose(found.value, violation(b.value), atol=1e-6)
    block = program.parameters[b.id]
    for index in range(2):
        step = 1e-3 * np.eye(2)[index]
        wanted = (violation(b.value + step) - violation(b.value - step)) / 2e-3
        assert abs(found.slope[block.start + index] - wanted) < 1e-3
