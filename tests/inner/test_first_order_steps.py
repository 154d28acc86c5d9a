"""Constants by power iteration against dense linear algebra, and the certificates."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocc._lib.precision import double_precision
from blocc.inner import first_order as steps
from blocc.lagrangian import Multipliers, weights, zero_multipliers
from blocc.sets import Reals
from inner_random_problems import chain_problem, lower_level, random_problem


@pytest.mark.slow
@settings(max_examples=6, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), condition=st.floats(1.0, 20.0))
def test_constants_agree_with_dense_eigenvalues(seed, condition):
    problem = random_problem(seed, size=6, n_affine=3, n_balls=1, n_equality=1, condition=condition)
    prices = np.abs(np.random.default_rng(seed).standard_normal(4))
    with double_precision():
        flat = problem.flat
        multipliers = Multipliers(jnp.asarray(prices), jnp.ones(1))
        y = jnp.asarray(problem.target)
        found = steps.estimate_constants(flat, jnp.zeros(2), y, multipliers, weights(flat), iterations=2000)
        jacobian = np.asarray(jax.jacobian(lambda v: steps.constraints(flat, jnp.zeros(2), v))(y))
    # The ball |y - d|^2 - r^2 with price p adds 2 p to every curvature.
    eigenvalues = np.linalg.eigvalsh(problem.hessian) + 2.0 * prices[3]
    assert float(found.lipschitz) == pytest.approx(eigenvalues[-1], rel=0.05)
    assert float(found.strong_convexity) == pytest.approx(eigenvalues[0], abs=0.05 * eigenvalues[-1])
    assert float(found.jacobian_norm) == pytest.approx(np.linalg.norm(jacobian, 2), rel=0.05)


def test_estimates_err_on_the_known_side():
    problem = random_problem(3, size=20, n_affine=5, condition=100.0)
    with double_precision():
        flat = problem.flat
        found = steps.estimate_constants(
            flat, jnp.zeros(2), jnp.zeros(20), zero_multipliers(flat), weights(flat), iterations=10
        )
    assert float(found.lipschitz) <= 100.0 * (1 + 1e-9)
    assert float(found.strong_convexity) >= -1e-12
    assert float(found.jacobian_norm) <= np.linalg.norm(problem.affine, 2) * (1 + 1e-9)


def test_without_constraints_and_without_curvature():
    with double_precision():
        flat = lower_level(lambda x, y: jnp.sum(y), Reals(3))
        found = steps.estimate_constants(flat, jnp.zeros(1), jnp.zeros(3), zero_multipliers(flat), weights(flat))
    assert [float(value) for value in found] == [0.0, 0.0, 0.0]


def test_row_norms_are_right_within_sampling_error():
    problem = random_problem(0, size=50, n_affine=10)
    rows = np.geomspace(1e-2, 1e2, 10)[:, None] * problem.affine
    with double_precision():
        flat = lower_level(lambda x, y: jnp.sum(y**2), Reals(50), lambda x, y: rows @ y)
        ratio = np.asarray(steps.row_norms(flat, jnp.zeros(1), jnp.zeros(50))) / np.linalg.norm(rows, axis=1)
    # The smallest rows are lifted to a thousandth of the largest.
    assert (ratio[3:] > 0.4).all()
    assert (ratio[3:] < 2.0).all()


def test_multipliers_survive_stacking_and_the_cone():
    flat = random_problem(0, n_affine=3, n_equality=2).flat
    with double_precision():
        prices = steps.project_cone(flat, jnp.asarray([-1.0, 2.0, -3.0, -4.0, 5.0]))
        back = steps.unstack(flat, prices)
        assert np.asarray(back.inequality).tolist() == [0.0, 2.0, 0.0]
        assert np.asarray(back.equality).tolist() == [-4.0, 5.0]
        assert np.asarray(steps.stack(back)).tolist() == np.asarray(prices).tolist()


def test_compiled_residual_of_a_long_chain_equals_the_plain_one():
    # jaxlib 0.10 computes wrong norms of such gradients unless they are kept apart from the reduction.
    flat = chain_problem(100_000)
    rng = np.random.default_rng(0)
    with double_precision():
        y, prices = jnp.asarray(rng.standard_normal(100_000)), jnp.asarray(rng.uniform(size=2 * 99_999))
        look = lambda v, p: steps.evaluate(flat, jnp.zeros(1), weights(flat), v, p)  # noqa: E731
        compiled = jax.jit(lambda v, p: look(v, p).error)(y, prices)
        point = look(y, prices)
        slope = np.abs(np.asarray(point.gradient + point.pull)).max() / (1 + np.abs(np.asarray(point.gradient)).max())
    assert float(compiled) == pytest.approx(float(point.error), rel=1e-12)
    assert float(point.error) >= slope * (1 - 1e-12)


def test_a_huge_point_is_neither_a_solution_nor_a_certificate_of_infeasibility():
    with double_precision():
        flat = lower_level(lambda x, y: jnp.sum(y), Reals(2), lambda x, y: y[:1])
        y = jnp.full(2, 1e16)
        ray = steps.Rays(jnp.zeros(2), jnp.ones(1), jnp.asarray(1.0))
        # y - gradient rounds to y here, so that the projected step alone would look stationary.
        priced = steps.evaluate(flat, jnp.zeros(1), weights(flat), -y, jnp.zeros(1))
        assert float(priced.error) > 0.1
        priced = steps.evaluate(flat, jnp.zeros(1), weights(flat), y, ray.prices)
        assert not bool(steps.is_infeasible(flat, y, ray, priced))
