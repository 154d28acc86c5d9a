"""Small problems with followers in CVXPY: those of docs/cvxpy.md, of textbooks' kinds, and ones that were hard once.

Each is made by a function that gives the problem and a start; ``evaluated`` solves it and tells what that took.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import clarabel
import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from blocc.cvxpy import BilevelProblem, dual, payment

Made = tuple[BilevelProblem, Any]


class Evaluated(NamedTuple):
    """What one run took, and what it ended with."""

    evaluations: int
    seconds: float
    status: str
    value: float


def tariff() -> Made:
    price, use = cp.Parameter(2, name="price", bounds=[0, 5]), cp.Variable(2, name="use", nonneg=True)
    customer = cp.Problem(cp.Maximize(3 * cp.sum(cp.sqrt(use)) - price @ use), [cp.sum(use) <= 4])
    return BilevelProblem(cp.Maximize(price @ use - 0.5 * use[0] - 0.8 * use[1]), customer, price), [1.0, 1.0]


def plain_function() -> Made:
    target, y = cp.Parameter(name="target", bounds=[-2, 2]), cp.Variable(name="y")
    follower = cp.Problem(cp.Minimize(cp.square(y - target)), [y <= 1])
    return BilevelProblem(lambda x, y: jnp.sin(3 * y["y"]) + 0.1 * x["target"] ** 2, follower, target), -0.2


def bidding(start: float) -> Made:
    bid, output = cp.Parameter(name="bid", bounds=[0, 50]), cp.Variable(3, name="output")
    balance = 4.5 - cp.sum(output) == 0
    cost = bid * output[0] + 20 * output[1] + 40 * output[2] + 2 * cp.sum_squares(output)
    market = cp.Problem(cp.Minimize(cost), [balance, output >= 0, output <= np.array([3.0, 2.0, 4.0])])
    return BilevelProblem(cp.Maximize(payment(balance, output[0]) - 10 * output[0]), market, bid), start


def scenarios() -> Made:
    capacity, days, served = cp.Parameter(name="capacity", bounds=[0, 10]), [], []
    for demand in (1.0, 2.0, 4.0):
        sold = cp.Variable(name="sold", nonneg=True)
        days.append(cp.Problem(cp.Maximize(4 * sold - cp.square(sold) / 2), [sold <= capacity, sold <= demand]))
        served.append(sold)
    income = 0.5 * served[0] + 0.3 * served[1] + 0.2 * served[2]
    return BilevelProblem(cp.Maximize(3 * income - capacity), days, capacity), 0.5


def scarcity() -> Made:
    """Worth 15,000 at the start, and 20,000 where the last unit is sold before the price falls."""
    q, g = cp.Parameter(name="q", bounds=[0, 100]), cp.Variable(4, name="g", nonneg=True)
    balance = 100 - cp.sum(g) == 0
    rules = [balance, g[0] <= q, g[1] <= 40, g[2] <= 40, g[3] <= 100]
    market = cp.Problem(cp.Minimize(50 * g[1] + 100 * g[2] + 1000 * g[3]), rules)
    return BilevelProblem(cp.Maximize(payment(balance, g[0])), market, q), 15.0


def limited_payment() -> Made:
    bid, output = cp.Parameter(name="bid", bounds=[0, 10]), cp.Variable(3, name="output")
    balance = 4.5 - cp.sum(output) == 0
    cost = bid * output[0] + 2 * output[1] + 6 * output[2]
    market = cp.Problem(cp.Minimize(cost), [balance, output >= 0, output <= np.array([3.0, 2.0, 4.0])])
    limit = payment(balance, output[0]) >= 9
    return BilevelProblem(cp.Maximize(bid - 0.1 * output[0]), market, bid, [limit]), 3.0


def unmet_cap() -> Made:
    """The price cannot be below 48."""
    bid, output = cp.Parameter(name="bid", bounds=[0, 50]), cp.Variable(2, name="output", nonneg=True)
    balance = 10 - cp.sum(output) == 0
    cost = bid * output[0] + 40 * output[1] + cp.sum_squares(output)
    market = cp.Problem(cp.Minimize(cost), [balance, output <= np.array([6.0, 20.0])])
    return BilevelProblem(cp.Maximize(output[0]), market, bid, [dual(balance) <= 30]), 20.0


def wide_range() -> Made:
    """x may be up to 1e6, and costs the follower 1e-6: 1/44 at x = 1e6 / 2.2, and 1/4 at the start."""
    x, y = cp.Parameter(name="x", bounds=[0, 1e6]), cp.Variable(2, name="y", nonneg=True)
    follower = cp.Problem(cp.Minimize(1e-6 * y[0] + 1e-6 * cp.square(y[1] - x)), [y[0] >= x])
    leader = cp.Minimize(cp.square(y[0] / 1e6 - 0.5) + 0.1 * cp.square(x / 1e6))
    return BilevelProblem(leader, follower, x), 0.0


def tie() -> Made:
    """All answers are as good at the best x."""
    x, y = cp.Parameter(name="x", bounds=[-1, 1]), cp.Variable(2, nonneg=True, name="y")
    follower = cp.Problem(cp.Minimize(x * y[0]), [cp.sum(y) == 1])
    return BilevelProblem(cp.Minimize(cp.square(x) - y[0]), follower, x), 0.5


def shares() -> Made:
    """Logit shares that are to be those of a target."""
    x, y = cp.Parameter(3, name="x", bounds=[-10, 10]), cp.Variable(3, name="y", nonneg=True)
    follower = cp.Problem(cp.Minimize(x @ y - cp.sum(cp.entr(y))), [cp.sum(y) == 1])
    leader = cp.sum_squares(y - np.array([0.5, 0.3, 0.2])) + 1e-3 * cp.sum_squares(x)
    return BilevelProblem(cp.Minimize(leader), follower, x), [4.0, -3.0, 1.0]


def four_prices(n: int) -> Made:
    """Four prices for n customers, whose quantities depend on their neighbours' and on a limit for all of them."""
    generator = np.random.default_rng(0)
    price, y = cp.Parameter(4, name="price", bounds=[0, 3]), cp.Variable(n, name="y", nonneg=True)
    wish, at = generator.uniform(0.3, 1.7, size=n), np.arange(n)
    groups = sp.csr_array((np.ones(n), (at, at % 4)), shape=(n, 4))
    rules = [y[1:] - y[:-1] <= 1.0, cp.sum(y) <= 0.8 * n]
    follower = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(y - wish) + (groups @ price) @ y), rules)
    leader = cp.Maximize(price @ (groups.T @ y) / n)
    return BilevelProblem(leader, follower, price), generator.uniform(0.3, 0.8, size=4)


