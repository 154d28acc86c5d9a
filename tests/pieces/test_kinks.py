"""Kinks of the leader's own functions: rows of the finish's quadratic programs."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy

from blocc import BilevelProblem, Box, Reals, Result, solve
from blocc._lib.precision import double_precision
from blocc.pieces.derivatives import model_of
from blocc.pieces.kinks import number_of
from blocc.pieces.piece import Followers


def polyhedral(seed: int, n: int, most: int) -> tuple[BilevelProblem, float]:
    """A leader who minimises a convex polyhedral function of x and y(x) = M x + e, and its least value by HiGHS."""
    rng = np.random.default_rng(seed)
    inside, e = rng.standard_normal((n, n)) / np.sqrt(n), rng.standard_normal(n)
    a, b, c, d = (rng.standard_normal((most, n)) for _ in range(4))
    p, q, weights = rng.standard_normal(most), rng.standard_normal(most), rng.uniform(0.1, 2.0, most)
    w, radius = rng.uniform(0.05, 0.5, n), 3.0

    def upper(x, y):  # type: ignore[no-untyped-def]
        larger = jnp.maximum(a @ x + b @ y + p, c @ x - d @ y + q)
        return weights @ larger + w @ jnp.abs(x) - jnp.sum(jnp.minimum(y, 2.0 * y + 1.0))

    problem = BilevelProblem(
        upper=upper,
        lower=lambda x, y: jnp.sum((y - inside @ x - e) ** 2),
        x_set=Box(-radius, radius, n),
        y_set=Reals(n),
    )
    # Variables x, heights of the three kinds of kinks: rows "piece <= height".
    rows, right = [], []
    cost = np.concatenate([np.zeros(n), weights, w, np.ones(n)])
    blocks = (
        (a + b @ inside, p + b @ e, n, most),
        (c - d @ inside, q - d @ e, n, most),
        (np.eye(n), np.zeros(n), n + most, n),
        (-np.eye(n), np.zeros(n), n + most, n),
        (-inside, -e, 2 * n + most, n),
        (-2.0 * inside, -2.0 * e - 1.0, 2 * n + most, n),
    )
    for matrix, constant, first, count in blocks:
        row = np.zeros((count, len(cost)))
        row[:, :n], row[np.arange(count), first + np.arange(count)] = matrix, -1.0
        rows.append(row)
        right.append(-constant)
    bounds = [(-radius, radius)] * n + [(None, None)] * (most + 2 * n)
    found = scipy.optimize.linprog(cost, np.concatenate(rows), np.concatenate(right), bounds=bounds)
    assert found.status == 0
    return problem, float(found.fun)


@pytest.mark.parametrize(("seed", "n", "most"), [(0, 2, 3), (1, 5, 9), (2, 12, 20), (3, 30, 40)])
def test_a_polyhedral_leader_reaches_what_linear_programming_finds(seed: int, n: int, most: int) -> None:
    problem, least = polyhedral(seed, n, most)
    result = solve(problem, progress=False)
    assert result.success, result.message
    assert result.upper_value == pytest.approx(least, rel=1e-8, abs=1e-8)
    assert result.counts["evaluations"] <= 100


@pytest.mark.parametrize(("seed", "n", "most"), [(0, 2, 4), (1, 6, 15), (2, 20, 60)])
def test_the_worst_of_many_scenarios_is_minimised_exactly(seed: int, n: int, most: int) -> None:
    """The largest entry of affine functions of x and y(x), less a smallest one, under one that G bounds: by HiGHS."""
    rng = np.random.default_rng(seed)
    inside = rng.standard_normal((n, n)) / np.sqrt(n)
    a, b, c = (rng.standard_normal((most, n)) for _ in range(3))
    p = rng.standard_normal(most)
    problem = BilevelProblem(
        upper=lambda x, y: jnp.max(a @ x + b @ y + p) - 0.5 * jnp.min(c @ y - p),
        lower=lambda x, y: jnp.sum((y - inside @ x) ** 2),
        upper_inequality=lambda x, y: jnp.max(jnp.abs(y)) - 2.0,
        x_set=Box(-3, 3, n),
        y_set=Reals(n),
    )
    zero, one = np.zeros((most, 1)), np.ones((most, 1))
    rows = np.block([[a + b @ inside, -one, zero], [-c @ inside, zero, one]])
    held = np.concatenate([inside, -inside])
    rows = np.concatenate([rows, np.pad(held, ((0, 0), (0, 2)))])
    right = np.concatenate([-p, -p, np.full(2 * n, 2.0)])
    cost = np.concatenate([np.zeros(n), [1.0, -0.5]])
    found = scipy.optimize.linprog(cost, rows, right, bounds=[(-3, 3)] * n + [(None, None)] * 2)
    result = solve(problem, progress=False)
    assert result.success, result.message
    assert result.upper_value == pytest.approx(found.fun, rel=1e-7, abs=1e-8)
    assert result.counts["evaluations"] <= 100


def both_sides(problem: BilevelProblem, x: np.ndarray, turned: frozenset[int]) -> tuple[float, np.ndarray, int]:
    with double_precision():
        flat = problem.flat
        followers = Followers.of(flat, x, x)
        assert followers is not None
        piece = followers.identified(x, x)
        assert piece is not None
        model = model_of(followers, piece._replace(turned=turned))
        return model.upper, model.gradient, number_of(flat)


def test_derivatives_on_either_side_of_a_kink_are_those_of_values_there() -> None:
    """At a tie of nested kinks, where differences to either side are differences of one smooth function."""
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum(jnp.where(y > 1.0, y**2, 2.0 * y - 1.0)) + jnp.abs(jnp.minimum(x[0], y[1]) - 1.0),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(-3, 3, 2),
        y_set=Reals(2),
    )
    x = np.array([1.0, 1.5])  # the absolute value has its kink here, and the first choice
    value = problem.flat.upper
    _, here, count = both_sides(problem, x, frozenset())
    assert count == 4
    kink = 3  # of the absolute value, which comes last
    _, there, _ = both_sides(problem, x, frozenset({kink}))
    step = 1e-6
    with double_precision():
        around = [float(value(x + sign * step * np.eye(2)[0], x + sign * step * np.eye(2)[0])) for sign in (-1, 0, 1)]
    back, ahead = np.diff(around) / step
    np.testing.assert_allclose(sorted([here[0], there[0]]), sorted([ahead, back]), atol=1e-4)


def least_of(problem: BilevelProblem, start: np.ndarray) -> Result:
    return solve(problem, start, progress=False)


@pytest.mark.parametrize("seed", range(4))
def test_a_start_on_a_concave_kink_is_left(seed: int) -> None:
    """There no multiplier tells where f falls: each side is a piece of its own."""
    rng = np.random.default_rng(seed)
    slopes = rng.uniform(0.5, 2.0, 3)
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum(-slopes * jnp.abs(x) + 0.5 * y**2),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(-4, 4, 3),
        y_set=Reals(3),
    )
    result = least_of(problem, np.zeros(3))
    assert result.success
    np.testing.assert_allclose(np.abs(result.x), slopes, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_kinks_of_the_leaders_constraint_are_met_exactly(seed: int) -> None:
    """G = |y - a| - r <= 0: a box around a, whose nearest point to b is known."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    a, b, r = rng.uniform(-1, 1, n), rng.uniform(-3, 3, n), rng.uniform(0.2, 1.0, n)
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum((x - b) ** 2),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        upper_inequality=lambda x, y: jnp.abs(y - a) - r,
        x_set=Box(-4, 4, n),
        y_set=Reals(n),
    )
    result = least_of(problem, rng.uniform(-3, 3, n))
    assert result.success, result.message
    np.testing.assert_allclose(result.x, np.clip(b, a - r, a + r), atol=1e-7)


def test_curved_kinks_are_followed() -> None:
    """The minimum of x1 + |x0^2 + x1^2 - 1| lies on the circle: a kink whose curvature the finish must know."""
    problem = BilevelProblem(
        upper=lambda x, y: 0.3 * y[1] + 0.1 * x[0] + jnp.abs(x[0] ** 2 + y[1] ** 2 - 1.0),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(-3, 3, 2),
        y_set=Reals(2),
    )
    result = least_of(problem, np.array([1.0, 2.0]))
    assert result.success, result.message
    way = np.array([0.1, 0.3]) / np.hypot(0.1, 0.3)
    np.testing.assert_allclose(result.x, -way, atol=1e-6)
    assert result.counts["evaluations"] <= 100
