"""Where second derivatives do not decide: singular Hessians, bent valleys, and kinks that no row tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, solve, verify


def copied(upper: Callable[[Any], Any], n: int, far: float = 2.0) -> BilevelProblem:
    """A follower who copies x, so that f(x, y(x)) is ``upper(x)``."""
    return BilevelProblem(
        upper=lambda x, y: upper(y),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(-far, far, shape=n),
        y_set=Reals(n),
    )


@pytest.mark.parametrize("seed", range(4))
def test_leaves_a_saddle_along_a_curved_valley(seed: int) -> None:
    generator = np.random.default_rng(seed)
    steep, bend, fall = 10.0 ** generator.uniform(0.0, 2.0), generator.uniform(0.5, 1.0), generator.uniform(0.1, 0.5)
    problem = copied(lambda y: steep * (y[1] - bend * y[0] ** 2) ** 2 - fall * y[0] ** 4 + 0.5 * fall * y[0] ** 6, 2)
    result = solve(problem, np.zeros(2), progress=False)
    assert result.success
    assert result.upper_value == pytest.approx(-fall * 16.0 / 27.0, rel=1e-6)  # at y0^2 = 4 / 3
    assert verify(problem, result).ok


@pytest.mark.parametrize("seed", range(2))
def test_stays_in_a_valley_without_curvature_and_says_so(seed: int) -> None:
    bend = np.random.default_rng(seed).uniform(0.5, 1.0)
    problem = copied(lambda y: (y[1] - bend * y[0] ** 2) ** 2 + 0.1 * y[0] ** 4, 2)
    result = solve(problem, np.zeros(2), progress=False)
    assert result.success
    np.testing.assert_allclose(result.x, 0.0, atol=1e-6)
    assert "no curvature along 1 direction" in result.message
    assert verify(problem, result).ok


def test_leaves_a_quartic_saddle() -> None:
    a = np.random.default_rng(8).standard_normal(8)
    a /= np.linalg.norm(a)
    problem = copied(lambda y: (y @ y) ** 2 - 3.0 * (a @ y) ** 4 + (a @ y) ** 6, 8, 3.0)
    result = solve(problem, np.zeros(8), progress=False)
    assert result.success
    assert result.upper_value == pytest.approx(-32.0 / 27.0, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_certificate_at_the_tip_of_a_norm_is_that_of_values(seed: int) -> None:
    tip = np.random.default_rng(seed).uniform(-0.8, 0.8, 2)
    problem = BilevelProblem(
        upper=lambda x, y: 3.0 * jnp.linalg.norm(y - tip) + 0.3 * jnp.sum((x - 1.0) ** 2),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(-2.0, 2.0, shape=2),
        y_set=Reals(2),
    )
    result = solve(problem, progress=False)
    checked = verify(problem, result)
    np.testing.assert_allclose(result.x, tip, atol=1e-6)
    assert not result.success or result.certificate.stationarity_x <= 1e-3
    assert checked.ok