def four_prices_by_values(n: int, start: Any, scan: int = 100) -> float:
    """The best value of :func:`four_prices` that values alone find, with nothing of blocc's: a scan and a simplex.

    The follower is solved by Clarabel as a plain quadratic program; the best of ``scan`` random prices and ``start`` is
    where the simplex method of Nelder and Mead begins.
    """
    generator = np.random.default_rng(0)
    wish, at = generator.uniform(0.3, 1.7, size=n), np.arange(n)
    groups = sp.csr_array((np.ones(n), (at, at % 4)), shape=(n, 4))
    chain = sp.eye_array(n - 1, n, k=1) - sp.eye_array(n - 1, n)
    rows = sp.csc_array(sp.vstack([chain, sp.csr_array(np.ones((1, n))), -sp.eye_array(n)]))
    right = np.concatenate([np.ones(n - 1), [0.8 * n], np.zeros(n)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10

    def value(price: Any) -> float:
        price = np.clip(price, 0.0, 3.0)
        cones = [clarabel.NonnegativeConeT(len(right))]
        curvature = sp.csc_matrix(sp.eye_array(n))
        solver = clarabel.DefaultSolver(curvature, groups @ price - wish, sp.csc_matrix(rows), right, cones, settings)
        return -float(price @ (groups.T @ np.array(solver.solve().x))) / n

    drawn = [np.asarray(start, dtype=float), *np.random.default_rng(1).uniform(0.0, 1.7, size=(scan, 4))]
    begin = min(drawn, key=value)
    ended = minimize(value, begin, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10, "maxfev": 1000})
    return -float(ended.fun)


EXAMPLES: dict[str, Callable[[], Made]] = {
    "tariff (docs)": tariff,
    "plain function (docs)": plain_function,
    "bidding from 15 (docs)": lambda: bidding(15.0),
    "bidding from 25 (docs)": lambda: bidding(25.0),
    "scenarios (docs)": scenarios,
    "scarcity": scarcity,
    "limited payment": limited_payment,
    "unmet cap": unmet_cap,
    "wide range": wide_range,
    "tie": tie,
    "shares": shares,
    "four prices, 200": lambda: four_prices(200),
}


def evaluated(made: Made, time_limit: float) -> Evaluated:
    """Solve, and tell what it took."""
    problem, start = made
    begun = time.perf_counter()
    result = problem.solve(start, progress=False, time_limit=time_limit)
    seconds = time.perf_counter() - begun
    return Evaluated(result.counts["evaluations"], seconds, result.status.value, result.upper_value)
