"""Eigenvalues of Hessians, dense and matrix-free, and the points at which convexity is probed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc._lib.precision import double_precision
from blocc.judge.curvature import curvature_of, feasible_samples
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals
from blocc.simple_sets import Simplex


def ends(function, point):
    with double_precision():
        return curvature_of(function)(np.asarray(point, dtype=float))


def test_dense_eigenvalues_against_numpy():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((6, 6))
    hessian = root + root.T
    smallest, largest = ends(lambda y: 0.5 * y @ hessian @ y + jnp.sum(y), np.ones(6))
    exact = np.linalg.eigvalsh(hessian)
    assert smallest == pytest.approx(exact[0], rel=1e-12)
    assert largest == pytest.approx(exact[-1], rel=1e-12)


def test_curvature_depends_on_the_point():
    with double_precision():
        at = curvature_of(lambda y: jnp.sum(y**4 - y**2))
        assert at(np.zeros(2)) == pytest.approx((-2.0, -2.0))
        assert at(np.array([1.0, 0.0])) == pytest.approx((-2.0, 10.0))
        assert at(np.ones(2)) == pytest.approx((10.0, 10.0))
        assert np.isnan(curvature_of(lambda y: jnp.sum(jnp.log(y)))(np.array([-1.0, 0.0]))).any()


def test_many_variables_go_without_a_matrix():
    diagonal = np.linspace(-1.0, 3.0, 400)
    smallest, largest = ends(lambda y: 0.5 * jnp.sum(diagonal * y**2), np.zeros(400))
    assert smallest == pytest.approx(-1.0, rel=1e-2)
    assert largest == pytest.approx(3.0, rel=1e-2)


def test_a_long_chain_is_convex():
    """Eigenvalues from 2e-5 to 4: the small ones must not come out as NaN or negative."""
    smallest, largest = ends(lambda y: 0.5 * jnp.sum(jnp.diff(y) ** 2) + 0.5 * (y[0] ** 2 + y[-1] ** 2), np.zeros(400))
    assert np.isfinite(smallest)
    assert -1e-6 < smallest < 0.05
    assert largest == pytest.approx(4.0, rel=1e-2)


def test_a_linear_function_of_many_variables_has_no_curvature():
    assert ends(jnp.sum, np.zeros(400)) == pytest.approx((0.0, 0.0), abs=1e-12)


def test_a_flat_function_of_many_variables_is_not_negative():
    smallest, largest = ends(lambda y: jnp.sum(y[:10] ** 2), np.zeros(400))
    assert smallest == pytest.approx(0.0, abs=1e-6)
    assert largest == pytest.approx(2.0, rel=1e-2)


@pytest.mark.parametrize("y_set", [Box(-1.0, 1.0, shape=3), Reals(3), Simplex(3)], ids=["box", "reals", "simplex"])
def test_samples_are_feasible(y_set):
    flat = BilevelProblem(
        upper=lambda x, y: 0.0,
        lower=lambda x, y: jnp.sum(y**2),
        inequality=lambda x, y: jnp.stack([y[0] - 0.8, jnp.sum((y - 0.3) ** 2) - x]),
        equality=lambda x, y: y[0] - y[1],
        x_set=Reals(),
        y_set=y_set,
    ).flat
    y = np.full(3, 1.0 / 3.0)
    with double_precision():
        points = feasible_samples(flat, np.ones(1), y, 8, seed=0)
        again = feasible_samples(flat, np.ones(1), y, 8, seed=0)
        constraint = jax.jit(lambda z: flat.inequality(jnp.ones(1), z))
        assert len(points) >= 4
        np.testing.assert_array_equal(points[0], y)
        for point, same in zip(points, again, strict=True):
            np.testing.assert_array_equal(point, same)
            assert y_set.contains(point)
            assert np.max(constraint(jnp.asarray(point))) <= 1e-8
            assert abs(point[0] - point[1]) <= 1e-8
        assert np.ptp(np.array(points), axis=0).max() > 0.1
