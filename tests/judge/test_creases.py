"""Curved kinks: of the leader's own functions, and of a linear follower at a degenerate vertex.

On them every straight line rises, so that only a way along them shows that f falls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, solve, verify

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import outside_forgeries
from outside_case import Case

KINKS: dict[str, Callable[[Any], Any]] = {
    "abs": jnp.abs,
    "maximum": lambda z: jnp.maximum(z, -z),
    "where": lambda z: jnp.where(z > 0.0, z, -z),
    "largest entry": lambda z: jnp.max(jnp.stack([z, -z, -2.0 + z])),
    "root of a square": lambda z: jnp.sqrt(z**2),
    "sorted entry": lambda z: jnp.sort(jnp.stack([z, -z]))[1],
}


def valley(kink: Callable[[Any], Any], weight: float, best: float, through_y: bool) -> BilevelProblem:
    """``weight |x1 - u^2| + (y - best)^2`` with y = u = x0."""
    return BilevelProblem(
        upper=lambda x, y: weight * kink(x[1] - (y if through_y else x[0]) ** 2) + (y - best) ** 2,
        lower=lambda x, y: (y - x[0]) ** 2,
        x_set=Box(-4.0, 4.0, shape=2),
        y_set=Reals(),
    )


@pytest.mark.parametrize("kink", KINKS)
def test_a_curved_kink_is_followed(kink: str) -> None:
    generator = np.random.default_rng(len(kink))
    best, from_u = generator.uniform(0.5, 1.5), generator.uniform(-1.5, -0.5)
    problem = valley(KINKS[kink], 10.0 ** generator.uniform(2, 5), best, through_y=True)
    result = solve(problem, np.array([from_u, from_u**2]))
    assert result.success, result.message
    np.testing.assert_allclose(result.x, [best, best**2], atol=1e-3)
    assert verify(problem, result).ok


def test_a_kink_of_x_alone_hides_no_way_down() -> None:
    problem = valley(jnp.abs, 1e4, 1.0, through_y=False)
    result = solve(problem, np.array([-1.0, 1.0]))
    assert result.upper_value < 0.1  # 4 at the start; where all is right, 0
    assert not result.success or result.upper_value < 1e-4


@pytest.mark.parametrize("seed", range(2))
def test_a_degenerate_vertex_of_a_linear_follower_is_followed(seed: int) -> None:
    generator = np.random.default_rng(seed)
    weight, best, from_u = 10.0 ** generator.uniform(2, 6), generator.uniform(0.5, 1.5), -generator.uniform(0.5, 1.5)
    problem = BilevelProblem(
        upper=lambda x, y: weight * y + (x[0] - best) ** 2,
        lower=lambda x, y: y,
        inequality=lambda x, y: jnp.stack([x[1] - x[0] ** 2 - y, x[0] ** 2 - x[1] - y]),
        x_set=Box(-4.0, 4.0, shape=2),
        y_set=Reals(),
    )
    result = solve(problem, np.array([from_u, from_u**2]))
    assert result.success, result.message
    np.testing.assert_allclose(result.x, [best, best**2], atol=1e-3)
    assert verify(problem, result).ok


@pytest.mark.parametrize("forger", [outside_forgeries.along_a_kink, outside_forgeries.saddle_in_units])
@pytest.mark.parametrize("seed", range(3))
def test_forged_ends_are_rejected(forger: Callable[[np.random.Generator], tuple[Case, Any]], seed: int) -> None:
    case, result = forger(np.random.default_rng([seed, 41]))
    assert not outside_forgeries.examined(forger.__name__, case, result).ok, case.model.name


def test_what_a_unit_of_a_variable_at_zero_means_shows_where_f_changes() -> None:
    """A saddle at zero in units of 1e8: it is left, and the minimum is not called unbounded."""
    unit = 1e8
    problem = BilevelProblem(
        upper=lambda x, y: 1.0 + (y / unit) ** 2 - (x[1] / unit) ** 2 + (x[1] / unit) ** 4,
        lower=lambda x, y: ((y - x[0]) / unit) ** 2,
        x_set=Reals(2),
        y_set=Reals(),
    )
    result = solve(problem, np.zeros(2))
    assert result.success, result.message
    np.testing.assert_allclose(np.abs(result.x) / unit, [0.0, np.sqrt(0.5)], atol=1e-4)
