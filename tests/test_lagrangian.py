"""Lagrangians and their derivatives against finite differences, and residuals that vanish only at a saddle point."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.lagrangian import (
    Multipliers,
    Weights,
    gradient_x,
    gradient_y,
    lagrangian,
    leader_value,
    objective,
    residuals,
    weights,
    zero_multipliers,
)
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals
from inner_random_problems import chain_problem


@pytest.fixture(scope="module")
def flat():
    return BilevelProblem(
        upper=lambda x, y: jnp.sin(x[0]) * jnp.sum(y**2) + jnp.exp(0.1 * x[1] * y[0]),
        lower=lambda x, y: jnp.sum((y - x[0] * x[1]) ** 2) + jnp.cos(x[0]) * y[2],
        inequality=lambda x, y: jnp.stack([jnp.sum(y**2) - x[0] ** 2, x[1] * y[0] - y[1], y[2] - 1.0]),
        equality=lambda x, y: x[0] * y[0] + y[1] - jnp.exp(0.3 * x[1]),
        upper_inequality=lambda x, y: jnp.stack([x[0] + y[1], y[0] * y[2] - x[1]]),
        x_set=Reals(2),
        y_set=Reals(3),
    ).flat


@pytest.fixture(scope="module")
def everything(flat):
    """One compiled function: value and both derivatives, and the objective alone."""

    def all_of(x, y, multipliers, w):
        return (
            lagrangian(flat, x, y, multipliers, w),
            gradient_x(flat, x, y, multipliers, w),
            gradient_y(flat, x, y, multipliers, w),
            leader_value(flat, x, y, w),
            objective(flat, x, y, w),
        )

    with double_precision():
        shapes = (jnp.zeros(2), jnp.zeros(3), zero_multipliers(flat), weights(flat))
    compiled, _ = compile_ahead(all_of, *shapes)

    def call(x, y, mu, nu, upper, lower, leader, rho):
        with double_precision():
            w = Weights(jnp.asarray(upper), jnp.asarray(lower), jnp.asarray(leader), jnp.asarray(rho))
            found = compiled(jnp.asarray(x), jnp.asarray(y), Multipliers(jnp.asarray(mu), jnp.asarray(nu)), w)
            return [np.asarray(part) for part in found]

    return call


def vector(size, low=-2.0, high=2.0):
    return arrays(np.float64, size, elements=st.floats(low, high, allow_subnormal=False))


@given(
    x=vector(2),
    y=vector(3),
    mu=vector(3, 0.0, 5.0),
    nu=vector(1),
    upper=st.sampled_from([0.0, 0.01, 1.0]),
    lower=st.sampled_from([0.5, 1.0, 30.0]),
    leader=vector(2, 0.0, 3.0),
    rho=st.sampled_from([0.1, 10.0]),
)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_derivatives_agree_with_finite_differences(everything, x, y, mu, nu, upper, lower, leader, rho):
    rest = (mu, nu, upper, lower, leader, rho)
    value, by_x, by_y, _, _ = everything(x, y, *rest)
    step = 1e-6
    # The augmented Lagrangian has a kink in its derivative, which a difference over 2e-6 blurs by rho |dG|^2 1e-6.
    allowed = 1e-6 * (1.0 + abs(value) + lower + upper * rho * 50.0)
    for i in range(2):
        d = step * np.eye(2)[i]
        difference = (everything(x + d, y, *rest)[0] - everything(x - d, y, *rest)[0]) / (2 * step)
        assert by_x[i] == pytest.approx(difference, abs=allowed)
    for i in range(3):
        d = step * np.eye(3)[i]
        difference = (everything(x, y + d, *rest)[0] - everything(x, y - d, *rest)[0]) / (2 * step)
        assert by_y[i] == pytest.approx(difference, abs=allowed)


@given(x=vector(2), y=vector(3), upper=st.floats(0.0, 10.0), lower=st.floats(0.0, 1e3))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_the_family_is_linear_in_its_weights(everything, x, y, upper, lower):
    none = (np.zeros(3), np.zeros(1))
    leader = (np.zeros(2), 1.0)
    f, g = everything(x, y, *none, 1.0, 0.0, *leader)[4], everything(x, y, *none, 0.0, 1.0, *leader)[4]
    mixed = everything(x, y, *none, upper, lower, *leader)
    assert mixed[4] == pytest.approx(upper * f + lower * g, rel=1e-12, abs=1e-12)
    assert mixed[0] == pytest.approx(float(mixed[4]), rel=1e-15)
    priced = everything(x, y, np.array([1.0, 2.0, 3.0]), np.array([-4.0]), upper, lower, *leader)[0]
    gc = np.array([np.sum(y**2) - x[0] ** 2, x[1] * y[0] - y[1], y[2] - 1.0])
    h = x[0] * y[0] + y[1] - np.exp(0.3 * x[1])
    assert priced - mixed[0] == pytest.approx(gc @ [1.0, 2.0, 3.0] - 4.0 * h, rel=1e-9, abs=1e-9 * (1 + abs(priced)))


@given(x=vector(2), y=vector(3), leader=vector(2, 0.0, 4.0), rho=st.sampled_from([0.1, 1.0, 100.0]))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_the_leaders_augmented_lagrangian(everything, x, y, leader, rho):
    value = everything(x, y, np.zeros(3), np.zeros(1), 1.0, 0.0, leader, rho)[3]
    f = np.sin(x[0]) * np.sum(y**2) + np.exp(0.1 * x[1] * y[0])
    constraint = np.array([x[0] + y[1], y[0] * y[2] - x[1]])
    # The textbook form: multiplier and penalty on max(G, -lambda / rho).
    cut = np.maximum(constraint, -leader / rho)
    expected = f + leader @ cut + 0.5 * rho * cut @ cut
    assert value == pytest.approx(expected, rel=1e-10, abs=1e-10)
    if (constraint <= 0).all() and (leader == 0).all():
        assert value == pytest.approx(f, rel=1e-14)


def test_f_is_not_evaluated_where_it_has_no_weight():
    flat = BilevelProblem(
        upper=lambda x, y: jnp.log(y), lower=lambda x, y: (y + 1.0) ** 2, x_set=Reals(), y_set=Reals()
    ).flat
    with double_precision():
        x, y = jnp.zeros(1), jnp.array([-2.0])
        assert float(objective(flat, x, y, weights(flat))) == 1.0
        assert float(gradient_y(flat, x, y, zero_multipliers(flat), weights(flat))[0]) == -2.0
        assert np.isnan(objective(flat, x, y, weights(flat, 1.0, 1.0)))


# --- residuals -------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def known():
    """min |y - (2, 3, -x)|^2 / 2 over y in [0, 2]^3 with y_0 <= 1 and y_1 + y_2 = 2.

    At x = 1: y = (1, 2, 0) with both bounds of the box active, mu = 1 and any nu in [-1, 1].
    """
    flat = BilevelProblem(
        upper=lambda x, y: jnp.sum(y),
        lower=lambda x, y: 0.5 * jnp.sum((y - jnp.stack([2.0, 3.0, -x])) ** 2),
        inequality=lambda x, y: y[0] - 1.0,
        equality=lambda x, y: y[1] + y[2] - 2.0,
        x_set=Reals(),
        y_set=Box(0.0, 2.0, shape=3),
    ).flat

    with double_precision():
        compiled = jax.jit(lambda x, y, m: residuals(flat, x, y, m, weights(flat)))

    def call(y, mu=1.0, nu=0.5):
        with double_precision():
            multipliers = Multipliers(jnp.asarray([mu]), jnp.asarray([nu]))
            return jax.tree.map(float, compiled(jnp.ones(1), jnp.asarray(y, dtype=jnp.float64), multipliers))

    return call


def test_residuals_vanish_at_a_saddle_point(known):
    for nu in (-1.0, 0.0, 0.5, 1.0):
        assert max(known([1.0, 2.0, 0.0], nu=nu)) < 1e-14


@pytest.mark.parametrize(
    ("change", "part", "size"),
    [
        ({"y": [1.1, 2.0, 0.0]}, "feasibility", 0.1),
        ({"y": [1.0, 1.9, 0.0]}, "feasibility", 0.1),
        ({"y": [1.0, 2.0, -0.1]}, "feasibility", 0.1),
        ({"y": [1.0, 2.1, 0.0]}, "feasibility", 0.1),
        ({"y": [0.7, 2.0, 0.0]}, "complementarity", 0.3),
        ({"mu": 0.8}, "stationarity", 0.2),
        ({"mu": 1.2}, "stationarity", 0.2),
        ({"mu": -0.2}, "complementarity", 0.2),
        ({"nu": 1.25}, "stationarity", 0.25),
        ({"nu": -1.25}, "stationarity", 0.25),
        ({"y": [1e20, 2.0, 0.0]}, "stationarity", 2e4),
    ],
)
def test_residuals_measure_a_perturbation(known, change, part, size):
    found = known(**{"y": [1.0, 2.0, 0.0], **change})
    assert getattr(found, part) >= size * (1.0 - 1e-9)
    if part != "stationarity":
        assert getattr(found, part) == pytest.approx(size)


@given(y=vector(3, -1.0, 3.0), mu=st.floats(-2.0, 3.0), nu=st.floats(-3.0, 3.0))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_residuals_are_positive_away_from_the_saddle_points(known, y, mu, nu):
    away = max(float(np.abs(y - [1.0, 2.0, 0.0]).max()), abs(mu - 1.0), abs(nu) - 1.0)
    if away > 1e-3:
        assert max(known(y, mu, nu)) > 1e-5


def test_a_large_multiplier_on_an_active_constraint_is_complementary(known):
    assert known([1.0 + 1e-12, 2.0, 0.0], mu=1e9).complementarity == 0.0
    assert known([1.0 - 1e-12, 2.0, 0.0], mu=1e9).complementarity < 2e-12


def test_long_gradients_are_summed_correctly_under_jit():
    """Plain XLA sums wrongly when it fuses the pads of sliced constraints into a reduction of this length."""
    size = 100_000
    flat = chain_problem(size)
    prices = np.random.default_rng(0).uniform(size=2 * (size - 1))
    y = np.random.default_rng(2).standard_normal(size)
    up, down = np.split(prices, 2)
    # Adjoint of diff: (D' m)_i = m_{i-1} - m_i.
    adjoint = np.concatenate([[0.0], up - down]) - np.concatenate([up - down, [0.0]])
    data = np.random.default_rng(1).standard_normal(size)
    with double_precision():
        m = Multipliers(jnp.asarray(prices), jnp.zeros(0))
        slope = jax.jit(lambda at, price: gradient_y(flat, jnp.zeros(1), at, price, weights(flat)))
        square = jax.jit(lambda at, price: jnp.sum(gradient_y(flat, jnp.zeros(1), at, price, weights(flat)) ** 2))
        found, length = np.asarray(slope(jnp.asarray(y), m)), float(square(jnp.asarray(y), m))
        norms = jax.jit(lambda at, price: residuals(flat, jnp.zeros(1), at, price, weights(flat)))
        stationarity = float(norms(jnp.asarray(y), m).stationarity)
    exact = y - data + adjoint
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-12)
    assert length == pytest.approx(exact @ exact, rel=1e-12)
    assert stationarity == pytest.approx(np.abs(exact).max(), rel=1e-12)
