"""The elastic problem: its value is positive exactly where the lower level is infeasible, and its gradient is right."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocc._lib.precision import double_precision
from blocc.inner.elastic import elastic, violation
from blocc.inner.interior_point import InteriorPoint
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals
from blocc.simple_sets import Ball, Simplex
from inner_random_problems import infeasible_problems, random_problem
from selections import few

ORACLE = InteriorPoint()


def compiled(flat):
    with double_precision():
        middle = jnp.asarray(flat.y_set.interior_flat())
    function = flat.program(violation, ORACLE)

    def call(x):
        with double_precision():
            at = jnp.asarray(x, dtype=jnp.float64).reshape(flat.n_x)
            return jax.tree.map(np.asarray, function(at, jnp.asarray(1e-9), middle, jnp.asarray(False)))

    return call


@pytest.fixture(scope="module")
def interval():
    """y between x_0 and x_1, below x_2: t = max((x_0 - x_1)/2, (x_0 - x_2)/2), not below -1."""
    return compiled(
        BilevelProblem(
            upper=lambda x, y: y**2,
            lower=lambda x, y: y**2,
            inequality=lambda x, y: jnp.stack([x[0] - y, y - x[1], y - x[2]]),
            x_set=Reals(3),
            y_set=Reals(),
        ).flat
    )


@pytest.mark.slow
@given(x=st.tuples(*[st.floats(-3.0, 3.0, allow_subnormal=False)] * 3))
@settings(deadline=None, derandomize=True, max_examples=20)
def test_value_of_an_interval(interval, x):
    found = interval(np.array(x))
    exact = max((x[0] - x[1]) / 2.0, (x[0] - x[2]) / 2.0, -1.0)
    assert found.solved
    assert float(found.value) == pytest.approx(exact, abs=1e-7)
    if abs(exact) > 1e-6:
        assert (found.value > 0) == (exact > 0)
    assert max(x[0] - found.y[0], found.y[0] - x[1], found.y[0] - x[2]) <= exact + 1e-6


def test_gradient_of_an_interval(interval):
    np.testing.assert_allclose(interval([2.0, 1.0, 5.0]).gradient, [0.5, -0.5, 0.0], atol=1e-6)
    np.testing.assert_allclose(interval([2.0, 5.0, 0.0]).gradient, [0.5, 0.0, -0.5], atol=1e-6)
    # Far inside the feasible region the value rests on its floor.
    np.testing.assert_allclose(interval([-5.0, 5.0, 5.0]).gradient, 0.0, atol=1e-6)


@pytest.fixture(scope="module")
def rich():
    """Nonlinear rows and an equality over a simplex, all depending on x."""
    rng = np.random.default_rng(0)
    rows, mixed = rng.standard_normal((3, 4)), rng.standard_normal((3, 2))
    flat = BilevelProblem(
        upper=lambda x, y: jnp.sum(y),
        lower=lambda x, y: jnp.sum(y**2),
        inequality=lambda x, y: jnp.append(rows @ y + mixed @ x, jnp.sum((y - x[0]) ** 2) - 0.2 - 0.1 * jnp.sin(x[1])),
        equality=lambda x, y: y[0] - y[1] - x[0] * x[1],
        x_set=Reals(2),
        y_set=Simplex(4),
    ).flat
    return compiled(flat)


def test_gradient_agrees_with_finite_differences(rich):
    rng = np.random.default_rng(1)
    step, signs = 1e-4, set()
    for _ in range(8):
        x = rng.standard_normal(2)
        found = rich(x)
        assert found.solved
        signs.add(bool(found.value > 0))
        difference = [(rich(x + step * e).value - rich(x - step * e).value) / (2.0 * step) for e in np.eye(2)]
        np.testing.assert_allclose(found.gradient, difference, atol=1e-4)
    assert any(signs)  # at least one of the points is infeasible


def test_sampled_problems_with_a_feasible_point_are_not_called_infeasible():
    problem = random_problem(2, n_affine=3, n_balls=1, n_equality=1, kind="box", size=4)
    found = compiled(problem.flat)(np.zeros(2))
    assert found.solved
    # The equality leaves no room below zero, so the value is zero up to the accuracy of the solver.
    assert abs(float(found.value)) < 1e-8


@pytest.mark.parametrize("name", few(infeasible_problems(), "affine", "ball"))
def test_infeasible_problems_have_a_positive_value(name):
    exact = {"affine": 1.0, "box": 0.5, "equality": 0.5}
    found = compiled(infeasible_problems()[name])(np.zeros(1))
    assert found.solved
    assert found.value > 0.1
    if name in exact:
        assert float(found.value) == pytest.approx(exact[name], abs=1e-7)


def test_shape_of_the_elastic_problem():
    flat = BilevelProblem(
        upper=lambda x, y: jnp.sum(y),
        lower=lambda x, y: jnp.sum(y),
        inequality=lambda x, y: y,
        equality=lambda x, y: y[:1] - x,
        x_set=Box(0.0, 1.0, shape=1),
        y_set=Ball(np.zeros(2)),
    ).flat
    extended = elastic(flat)
    assert (extended.n_y, extended.n_inequality, extended.n_equality) == (3, 4, 0)
    with double_precision():
        x, point = jnp.asarray([0.5]), jnp.asarray([0.1, 0.2, 0.3])
        np.testing.assert_allclose(extended.inequality(x, point), [-0.2, -0.1, -0.7, 0.1])
        assert float(extended.lower(x, point)) == 0.3
    low, _ = extended.y_set.bounds_flat()
    assert low[-1] == -1.0
