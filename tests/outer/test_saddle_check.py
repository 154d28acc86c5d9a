"""Stationary points that are no minima are left, also where a kink or a boundary hides what bends down."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, Simplex, Status, solve, solve_many
from blocc.judge.verify import verify
from selections import few

PLANE: dict[str, Any] = {
    "lower": lambda x, y: y**2,
    "x_set": Box(-3.0, 3.0, shape=2),
    "y_set": Box(-1.0, 0.0),
}


@cache
def along_a_boundary() -> BilevelProblem:
    """Feasible where x0 <= 0; along that boundary f = 1 - x1^2 + x1^4 / 10, highest in the middle."""
    return BilevelProblem(
        upper=lambda x, y: (x[0] - 1.0) ** 2 - x[1] ** 2 + 0.1 * x[1] ** 4 + 0.0 * y,
        inequality=lambda x, y: x[0] - y,
        **PLANE,
    )


@cache
def around_a_hole() -> BilevelProblem:
    """Feasible outside the unit disk; on its edge f is lowest at (1, 0) and (-1, 0)."""
    return BilevelProblem(
        upper=lambda x, y: x[0] ** 2 + 2.0 * x[1] ** 2 + 0.0 * y, inequality=lambda x, y: 1.0 - x @ x - y, **PLANE
    )


def along_a_kink() -> BilevelProblem:
    """The value is |x0| - x1^2 + x1^4 / 10."""
    return BilevelProblem(
        upper=lambda x, y: y - x[1] ** 2 + 0.1 * x[1] ** 4,
        lower=lambda x, y: y,
        inequality=lambda x, y: jnp.stack([x[0] - y, -x[0] - y]),
        x_set=Box(-6.0, 6.0, shape=2),
        y_set=Reals(),
    )


def along_a_curved_kink() -> BilevelProblem:
    """The value is 10 |x0 - x1^2| - x0, on the kink -x1^2: lowest where x0 = 3."""
    return BilevelProblem(
        upper=lambda x, y: 10.0 * y - x[0],
        lower=lambda x, y: y,
        inequality=lambda x, y: jnp.stack([x[0] - x[1] ** 2 - y, -x[0] + x[1] ** 2 - y]),
        x_set=Box(-3.0, 3.0, shape=2),
        y_set=Reals(),
    )


CASES = {
    "boundary, from the middle": (along_a_boundary, None, -1.5),
    "boundary, from behind": (along_a_boundary, [1.0, 0.0], -1.5),
    "boundary, from a saddle": (along_a_boundary, [-1.0, 1e-6], -1.5),
    "hole, from its edge": (around_a_hole, [0.0, 1.0], 1.0),
    "hole, from its middle": (around_a_hole, None, 1.0),
    "kink": (along_a_kink, [1.0, 0.0], -2.5),
    "curved kink": (along_a_curved_kink, [1.0, 0.0], -3.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", few(CASES, "hole, from its edge"))
def test_what_is_no_minimum_is_left(name: str) -> None:
    make, start, value = CASES[name]
    problem = make()
    result = solve(problem, None if start is None else np.array(start))
    assert result.status is Status.CONVERGED, result.message
    assert result.upper_value == pytest.approx(value, abs=2e-4)
    # What the certificate says fits what the status says, whatever units the run has chosen.
    assert result.certificate.stationarity_x <= 1.1e-5 * (1.0 + abs(result.upper_value))
    assert verify(problem, result).ok


@pytest.mark.slow
def test_many_starts_leave_it_too() -> None:
    found = solve_many(along_a_boundary(), np.array([[-1.0, 0.0], [1.0, 0.0]]))
    np.testing.assert_allclose(found.upper_values, -1.5, atol=1e-4)


@pytest.mark.slow
def test_an_inflection_is_left() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: y[0] ** 3,
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(-5.0, 5.0, shape=1),
        y_set=Reals(1),
    )
    for start in (0.5, 2.0):
        assert solve(problem, np.array([start])).upper_value == pytest.approx(-125.0, rel=1e-4)


@pytest.mark.slow
def test_a_leader_with_a_curved_constraint_leaves_its_saddle() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: y[0] ** 2 + 2.0 * y[1] ** 2,
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        upper_inequality=lambda x, y: 1.0 - y @ y,
        x_set=Box(-3.0, 3.0, shape=2),
        y_set=Reals(2),
    )
    result = solve(problem, np.array([0.0, 1.0]))
    assert result.status is Status.CONVERGED
    assert result.upper_value == pytest.approx(1.0, abs=1e-4)


@pytest.mark.slow
def test_a_wall_on_a_simplex_is_certified_honestly() -> None:
    """The set's normals are found by probing, opposite ones only up to rounding: that must not explain any slope."""
    problem = BilevelProblem(
        upper=lambda x, y: (x[0] - 1.0) ** 2 + (x[1] - 0.1) ** 2 + 0.0 * y,
        lower=lambda x, y: y**2,
        inequality=lambda x, y: x[0] - 0.4 - y,
        x_set=Simplex(3),
        y_set=Box(-1.0, 0.0),
    )
    result = solve(problem, np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(result.x, [0.4, 0.1, 0.5], atol=5e-3)
    if result.success:  # f is known to 1e-7 at a boundary, x to its root
        np.testing.assert_allclose(result.x, [0.4, 0.1, 0.5], atol=5e-4)
