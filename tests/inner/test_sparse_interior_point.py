"""The interior point with sparse matrices against the dense one, Clarabel and HiGHS, its verdicts and its limits."""

from __future__ import annotations

from functools import cache

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

import blocc
from blocc._lib.precision import double_precision
from blocc.errors import ProblemError
from blocc.inner.choice import choose_oracles, general_oracles
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.pdhg import PrimalDualHybridGradient
from blocc.inner.protocol import InnerCode
from blocc.inner.sparse_interior_point import SparseInteriorPoint, is_sparse, sparse_pattern
from blocc.lagrangian import weights
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals
from inner_random_problems import (
    FAMILIES,
    chain_problem,
    infeasible_problems,
    lower_level,
    random_problem,
    solver,
    unbounded_problems,
)

ORACLE = SparseInteriorPoint()
PRECISE = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


@cache
def family(name):
    problem = random_problem(1, **FAMILIES[name])
    return problem, solver(problem.flat, ORACLE)


@pytest.mark.parametrize("name", ["everything", pytest.param("simplex", marks=pytest.mark.slow)])
def test_agrees_with_the_exact_answer(name):
    problem, solve = family(name)
    for upper, lower in ((0.0, 1.0), (1.0, 0.5)):
        found = solve(np.zeros(2), upper, lower)
        assert found.code == InnerCode.CONVERGED
        assert not found.concave
        np.testing.assert_allclose(found.y, problem.reference(upper, lower), atol=1e-6)


def test_takes_the_steps_of_the_dense_method():
    flat = family("everything")[0].flat
    dense, sparse = solver(flat, InteriorPoint())(), family("everything")[1]()
    assert abs(int(dense.iterations) - int(sparse.iterations)) <= 1
    np.testing.assert_allclose(sparse.y, dense.y, atol=1e-7)
    np.testing.assert_allclose(sparse.multipliers.inequality, dense.multipliers.inequality, atol=1e-6)
    np.testing.assert_allclose(sparse.multipliers.equality, dense.multipliers.equality, atol=1e-6)


@pytest.mark.slow
def test_sparse_quadratic_program_against_clarabel():
    """Random sparse rows, equalities, bounds on some variables, a tridiagonal Hessian and one row with all of them."""
    size, rng = 60, np.random.default_rng(3)
    rows = sp.random_array((40, size), density=0.05, rng=rng, data_sampler=rng.standard_normal).toarray()
    fixed = sp.random_array((8, size), density=0.05, rng=rng, data_sampler=rng.standard_normal).toarray()
    inside, cost = rng.uniform(-0.5, 0.5, size), 3.0 * rng.standard_normal(size)
    low, high = np.where(np.arange(size) % 3 == 0, -0.6, -np.inf), np.where(np.arange(size) % 2 == 0, 0.6, np.inf)
    room = np.abs(rng.standard_normal(40))

    def curved(y):
        return 0.5 * jnp.sum((y[1:] - y[:-1]) ** 2) + 0.5 * jnp.sum(y**2) + cost @ y

    def inequality(x, y):
        return jnp.concatenate([rows @ (y - inside) - room, jnp.stack([jnp.sum(y) - x[0]])])

    flat = lower_level(lambda x, y: curved(y), Box(low, high), inequality, lambda x, y: fixed @ (y - inside))
    y = cp.Variable(size)
    total = cp.Parameter()
    goal = 0.5 * cp.sum_squares(cp.diff(y)) + 0.5 * cp.sum_squares(y) + cost @ y
    finite = [y[low > -np.inf] >= -0.6, y[high < np.inf] <= 0.6]
    held = [rows @ (y - inside) <= room, cp.sum(y) <= total, fixed @ (y - inside) == 0]
    reference = cp.Problem(cp.Minimize(goal), [*held, *finite])
    solve, warm = solver(flat, ORACLE), None
    for value in (inside.sum() + 0.5, inside.sum() + 0.6):
        total.value = value
        reference.solve(solver=cp.CLARABEL, **PRECISE)
        found = solve([value], warm=warm)
        assert found.code == InnerCode.CONVERGED
        np.testing.assert_allclose(found.y, y.value, atol=1e-6)
        np.testing.assert_allclose(found.multipliers.inequality[-1], held[1].dual_value, atol=1e-5)
        warm = jax.tree.map(np.asarray, found.warm)


