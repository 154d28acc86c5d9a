"""Linear and quadratic followers drawn by someone who had never seen the search, against every pattern of prices."""

from __future__ import annotations

import itertools
import zlib
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from blocc import BilevelProblem, Box, Reals, Status, solve_global, solve_many, verify
from selections import few

FAMILIES = ("lp", "ties", "degenerate", "infeasible", "unbounded", "qp", "singular", "bilinear", "coupled", "scaled")
N_X, N_Y, COUPLED_ROWS = 2, 3, 3


def drawn(family: str, seed: int) -> dict[str, np.ndarray]:
    """min over y of 1/2 y Q y + (c + C x) y with A y + B x <= b, for a leader who minimises p x + q y."""
    random = np.random.default_rng([zlib.crc32(family.encode()), seed])

    def draw(*shape: int) -> np.ndarray:
        if family in ("ties", "degenerate"):
            return random.integers(-2, 3, shape).astype(float)
        return random.normal(size=shape)

    rows = np.vstack([draw(COUPLED_ROWS, N_Y), -np.eye(N_Y), np.ones((1, N_Y))])
    by_x = np.vstack([draw(COUPLED_ROWS, N_X), np.zeros((N_Y + 1, N_X))])
    right = np.concatenate([np.abs(draw(COUPLED_ROWS)) + 1.0, np.zeros(N_Y), [4.0]])
    hessian, coupling, slope = np.zeros((N_Y, N_Y)), np.zeros((N_Y, N_X)), draw(N_Y)
    if family == "degenerate":
        rows[1], by_x[1], right[1] = 2.0 * rows[0], 2.0 * by_x[0], 2.0 * right[0]
        by_x[2], right[2] = 0.0, 0.0
    if family == "infeasible":
        by_x *= 2.0
        right[:COUPLED_ROWS] -= 2.0
    if family == "unbounded":
        rows[-1] = random.normal(size=N_Y)
    if family in ("qp", "singular"):
        root = random.normal(size=(N_Y, N_Y if family == "qp" else 1))
        hessian = root @ root.T
    if family in ("unbounded", "qp", "singular", "bilinear", "coupled"):
        coupling = random.normal(size=(N_Y, N_X))
    if family == "scaled":
        factor = 10.0 ** random.uniform(-4.0, 4.0, len(right))
        rows, by_x, right = rows * factor[:, None], by_x * factor[:, None], right * factor
        slope = slope * 10.0 ** random.uniform(-3.0, 3.0)
    leader = {"p": draw(N_X), "q": draw(N_Y)}
    if family == "coupled":
        leader |= {"D": random.normal(size=(1, N_X)), "E": random.normal(size=(1, N_Y)), "e": np.array([0.3])}
    return {"Q": hessian, "C": coupling, "c": slope, "A": rows, "B": by_x, "b": right, **leader}


def least(d: dict[str, np.ndarray], bound: float = 2.0) -> float:
    """The leader's optimum: a linear program for every pattern of rows that bind and rows without a price."""
    m, best = len(d["b"]), np.inf
    cost = np.concatenate([d["p"], d["q"], np.zeros(m)])
    stationary = np.hstack([d["C"], d["Q"], d["A"].T])
    above, right = np.hstack([d["B"], d["A"], np.zeros((m, m))]), d["b"]
    if "D" in d:
        above = np.vstack([above, np.hstack([d["D"], d["E"], np.zeros((1, m))])])
        right = np.concatenate([right, d["e"]])
    for binds in itertools.product([False, True], repeat=m):
        tight = np.array(binds)
        limits = [(-bound, bound)] * N_X + [(None, None)] * N_Y + [(0.0, None if own else 0.0) for own in binds]
        equal = np.vstack([stationary, above[:m][tight]])
        found = linprog(cost, above, right, equal, np.concatenate([-d["c"], d["b"][tight]]), limits)
        if found.status == 3:
            return -np.inf
        if found.status == 0:
            best = min(best, float(found.fun))
    return best


