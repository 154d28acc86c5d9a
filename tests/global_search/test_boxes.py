"""Boxes of few leader's variables with any convex follower: what is proven, and what is only estimated."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, OptionError, ProblemError, Reals, Status, solve_global


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
    result = solve_global(wavy(upper=lambda x, y: (x - 1.0) ** 2 + y**2), starts=0, time_limit=20.0)
    assert result.bound == pytest.approx(0.0, abs=1e-6)
    assert result.gap == pytest.approx(result.upper_value, abs=1e-6)
    x = np.linspace(-3.0, 3.0, 200_001)
    best = float(np.min((x - 1.0) ** 2 + (np.log(1.0 + np.exp(x)) - 1.0) ** 2))
    assert result.upper_value == pytest.approx(best, abs=1e-6)


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
