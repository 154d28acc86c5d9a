"""Nothing better is thrown away: no end of a run is worse than its start, or than what it passed on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem, payment
from blocc.result import Status

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")

Drawn = tuple[BilevelProblem, Any]


def _market(demand: float, caps: np.ndarray, costs: np.ndarray) -> BilevelProblem:
    """The leader offers a quantity for nothing and is paid what the dearest producer asks that is still needed."""
    q, g = cp.Parameter(name="q", bounds=[0, demand]), cp.Variable(1 + len(caps), name="g", nonneg=True)
    balance = demand - cp.sum(g) == 0
    market = cp.Problem(cp.Minimize(costs @ g[1:]), [balance, g[0] <= q, g[1:] <= caps])
    return BilevelProblem(cp.Maximize(payment(balance, g[0])), market, q)


def _income(q: float, demand: float, caps: np.ndarray, costs: np.ndarray) -> float:
    needed, order = demand - q, np.argsort(costs)
    last = order[np.searchsorted(np.cumsum(caps[order]), needed - 1e-9)]
    return float(q * costs[last])


def test_a_market_that_pays_for_scarcity_is_not_left_for_one_that_does_not() -> None:
    caps, costs = np.array([40.0, 40.0, 100.0]), np.array([50.0, 100.0, 1000.0])
    problem = _market(100.0, caps, costs)
    result = problem.solve(15.0, progress=False)
    assert result.success, result
    np.testing.assert_allclose(result.upper_value, 20_000.0, rtol=1e-4)  # the last MW before the price falls to 100
    np.testing.assert_allclose(problem.solve_many(x0s=[15.0, 70.0], progress=False).best.upper_value, 20_000, rtol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_random_markets_end_at_the_next_fall_of_the_price_or_higher(seed: int) -> None:
    generator = np.random.default_rng(seed)
    n = int(generator.integers(2, 5))
    caps, costs = generator.uniform(10, 40, size=n), np.cumsum(generator.uniform(5, 10, size=n)) ** 2
    demand = 0.95 * float(caps.sum())
    falls = demand - np.concatenate([np.cumsum(caps)[:-1][::-1], [0.0]])  # what the leader may sell at each price
    start = float(generator.uniform(0.3, 0.9)) * float(falls[0])
    result = _market(demand, caps, costs).solve(start, progress=False)
    assert result.success, result
    assert result.upper_value >= (1 - 1e-4) * _income(float(falls[0]) - 1e-6, demand, caps, costs)


def _tariff(generator: np.random.Generator) -> Drawn:
    """Four prices for many customers; the income rises from zero and falls to zero again."""
    n, price = 60, cp.Parameter(4, name="price", bounds=[0, 3])
    y, wish = cp.Variable(n, name="y", nonneg=True), generator.uniform(0.3, 1.7, size=n)
    groups = np.eye(4)[np.arange(n) % 4]
    rules = [y[1:] - y[:-1] <= 1.0, cp.sum(y) <= 0.8 * n]
    follower = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(y - wish) + (groups @ price) @ y), rules)
    return BilevelProblem(cp.Maximize(price @ (groups.T @ y) / n), follower, price), generator.uniform(0.3, 0.8, size=4)


def _choice(generator: np.random.Generator) -> Drawn:
    """Shares by the logit; far from the middle nothing changes."""
    x, y = cp.Parameter(3, name="x", bounds=[-10, 10]), cp.Variable(3, name="y", nonneg=True)
    follower = cp.Problem(cp.Minimize(x @ y - cp.sum(cp.entr(y))), [cp.sum(y) == 1])
    leader = cp.Minimize(cp.sum_squares(y - generator.dirichlet(np.ones(3))) + 1e-3 * cp.sum_squares(x))
    return BilevelProblem(leader, follower, x), generator.uniform(-8, 8, size=3)


def _ties(generator: np.random.Generator) -> Drawn:
    """A linear follower whose answers jump."""
    x, y = cp.Parameter(2, name="x", bounds=[-2, 2]), cp.Variable(4, name="y", nonneg=True)
    costs, pull = generator.normal(size=4), generator.normal(size=(4, 2))
    follower = cp.Problem(cp.Minimize((costs + pull @ x) @ y), [cp.sum(y) == 1])
    leader = cp.Maximize(generator.normal(size=4) @ y - 0.3 * cp.sum_squares(x))
    return BilevelProblem(leader, follower, x), generator.uniform(-2, 2, size=2)


@pytest.mark.parametrize("make", [_tariff, _choice, _ties])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("gamma", ["auto", 3.0])
def test_no_end_is_worse_than_what_was_seen(
    make: Callable[[np.random.Generator], Drawn], seed: int, gamma: float | str
) -> None:
    problem, start = make(np.random.default_rng(seed))
    follower, leader, seen = problem.followers[0], problem.objective, []
    (x,) = problem.x

    def value(point: Any) -> float:
        x.value = point
        follower.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
        return problem.sign * float(leader.value)

    def watch(state: Any) -> bool:
        seen.append(np.array(state.x[x.name()]))
        return len(seen) > 25

    result = problem.solve(start, gamma=gamma, progress=False, callback=watch)
    assert result.status in (Status.CONVERGED, Status.STALLED, Status.STOPPED, Status.PENALTY_OPEN), result
    best = min(value(point) for point in [start, *seen])
    assert problem.sign * result.upper_value <= best + 1e-5 * (1 + abs(best)), result
