"""Payments with a leader's constraint on the answer, in any units: right results are verified, wrong ones are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem, payment
from blocc.cvxpy.around import around, sizes_of
from blocc.judge.probe import Probing, Value
from blocc.result import Result, Status


def _supplies(seed: int, units: float, money: float) -> BilevelProblem:
    """A leader is paid for what she has supplied, and what the follower uses in all is limited."""
    generator = np.random.default_rng(seed)
    s, y = cp.Parameter(2, name="s", bounds=[0, 4]), cp.Variable(3, name="y")
    served = generator.uniform(0.2, 1, (2, 3)) @ y >= s + 0.5
    cost = generator.uniform(1, 3, 3) @ y + 0.5 * generator.uniform(1, 3, 3) @ cp.square(y)
    follower = cp.Problem(cp.Minimize(cost), [served, y >= 0])
    income = money * (payment(served, s) - 0.3 * cp.sum_squares(s))
    most = generator.uniform(1.5, 3)
    return BilevelProblem(cp.Maximize(income), follower, s, [units * cp.sum(y) <= units * most])


def _claimed(problem: BilevelProblem, s: np.ndarray) -> Result:
    """The true answers at another s, with the claim that it is the best."""
    found = problem.solve(s, time_limit=1e-9, progress=False)
    return replace(found, status=Status.CONVERGED)


def _on_the_limit(problem: BilevelProblem, direction: np.ndarray) -> np.ndarray:
    """How far supplies in a direction may go."""
    low, high = 0.0, 4.0
    (rule,) = problem.constraints
    for _ in range(40):
        middle = 0.5 * (low + high)
        problem.x[0].value = middle * direction
        problem.followers[0].solve(solver=cp.CLARABEL)
        low, high = (middle, high) if rule.violation() == 0.0 else (low, middle)
    return low * direction


@pytest.mark.parametrize(("units", "money"), [(1e-3, 1.0), (1e-2, 100.0)])
def test_units_of_a_constraint_decide_about_nothing(units: float, money: float) -> None:
    problem = _supplies(1, units, money)
    result = problem.solve(np.ones(2), progress=False)
    assert result.success, result
    np.testing.assert_allclose(result.upper_value / money, 6.07985, rtol=1e-4)
    assert problem.verify(result).ok, problem.verify(result)
    best = result.x["s"]
    turned = best @ np.array([[np.cos(0.2), np.sin(0.2)], [-np.sin(0.2), np.cos(0.2)]])
    beside = _on_the_limit(problem, turned / np.linalg.norm(turned))  # on the limit, but not where it pays most
    for wrong in (beside, 0.9 * best):
        claimed = _claimed(problem, wrong)
        assert claimed.upper_value < result.upper_value - 1e-3 * abs(result.upper_value)
        assert not problem.verify(claimed).ok


def test_probes_that_gain_by_a_violation_alone_are_no_counterexample() -> None:
    # f falls by 1000 for each unit of the constraint x0 + x1 <= 1, which x meets with nothing to spare.
    def along(slope: float) -> Callable[[np.ndarray], Value]:
        none = np.zeros(0)
        return lambda x: Value(x, none, -1e3 * x.sum() - slope * (x[0] - x[1]), max(x.sum() - 1.0, 0.0))

    x, stay = np.array([0.5, 0.5]), lambda point: point
    plan = Probing(sizes_of(x), 1e-9, 1e-5, 1e-12)
    assert around(along(0.0), stay, along(0.0)(x), plan, seed=0).better is None
    better = around(along(1.0), stay, along(1.0)(x), plan, seed=0)  # along the constraint there is something to gain
    assert better.gain > 1e-3
    assert better.better is not None
    assert better.better.x.sum() <= 1.0 + 1e-9
