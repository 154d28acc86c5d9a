"""Newton's method without matrices: against closed forms, SciPy, the interior point and finite differences."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from blocc import L1, BilevelProblem, solve
from blocc._lib.precision import double_precision
from blocc.errors import OptionError, ProblemError
from blocc.inner.choice import MATRIX_FREE, choose_oracles
from blocc.inner.conjugate_gradients import conjugate_gradients, scales_of
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.newton_cg import NewtonCG
from blocc.inner.protocol import InnerCode
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor
from blocc.penalty import cold_pair, evaluate_exactly, no_upper_multipliers
from blocc.sets import Box, Product, Reals
from blocc.simple_sets import Ball, Simplex
from inner_random_problems import lower_level, solver
from selections import few

N, ROWS = 30, 20
_generator = np.random.default_rng(0)
MATRIX, TARGET = _generator.standard_normal((ROWS, N)), _generator.standard_normal(ROWS)
VALID, VALID_TARGET = _generator.standard_normal((ROWS, N)), _generator.standard_normal(ROWS)
SETS = {
    "reals": Reals(N),
    "box": Box(-0.05, 0.1, shape=N),
    "ball": Ball(0.02 * np.ones(N), 0.3),
    "simplex": Simplex(N),
    "product": Product({"a": Ball(np.zeros(10), 0.2), "b": Box(0.0, 1.0, shape=10), "c": Reals(10)}),
}


def _joined(y):
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(y)])


def ridge(x, y):
    return 0.5 * jnp.mean((MATRIX @ _joined(y) - TARGET) ** 2) + 0.5 * jnp.exp(x[0]) * jnp.sum(_joined(y) ** 2)


def logistic(x, y):
    margins = jnp.sign(TARGET) * (MATRIX @ _joined(y))
    return jnp.mean(jnp.logaddexp(0.0, -margins)) + 0.5 * jnp.exp(x[0]) * jnp.sum(_joined(y) ** 2)


def loss(x, y):
    return 0.5 * jnp.mean((VALID @ _joined(y) - VALID_TARGET) ** 2) + 0.01 * jnp.sum(x**2)


def problem(lower, y_set, **more):
    return BilevelProblem(upper=loss, lower=lower, x_set=Box(-8.0, 4.0, shape=1), y_set=y_set, **more)


def test_ridge_is_the_closed_form():
    found = solver(problem(ridge, Reals(N)).flat, NewtonCG())(x=np.array([-2.0]), tolerance=1e-12)
    exact = np.linalg.solve(MATRIX.T @ MATRIX / ROWS + np.exp(-2.0) * np.eye(N), MATRIX.T @ TARGET / ROWS)
    assert found.code == InnerCode.CONVERGED
    assert np.abs(found.y - exact).max() < 1e-11


@pytest.mark.slow
def test_logistic_agrees_with_scipy():
    with double_precision():
        value = jax.jit(jax.value_and_grad(lambda y: logistic(np.array([-3.0]), y)))
        exact = minimize(lambda y: [np.asarray(part) for part in value(y)], np.zeros(N), jac=True, tol=1e-14)
    found = solver(problem(logistic, Reals(N)).flat, NewtonCG())(x=np.array([-3.0]), tolerance=1e-12)
    assert found.code == InnerCode.CONVERGED
    assert np.abs(found.y - exact.x).max() < 1e-5
    assert float(found.value) <= exact.fun + 1e-14


@cache
def logistic_over(name):
    return problem(logistic, SETS[name]).flat


@pytest.mark.slow
@pytest.mark.parametrize("name", few(SETS, "box"))
def test_agrees_with_the_interior_point(name):
    flat = logistic_over(name)
    by_matrices, by_products = solver(flat, InteriorPoint()), solver(flat, NewtonCG())
    for upper in (0.0, 0.5):
        exact = by_matrices(x=np.array([-3.0]), upper=upper, tolerance=1e-11)
        found = by_products(x=np.array([-3.0]), upper=upper, tolerance=1e-11)
        assert found.code == InnerCode.CONVERGED
        assert np.abs(found.y - exact.y).max() < 1e-6
        assert float(found.value) <= float(exact.value) + 1e-12


@pytest.mark.parametrize("name", few(SETS, "ball"))
def test_derivative_of_the_value_agrees_with_differences(name):
    flat = logistic_over(name)
    with double_precision():
        oracle, leader = NewtonCG(), no_upper_multipliers(flat)
        at = flat.program(evaluate_exactly, oracle)
        cold, accuracy = cold_pair(flat, oracle), jnp.asarray(1e-12)
        middle, above, below = (at(jnp.array([-3.0 + h]), leader, cold, accuracy) for h in (0.0, 1e-4, -1e-4))
        value = float(flat.upper(np.array([-3.0]), middle.follower.y))
    assert middle.usable
    assert float(middle.value) == pytest.approx(value)
    slope = (float(above.value) - float(below.value)) / 2e-4
    assert float(middle.gradient[0]) == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.slow
def test_columns_of_different_units_are_balanced():
    units = 10.0 ** _generator.uniform(-3.0, 1.0, N)
    tall = _generator.standard_normal((400, N)) * units
    target = _generator.standard_normal(400)
    flat = lower_level(lambda x, y: 0.5 * jnp.mean((tall @ y - target) ** 2) + 5e-9 * jnp.sum(y**2), Reals(N))
    found = solver(flat, NewtonCG())(tolerance=1e-12)
    exact = np.linalg.solve(tall.T @ tall / 400 + 1e-8 * np.eye(N), tall.T @ target / 400)
    assert found.code == InnerCode.CONVERGED
    assert np.abs((found.y - exact) * units).max() < 1e-5
    assert found.iterations < 80


def test_a_warm_start_and_a_quadratic_take_one_step():
    flat = problem(ridge, Reals(N)).flat
    solve_at = solver(flat, NewtonCG())
    first = solve_at(x=np.array([-2.0]), tolerance=1e-10)
    again = solve_at(x=np.array([-2.0]), tolerance=1e-10, warm=first.warm)
    assert int(again.iterations) == 0
    assert np.array_equal(again.y, first.y)


def test_concave_and_unbounded():
    bent = solver(lower_level(lambda x, y: jnp.sum(jnp.cos(3.0 * y)), Box(-0.9, 1.0, shape=4)), NewtonCG())()
    assert bool(bent.concave)
    falling = solver(lower_level(lambda x, y: y[0] + jnp.sum(y[1:] ** 2), Reals(4)), NewtonCG())()
    assert falling.code == InnerCode.UNBOUNDED
    broken = solver(lower_level(lambda x, y: jnp.sum(jnp.sqrt(y - 1.0)), Reals(4)), NewtonCG())()
    assert broken.code == InnerCode.NOT_FINITE


def test_conjugate_gradients_on_a_singular_system():
    rows = _generator.standard_normal((3, 8))
    with double_precision():
        right = jnp.asarray(rows.T @ np.ones(3))
        operator = lambda v: rows.T @ (rows @ v)  # noqa: E731
        found = conjugate_gradients(operator, right, jnp.ones(8), jnp.asarray(1e-12), 20)
        scales = scales_of(operator, 8)
    assert int(found.products) <= 4
    assert not bool(found.concave)
    assert np.abs(rows.T @ (rows @ np.asarray(found.solution)) - np.asarray(right)).max() < 1e-11
    largest = np.linalg.norm(rows, 2) ** 2
    assert 0.5 * largest < float(scales.largest) <= largest * (1.0 + 1e-12)


def test_conjugate_gradients_from_a_guess():
    rows = _generator.standard_normal((40, 8))
    matrix = rows.T @ rows
    matrix[0] = matrix[:, 0] = 0.0  # a direction that the operator takes to nothing
    solution = np.concatenate([[0.0], _generator.standard_normal(7)])
    with double_precision():
        right, one, accuracy = jnp.asarray(matrix @ solution), jnp.ones(8), jnp.asarray(1e-10)
        by = lambda guess: conjugate_gradients(lambda v: matrix @ v, right, one, accuracy, 20, jnp.asarray(guess))  # noqa: E731
        known, useless, none = by(3.0 * solution), by(np.eye(8)[0]), by(np.zeros(8))
    assert int(known.products) == 1  # its length does not matter
    assert int(useless.products) == int(none.products) + 1
    for found in (known, useless, none):
        assert np.abs(np.asarray(found.solution)[1:] - solution[1:]).max() < 1e-9


def test_the_adjoint_system_starts_from_the_last_one():
    flat = logistic_over("reals")
    with double_precision():
        oracle, leader = NewtonCG(), no_upper_multipliers(flat)
        at = flat.program(evaluate_exactly, oracle)
        first = at(np.array([-3.0]), leader, cold_pair(flat, oracle), np.asarray(1e-10))
        again = at(np.array([-3.0]), leader, first.warm, np.asarray(1e-10))
    assert int(first.follower.iterations) > 10
    assert int(again.follower.iterations) <= 2
    assert np.abs(np.asarray(again.gradient) - np.asarray(first.gradient)).max() < 1e-9


def test_refuses_what_it_cannot_do():
    with pytest.raises(OptionError, match="max_products"):
        NewtonCG(max_products=0)
    coupled = problem(ridge, Reals(N), inequality=lambda x, y: jnp.zeros(51) + y[0] - 1.0)
    with pytest.raises(ProblemError, match="up to 50 rows"):
        NewtonCG().cold(coupled.flat)


def test_auto_chooses_it_by_size():
    def of(n, **more):
        return BilevelProblem(
            upper=lambda x, y: jnp.sum(y**2), lower=lambda x, y: jnp.sum((y - x) ** 2), x_set=Reals(1), y_set=Reals(n)
        )

    assert isinstance(choose_oracles(of(MATRIX_FREE), "auto")[0], NewtonCG)
    assert isinstance(choose_oracles(of(MATRIX_FREE - 1), "auto")[0], InteriorPoint)
    assert choose_oracles(of(3), "newton-cg") == (NewtonCG(),)


@pytest.mark.slow
@pytest.mark.parametrize("name", few(["reals", "ball"], "ball"))
def test_solve_by_the_exact_derivative_and_by_the_penalty(name):
    target = problem(ridge, SETS[name])
    exact = solve(target, np.array([0.0]), inner="newton-cg")
    penalty = solve(target, np.array([0.0]), inner="interior-point")
    assert exact.success
    assert np.isinf(exact.gamma)
    assert exact.counts["evaluations"] < penalty.counts["evaluations"]
    assert exact.upper_value <= penalty.upper_value + 1e-7
    assert np.abs(exact.x - penalty.x).max() < 1e-3


@pytest.mark.slow
def test_few_entries_of_many_under_an_l1_term():
    """The answer satisfies the conditions of optimality, and the derivative is that of differences."""
    rng = np.random.default_rng(4)
    size, rows = 600, 30
    data = {"A": rng.normal(size=(rows, size)), "b": rng.normal(size=rows), "V": rng.normal(size=(rows, size))}
    problem = BilevelProblem(
        upper=lambda x, y, d: jnp.mean((d["V"] @ y - d["b"]) ** 2),
        lower=lambda x, y, d: 0.5 * jnp.mean((d["A"] @ y - d["b"]) ** 2) + 0.5 * jnp.exp(x[0]) * jnp.sum(y**2),
        lower_terms=[L1(lambda x, d: jnp.exp(x[1]))],
        x_set=Box(-9.0, 2.0, shape=2),
        y_set=Reals(size),
        data=data,
    )
    flat, oracle = problem.flat, NewtonCG()
    evaluator = Evaluator(flat, (oracle,), Monitor(problem.x_set.unravel))

    def at(x):
        return evaluator(np.asarray(x), np.inf, no_upper_multipliers(flat), 1e-12)

    with double_precision():
        for x in ([-2.0, -1.0], [-4.0, -3.5]):
            y = np.asarray(at(x).follower.y)
            slope = data["A"].T @ (data["A"] @ y - data["b"]) / rows + np.exp(x[0]) * y
            free = y != 0.0
            assert 2 <= free.sum() < 60
            np.testing.assert_allclose(slope[free], -np.exp(x[1]) * np.sign(y[free]), atol=1e-9)
            assert np.abs(slope[~free]).max() <= np.exp(x[1]) + 1e-12
            step = 1e-5 * np.eye(2)
            differences = [(at(x + e).value - at(x - e).value) / 2e-5 for e in step]
            np.testing.assert_allclose(at(x).gradient, differences, rtol=1e-6, atol=1e-9)
