"""Rows in which a coefficient of up to 1e12 stands beside one of 1: no tolerance may buy the leader anything."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Status, solve_global
from blocc.global_search.safe_bounds import Program, safe_bound
from selections import few

FORMS = ("equality", "equality, quadratic", "row", "row, quadratic", "leader's row")


def drawn(form: str, seed: int) -> tuple[BilevelProblem, float, float]:
    """``w b + a <= w x + r`` with ``b >= x``, which leaves a <= r; the leader wants a, and x = 3 for odd seeds.

    With the leader's value, and what rounding of x leaves of a row with this w.
    """
    generator = np.random.default_rng(seed)
    weight, right = 10.0 ** generator.uniform(6.0, 12.0), float(generator.uniform(0.5, 3.0))
    place, most = generator.permutation(3), np.zeros(3)
    most[place] = 50.0, 10.0, 5.0
    quadratic = "quadratic" in form

    def lower(x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
        a, _, c = y[place]
        return 0.5 * (a - 60.0) ** 2 + c**2 if quadratic else c - a

    def inequality(x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
        a, b, _ = y[place]
        rows = [weight * b + a - weight * x[0] - right]
        return jnp.stack(rows + [x[0] - b] * form.startswith("row"))

    further = {}
    if form.startswith("equality"):
        further["equality"] = lambda x, y: y[place][1:2] - x
    if form.startswith("leader"):
        further["upper_inequality"] = lambda x, y: x - y[place][1:2]
    problem = BilevelProblem(
        upper=lambda x, y: -y[place][0] + (seed % 2) * (x[0] - 3.0) ** 2,
        lower=lower,
        inequality=inequality,
        x_set=Box(np.zeros(1), np.full(1, 10.0)),
        y_set=Box(np.zeros(3), most),
        **further,
    )
    return problem, -right, (seed % 2) * 10.0 * weight * float(np.finfo(float).eps)


CASES = [(form, seed) for form in FORMS for seed in range(6)]


@pytest.mark.parametrize(("form", "seed"), few(CASES, *CASES[::6], (FORMS[0], 1)))
def test_no_tolerance_is_exploited(form: str, seed: int) -> None:
    problem, least, rounding = drawn(form, seed)
    result = solve_global(problem, starts=0)
    if form.startswith("leader") and seed % 2:  # b = 0 is the follower's for x < w^-1 alone
        assert result.upper_value >= least - rounding
        return
    assert result.upper_value == pytest.approx(least, abs=1e-6 + rounding)
    assert result.bound is not None
    assert result.bound <= least + 1e-12 * abs(least)
    if rounding < 1e-7:
        assert result.status is Status.CONVERGED


def linear_program(seed: int) -> tuple[Program, np.ndarray, np.ndarray, float]:
    """A program with a known solution and known multipliers, of whose columns one has no end above."""
    generator = np.random.default_rng(seed)
    columns, rows, equalities = generator.integers(2, 8), generator.integers(1, 6), generator.integers(1, 3)
    above, equal = generator.normal(size=(rows, columns)), generator.normal(size=(equalities, columns))
    scale = 10.0 ** generator.uniform(-4.0, 4.0, size=(rows, 1))
    above *= scale
    point = np.where(generator.uniform(size=columns) < 0.5, 0.0, generator.uniform(0.1, 1.0, size=columns))
    held = generator.uniform(size=rows) < 0.6
    prices = np.where(held, -generator.uniform(size=rows) / scale[:, 0], 0.0)
    others = generator.normal(size=equalities)
    slope = np.where(point == 0.0, generator.uniform(size=columns) * (generator.uniform(size=columns) < 0.7), 0.0)
    cost = above.T @ prices + equal.T @ others + slope
    high = np.where(np.arange(columns) == 1, np.inf, 2.0)
    right = above @ point + np.where(held, 0.0, scale[:, 0])
    program = Program(cost, above, right, equal, equal @ point, np.zeros(columns), high)
    return program, prices, others, float(cost @ point)


@pytest.mark.parametrize("seed", range(40))
def test_bounds_of_multipliers_are_safe_and_close(seed: int) -> None:
    program, prices, others, least = linear_program(seed)
    size = float(np.abs(program.cost).sum() + np.abs(program.above_right * prices).sum() + 1.0)
    bound = safe_bound(program, prices, others)
    assert least - 1e-8 * size <= bound <= least + 1e-14 * size
    generator = np.random.default_rng(seed)
    for much in (1e-12, 1e-6, 1.0):  # any multipliers prove something true
        shaken = (
            prices + much * generator.normal(size=len(prices)),
            others + much * generator.normal(size=len(others)),
        )
        assert safe_bound(program, *shaken) <= least + 1e-14 * size


def test_a_wrong_sign_without_an_end_proves_nothing() -> None:
    program = Program(
        np.array([-1.0]), np.zeros((0, 1)), np.zeros(0), np.zeros((0, 1)), np.zeros(0), np.zeros(1), np.full(1, np.inf)
    )
    assert safe_bound(program, np.zeros(0), np.zeros(0)) == -np.inf