@cache
def written(is_coupled: bool) -> BilevelProblem:
    """One problem for all data, so that it is compiled once."""
    return BilevelProblem(
        upper=lambda x, y, d: d["p"] @ x + d["q"] @ y,
        lower=lambda x, y, d: 0.5 * y @ (d["Q"] @ y) + (d["c"] + d["C"] @ x) @ y,
        inequality=lambda x, y, d: d["A"] @ y + d["B"] @ x - d["b"],
        upper_inequality=(lambda x, y, d: d["D"] @ x + d["E"] @ y - d["e"]) if is_coupled else None,
        x_set=Box(-2.0, 2.0, shape=N_X),
        y_set=Reals(N_Y),
        data=drawn("coupled" if is_coupled else "lp", 0),
    )


CASES = [(family, seed) for family in FAMILIES for seed in range(4)]


@pytest.mark.parametrize(("family", "seed"), few(CASES, ("ties", 1), ("coupled", 0)))
def test_no_pattern_is_better_and_no_bound_is_above(family: str, seed: int) -> None:
    data = drawn(family, seed)
    problem, value = written("D" in data).with_data(data), least(data)
    result = solve_global(problem, time_limit=None)
    close = 1e-4 * max(1.0, abs(value))
    if value == -np.inf:
        assert result.status is Status.UNBOUNDED
    elif value == np.inf:
        assert result.status is Status.INFEASIBLE
    else:
        assert result.success
        assert result.upper_value == pytest.approx(value, abs=close)
        assert result.bound is not None
        assert result.bound <= value + close


@pytest.mark.parametrize(("price", "most"), few([(1e-9, 1e9), (1e-9, 1.0), (1e-12, 1.0), (1e-8, 1e6)], (1e-9, 1e9)))
def test_a_small_price_of_a_large_quantity_counts(price: float, most: float) -> None:
    """The follower buys up to ``most`` while x <= 1. Slopes as small are nothing to a linear program's tolerances."""
    problem = BilevelProblem(
        upper=lambda x, y: -y[0] / most - 0.1 * x,
        lower=lambda x, y: price * (x - 1.0) * y[0] + y[1],
        x_set=Box(0.0, 2.0),
        y_set=Box(np.zeros(2), np.array([most, 1.0])),
    )
    result = solve_global(problem, time_limit=None)
    assert result.success
    assert result.upper_value == pytest.approx(-1.1, abs=1e-6)
    assert verify(problem, result).ok


def test_a_lipschitz_constant_that_values_contradict_proves_nothing() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sin(5.0 * x) + 0.3 * x + y,
        lower=lambda x, y: jnp.exp(y) - (1.0 + 0.1 * x**2) * y,
        x_set=Box(-3.0, 3.0),
        y_set=Reals(),
    )
    result = solve_global(problem, 1.0, lipschitz=0.5, time_limit=None)
    assert result.status is Status.STALLED
    assert result.bound is None
    assert "lipschitz=0.5 is too small: the leader's value is" in result.message


def customers(seed: int) -> tuple[BilevelProblem, float]:
    """A price for customers who buy while it is below what each would pay; and the best revenue, negated."""
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 6))
    worth, weight = (random.integers(1, most, count).astype(float) for most in (12, 6))
    problem = BilevelProblem(
        upper=lambda x, y: -x * jnp.sum(weight * y),
        lower=lambda x, y: jnp.sum(weight * (x - worth) * y),
        x_set=Box(0.0, 12.0),
        y_set=Box(0.0, 1.0, shape=count),
    )
    return problem, -max(float(price * weight[worth >= price].sum()) for price in worth)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_starts_are_no_worse_than_each_by_itself(seed: int) -> None:
    """A start that is stuck where another one arrives is no reason to give the other one up."""
    problem, best = customers(seed)
    many: Any = solve_many(problem, list(np.linspace(0.2, 11.8, 12)))
    assert many.basins
    assert many.best.success
    assert many.best.upper_value == pytest.approx(best, abs=1e-4 * abs(best))
