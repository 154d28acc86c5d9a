"""Shortest combinations of gradients against a quadratic program, and descent that ends at kinks and boundaries."""

from __future__ import annotations

from functools import cache

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blocc._lib.precision import double_precision
from blocc.inner.interior_point import InteriorPoint
from blocc.outer.evaluator import Evaluator, stationarity
from blocc.outer.monitor import Monitor
from blocc.outer.nonsmooth import gradient_sampling as kinks
from blocc.outer.nonsmooth.gradient_sampling import shortest_combination
from blocc.outer.tolerances import Stage
from blocc.penalty import no_leader
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals
from blocc.simple_sets import Ball


def by_quadratic_program(gradients, normals):
    a = cp.Variable(len(gradients), nonneg=True)
    vector = gradients.T @ a
    if len(normals):
        vector = vector + normals.T @ cp.Variable(len(normals), nonneg=True)
    precise = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
    cp.Problem(cp.Minimize(cp.sum_squares(vector)), [cp.sum(a) == 1]).solve(solver=cp.CLARABEL, **precise)
    return np.asarray(vector.value)


@pytest.mark.parametrize(("count", "boundaries", "size"), [(1, 0, 3), (4, 0, 3), (2, 2, 4), (8, 3, 3), (6, 1, 10)])
def test_shortest_combination_against_clarabel(count, boundaries, size):
    rng = np.random.default_rng(count + 10 * boundaries)
    for spread in (0.3, 1.0, 100.0):
        gradients = spread * (rng.standard_normal((count, size)) + 0.7)
        normals = rng.standard_normal((boundaries, size))
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        found = shortest_combination(gradients, normals)
        np.testing.assert_allclose(found, by_quadratic_program(gradients, normals), rtol=0, atol=1e-5 * spread)


elements = st.floats(-10.0, 10.0, allow_subnormal=False)


@given(data=st.data(), count=st.integers(1, 6), boundaries=st.integers(0, 3), size=st.integers(1, 4))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_shortest_combination_is_a_descent_direction_for_every_gradient(data, count, boundaries, size):
    gradients = data.draw(arrays(np.float64, (count, size), elements=elements))
    normals = data.draw(arrays(np.float64, (boundaries, size), elements=elements))
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = normals[lengths[:, 0] > 1e-3] / lengths[lengths[:, 0] > 1e-3]
    d = shortest_combination(gradients, normals)
    allowed = 1e-9 * (1.0 + np.abs(gradients).max()) ** 2
    # Optimality: <g, d> >= |d|^2 for every gradient, and -d leads into no boundary.
    assert (gradients @ d >= d @ d - allowed).all()
    assert (normals @ d >= -allowed).all()
    assert np.linalg.norm(d) <= np.linalg.norm(gradients, axis=1).min() + allowed


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_opposite_gradients_cancel_in_any_units(scale):
    gradients = scale * np.array([[1.0, 0.0], [-3.0, 0.0], [0.0, 1.0]])
    assert np.linalg.norm(shortest_combination(gradients, np.zeros((0, 2)))) <= 1e-14 * scale
    assert np.linalg.norm(shortest_combination(scale * np.ones((1, 2)), -np.eye(2))) <= 1e-14 * scale
    np.testing.assert_array_equal(shortest_combination(np.zeros((2, 3)), np.eye(3)), np.zeros(3))
    np.testing.assert_allclose(shortest_combination(scale * np.eye(2), np.zeros((0, 2))), 0.5 * scale * np.ones(2))


def test_stationarity_of_a_projected_gradient():
    clip = lambda low, high: lambda point: np.clip(point, low, high)  # noqa: E731
    free = clip(-np.inf, np.inf)
    assert stationarity(free, np.zeros(2), np.array([0.3, -0.4])) == pytest.approx(0.4)
    assert stationarity(clip(0.0, 1.0), np.zeros(2), np.array([5.0, 0.0])) == 0.0
    assert stationarity(clip(0.0, 1.0), np.ones(1), np.array([-5.0])) == 0.0
    # Just short of a bound with a steep slope towards it: the step is short, what is lost is not.
    assert stationarity(clip(0.0, 1.0), np.array([1e-7]), np.array([1e7])) == pytest.approx(1.0, rel=1e-6)


