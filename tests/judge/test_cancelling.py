"""Terms that cancel hide nothing: what counts is what f(x, y(x)) itself varies by, whatever f is made of.

Every problem has a truth in closed form, and random parameters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, Result, Status, solve, solve_many, verify


def draw(seed: int) -> tuple[float, float]:
    """A weight between 1e3 and 1e9, and where the minimum lies."""
    generator = np.random.default_rng(seed)
    return float(10.0 ** generator.uniform(3, 9)), float(generator.uniform(-1.5, 1.5))


def tracking(upper: Any, **parts: Any) -> BilevelProblem:
    """The follower answers y = x."""
    return BilevelProblem(
        upper=upper, lower=lambda x, y: jnp.sum((y - x) ** 2), **{"x_set": Box(-4.0, 4.0), "y_set": Reals(), **parts}
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["square", "linear"])
def test_what_is_always_zero_weighs_nothing(kind: str, seed: int) -> None:
    weight, best = draw(seed)
    hidden = {"square": lambda x, y: (x - y) ** 2, "linear": lambda x, y: x - y}[kind]
    problem = tracking(lambda x, y: weight * hidden(x, y) + (x - best) ** 2)
    result = solve(problem, 3.0)
    assert result.success, result.message
    np.testing.assert_allclose(result.x, best, atol=1e-3)
    assert verify(problem, result).ok
    for wrong in (best + 0.3, best - 1.0):
        assert not verify(problem, forged(problem, result, wrong, wrong)).ok


def forged(problem: BilevelProblem, result: Result, x: Any, y: Any) -> Result:
    """The result moved elsewhere, its values and residuals made to fit."""
    perfect = replace(result.certificate, stationarity_x=0.0, radius=0.0, penalty_gap=0.0, distance=0.0)
    return replace(
        result,
        x=np.asarray(x),
        y=np.asarray(y),
        y_penalty=np.asarray(y),
        upper_value=float(problem.upper(x, y)),
        upper_value_penalty=float(problem.upper(x, y)),
        lower_value=float(problem.lower(x, y)),
        gamma=np.inf,
        certificate=perfect,
    )


@pytest.mark.parametrize("seed", range(2))
def test_rows_are_measured_by_what_x_changes_them_by(seed: int) -> None:
    weight, least = draw(seed)
    problem = tracking(lambda x, y: x, upper_inequality=lambda x, y: weight * (y - x) + least - x)
    result = solve(problem)
    assert result.success, result.message
    np.testing.assert_allclose(result.x, least, atol=1e-4)


@pytest.mark.parametrize("size", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_a_saddle_is_no_minimum_along_any_vector(size: int) -> None:
    along = np.random.default_rng(size).normal(size=size)
    along /= np.linalg.norm(along)
    problem = BilevelProblem(
        upper=lambda x, y: x @ x - 3.0 * (x @ along) ** 2 + (x @ along) ** 4 + 0.0 * y,
        lower=lambda x, y: (y - x[0]) ** 2,
        x_set=Box(-3.0, 3.0, shape=size),
        y_set=Reals(),
    )
    result = solve(problem, np.zeros(size))
    assert result.success, result.message
    np.testing.assert_allclose(result.upper_value, -1.0, atol=1e-6)
    assert not verify(problem, forged(problem, result, np.zeros(size), np.zeros(()))).ok


def test_a_root_at_a_bound_hides_no_slope() -> None:
    problem = tracking(lambda x, y: 0.1 * jnp.sqrt(y + 1e-12) + (x - 1.0) ** 2, y_set=Box(0.0, np.inf))
    problem = replace(problem, lower=lambda x, y: (y - x + 5.0) ** 2)
    result = solve(problem)
    assert result.success, result.message
    np.testing.assert_allclose(result.x, 1.0, atol=1e-4)


@pytest.mark.parametrize("weight", [1e3, 1e6])
def test_along_a_curved_kink_f_still_falls(weight: float) -> None:
    """f(x, y(x)) = W |x1 - x0^2| + (x0 - 1)^2."""
    problem = BilevelProblem(
        upper=lambda x, y: weight * (2.0 * y - (x[1] - x[0] ** 2)) + (x[0] - 1.0) ** 2,
        lower=lambda x, y: (y - (x[1] - x[0] ** 2)) ** 2,
        x_set=Box(-3.0, 3.0, shape=2),
        y_set=Box(0.0, np.inf, shape=()),
    )
    result = solve(problem)
    assert result.success, result.message
    np.testing.assert_allclose(result.x, [1.0, 1.0], atol=1e-4)
    corner = forged(problem, result, np.zeros(2), np.zeros(()))
    assert not verify(problem, corner).ok


def test_an_expensive_kink_hides_no_cheap_coordinate() -> None:
    problem = tracking(
        lambda x, y: 1e5 * (0.3 * x[0] - y[0]) + (y[1] - 1.0) ** 2,
        inequality=lambda x, y: y[0] - 1.5,
        x_set=Box(-4.0, 4.0, shape=2),
        y_set=Reals(2),
    )
    result = solve(problem, np.array([0.0, -2.0]))
    assert result.success, result.message
    np.testing.assert_allclose(result.x, [1.5, 1.0], atol=1e-4)


def test_a_box_bounds_everything() -> None:
    scale = 1e7
    problem = BilevelProblem(
        upper=lambda x, y: (y / scale - 1.0) ** 2,
        lower=lambda x, y: ((y - x) / scale) ** 2,
        x_set=Box(-2.0 * scale, 2.0 * scale),
        y_set=Reals(),
    )
    assert solve(problem).status is Status.CONVERGED


@pytest.mark.parametrize("condition", [1e3, 1e6])
def test_small_residuals_of_an_ill_conditioned_follower_are_no_small_distance(condition: float) -> None:
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(2, 2)))[0]
    matrix = turn @ np.diag([1.0, condition]) @ turn.T
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum((y - 0.5) ** 2),
        lower=lambda x, y: (y - x) @ matrix @ (y - x),
        x_set=Box(-2.0, 2.0, shape=2),
        y_set=Reals(2),
    )
    result = solve(problem, np.zeros(2))
    assert result.success, result.message
    y = np.full(2, 0.5)
    assert not verify(problem, forged(problem, result, y + 0.1 * turn[:, 0], y)).ok


def test_no_start_is_lost_on_an_exponential_cliff() -> None:
    problem = tracking(lambda x, y: jnp.exp(40.0 * y) * 1e-8 + (x - 0.2) ** 2 + 3.0)
    for start in (-2.0, 0.1, 3.9):
        result = solve(problem, start)
        assert result.upper_value <= float(problem.upper(start, start)) * (1.0 + 1e-9)


def test_forty_starts_end_as_single_ones_do() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: (1.0 - y[0]) ** 2 + 10.0 * (y[1] - y[0] ** 2) ** 2,
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(-2.0, 2.0, shape=2),
        y_set=Reals(2),
    )
    many = solve_many(problem, starts=33)
    assert all(result.success for result in many.results)
    np.testing.assert_allclose(many.upper_values, 0.0, atol=1e-6)