def test_transport_problem_against_highs():
    """A linear program with dependent equalities."""
    rng = np.random.default_rng(5)
    cost, supply = rng.uniform(1.0, 2.0, (6, 8)), np.full(6, 4.0)
    demand = np.full(8, 3.0)

    def balance(x, y):
        sent = y.reshape(6, 8)
        return jnp.concatenate([jnp.sum(sent, axis=1) - supply, jnp.sum(sent, axis=0) - demand])

    flat = lower_level(lambda x, y: jnp.dot(cost.ravel(), y), Box.nonnegative(48), None, balance)
    found = solver(flat, ORACLE)(tolerance=1e-8)
    matrix = np.vstack([np.kron(np.eye(6), np.ones(8)), np.kron(np.ones(6), np.eye(8))])
    reference = linprog(cost.ravel(), A_eq=matrix, b_eq=np.concatenate([supply, demand]))
    assert found.code in (InnerCode.CONVERGED, InnerCode.STALLED)
    assert found.residuals.feasibility < 1e-8
    np.testing.assert_allclose(found.objective, reference.fun, rtol=1e-7)


@pytest.mark.slow
def test_long_chain_and_its_warm_start():
    """400 variables and 798 rows, many of them active and nearly degenerate, against Clarabel."""
    flat = chain_problem(400)
    solve = solver(flat, ORACLE)
    found = solve()
    y, data = cp.Variable(400), np.random.default_rng(1).standard_normal(400)
    reference = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(y - data)), [cp.abs(cp.diff(y)) <= 0.1])
    reference.solve(solver=cp.CLARABEL, **PRECISE)
    assert found.code == InnerCode.CONVERGED
    np.testing.assert_allclose(found.y, y.value, atol=1e-5)  # as far as Clarabel goes
    again = solve(warm=jax.tree.map(np.asarray, found.warm))
    assert again.code == InnerCode.CONVERGED
    assert again.iterations < found.iterations
    pattern = sparse_pattern(flat)
    assert pattern is not None
    assert pattern.sweeps <= 4
    assert pattern.fill < 10 * 1198


@pytest.mark.parametrize("name", ["box", "equality"])
def test_infeasible_followers(name):
    assert solver(infeasible_problems()[name], ORACLE)().code == InnerCode.INFEASIBLE


def test_unbounded_follower():
    assert solver(unbounded_problems()["mixed"], ORACLE)().code == InnerCode.UNBOUNDED


def test_negative_curvature_is_noticed():
    bent = lower_level(lambda x, y: jnp.sum(y[1:] * y[:-1]) + 0.1 * jnp.sum(y**2), Box(-1.0, 1.0, shape=6))
    assert solver(bent, ORACLE)().concave


def test_functions_that_are_not_finite():
    broken = lower_level(lambda x, y: jnp.sum(jnp.sqrt(y - 1.0)), Box(-2.0, 0.0, shape=4), lambda x, y: y[:2] - 0.1)
    assert solver(broken, ORACLE)().code == InnerCode.NOT_FINITE


@pytest.mark.slow
def test_many_points_at_a_time():
    problem, solve = family("everything")
    flat, points = problem.flat, 0.1 * np.random.default_rng(0).standard_normal((6, 2))
    with double_precision():
        one = lambda x: ORACLE.solve(flat, x, weights(flat), ORACLE.cold(flat), jnp.asarray(1e-9))  # noqa: E731
        together = jax.device_get(jax.jit(jax.vmap(one))(jnp.asarray(points)))
    for place in (0, 5):
        np.testing.assert_allclose(together.y[place], solve(points[place]).y, atol=1e-9)


