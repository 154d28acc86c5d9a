"""Newton's method without matrices under few coupled rows: against the interior point and finite differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, solve, verify
from blocc._lib.precision import double_precision
from blocc.inner.choice import choose_oracles
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.newton_cg import NewtonCG
from blocc.lagrangian import weights

N = 40


def case(seed: int, box: bool, quadratic: bool = False) -> BilevelProblem:
    """A curved budget, two linear rows of which one may be slack, and an equality; logistic losses or squares."""
    rng = np.random.default_rng(seed)
    root, normals = rng.standard_normal((25, N)) / 5.0, rng.standard_normal((3, N))

    def loss(x, y):
        fit = root @ y - 1.0
        return jnp.mean(fit**2 if quadratic else jnp.logaddexp(0.0, fit)) + 0.01 * jnp.exp(x[0]) * y @ y

    return BilevelProblem(
        upper=lambda x, y: jnp.mean((y - 0.3) ** 2) + 0.1 * x @ x,
        lower=lambda x, y: loss(x, y) - 0.2 * jnp.mean(y),
        inequality=lambda x, y: jnp.concatenate([jnp.atleast_1d(y @ y - jnp.exp(x[1])), normals[:2] @ y - 5.0 + x]),
        equality=lambda x, y: normals[2:] @ y - x[0],
        x_set=Box(-2.0, 2.0, shape=2),
        y_set=Box(-0.3, 0.4, shape=N) if box else Reals(N),
    )


@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize("gamma", [None, 30.0])
def test_answers_and_multipliers_are_those_of_the_interior_point(box: bool, gamma: float | None) -> None:
    flat, x = case(3, box).flat, jnp.array([0.2, -0.5])
    w = weights(flat) if gamma is None else weights(flat, 1.0, gamma)
    with double_precision():
        found, exact = (
            jax.jit(lambda o=o: o.solve(flat, x, w, o.cold(flat), jnp.asarray(1e-10)))()
            for o in (NewtonCG(), InteriorPoint())
        )
    assert int(found.code) == 0
    np.testing.assert_allclose(found.y, exact.y, atol=1e-7)
    np.testing.assert_allclose(found.multipliers.inequality, exact.multipliers.inequality, atol=1e-6)
    np.testing.assert_allclose(found.multipliers.equality, exact.multipliers.equality, atol=1e-6)


@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_hypergradient_is_that_of_the_values(box: bool, seed: int) -> None:
    flat, oracle = case(seed, box, quadratic=True).flat, NewtonCG()
    w = weights(flat)
    with double_precision():
        solved = jax.jit(lambda x: oracle.solve(flat, x, w, oracle.cold(flat), jnp.asarray(1e-12)))
        x = jnp.array([0.21, -0.53])
        found = jax.jit(lambda s: oracle.differentiate(flat, x, s, w, jnp.asarray(1e-12)))(solved(x))
        step = 1e-5
        slopes = [
            (flat.upper(x + step * e, solved(x + step * e).y) - flat.upper(x - step * e, solved(x - step * e).y))
            / (2.0 * step)
            for e in jnp.eye(2)
        ]
    assert bool(found.regular)
    np.testing.assert_allclose(found.gradient, slopes, rtol=1e-5, atol=1e-8)


def large(count: int) -> BilevelProblem:
    """Logistic regression of many weights, their norm and their ridge chosen by the leader."""
    rng = np.random.default_rng(0)
    train, held_out = rng.standard_normal((2, 60, count)) / 5.0
    truth = np.where(np.arange(count) < 20, 1.0, 0.0)
    labels, checks = np.sign(train @ truth), np.sign(held_out @ truth)
    return BilevelProblem(
        upper=lambda x, y: jnp.mean(jnp.logaddexp(0.0, -checks * (held_out @ y))),
        lower=lambda x, y: jnp.mean(jnp.logaddexp(0.0, -labels * (train @ y))) + 0.01 * jnp.exp(x[0]) * y @ y,
        inequality=lambda x, y: y @ y - jnp.exp(x[1]),
        x_set=Box(-3.0, 3.0, shape=2),
        y_set=Reals(count),
    )


def test_a_norm_that_the_leader_bounds_over_many_weights() -> None:
    problem = large(1500)
    assert isinstance(choose_oracles(problem, "auto")[0], NewtonCG)
    result = solve(problem, [0.0, 0.0])
    assert result.success, result.message
    assert result.counts["evaluations"] <= 60
    assert result.counts["inner_iterations"] <= 100 * result.counts["evaluations"]
    assert float(result.y @ result.y) <= np.exp(result.x[1]) + 1e-8
    assert verify(problem, result).ok
