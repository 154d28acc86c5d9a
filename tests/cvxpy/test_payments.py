"""Prices times quantities: written by strong duality, or majorised; against products of CVXPY's own values."""

from __future__ import annotations

from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem, dual, payment
from blocc.cvxpy.run import ConicRun
from blocc.cvxpy.run_options import RunOptions
from blocc.errors import ProblemError

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")


class Market(NamedTuple):
    bid: cp.Parameter
    output: cp.Variable
    balance: cp.Constraint
    problem: cp.Problem


def _market(curved: bool, demand: float = 4.5) -> Market:
    """Three producers; the first one's price is its own choice."""
    bid, output = cp.Parameter(name="bid", bounds=[0, 10]), cp.Variable(3, name="output")
    balance = demand - cp.sum(output) == 0
    cost = bid * output[0] + 2 * output[1] + 6 * output[2]
    if curved:
        cost = cost + cp.sum(cp.multiply([0.1, 0.4, 0.3], cp.square(output)))
    rules = [balance, output >= 0, output <= np.array([3.0, 2.0, 4.0])]
    return Market(bid, output, balance, cp.Problem(cp.Minimize(cost), rules))


def _grid(market: Market, value: Any, points: np.ndarray) -> float:
    found = []
    for point in points:
        market.bid.value = point
        market.problem.solve(solver=cp.CLARABEL)
        found.append(value(float(np.asarray(market.balance.dual_value)), market.output.value))
    return float(max(found))


def test_strong_duality_writes_the_income_of_one_producer_and_of_all() -> None:
    for curved in (False, True):
        market = _market(curved)
        one = payment(market.balance, market.output[0])
        everyone = payment(market.balance, cp.sum(market.output))
        problem = BilevelProblem(cp.Maximize(one + 0.01 * everyone), market.problem, market.bid)
        assert all(place.shares is not None for place in problem.model.penalised.payments)


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("kind", ["own", "all", "with a constant"])
def test_the_gradient_with_payments(curved: bool, kind: str) -> None:
    market = _market(curved)
    quantity = {"own": market.output[0], "all": cp.sum(market.output), "with a constant": market.output[0] - 0.7}[kind]
    leader = cp.Maximize(payment(market.balance, quantity) - 1.5 * market.output[0] - cp.square(market.bid) / 50)
    problem = BilevelProblem(leader, market.problem, market.bid)
    run = ConicRun(problem, RunOptions())
    for point in (2.7, 4.3, 6.8):
        at = run.evaluator(np.array([point]), 300.0, run.leader, 1e-11)
        values = [run.evaluator(np.array([point + step]), 300.0, run.leader, 1e-11).value for step in (1e-4, -1e-4)]
        wanted = float(values[0] - values[1]) / 2e-4
        assert abs(at.gradient[0] - wanted) < 1e-4 * (1.0 + abs(wanted))
        market.bid.value = point
        market.problem.solve(solver=cp.CLARABEL)
        true = float(np.asarray(market.balance.dual_value)) * float(quantity.value) - 1.5 * market.output.value[0]
        np.testing.assert_allclose(-float(at.value), true - point**2 / 50, atol=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("curved", [False, True])
def test_a_producer_bids_as_a_grid_would(curved: bool) -> None:
    market = _market(curved)
    profit = payment(market.balance, market.output[0]) - 1.0 * market.output[0]
    problem = BilevelProblem(cp.Maximize(profit), market.problem, market.bid)
    result = problem.solve(3.0, progress=False)
    assert result.success, result
    best = _grid(market, lambda price, output: (price - 1.0) * output[0], np.linspace(0.0, 9.9, 34))
    assert result.upper_value >= best - 1e-4
    # What is claimed can be had: the price times the quantity at the values that are left behind.
    problem.solve(3.0, progress=False)
    own = (float(np.asarray(market.balance.dual_value)) - 1.0) * market.output.value[0]
    np.testing.assert_allclose(own, result.upper_value, atol=1e-4)


def test_products_that_duality_cannot_write_are_majorised() -> None:
    supply, y = cp.Parameter(2, name="supply", bounds=[0.2, 3]), cp.Variable(3, name="y")
    matrix = np.array([[1.0, 2.0, 0.5], [0.3, 1.0, 1.0]])
    use = matrix @ y <= supply
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - np.array([2.0, 1.0, 3.0]))), [use])
    paid = payment(use, cp.hstack([y[2], y[0] + supply[1]]))
    problem = BilevelProblem(cp.Minimize(paid + cp.sum_squares(supply)), follower, supply)
    assert problem.model.penalised.has_products
    result = problem.solve([1.0, 1.0], progress=False)
    assert result.success, result
    best = np.inf
    for a in np.linspace(0.2, 3, 13):
        for b in np.linspace(0.2, 3, 13):
            supply.value = [a, b]
            follower.solve(solver=cp.CLARABEL)
            best = min(best, float(use.dual_value @ [y.value[2], y.value[0] + b]) + a * a + b * b)
    assert result.upper_value <= best + 1e-3


def test_payments_in_wrong_places_are_refused_by_name() -> None:
    market = _market(curved=True)
    paid = payment(market.balance, market.output[0])
    with pytest.raises(ProblemError, match="only be a term of the leader's objective"):
        BilevelProblem(cp.Minimize(market.output[1]), market.problem, market.bid, [paid >= 1])
    with pytest.raises(ProblemError, match="shape"):
        payment(market.balance, market.output)
    with pytest.raises(ProblemError, match="affine"):
        payment(market.balance, cp.square(market.output[0]))
    with pytest.raises(ProblemError, match="has prices in it"):
        payment(market.balance, dual(market.balance))


@pytest.mark.slow
def test_a_payment_may_be_limited_where_it_is_linear() -> None:
    market = _market(curved=False)
    income = payment(market.balance, market.output[0])
    problem = BilevelProblem(
        cp.Maximize(market.bid - 0.1 * market.output[0]), market.problem, market.bid, [income >= 9]
    )
    result = problem.solve(3.0, progress=False)
    assert result.success, result
    best = -np.inf
    for point in np.linspace(0, 10, 41):
        market.bid.value = point
        market.problem.solve(solver=cp.CLARABEL)
        if float(np.asarray(market.balance.dual_value)) * market.output.value[0] >= 9 - 1e-6:
            best = max(best, point - 0.1 * market.output.value[0])
    assert result.upper_value >= best - 1e-3
