"""Descent along boundaries: answers known from geometry, whatever the shape of the follower's feasible side."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import Status, solve
from blocc.judge.verify import verify
from blocc.problem import BilevelProblem
from blocc.sets import Box


def bounded(dimension, boundary, target, pull=0.0):
    """The leader wants x at ``target``; the follower, who likes y = 0, has an answer only where boundary(x) <= 0."""
    goal = jnp.asarray(target)
    return BilevelProblem(
        upper=lambda x, y: jnp.sum((x - goal) ** 2) + pull * y[0] ** 2,
        lower=lambda x, y: jnp.sum(y**2),
        # y[0] >= boundary(x) and y[0] <= 0: there is room exactly before the boundary.
        inequality=lambda x, y: jnp.stack([boundary(x) - y[0], y[0]]),
        x_set=Box(-5.0 * np.ones(dimension), 5.0 * np.ones(dimension)),
        y_set=Box(-20.0 * np.ones(1), 20.0 * np.ones(1)),
    )


@pytest.mark.slow
def test_plane_is_reached_in_few_evaluations():
    problem = bounded(3, lambda x: x[0] + 2.0 * x[1] - 2.0 * x[2] - 3.0, [3.0, 2.0, -1.0])
    result = solve(problem, np.array([-1.0, 0.5, 0.5]))
    # The projection of the target on the plane: 6 beyond it, along the normal (1, 2, -2) of length 3.
    np.testing.assert_allclose(result.x, np.array([3.0, 2.0, -1.0]) - 6.0 / 9.0 * np.array([1.0, 2.0, -2.0]), atol=1e-6)
    assert result.status is Status.CONVERGED
    assert result.certificate.radius > 0.0
    assert result.counts["evaluations"] < 250  # gradient sampling alone takes a thousand


@pytest.mark.slow
def test_edge_of_two_planes_and_a_bound():
    problem = bounded(3, lambda x: jnp.maximum(x[0] + x[1] - 2.0, x[0] - x[1] - 1.0), [6.0, 0.5, 7.0])
    result = solve(problem, np.array([-2.0, 1.0, 0.0]))
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.x, [1.5, 0.5, 5.0], atol=1e-5)


@pytest.mark.slow
def test_curved_boundary():
    target = np.array([2.0, 1.0])
    result = solve(bounded(2, lambda x: jnp.sum(x**2) - 1.0, target), np.array([0.1, -0.6]))
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.x, target / np.linalg.norm(target), atol=1e-4)


@pytest.mark.slow
def test_wall_that_is_not_convex_is_gone_around():
    # Feasible outside the unit disk; the target lies behind the disk, seen from the start.
    problem = bounded(2, lambda x: 1.0 - jnp.sum(x**2), [3.0, 0.0])
    result = solve(problem, np.array([-2.0, 0.4]))
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.x, [3.0, 0.0], atol=1e-5)
    assert result.certificate.radius == 0.0  # a boundary on the way is none at the end


@pytest.mark.slow
def test_nearest_point_outside_a_disk():
    problem = bounded(2, lambda x: 1.0 - jnp.sum(x**2), [0.3, 0.0])
    result = solve(problem, np.array([2.0, 1.0]))
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.x, [1.0, 0.0], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("pull", [0.0, 3.0])
def test_start_beyond_the_boundary_and_a_verified_certificate(pull):
    problem = bounded(2, lambda x: x[0] - x[1], [2.0, 0.0], pull)
    result = solve(problem, np.array([4.0, -4.0]))
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.x, [1.0, 1.0], atol=1e-5)
    assert verify(problem, result).ok


@pytest.mark.slow
def test_boundary_in_more_variables_than_sampling_can_do():
    dimension = 80
    rng = np.random.default_rng(5)
    normal, target = rng.standard_normal(dimension), rng.uniform(-2.0, 2.0, dimension)
    normal *= np.sign(normal @ target) / np.linalg.norm(normal)
    level = 0.5 * normal @ target
    problem = bounded(dimension, lambda x: normal @ x - level, target)
    result = solve(problem, np.zeros(dimension))
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.x, target - level * normal, atol=1e-5)
    assert verify(problem, result).ok