# --- choice ----------------------------------------------------------------------------------------------
def wide(size, lower, data=None):
    def rows(x, y, *numbers):
        return y[1:] - y[:-1] - x[0]

    return BilevelProblem(
        upper=lambda x, y, *numbers: jnp.sum(y),
        lower=lower,
        inequality=rows,
        x_set=Box(0.0, 1.0, shape=1),
        y_set=Reals(size),
        data=data,
    )


def test_choice_by_structure():
    banded = wide(400, lambda x, y: jnp.sum(y**2))
    assert choose_oracles(banded, "auto") == (SparseInteriorPoint(), PrimalDualHybridGradient())
    full = wide(400, lambda x, y: jnp.sum(y**2) + jnp.sum(y) ** 2)
    assert not is_sparse(full.flat)
    assert isinstance(general_oracles(full.flat)[0], PrimalDualHybridGradient)
    assert choose_oracles(full, "sparse-interior-point") == (SparseInteriorPoint(),)
    assert isinstance(general_oracles(wide(100, lambda x, y: jnp.sum(y**2)).flat)[0], InteriorPoint)


def test_many_full_rows_of_few_variables_are_left_to_dense_matrices():
    """Their factors have few entries, and yet nothing is gained by leaving out zeros."""
    rows = np.random.default_rng(0).normal(size=(600, 10))
    few = lower_level(lambda x, y: jnp.sum(y**2), Reals(10), lambda x, y: rows @ y - 1.0)
    assert is_sparse(few)
    assert type(general_oracles(few)[0]) is InteriorPoint


def test_no_number_in_data_is_taken_for_a_zero():
    """The same programs serve all data, so a matrix that is sparse now may be full for the next."""
    numbers = np.eye(400)
    by_matrix = wide(400, lambda x, y, data: jnp.sum((data @ y) ** 2), numbers)
    assert not is_sparse(by_matrix.flat)
    by_entry = wide(400, lambda x, y, data: jnp.sum((data * y) ** 2), np.zeros(400))
    assert is_sparse(by_entry.flat)
    pattern = sparse_pattern(by_entry.flat)
    assert pattern is not None
    assert pattern.hessian.rows.size == 400


def test_followers_that_are_far_too_full_are_refused():
    full = lower_level(lambda x, y: jnp.sum(y) ** 2, Reals(2000), lambda x, y: y[:1])
    with pytest.raises(ProblemError, match="every variable meets few others"):
        solver(full, ORACLE)()


@pytest.mark.slow
def test_solve_with_a_large_banded_follower():
    """From the front door: the leader tunes how smooth the follower's answer is."""
    truth = np.sin(np.linspace(0.0, 4.0, 180))
    noisy = truth + 0.3 * np.random.default_rng(2).standard_normal(180)
    problem = BilevelProblem(
        upper=lambda x, y: jnp.mean((y - truth) ** 2),
        lower=lambda x, y: 0.5 * jnp.sum((y - noisy) ** 2),
        inequality=lambda x, y: jnp.concatenate([jnp.diff(y) - x[0], -jnp.diff(y) - x[0]]),
        x_set=Box(0.005, 1.0, shape=1),
        y_set=Reals(180),
    )
    result = blocc.solve(problem, np.array([0.3]), progress=False)
    y, bound = cp.Variable(180), cp.Parameter(nonneg=True)
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - noisy)), [cp.abs(cp.diff(y)) <= bound])

    def value(at):
        bound.value = at
        follower.solve(solver=cp.CLARABEL, **PRECISE)
        return float(np.mean((y.value - truth) ** 2))

    assert isinstance(choose_oracles(problem, "auto")[0], SparseInteriorPoint)
    assert result.success
    best = float(result.x[0])
    assert result.upper_value == pytest.approx(value(best), rel=1e-5)
    assert result.upper_value <= min(value(best * factor) for factor in (0.8, 0.95, 1.05, 1.2)) + 1e-6