# --- descent ---------------------------------------------------------------------------------------------
PLANE = Reals(2)


def function_of(problem):
    with double_precision():
        return Evaluator(problem.flat, (InteriorPoint(),), Monitor(problem.x_set.unravel))


@cache
def absolute_values(x_set, slopes=(1.0, 1.0), middle=(0.3, -0.2)):
    """F(x) = sum of slopes |x - middle|: the follower answers y_i = |x_i - middle_i|, and f = slopes y."""
    slopes, middle = np.array(slopes), np.array(middle)
    return BilevelProblem(
        upper=lambda x, y: jnp.dot(slopes, y),
        lower=lambda x, y: jnp.sum(y),
        inequality=lambda x, y: jnp.concatenate([x - middle - y, middle - x - y]),
        x_set=x_set,
        y_set=Reals(2),
    )


def descend(problem, x, gamma=10.0, tolerance=1e-5, iterations=60):
    with double_precision():
        function = function_of(problem)
        leader = jax.device_get(no_leader(problem.flat))
        first = function(np.asarray(x, dtype=float), gamma, leader, 1e-10)
        assert first.usable
        return kinks.minimise(function, first, Stage(leader, 1e-10, tolerance, iterations))


@pytest.mark.slow
def test_minimises_a_sum_of_absolute_values():
    end = descend(absolute_values(PLANE, (1.0, 5.0)), [1.0, 1.0])
    np.testing.assert_allclose(end.evaluation.x, [0.3, -0.2], atol=1e-4)
    assert float(end.evaluation.value) == pytest.approx(0.0, abs=1e-4)


def test_a_kink_that_is_a_minimiser_is_stationary():
    end = descend(absolute_values(PLANE, (1.0, 5.0)), [0.3, -0.2])
    assert end.stationarity <= 1e-5
    assert 0.0 < end.radius <= 1e-6
    assert not end.met_boundary
    # A single gradient at the kink tells nothing of the sort, unless the solver happens to return zero.
    np.testing.assert_allclose(end.evaluation.x, [0.3, -0.2], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("x_set", "exact"),
    [
        (Box([0.5, -1.0], [1.0, 1.0]), [0.5, -0.2]),
        (Ball(np.array([2.0, -0.2]), 1.0), [1.0, -0.2]),
    ],
)
def test_kinks_on_the_edge_of_x(x_set, exact):
    end = descend(absolute_values(x_set), x_set.interior_flat())
    np.testing.assert_allclose(end.evaluation.x, exact, atol=1e-3)
    assert end.stationarity <= 1e-3


@pytest.mark.slow
def test_descends_along_a_boundary():
    """The follower needs y >= x_0 and y <= 1 - x_1: beyond x_0 + x_1 = 1 there is no answer."""
    problem = BilevelProblem(
        upper=lambda x, y: -2.0 * x[0] - x[1] + 0.0 * y,
        lower=lambda x, y: y**2,
        inequality=lambda x, y: jnp.stack([x[0] - y, y - 1.0 + x[1]]),
        x_set=Box(0.0, 0.8, shape=2),
        y_set=Reals(),
    )
    end = descend(problem, [0.2, 0.2], tolerance=1e-4)
    assert end.met_boundary
    np.testing.assert_allclose(end.evaluation.x, [0.8, 0.2], atol=1e-3)


@pytest.mark.slow
def test_wall_normals_point_to_where_the_violation_grows():
    problem = absolute_values(PLANE, (1.0, 5.0))
    infeasible = BilevelProblem(
        upper=lambda x, y: y,
        lower=lambda x, y: y**2,
        inequality=lambda x, y: jnp.stack([x[0] - y, y - 1.0 + x[1]]),
        x_set=Reals(2),
        y_set=Reals(),
    )
    with double_precision():
        function = function_of(infeasible)
        normal, depth = function.boundary(np.array([1.0, 1.0]))
        np.testing.assert_allclose(normal, np.sqrt([0.5, 0.5]), atol=1e-6)
        np.testing.assert_allclose(depth, np.sqrt(0.5), rtol=1e-6)
        assert function.boundary(np.array([0.0, 0.0])) is None
        assert function_of(problem).boundary(np.zeros(2)) is None
