"""Answers are judged in the user's own units: the false certificates that outsiders found, each with its truth."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import Ball, BilevelProblem, Box, Reals, Simplex, Status, solve, solve_many
from blocc.judge.verify import verify
from selections import few


def problem(**changes: Any) -> BilevelProblem:
    parts = {
        "upper": lambda x, y: (x - 1.0) ** 2 + y**2,
        "lower": lambda x, y: (y - x) ** 2,
        "x_set": Box(-10.0, 10.0),
        "y_set": Reals(),
    }
    return BilevelProblem(**{**parts, **changes})


STIFF = {
    "exp": (lambda x, y: (x - 1.0) ** 2 + y**2 + jnp.exp(x), Box(0.0, 40.0), None, 0.195899, 1.9013589),
    "fourth": (lambda x, y: (x - 1.0) ** 4 + y**2, Box(-10.0, 200.0), None, 0.410246, 0.2892734),
    "sixth": (lambda x, y: (x - 1.0) ** 6 / 6.0 + y**2, Box(-30.0, 30.0), -29.0, 0.182529, 0.0830542),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", few(STIFF, "fourth"))
def test_units_of_the_start_certify_nothing(name: str) -> None:
    upper, x_set, start, x, value = STIFF[name]
    stiff = problem(upper=upper, x_set=x_set)
    result = solve(stiff, start)
    assert result.success, result.message
    assert result.x == pytest.approx(x, abs=1e-4)
    assert result.upper_value == pytest.approx(value, abs=1e-5)
    assert verify(stiff, result).ok


@pytest.mark.slow
def test_a_follower_beside_a_large_offset() -> None:
    offset = problem(
        upper=lambda x, y: (x - 1.0) ** 2 + y[0],
        lower=lambda x, y: 0.01 * (y[0] - x) ** 2 + (y[1] - 1e4) ** 2,
        inequality=lambda x, y: y[0] - x,
        y_set=Reals(2),
    )
    result = solve(offset)
    assert result.success, result.message
    np.testing.assert_allclose(result.y, [0.5, 1e4], rtol=1e-5)


FALLING = {
    "logarithm": lambda y: -jnp.log1p(y),
    "root": lambda y: -jnp.sqrt(1.0 + y),
    "to an asymptote": lambda y: jnp.exp(-y),
}


@pytest.mark.parametrize("name", few(FALLING, "to an asymptote"))
def test_what_falls_for_ever_has_no_minimum(name: str) -> None:
    ray = Box(0.0, np.inf)
    result = solve(problem(upper=lambda x, y: FALLING[name](y), x_set=ray, y_set=ray))
    assert not result.success
    if name != "to an asymptote":
        assert result.status is Status.UNBOUNDED


@pytest.mark.slow
@pytest.mark.parametrize("shift", [1e6, pytest.param(1e8, marks=pytest.mark.slow)])
def test_a_constant_in_f_or_g_changes_nothing(shift: float) -> None:
    result = solve(problem(upper=lambda x, y: shift + (x - 1.0) ** 2 + (y - 1.0) ** 2), 1.7)
    assert result.success, result.message
    assert result.x == pytest.approx(1.0, abs=1e-4)
    result = solve(problem(lower=lambda x, y: shift + (y - x) ** 2), 1.7)
    assert result.success, result.message
    assert result.y == pytest.approx(0.5, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e-8, pytest.param(1e6, marks=pytest.mark.slow)])
def test_a_number_times_f_or_g_changes_nothing(factor: float) -> None:
    target = np.array([2.0, 1.0])
    ball = problem(
        upper=lambda x, y: factor * (jnp.sum((x - target) ** 2) + jnp.sum(y**2)),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Ball(np.zeros(2), 3.0),
        y_set=Reals(2),
    )
    result = solve(ball)
    assert result.success, result.message
    np.testing.assert_allclose(result.x, [1.0, 0.5], atol=1e-4)
    simplex = problem(
        upper=lambda x, y: x**2 + (y[1] - 1.0) ** 2,
        lower=lambda x, y: factor * jnp.sum((y - 0.5 - x) ** 2),
        y_set=Simplex(2),
    )
    result = solve(simplex)
    assert result.success, result.message
    np.testing.assert_allclose(result.y, [0.5, 0.5], atol=1e-5)


@pytest.mark.slow
def test_the_leaders_constraint_is_held_to_its_own_size() -> None:
    """A large x does not loosen it."""
    far = problem(
        upper=lambda x, y: (x[0] - 1e4) ** 2 + (x[1] - 2.0) ** 2 + y,
        lower=lambda x, y: (y - x[1]) ** 2,
        upper_inequality=lambda x, y: x[1] + y - 1.0,
        x_set=Box(-2e4, 2e4, shape=2),
    )
    result = solve(far)
    assert result.success, result.message
    assert result.certificate.leader_violation <= 4e-6
    np.testing.assert_allclose(result.x, [1e4, 0.5], atol=1e-3)


@pytest.mark.slow
def test_an_open_penalty_is_no_success() -> None:
    hidden = problem(upper=lambda x, y: (x - 1.0) ** 2 + 1e4 * y**2, lower=lambda x, y: 1e-3 * (y - x) ** 2)
    result = solve(hidden, 0.5, gamma=100.0)
    assert result.status is Status.PENALTY_OPEN
    assert not result.success


@pytest.mark.slow
def test_a_plateau_is_left_or_named() -> None:
    """The toll is so high that nobody travels, and nothing changes around it."""
    toll = problem(
        upper=lambda x, y: -x * y,
        lower=lambda x, y: (x - 3.0) * y + 0.05 * y**2,
        x_set=Box(0.0, 10.0),
        y_set=Box(0.0, 1.0),
    )
    result = solve(toll, 9.0)
    assert result.upper_value == pytest.approx(-2.9, abs=1e-3)
    flat = solve(problem(upper=lambda x, y: 0.0 * x + 0.0 * y + 3.0, lower=lambda x, y: y**2))
    assert flat.success
    assert "flat" in flat.message


@pytest.mark.slow
@pytest.mark.parametrize("power", [4, 8])
def test_followers_flatter_than_a_parabola(power: int) -> None:
    """No gamma closes the penalty; the value function needs none."""
    flat = problem(lower=lambda x, y: (y - x) ** power, x_set=Box(-5.0, 5.0))
    result = solve(flat, 2.0)
    assert result.success, result.message
    assert result.x == pytest.approx(0.5, abs=1e-4)
    assert result.y == pytest.approx(0.5, abs=1e-4)
    assert verify(flat, result).ok, str(verify(flat, result))


@pytest.mark.slow
def test_a_norm_has_no_derivative_in_the_middle() -> None:
    cone = problem(
        upper=lambda x, y: x**2 + jnp.sum((y - jnp.array([1.0, 2.0])) ** 2),
        lower=lambda x, y: jnp.sum((y - jnp.array([3.0, 1.0])) ** 2),
        inequality=lambda x, y: jnp.sqrt(jnp.sum(y**2)) - x,
        x_set=Box(0.0, 5.0),
        y_set=Reals(2),
    )
    result = solve(cone)
    assert result.success, result.message
    assert result.x == pytest.approx(5.0 / (2.0 * np.sqrt(10.0)), abs=1e-4)


@pytest.mark.slow
def test_the_best_of_many_is_feasible_and_ranked_by_value() -> None:
    """Points that are not feasible for both levels come last; a finished flat point is no better for being finished."""
    toll = problem(
        upper=lambda x, y: -x * y,
        lower=lambda x, y: (x - 3.0) * y + 0.05 * y**2,
        x_set=Box(0.0, 10.0),
        y_set=Box(0.0, 1.0),
    )
    many = solve_many(toll, np.array([1.0, 9.0]))
    assert many.best.upper_value == pytest.approx(-2.9, abs=1e-3)
    none = solve_many(problem(upper_inequality=lambda x, y: 1.0 + x**2), np.array([1.0]))
    assert not none.best.success
    assert not none.best.certificate.exact
