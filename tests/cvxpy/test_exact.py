"""Answers to the last digit and their derivatives, for every cone, against differences of CVXPY's own answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem, dual, payment
from blocc.cvxpy.cone_program import ConeSizes, canonical
from blocc.cvxpy.cone_projection import project
from blocc.cvxpy.implicit import Response, polished
from blocc.cvxpy.run import ConicRun
from blocc.cvxpy.run_options import RunOptions
from blocc.cvxpy.solvers import outside, solve

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")


@pytest.mark.parametrize(
    "cones",
    [
        ConeSizes(2, 3),
        ConeSizes(0, 0, second_order=(4,)),
        ConeSizes(0, 0, semidefinite=(3,)),
        ConeSizes(0, 0, exponential=1),
        ConeSizes(0, 0, power=(0.3,)),
    ],
)
def test_the_nearest_member_of_a_cone_and_its_derivative(cones: ConeSizes) -> None:
    generator = np.random.default_rng(4)
    seen = 0
    for _ in range(30):
        point = generator.normal(size=sum(cones.kinds))
        z = cp.Variable(len(point))
        # Found by its definition first: the solver's member is what Newton's method begins with.
        program = canonical(cp.sum_squares(z - point) / 2, [], "it")
        numbers = program.at(np.ones(1))._replace(matrix=_unit(len(point)), offset=np.zeros(len(point)))
        numbers = numbers._replace(quadratic=_unit(len(point)), linear=-point)
        near = solve(numbers, cones, 1e-11).z
        found = project(point, cones, near)
        if found is None:
            continue
        seen += 1
        np.testing.assert_allclose(found.point, near, atol=3e-5)  # the solver's own accuracy
        # Moreau: the rest is in the polar cone, and orthogonal.
        assert outside(found.point, cones) <= 1e-9
        assert outside(found.point - point, cones, dual=True) <= 1e-9
        for unit in np.eye(len(point)):
            ends = [project(point + step * unit, cones, near) for step in (1e-6, -1e-6)]
            if ends[0] is None or ends[1] is None:
                continue
            wanted = (ends[0].point - ends[1].point) / 2e-6
            np.testing.assert_allclose(found.slope @ unit, wanted, atol=1e-6)
    assert seen >= 15


def _unit(n: int) -> Any:
    import scipy.sparse as sp

    return sp.csc_array(sp.eye_array(n))


def _linear() -> tuple[cp.Parameter, cp.Problem]:
    x, y = cp.Parameter(2, value=[1.0, 0.3]), cp.Variable(3)
    return x, cp.Problem(
        cp.Minimize(y[0] + 2 * y[1] + 3 * y[2]), [cp.sum(y) >= x[0], y >= x[1] * np.array([0, 0.1, 0.2]), y <= 0.6]
    )


def _mixed() -> tuple[cp.Parameter, cp.Problem]:
    x, y = cp.Parameter(2, value=[0.7, 0.4]), cp.Variable(3)
    cost = cp.sum_squares(y - x[0]) + cp.exp(y[0] - x[1]) + cp.norm2(y - np.array([1.0, 2.0, 0.5])) + x[1] * y[2]
    return x, cp.Problem(cp.Minimize(cost), [cp.sum(y) <= 1.5 + x[0], cp.norm2(y[1:]) <= 1.0])


def _semidefinite() -> tuple[cp.Parameter, cp.Problem]:
    x, m = cp.Parameter(2, value=[1.0, -2.0]), cp.Variable((3, 3), symmetric=True)
    target = cp.bmat([[1.0, x[0], 0.3], [x[0], x[1], 0.2], [0.3, 0.2, -0.4]])
    return x, cp.Problem(cp.Minimize(cp.sum_squares(m - target)), [m >> 0, cp.trace(m) <= 2.0])


def _power() -> tuple[cp.Parameter, cp.Problem]:
    x, y = cp.Parameter(2, value=[1.2, 2.2]), cp.Variable(2)
    cost = cp.sum(cp.power(y, 3, approx=False)) + cp.sum_squares(y - x)
    return x, cp.Problem(cp.Minimize(cost), [cp.power(y[0], 0.3, approx=False) >= 0.8 * x[0]])


@pytest.mark.parametrize("make", [_linear, _mixed, _semidefinite, _power])
def test_the_derivative_of_answers_and_prices(make: Callable[[], tuple[cp.Parameter, cp.Problem]]) -> None:
    x, problem = make()
    program = canonical(problem.objective.args[0], problem.constraints, "it")

    def at(value: np.ndarray) -> Any:
        theta = program.theta({x.id: value})
        numbers = program.at(theta)
        pair = polished(numbers, program.cones, solve(numbers, program.cones, 1e-10))
        assert pair is not None
        found = Response(program, theta, pair)
        assert found.is_regular
        return found

    here, base = at(np.array(x.value)), np.array(x.value)
    answer = here.answer
    assert max(answer.stationarity, answer.feasibility, answer.complementarity) < 1e-13 * (1.0 + abs(answer.value)) * 10
    block = program.parameters[x.id]
    moved = here.moved(here.sides[:, [*range(block.start, block.start + 2)]].toarray())
    generator = np.random.default_rng(0)
    pull = generator.normal(size=program.n), generator.normal(size=program.m)
    pulled = here.pulled(*pull)
    for index in range(2):
        step = 1e-5 * np.eye(2)[index]
        ends = [at(base + sign * step).answer for sign in (1.0, -1.0)]
        wanted = np.concatenate([(ends[0].z - ends[1].z), (ends[0].prices - ends[1].prices)]) / 2e-5
        np.testing.assert_allclose(moved[:, index], wanted, atol=2e-5 * (1.0 + np.max(np.abs(wanted))))
        np.testing.assert_allclose(pulled[block.start + index], np.concatenate(pull) @ wanted, atol=1e-3)


def test_the_derivative_of_the_leaders_value_with_maxima_prices_and_payments() -> None:
    d, g = cp.Parameter(2, name="d", bounds=[0, 3]), cp.Variable(3, nonneg=True, name="g")
    balance = d[0] - cp.sum(g) == 0
    cost = g[0] + 2 * g[1] + d[1] * g[2] + cp.sum_squares(g)
    follower = cp.Problem(cp.Minimize(cost), [balance, g[0] <= 0.9])
    upper = payment(balance, g[1] + d[1]) + cp.max(g) + 0.3 * dual(balance) + d[1] * g[2] + cp.square(d[0])
    problem = BilevelProblem(cp.Minimize(upper), follower, d)
    run = ConicRun(problem, RunOptions(progress=False))
    x = np.array([2.0, 1.7])
    found = run.evaluator(x, np.inf, run.leader, 1e-11)
    assert found.usable

    def value(at: np.ndarray) -> float:
        d.value = at
        follower.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        price, own = float(np.asarray(balance.dual_value)), g.value
        return price * (own[1] + at[1]) + own.max() + 0.3 * price + at[1] * own[2] + at[0] ** 2

    np.testing.assert_allclose(float(found.value), value(x), atol=1e-5)
    for index in range(2):
        step = 1e-3 * np.eye(2)[index]
        np.testing.assert_allclose(found.gradient[index], (value(x + step) - value(x - step)) / 2e-3, atol=1e-3)


def test_a_kink_of_the_leaders_is_reached_to_the_last_digit() -> None:
    x, y = cp.Parameter(3, name="x", bounds=[-2, 2]), cp.Variable(3, name="y")
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - x) + cp.sum(cp.exp(y))), [cp.sum(y) <= 1])
    wish = np.array([0.5, -0.2, 0.1])
    problem = BilevelProblem(cp.Minimize(cp.norm_inf(y - wish) + cp.norm1(x) / 50), follower, x)
    result = problem.solve([0.0, 0.0, 0.0], progress=False)
    assert result.success, result
    assert result.counts["evaluations"] < 200
    # The answer can be had anywhere with a sum below 1, so the maximum is given up only for the weight of x.
    x_of = lambda answer: answer + np.exp(answer) / 2  # noqa: E731
    values = [
        np.max(np.abs(t)) + np.abs(x_of(wish + t)).sum() / 50
        for t in np.random.default_rng(1).uniform(-0.3, 0.3, (4000, 3))
    ]
    assert result.upper_value <= min(values) + 1e-9
