"""What both first-order oracles must do alike: batches over x and warm starts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc._lib.precision import double_precision
from blocc.inner.maxmin import MaxMin
from blocc.inner.pdhg import PrimalDualHybridGradient
from blocc.inner.protocol import InnerCode
from blocc.lagrangian import weights
from inner_random_problems import FAMILIES, random_problem, solver


@pytest.mark.slow
@pytest.mark.parametrize("oracle", [MaxMin(), PrimalDualHybridGradient()], ids=["maxmin", "pdhg"])
def test_vmap_and_warm_starts(oracle):
    problem = random_problem(0, **FAMILIES["everything"])
    flat = problem.flat
    solve = solver(flat, oracle)
    points = 0.1 * np.random.default_rng(0).standard_normal((3, 2))
    with double_precision():
        batch = jax.jit(jax.vmap(lambda x: oracle.solve(flat, x, weights(flat), oracle.cold(flat), jnp.asarray(1e-9))))(
            jnp.asarray(points)
        )
    for x, y, code in zip(points, np.asarray(batch.y), np.asarray(batch.code), strict=True):
        assert code == InnerCode.CONVERGED
        assert np.abs(y - problem.reference(x=x)).max() < 1e-6
    cold = solve(x=[0.0, 0.0])
    nearby = solve(x=[1e-4, 0.0], warm=cold.warm)
    assert nearby.code == InnerCode.CONVERGED
    assert nearby.iterations < solve(x=[1e-4, 0.0]).iterations
    assert solve(x=[0.0, 0.0], warm=cold.warm).iterations == 0
    assert jax.tree.structure(cold.warm) == jax.tree.structure(oracle.cold(flat))
