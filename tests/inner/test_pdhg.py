"""The accelerated primal-dual method against exact answers and HiGHS, its verdicts, and its size."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from blocc.errors import OptionError
from blocc.inner.maxmin import MaxMin
from blocc.inner.pdhg import PrimalDualHybridGradient
from blocc.inner.protocol import InnerCode, InnerOracle
from blocc.sets import Box, Reals
from inner_random_problems import (
    FAMILIES,
    chain_problem,
    infeasible_problems,
    lower_level,
    random_problem,
    smoothing_problem,
    solver,
    unbounded_problems,
)
from selections import few


@pytest.mark.parametrize("family", few(FAMILIES, "everything"))
def test_agrees_with_the_exact_answer(family):
    problem = random_problem(1, **FAMILIES[family])
    solve = solver(problem.flat, PrimalDualHybridGradient())
    for upper in (0.0, 0.1):
        found = solve(upper=upper)
        assert found.code == InnerCode.CONVERGED
        assert np.abs(np.asarray(found.y) - problem.reference(upper)).max() < 1e-6
        assert (np.asarray(found.multipliers.inequality) >= 0.0).all()
        assert found.iterations < 1000


def test_is_an_accelerated_gradient_method_without_constraints():
    problem = random_problem(0, condition=1e4)
    found = solver(problem.flat, PrimalDualHybridGradient())()
    assert found.code == InnerCode.CONVERGED
    assert np.abs(np.asarray(found.y) + np.linalg.solve(problem.hessian, problem.cost)).max() < 1e-6
    # A plain gradient method needs about condition * log(1e9) = 200,000 iterations.
    assert found.iterations < 5000


@pytest.mark.parametrize("kind", [pytest.param("inequality", marks=pytest.mark.slow), "equality"])
def test_solves_linear_programs(kind):
    rng = np.random.default_rng(0)
    matrix, inside, cost = rng.standard_normal((20, 40)), rng.uniform(0, 1, 40), rng.standard_normal(40)
    rule = {kind: lambda x, y: matrix @ (y - inside)}
    rows = {f"{'A_ub' if kind == 'inequality' else 'A_eq'}": matrix}
    rhs = {f"{'b_ub' if kind == 'inequality' else 'b_eq'}": matrix @ inside}
    exact = linprog(cost, **rows, **rhs, bounds=(0, 2))
    flat = lower_level(lambda x, y: jnp.dot(cost, y), Box(0.0, 2.0, shape=40), **rule)
    found = solver(flat, PrimalDualHybridGradient())(tolerance=1e-8)
    assert found.code == InnerCode.CONVERGED
    assert float(found.value) == pytest.approx(exact.fun, rel=1e-6)
    assert np.abs(np.asarray(found.y) - exact.x).max() < 1e-5


@pytest.mark.slow
def test_steep_objective_and_constraint():
    # From y = 0 a step of the size that suits exp(10 y) at y = -0.2 would overflow.
    flat = lower_level(
        lambda x, y: jnp.sum(jnp.exp(10.0 * y) - y), Reals(3), lambda x, y: jnp.exp(-5.0 * y - 2.0) - 0.5
    )
    found = solver(flat, PrimalDualHybridGradient())()
    assert found.code == InnerCode.CONVERGED
    assert np.abs(np.asarray(found.y) - (-0.1 * np.log(10.0))).max() < 1e-7


@pytest.mark.parametrize("name", few(infeasible_problems(), "ball"))
def test_infeasible(name):
    assert solver(infeasible_problems()[name], PrimalDualHybridGradient())().code == InnerCode.INFEASIBLE


@pytest.mark.parametrize("name", few(unbounded_problems(), "mixed"))
def test_unbounded(name):
    assert solver(unbounded_problems()[name], PrimalDualHybridGradient())().code == InnerCode.UNBOUNDED


def test_not_finite_and_stalled():
    flat = lower_level(lambda x, y: jnp.sum(jnp.log(y - 1.0)), Reals(2))
    assert solver(flat, PrimalDualHybridGradient())().code == InnerCode.NOT_FINITE
    short = PrimalDualHybridGradient(max_iterations=25)
    found = solver(random_problem(0, n_affine=5).flat, short)()
    assert found.code == InnerCode.STALLED
    assert found.iterations == 25


def test_a_minimum_that_is_not_attained_is_not_unbounded():
    flat = lower_level(lambda x, y: jnp.sum(jnp.exp(-y)), Reals(2))
    assert solver(flat, PrimalDualHybridGradient())(tolerance=1e-5).code == InnerCode.CONVERGED


@pytest.mark.slow
def test_a_hundred_thousand_variables():
    for flat in (smoothing_problem(100_000), chain_problem(100_000)):
        solve = solver(flat, PrimalDualHybridGradient(max_iterations=3000))
        found = solve(tolerance=1e-4)
        assert found.code == InnerCode.CONVERGED
        assert found.iterations < 1000


@pytest.mark.slow
def test_needs_fewer_gradients_than_algorithm_2_on_an_ill_conditioned_problem():
    problem = random_problem(0, n_affine=5, condition=1e4)
    fast = solver(problem.flat, PrimalDualHybridGradient())()
    slow = solver(problem.flat, MaxMin(steps_y=50))()
    assert fast.code == InnerCode.CONVERGED
    assert fast.iterations < 50 * slow.iterations / 3
    assert np.abs(np.asarray(fast.y) - problem.reference()).max() < 1e-6


def test_options_and_protocol():
    assert isinstance(PrimalDualHybridGradient(), InnerOracle)
    assert hash(PrimalDualHybridGradient()) == hash(PrimalDualHybridGradient())
    with pytest.raises(OptionError, match="check_every"):
        PrimalDualHybridGradient(check_every=0)
