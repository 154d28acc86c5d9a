"""Ways down that neither coordinates nor first derivatives show, from generators of an independent tester."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, Result, Status, solve, verify


def _copying(upper: Callable[[Any], Any], n: int, **more: Any) -> BilevelProblem:
    """The follower responds with y = x."""
    return BilevelProblem(
        upper=lambda x, y: upper(y),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(-2.0, 2.0, shape=n),
        y_set=Reals(n),
        **more,
    )


def _at_zero(found: Result) -> Result:
    """The claim of a result that converged, at zero, where phi is zero."""
    nothing: dict[str, Any] = dict.fromkeys(("x", "y", "y_penalty"), np.zeros_like(found.x))
    nothing |= dict.fromkeys(("upper_value", "upper_value_penalty", "lower_value"), 0.0)
    return replace(found, **nothing)


@pytest.mark.parametrize("start", [(1.0, 1.0), (0.5, 0.25), (0.0, 0.0)])
def test_a_constraint_without_derivatives_on_its_zero_set_certifies_nothing_beside_the_minimum(
    start: tuple[float, float],
) -> None:
    """The curve y1 = y0^2, written as a square: every point near it violates it, whatever its derivatives say."""
    scale = float(np.random.default_rng(int(100 * start[0])).uniform(0.5, 20.0))
    problem = _copying(lambda y: y[0], 2, upper_inequality=lambda x, y: scale * (y[1] - y[0] ** 2) ** 2)
    found = solve(problem, np.array(start), progress=False)
    away = float(found.upper_value) + np.sqrt(2.0)
    assert away < 1e-3 or not found.success, found


@pytest.mark.parametrize("seed", range(2))
def test_saddles_between_the_axes_of_a_null_space_are_left(seed: int) -> None:
    """On the sphere the axes are stationary by symmetry, and phi falls between them alone."""
    generator = np.random.default_rng(seed)
    cross = generator.uniform(3.0, 50.0)

    def upper(y: Any) -> Any:
        return y[2] ** 2 + y[0] ** 4 - cross * (y[0] * y[1]) ** 2 + y[1] ** 4 + 0.5 * (y[0] ** 6 + y[1] ** 6)

    problem = _copying(upper, 3)
    found = solve(problem, np.array([0.0, 0.0, float(seed)]), progress=False)
    assert found.success, found
    assert found.upper_value < -1e-2
    assert not verify(problem, _at_zero(found)).ok


@pytest.mark.parametrize("seed", range(3))
def test_every_edge_on_which_kinks_of_upper_meet_is_looked_along(seed: int) -> None:
    """phi = sum c |Bx| + |x|^2/20 with one c < 0: to first order it falls at 0 if and only if it does along an edge."""
    generator = np.random.default_rng(seed)
    n, m = 4, 8
    rows, weights = generator.standard_normal((m, n)), generator.uniform(0.2, 1.0, m)
    # The negative one as large as makes 0 a saddle along a few edges only.
    edges = [np.linalg.svd(rows[list(kept)])[2][-1] for kept in combinations(range(m), n - 1)]
    ratios = sorted(
        float(weights[1:] @ np.abs(rows[1:] @ e) / np.abs(rows[0] @ e)) for e in edges if abs(rows[0] @ e) > 1e-9
    )
    weights[0] = -0.5 * (ratios[1] + ratios[2])  # two of them, both ways
    problem = _copying(lambda y: jnp.sum(weights * jnp.abs(rows @ y)) + 0.05 * y @ y, n)
    found = solve(problem, generator.uniform(-1.0, 1.0, n), progress=False)
    honest = replace(found, status=Status.CONVERGED, message="")
    assert not verify(problem, _at_zero(honest)).ok


@pytest.mark.parametrize("seed", range(3))
def test_far_wells_of_the_follower_are_found(seed: int) -> None:
    generator = np.random.default_rng(seed)
    at = generator.choice([-1.0, 1.0]) * 10.0 ** generator.uniform(1.0, 2.0)
    width, depth = 0.1 * abs(at), 5.0 * at**2
    problem = BilevelProblem(
        upper=lambda x, y: (y - 1.0) ** 2,
        lower=lambda x, y: (y - x) ** 2 - depth * jnp.exp(-(((y - at) / width) ** 2)),
        x_set=Box(-3.0, 3.0),
        y_set=Reals(),
    )
    assert solve(problem, 2.0, progress=False).status is Status.NOT_CONVEX


def test_one_direction_of_many_in_which_the_follower_bends_down_is_found() -> None:
    """No pair of random points shows it: along a random direction the other 399 outweigh it."""
    a = np.random.default_rng(0).standard_normal(400)
    a /= np.linalg.norm(a)
    problem = BilevelProblem(
        upper=lambda x, y: x**2 + jnp.sum(y) ** 2,
        lower=lambda x, y: jnp.sum((y - x) ** 2) - 3.0 * (a @ y) ** 2 + (a @ y) ** 4,
        x_set=Box(-1.0, 1.0),
        y_set=Reals(400),
    )
    assert not solve(problem, 0.5, progress=False, time_limit=60.0).success


@pytest.mark.parametrize("concave", [False, True])
def test_a_vertex_with_more_edges_than_are_looked_along_is_proved_by_convexity_or_not_claimed(concave: bool) -> None:
    """Twelve kinks in six directions: 792 edges."""
    generator = np.random.default_rng(3)
    rows, weights = generator.standard_normal((12, 6)), generator.uniform(0.2, 1.0, 12)
    problem = _copying(lambda y: jnp.sum(weights * jnp.abs(rows @ y)) + 0.05 * y @ y, 6)
    found = solve(problem, generator.uniform(-1.0, 1.0, 6), progress=False)
    assert found.success, found
    if concave:
        edges = [np.linalg.svd(rows[list(kept)])[2][-1] for kept in combinations(range(12), 5)]
        ratios = sorted(float(weights[1:] @ np.abs(rows[1:] @ e) / max(np.abs(rows[0] @ e), 1e-9)) for e in edges)
        weights = weights.copy()
        weights[0] = -0.5 * (ratios[0] + ratios[1])
        problem = _copying(lambda y: jnp.sum(weights * jnp.abs(rows @ y)) + 0.05 * y @ y, 6)
    assert verify(problem, _at_zero(found)).ok is not concave


def _nested(n: int, steep: np.ndarray, shift: np.ndarray) -> BilevelProblem:
    """Nesterov's Chebyshev-Rosenbrock function with absolute values, of y(x) = min(x, steep x) + shift.

    It has 2^(n - 1) points that Clarke's derivative calls stationary, and one minimum, 0 (Gurbuzbalaban and Overton, On
    Nesterov's nonsmooth Chebyshev-Rosenbrock functions, Nonlinear Analysis 75, 2012).
    """

    def upper(x: Any, y: Any) -> Any:
        z = y - shift
        return 0.25 * jnp.abs(z[0] - 1.0) + jnp.sum(jnp.abs(z[1:] - 2.0 * jnp.abs(z[:-1]) + 1.0))

    return BilevelProblem(
        upper=upper,
        lower=lambda x, y: jnp.sum((y - x - shift) ** 2),
        inequality=lambda x, y: y - steep * x - shift,
        x_set=Box(-4.0, 4.0, shape=n),
        y_set=Reals(n),
    )


@pytest.mark.parametrize("seed", range(3))
def test_kinks_inside_of_kinks_are_left_on_the_other_side_of_rounding(seed: int) -> None:
    generator, n = np.random.default_rng(seed), 3
    steep = np.ones(n) if seed == 0 else generator.uniform(1.0, 2.0, n)
    problem = _nested(n, steep, seed * generator.uniform(-0.3, 0.3, n))
    found = solve(problem, np.array([-1.0 / steep[0], 1.0, 1.0]), progress=False)
    assert found.success, found
    assert found.upper_value < 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_a_cubic_way_down_along_a_curved_kink_is_taken(seed: int) -> None:
    """Beside the curve f rises steeply, and along it slope and curvature are zero."""
    weight, square, cube = np.random.default_rng(seed).uniform((1.0, 0.0, 0.2), (10.0, 1.5, 1.0))
    problem = _copying(
        lambda y: weight * jnp.abs(y[1] - square * y[0] ** 2 - cube * y[0] ** 3) + y[0] ** 3,
        2,
    )
    found = solve(problem, np.zeros(2), progress=False)
    assert not found.success or found.upper_value < -1.0, found
    assert not verify(problem, _at_zero(found)).ok
