"""F_gamma and its gradient: Danskin's rule against finite differences, and the bounds that the penalty obeys."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.protocol import InnerCode
from blocc.lagrangian import gradient_x, weights, zero_multipliers
from blocc.penalty import UpperMultipliers, cold_pair, evaluate, no_upper_multipliers
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals
from selections import few

ORACLE = InteriorPoint()


def evaluator(problem):
    """A compiled ``evaluate(x, gamma)``; the number of compilations is one by construction."""
    flat = problem.flat
    with double_precision():
        cold, leader = cold_pair(flat, ORACLE), no_upper_multipliers(flat)
        shapes = (jnp.zeros(flat.n_x), jnp.asarray(1.0), leader, cold, jnp.asarray(1e-9))

    def function(x, gamma, leader, warm, tolerance):
        return evaluate(flat, ORACLE, x, gamma, leader, warm, tolerance)

    compiled, _ = compile_ahead(function, *shapes)

    def call(x, gamma, tolerance=1e-12, warm=None, leader=leader):
        with double_precision():
            numbers = jnp.asarray(x, jnp.float64).reshape(flat.n_x), jnp.asarray(float(gamma)), leader
            found = compiled(*numbers, cold if warm is None else warm, jnp.asarray(float(tolerance)))
            return jax.tree.map(np.asarray, found)

    return call


def random_problem(kind):
    """Three variables above, five below, with f strongly convex in y and every part depending on x."""
    rng = np.random.default_rng(3)
    n, m = 5, 3
    root, mixed, cost = rng.standard_normal((n, n)), rng.standard_normal((n, m)), rng.standard_normal(n)
    hessian = root @ root.T + np.eye(n)
    target, rows, slopes = rng.standard_normal(n), rng.standard_normal((4, n)), rng.standard_normal((4, m))
    equality, push = rng.standard_normal((2, n)), rng.standard_normal((2, m))

    def affine(x, y):
        return rows @ y + slopes @ x - 0.1

    def nonlinear(x, y):
        ball = jnp.sum((y - mixed @ x) ** 2) - 0.5 - x[0] ** 2
        return {"ball": ball, "exp": jnp.exp(y[0] - x[1]) + y[1] ** 2 - 3.0 - jnp.sin(x[2])}

    parts = {
        "affine": {"inequality": affine},
        "nonlinear": {"inequality": nonlinear},
        "equality": {"equality": lambda x, y: equality @ y + push @ x + x[0] * x[1]},
        "everything": {
            "inequality": lambda x, y: (affine(x, y)[:2], nonlinear(x, y)),
            "equality": lambda x, y: equality[0] @ (y - mixed @ x),
            "y_set": Box(-2.0, 0.6, shape=n),
        },
    }[kind]
    return BilevelProblem(
        **{
            "upper": lambda x, y: 0.5 * jnp.sum((y - target) ** 2) + jnp.sum(jnp.cos(x)) * y[0] + x @ x,
            "lower": lambda x, y: 0.5 * y @ hessian @ y + (cost + mixed @ x) @ y + jnp.exp(x[0]),
            "x_set": Reals(m),
            "y_set": Reals(n),
            **parts,
        }
    )


KINDS = ("affine", "nonlinear", "equality", "everything")
GAMMAS = (0.1, 1.0, 10.0, 1000.0)


@cache
def random_evaluator(kind):
    return evaluator(random_problem(kind))


@cache
def points(kind):
    """Points at which the lower level has an answer, with its active constraints settled."""
    rng = np.random.default_rng(5)
    found = []
    while len(found) < 3:
        x = 0.3 * rng.standard_normal(3)
        solutions = [random_evaluator(kind)(x, gamma) for gamma in (0.1, 1000.0)]
        if all(solution.usable and settled(solution, x, kind) for solution in solutions):
            found.append(x)
    return found


def settled(found, x, kind):
    """Whether strict complementarity holds clearly, so that F_gamma is smooth across the difference quotient."""
    flat = random_problem(kind).flat
    with double_precision():
        for solution in (found.follower, found.penalised):
            slack = -np.asarray(flat.inequality(jnp.asarray(x), jnp.asarray(solution.y)))
            if (np.maximum(solution.multipliers.inequality, slack) < 1e-2).any():
                return False
            low, high = flat.y_set.bounds_flat()
            gap = np.minimum(solution.y - low, high - solution.y)
            if ((gap > 1e-9) & (gap < 1e-2)).any():
                return False
    return True


# --- the gradient of the value function ------------------------------------------------------------------
@pytest.fixture(scope="module")
def simple():
    """v(x) = min (y - 2x)^2 subject to y >= 3x, so y = 3x and v(x) = x^2 (for x >= 0)."""
    return BilevelProblem(
        upper=lambda x, y: 0.0 * y, lower=lambda x, y: (y - 2.0 * x) ** 2, inequality=lambda x, y: 3.0 * x - y,
        x_set=Reals(), y_set=Reals(),
    )  # fmt: skip


def test_the_gradient_of_v_needs_the_multipliers(simple):
    flat = simple.flat
    with double_precision():
        w = weights(flat)
        solve = jax.jit(lambda x: ORACLE.solve(flat, x, w, ORACLE.cold(flat), jnp.asarray(1e-12)))
        slope = jax.jit(lambda x, y, m: gradient_x(flat, x, y, m, w))
        for x in (0.3, 1.0, 2.5):
            at = jnp.array([x])
            found = solve(at)
            assert float(found.value) == pytest.approx(x**2, rel=1e-10)
            assert float(found.multipliers.inequality[0]) == pytest.approx(2.0 * x, rel=1e-8)
            assert float(slope(at, found.y, found.multipliers)[0]) == pytest.approx(2.0 * x, rel=1e-8)
            assert float(slope(at, found.y, zero_multipliers(flat))[0]) == pytest.approx(-4.0 * x, rel=1e-8)


# --- the gradient of F -----------------------------------------------------------------------------------
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("kind", few(KINDS, "everything"))
def test_gradient_agrees_with_finite_differences(kind, gamma):
    call = random_evaluator(kind)
    # F is a difference of values magnified by gamma: rounding grows with gamma, so the step must too.
    step = 1e-4 if gamma < 100 else 3e-4
    for x in points(kind):
        found = call(x, gamma)
        assert found.usable
        difference = np.array(
            [
                (
                    8.0 * (call(x + step * e, gamma).value - call(x - step * e, gamma).value)
                    - (call(x + 2 * step * e, gamma).value - call(x - 2 * step * e, gamma).value)
                )
                / (12.0 * step)
                for e in np.eye(3)
            ]
        )
        assert np.linalg.norm(found.gradient - difference) <= 1e-5 * np.linalg.norm(difference)


@pytest.mark.parametrize("kind", few(KINDS, "everything"))
@given(x=st.tuples(*[st.floats(-0.5, 0.5)] * 3), exponent=st.floats(-2.0, 5.0))
@settings(deadline=None, derandomize=True, max_examples=20)
def test_F_is_a_lower_bound_that_grows_with_gamma(kind, x, exponent):
    gamma = 10.0**exponent
    call = random_evaluator(kind)
    found, larger = call(np.array(x), gamma), call(np.array(x), 3.0 * gamma)
    if not (found.usable and larger.usable):
        return
    # Values of the inner problems are accurate to about 1e-12 relative; gamma magnifies that.
    rounding = 1e-10 * (1.0 + 3.0 * gamma * (1.0 + abs(float(found.follower.value))))
    assert float(found.value) <= float(found.upper_follower) + rounding
    assert float(found.value) <= float(larger.value) + rounding
    assert float(larger.value) <= float(found.upper_follower) + rounding
    assert float(found.value) >= float(found.upper_penalised) - rounding
    assert float(found.lower_penalised) >= float(found.lower_follower) - rounding
    assert found.gap >= -rounding


def test_most_of_the_sampled_points_have_an_answer():
    """Guards the law above against passing because nothing was usable."""
    rng = np.random.default_rng(0)
    for kind in ("equality", "everything"):
        usable = [bool(random_evaluator(kind)(rng.uniform(-0.5, 0.5, 3), 10.0).usable) for _ in range(20)]
        assert sum(usable) >= (8 if kind == "everything" else 20)


@pytest.mark.parametrize("kind", ["equality", "everything"])
def test_yF_approaches_yg_like_one_over_gamma(kind):
    call, x = random_evaluator(kind), points(kind)[0]
    found = [call(x, gamma) for gamma in (1e1, 1e2, 1e3, 1e4)]
    distances = np.array([f.distance for f in found])
    rates = distances[1:-1] / distances[2:]
    assert (distances[:-1] > distances[1:]).all()
    np.testing.assert_allclose(rates, 10.0, rtol=0.15)
    gaps = np.array([f.gap for f in found])
    np.testing.assert_allclose(gaps[1:-1] / gaps[2:], 10.0, rtol=0.2)


def test_multipliers_of_the_penalised_problem_are_those_of_the_unscaled_lagrangian():
    flat, call = random_problem("everything").flat, random_evaluator("everything")
    x = points("everything")[0]
    for gamma in (0.1, 1000.0):
        found = call(x, gamma)
        with double_precision():
            w = weights(flat, 1.0, gamma)
            at, y = jnp.asarray(x), jnp.asarray(found.penalised.y)
            slope = gradient_x(flat, at, y, jax.tree.map(jnp.asarray, found.penalised.multipliers), w)
            below = gradient_x(
                flat, at, jnp.asarray(found.follower.y), jax.tree.map(jnp.asarray, found.follower.multipliers),
                weights(flat),
            )  # fmt: skip
            expected = np.asarray(slope) - gamma * np.asarray(below)
        np.testing.assert_allclose(found.gradient, expected, rtol=1e-9, atol=1e-9 * (1.0 + gamma))


def test_one_compilation_serves_every_gamma_and_x():
    traces = []

    def lower(x, y):
        traces.append(1)
        return jnp.sum((y - x) ** 2)

    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum(y**2), lower=lower, inequality=lambda x, y: y - 1.0, x_set=Reals(2), y_set=Reals(2)
    )
    call = evaluator(problem)
    count = len(traces)
    for gamma in (0.01, 1.0, 7.0, 1e6):
        for x in ([0.0, 0.0], [2.0, -1.0]):
            assert call(x, gamma).usable
    assert len(traces) == count


# --- several minimisers, the leader's constraint, and failure --------------------------------------------
def test_an_optimal_yF_counts_as_the_answer():
    """Below, every y with y_0 + y_1 = 1 is optimal; the leader wants y_0 = 1."""
    problem = BilevelProblem(
        upper=lambda x, y: (y[0] - 1.0) ** 2 + (x - 0.5) ** 2,
        lower=lambda x, y: (y[0] + y[1] - 1.0) ** 2,
        x_set=Reals(),
        y_set=Box(0.0, 1.0, shape=2),
    )
    found = evaluator(problem)(0.0, 10.0)
    assert found.usable
    assert found.optimistic
    np.testing.assert_allclose(found.answer, [1.0, 0.0], atol=1e-5)
    assert found.upper_value == pytest.approx(0.25, abs=1e-8)
    assert found.distance == 0.0
    assert abs(found.gap) < 1e-8


def test_the_leaders_constraint_enters_f():
    problem = BilevelProblem(
        upper=lambda x, y: x**2 + y**2,
        lower=lambda x, y: (y - x) ** 2,
        upper_inequality=lambda x, y: 1.0 - y,
        x_set=Reals(),
        y_set=Reals(),
    )
    call = evaluator(problem)
    with double_precision():
        leader = UpperMultipliers(jnp.asarray([2.0]), jnp.asarray(4.0))
    found = call(0.5, 1e6, leader=leader)
    # yF = yg = x, so F is f plus the augmented term with G = 1 - x.
    shifted = 2.0 + 4.0 * 0.5
    assert float(found.value) == pytest.approx(0.5 + (shifted**2 - 4.0) / 8.0, abs=1e-4)
    assert float(found.violation_follower) == pytest.approx(0.5, abs=1e-9)
    assert float(found.upper_follower) == pytest.approx(0.5)
    step = 1e-4
    difference = (call(0.5 + step, 1e3, leader=leader).value - call(0.5 - step, 1e3, leader=leader).value) / (2 * step)
    assert call(0.5, 1e3, leader=leader).gradient[0] == pytest.approx(difference, rel=1e-5)


def test_an_unsolvable_lower_level_is_not_usable():
    problem = BilevelProblem(
        upper=lambda x, y: y**2,
        lower=lambda x, y: y**2,
        inequality=lambda x, y: jnp.stack([y - x, 1.0 - y]),
        x_set=Reals(),
        y_set=Reals(),
    )
    call = evaluator(problem)
    assert call(1.5, 1.0).usable
    beyond = call(0.5, 1.0)
    assert not beyond.usable
    assert beyond.follower.code != InnerCode.CONVERGED
    assert not call(np.nan, 1.0).usable


def test_warm_starts_save_iterations_and_change_nothing():
    call, x = random_evaluator("everything"), points("everything")[0]
    cold = call(x, 10.0)
    with double_precision():
        warm = call(x + 1e-6, 10.0, warm=jax.tree.map(jnp.asarray, cold.warm))
    fresh = call(x + 1e-6, 10.0)
    assert warm.follower.iterations < fresh.follower.iterations
    assert warm.penalised.iterations < fresh.penalised.iterations
    np.testing.assert_allclose(warm.gradient, fresh.gradient, rtol=1e-7, atol=1e-7)
