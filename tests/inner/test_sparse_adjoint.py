"""The derivative of f(x, y(x)) by the sparse adjoint system, against differences of answers of the dense method."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc._lib.precision import double_precision
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.sparse_interior_point import SparseInteriorPoint
from blocc.lagrangian import weights
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals
from selections import few

SIZE = 24
_rng = np.random.default_rng(0)
POINTS, WANTED = 3.0 * _rng.normal(size=SIZE), _rng.normal(size=SIZE)
CURVATURE = 10.0 ** _rng.uniform(-1.0, 0.0, SIZE)


def rotated_boxes(x, y):
    difference, total = y[1:] - y[:-1], y[1:] + y[:-1]
    return jnp.concatenate([difference - x[1], -difference - x[1], total - 1.0, -total - 1.0])


def balls(x, y):
    return jnp.sum(y.reshape(-1, 4) ** 2, axis=1) - x[1]


def problem(inequality, equality, y_set):
    return BilevelProblem(
        upper=lambda x, y: jnp.mean((y - WANTED) ** 2) + x[0] * y[3],
        lower=lambda x, y: 0.5 * jnp.sum(CURVATURE * (y - POINTS * x[0]) ** 2),
        inequality=inequality,
        equality=equality,
        x_set=Box(0.1, 2.0, shape=2),
        y_set=y_set,
    )


def balance(x, y):
    return jnp.stack([y[0] + y[5] - x[0], y[7] - y[9] + 0.1 * x[1]])


CASES = {
    "rows": (rotated_boxes, None, Reals(SIZE)),
    "rows, equalities and bounds": (rotated_boxes, balance, Box(-0.4, 0.9, shape=SIZE)),
    "curved rows": (balls, balance, Reals(SIZE)),
}


@pytest.mark.parametrize("name", few(CASES, "rows, equalities and bounds"))
def test_against_finite_differences(name):
    flat, sparse, dense = problem(*CASES[name]).flat, SparseInteriorPoint(), InteriorPoint()
    at, accuracy = np.array([0.9, 0.63]), jnp.asarray(1e-11)
    with double_precision():

        def differentiated(x):
            found = sparse.solve(flat, x, weights(flat), sparse.cold(flat), accuracy)
            return sparse.differentiate(flat, x, found, weights(flat), accuracy)

        def value(x):
            found = dense.solve(flat, x, weights(flat), dense.cold(flat), accuracy)
            return flat.upper(x, found.y)

        found = jax.device_get(jax.jit(differentiated)(jnp.asarray(at)))
        value = jax.jit(value)
        steps = 1e-5 * np.eye(2)
        slopes = [(float(value(at + step)) - float(value(at - step))) / 2e-5 for step in steps]
        reached = float(value(at))
    assert found.regular
    np.testing.assert_allclose(found.value, reached, rtol=1e-8)
    np.testing.assert_allclose(found.gradient, slopes, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_answers_that_are_not_unique_have_no_derivative():
    """A linear follower that cares for half of its variables: the others may lie anywhere."""
    flat = BilevelProblem(
        upper=lambda x, y: jnp.sum((y - WANTED) ** 2),
        lower=lambda x, y: jnp.sum(y[: SIZE // 2]),
        inequality=lambda x, y: jnp.abs(x[0]) - 2.0 - y,
        x_set=Reals(1),
        y_set=Box(-3.0, 3.0, shape=SIZE),
    ).flat
    oracle = SparseInteriorPoint()
    with double_precision():
        x, accuracy = jnp.ones(1), jnp.asarray(1e-10)
        found = oracle.solve(flat, x, weights(flat), oracle.cold(flat), accuracy)
        assert not oracle.differentiate(flat, x, found, weights(flat), accuracy).regular
