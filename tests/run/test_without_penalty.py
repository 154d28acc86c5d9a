"""Leaders whose objective has no minimum in y alone, and constraints that a descent does not meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, Status, solve
from blocc.judge.verify import verify

FALLING: dict[str, Callable[[Any], Any]] = {
    "exponential": lambda y: -jnp.exp(y),
    "fourth power": lambda y: y - y**4,
    "product": lambda y: -y * jnp.exp(y),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", FALLING)
def test_what_falls_in_y_alone_is_not_unbounded(name: str, seed: int) -> None:
    generator = np.random.default_rng([seed, len(name)])
    end, share = generator.uniform(0.5, 2.0), generator.uniform(0.5, 1.5)
    problem = BilevelProblem(
        upper=lambda x, y: FALLING[name](y),
        lower=lambda x, y: (y - share * x) ** 2,
        x_set=Box(-end, end),
        y_set=Reals(),
    )
    result = solve(problem, generator.uniform(-0.3, 0.3) * end, progress=False)
    near = np.clip(result.x + np.linspace(-0.05, 0.05, 201), -end, end)
    assert result.success, result.message
    assert result.upper_value <= min(float(FALLING[name](share * x)) for x in near) + 1e-6  # in single precision
    assert verify(problem, result).ok


def test_what_falls_along_the_response_is_unbounded() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: -jnp.exp(y), lower=lambda x, y: (y - x) ** 2, x_set=Reals(), y_set=Reals()
    )
    assert solve(problem, progress=False).status is not Status.CONVERGED


@pytest.mark.parametrize("start", [1.0, 2.5])
def test_a_constraint_that_a_descent_does_not_meet_is_looked_for(start: float) -> None:
    problem = BilevelProblem(
        upper=lambda x, y: (y - 1.0) ** 2,
        lower=lambda x, y: (y - x) ** 2,
        upper_inequality=lambda x, y: (x**2 - 1.0) ** 2 + 0.3 * y - 0.1,
        x_set=Box(-3.0, 3.0),
        y_set=Reals(),
    )
    result = solve(problem, start, progress=False)
    assert result.success, result.message
    assert result.x < 0.0


def test_sorted_entries_are_traced() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sort(y) @ jnp.arange(3.0) + jnp.sum((x - 1.0) ** 2),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(-2.0, 2.0, shape=3),
        y_set=Reals(3),
    )
    assert np.isfinite(solve(problem, progress=False).upper_value)
