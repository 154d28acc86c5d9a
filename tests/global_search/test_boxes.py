"""Boxes of few leader's variables with any convex follower: what is proven, and what is only estimated."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, OptionError, ProblemError, Reals, Status, solve_global
from clocks import counted


def wavy(**changes: Any) -> BilevelProblem:
    """y = log(1 + exp(x)) - 1 minimises an exponential follower; f has several local minima along x."""
    parts: dict[str, Any] = {
        "upper": lambda x, y: jnp.sin(3.0 * x) + 0.3 * y,
        "lower": lambda x, y: jnp.exp(y + 1.0) - (1.0 + jnp.exp(x)) * y,
        "x_set": Box(-3.0, 3.0),
        "y_set": Box(-5.0, 5.0),
    }
    return BilevelProblem(**parts | changes)


def brute_force() -> float:
    x = np.linspace(-3.0, 3.0, 200_001)
    return float(np.min(np.sin(3.0 * x) + 0.3 * (np.log(1.0 + np.exp(x)) - 1.0)))


def test_a_lipschitz_constant_makes_a_proof() -> None:
    result = solve_global(wavy(), starts=0, lipschitz=3.3, gap_tolerance=1e-3)
    assert result.status is Status.CONVERGED
    assert result.bound is not None
    assert result.bound <= brute_force() <= result.upper_value + 1e-9
    assert result.upper_value - result.bound <= 1e-3 * abs(result.upper_value)


def test_without_one_nothing_is_claimed() -> None:
    result = solve_global(wavy(), starts=0)
    assert result.upper_value == pytest.approx(brute_force(), abs=1e-6)
    assert result.bound is None
    assert result.gap is None
    assert "Estimated, not proven" in result.message
    assert not result.success


@pytest.mark.slow
def test_a_convex_leader_bounds_without_a_constant() -> None:
    """f is convex in (x, y) together, so that its minimum without the follower's objective is a bound."""
    result = solve_global(wavy(upper=lambda x, y: (x - 1.0) ** 2 + y**2), starts=0, time_limit=None)
    assert result.bound == pytest.approx(0.0, abs=1e-6)
    assert result.gap == pytest.approx(result.upper_value, abs=1e-6)
    x = np.linspace(-3.0, 3.0, 200_001)
    best = float(np.min((x - 1.0) ** 2 + (np.log(1.0 + np.exp(x)) - 1.0) ** 2))
    assert result.upper_value == pytest.approx(best, abs=1e-6)


def test_kinks_of_the_follower_are_followed() -> None:
    """The follower takes y = x; f = (x - 0.3)^2 + 0.1 x is least at 0.25."""
    problem = BilevelProblem(
        upper=lambda x, y: (y - 0.3) ** 2 + 0.1 * x,
        lower=lambda x, y: jnp.abs(y - x),
        x_set=Box(0.0, 1.0),
        y_set=Reals(),
    )
    result = solve_global(problem, starts=0, lipschitz=2.0, gap_tolerance=1e-2)
    assert result.status is Status.CONVERGED
    assert result.bound is not None
    assert result.bound <= 0.0275 <= result.upper_value + 1e-9 <= 0.0275 + 1e-2
    assert "Corners were rounded" in result.message


@pytest.mark.slow
def test_jumps_are_found_where_nothing_is_proven() -> None:
    """A toll up to 8 is paid by one traveller; with a quartic leader only boxes are left. Most of X earns nothing."""
    problem = BilevelProblem(
        upper=lambda x, y: -((x[0] + x[1]) ** 3) * y[0],
        lower=lambda x, y: (2.0 + x[0] + x[1]) * y[0] + 10.0 * y[1],
        equality=lambda x, y: jnp.sum(y) - 1.0,
        x_set=Box(0.0, 60.0, shape=2),
        y_set=Box.nonnegative(2),
    )
    result = solve_global(problem, starts=0)
    assert result.bound is None
    assert result.upper_value == pytest.approx(-512.0, rel=1e-2)


@pytest.mark.parametrize("lower", [lambda x, y: -jnp.sum(y**2), lambda x, y: y[0] * y[1] - x * y[0]])
def test_followers_that_are_not_convex_are_named_at_once(lower: Any) -> None:
    problem = BilevelProblem(
        upper=lambda x, y: x + y[0], lower=lower, x_set=Box(0.0, 1.0), y_set=Box(-1.0, 1.0, shape=2)
    )
    with pytest.raises(ProblemError, match=r"lower is not convex in y: it has .* y\[0\]"):
        solve_global(problem)


def test_the_time_limit_is_kept() -> None:
    problem = wavy(
        x_set=Box(-3.0, 3.0, shape=3),
        upper=lambda x, y: jnp.sin(3.0 * x[0]) + y,
        lower=lambda x, y: jnp.exp(y) - jnp.sum(x**2) * y,
    )
    with counted(step=0.01) as clock:
        result = solve_global(problem, starts=0, lipschitz=100.0, time_limit=2.0)
    assert result.status is Status.TIME_LIMIT
    assert clock.passed < 2.5


def test_too_many_or_unbounded_variables_are_refused() -> None:
    with pytest.raises(ProblemError, match="at most 3"):
        solve_global(wavy(x_set=Reals()), starts=0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"time_limit": 0.0}, "time_limit must be a positive number"),
        ({"time_limit": "soon"}, "time_limit must be a positive number"),
        ({"gap_tolerance": -1.0}, "gap_tolerance must be a positive number"),
        ({"gap_tolerance": None}, "gap_tolerance must be a positive number"),
        ({"lipschitz": np.inf}, "lipschitz must be a nonnegative number"),
        ({"starts": -1}, "starts must be a nonnegative integer"),
        ({"seed": 1.5}, "seed must be a nonnegative integer"),
        ({"x0": 7.0}, "x0 lies outside"),
    ],
)
def test_bad_numbers_are_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        solve_global(wavy(), **given)


def test_the_problem_must_be_one() -> None:
    with pytest.raises(OptionError, match="problem must be a BilevelProblem"):
        solve_global("a problem")  # type: ignore[arg-type]
