"""Pieces of large followers against dense ones, finite differences and closed forms."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from blocc import BilevelProblem, Box, InteriorPoint, Reals, solve
from blocc._lib.precision import double_precision
from blocc.lagrangian import weights
from blocc.pieces.derivatives import bend, model_of, other_side, priced
from blocc.pieces.large import LargeFollowers, Patterns, _scales
from blocc.pieces.piece import Followers
from blocc.pieces.settings import SETTINGS

N = 30


def case(seed: int, bounded: bool) -> BilevelProblem:
    """Curved costs of neighbours, a curved budget, a linear row, an equality and, if bounded, a box."""
    rng = np.random.default_rng(seed)
    load, wanted, row = rng.standard_normal((N, 3)), rng.standard_normal(N), rng.standard_normal((2, N))

    def lower(x, y):
        own = 0.5 * jnp.sum((1.0 + 0.1 * x[0] ** 2) * (y - load @ x) ** 2) + 0.05 * jnp.sum(y**4)
        return own + 0.3 * jnp.sum((y[1:] - y[:-1]) ** 2) * jnp.exp(0.1 * x[1])

    return BilevelProblem(
        upper=lambda x, y: jnp.mean((y - wanted) ** 2) + 0.1 * jnp.tanh(x[2]) * y[0],
        lower=lower,
        inequality=lambda x, y: jnp.stack([y @ y - 4.0 - x[0], row[0] @ y - x[1]]),
        equality=lambda x, y: row[1] @ y - 0.3 * x[2],
        upper_inequality=lambda x, y: y[1] * x[0] - 9.0,
        x_set=Box(-2.0, 2.0, shape=3),
        y_set=Box(-0.5, 0.6, shape=N) if bounded else Reals(N),
    )


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("matrices", [False, True])
def test_large_pieces_are_those_of_dense_matrices(matrices: bool, bounded: bool) -> None:
    flat, x = case(1, bounded).flat, np.array([0.4, -0.3, 0.5])
    with double_precision():
        oracle = InteriorPoint()
        y = np.asarray(oracle.solve(flat, x, weights(flat), oracle.cold(flat), jnp.asarray(1e-11)).y)
        dense = Followers.of(flat, x, y)
        large = LargeFollowers.around(flat, x, y, SETTINGS)
        assert dense is not None
        assert large is not None
        assert large.patterns is not None
        assert large.patterns.hessian is not None
        if not matrices:
            large = replace(large, patterns=Patterns(None, None, None), scales=flat.program(_scales)(x, y))
        first = dense.identified(x, y)
        assert first is not None
        assert len(first.held) >= 1 + 2 * bounded
        second = large.respond(x, y, first.held, first.mu, first.nu)
        assert second is not None
        assert np.array_equal(first.held, second.held)
        np.testing.assert_allclose(second.y, first.y, atol=1e-9)
        np.testing.assert_allclose(second.mu, first.mu, atol=1e-8)
        one, other = model_of(dense, first), model_of(large, second)
        np.testing.assert_allclose(other.gradient, one.gradient, atol=1e-8)
        np.testing.assert_allclose(other.response, one.response, atol=1e-8)
        np.testing.assert_allclose(other.jacobian * other.units[:, None], one.jacobian * one.units[:, None], atol=1e-7)
        rng = np.random.default_rng(0)
        multipliers = rng.uniform(size=len(one.value))
        scaled = multipliers * other.units / one.units
        np.testing.assert_allclose(bend(large, other, scaled), bend(dense, one, multipliers), atol=1e-7)
        np.testing.assert_allclose(
            priced(large, other, scaled).adjoint, priced(dense, one, multipliers).adjoint, atol=1e-7
        )
        assert other_side(large, other, scaled).shape == (other.n_own,)
        for k in range(3):
            step = 1e-5 * np.eye(3)[k]
            ends = [large.respond(x + sign * step, y, second.held, second.mu, second.nu) for sign in (1.0, -1.0)]
            assert ends[0] is not None
            assert ends[1] is not None
            change = (float(ends[0].found.upper) - float(ends[1].found.upper)) / 2e-5
            np.testing.assert_allclose(change, other.gradient[k], atol=1e-7)


def pairs(n: int, seed: int) -> tuple[BilevelProblem, object]:
    """Pairs of amounts with a common capacity: projections onto half planes, and f(x, y(x)) in NumPy."""
    rng = np.random.default_rng(seed)
    slopes, shift, wanted = rng.uniform(0.5, 1.5, (n, 2)), rng.standard_normal(n), rng.standard_normal(n)

    def upper(x, y):
        return ((y - wanted) ** 2).mean() + 0.05 * (x**2).sum()

    def response(x: np.ndarray) -> np.ndarray:
        target = slopes @ x[:2] + shift
        excess = np.maximum(target[::2] + target[1::2] - 1.0 - 0.5 * x[2], 0.0)
        return target - 0.5 * np.repeat(excess, 2)

    problem = BilevelProblem(
        upper=upper,
        lower=lambda x, y: 0.5 * jnp.sum((y - slopes @ x[:2] - shift) ** 2),
        inequality=lambda x, y: y[::2] + y[1::2] - 1.0 - 0.5 * x[2],
        x_set=Box(-3.0, 3.0, shape=3),
        y_set=Reals(n),
    )
    return problem, lambda x: float(upper(x, response(x)))


@pytest.mark.parametrize("seed", range(2))
def test_thousands_of_kinks_are_crossed_at_once(seed: int) -> None:
    problem, phi = pairs(2000, seed)
    result = solve(problem, np.zeros(3), progress=False)
    assert result.success, result
    x = np.asarray(result.x)
    np.testing.assert_allclose(result.upper_value, phi(x), atol=1e-9)
    best = minimize(phi, x, method="Powell", bounds=[(-3.0, 3.0)] * 3, options={"xtol": 1e-8, "ftol": 1e-14})
    assert phi(x) <= best.fun + 1e-5  # as exactly as f(x, y(x)) looks smooth
    for way in np.random.default_rng(seed).standard_normal((50, 3)):  # and no way down on any piece that meets there
        assert phi(np.clip(x + 1e-7 * way, -3.0, 3.0)) >= phi(x) - 1e-12
    assert result.counts["iterations"] <= 20
