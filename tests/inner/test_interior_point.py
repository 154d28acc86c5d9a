"""The interior-point method against Clarabel and HiGHS, its verdicts, and the shapes that trip such methods."""

from __future__ import annotations

from functools import cache

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.protocol import InnerCode, InnerOracle
from blocc.lagrangian import weights
from blocc.problem import BilevelProblem
from blocc.sets import Box, Product, Reals
from blocc.simple_sets import Ball, Halfspace, Simplex
from inner_random_problems import FAMILIES, infeasible_problems, lower_level, random_problem, unbounded_problems
from selections import few

ORACLE = InteriorPoint()
PRECISE = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


def solver(flat, oracle=ORACLE):
    """A compiled ``solve(x, upper, lower, warm, tolerance)``, compiled as blocc does it."""

    def function(x, upper, lower, warm, tolerance):
        return oracle.solve(flat, x, weights(flat)._replace(upper=upper, lower=lower), warm, tolerance)

    with double_precision():
        point, number, cold = jnp.zeros(flat.n_x), jnp.asarray(1.0), oracle.cold(flat)
    compiled, _ = compile_ahead(function, point, number, number, cold, number)

    def call(x=None, upper=0.0, lower=1.0, warm=None, tolerance=1e-9):
        with double_precision():
            at = jnp.zeros(flat.n_x) if x is None else jnp.asarray(x, jnp.float64).reshape(flat.n_x)
            rest = (cold if warm is None else jax.tree.map(jnp.asarray, warm), jnp.asarray(float(tolerance)))
            return jax.tree.map(np.asarray, compiled(at, jnp.asarray(float(upper)), jnp.asarray(float(lower)), *rest))

    return call


@cache
def family(name):
    problem = random_problem(1, **FAMILIES[name])
    return problem, solver(problem.flat)


# --- right answers ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", few(["affine-equality", "nonlinear", "everything", "simplex"], "everything"))
def test_agrees_with_the_exact_answer(name):
    problem, solve = family(name)
    rng = np.random.default_rng(0)
    for upper, lower in ((0.0, 1.0), (0.1, 1.0), (1.0, 0.1), (1e-3, 1.0)):
        x = 0.5 * rng.standard_normal(2)
        found = solve(x, upper, lower)
        assert found.code == InnerCode.CONVERGED
        assert found.iterations <= 25
        assert not found.concave
        assert np.abs(found.y - problem.reference(upper, lower, x)).max() < 1e-6
        assert (found.multipliers.inequality >= 0.0).all()
        assert max(found.residuals) < 1e-6


def test_ball_halfspace_and_product_sets():
    """The set's own inequalities work like coupled ones, but have no multiplier of the user's."""
    rng = np.random.default_rng(4)
    target = 3.0 * rng.standard_normal(5)
    flat = BilevelProblem(
        upper=lambda x, y: 0.0,
        lower=lambda x, y: jnp.sum((y[0] - target[:3] - x) ** 2) + jnp.sum((y[1] - target[3:]) ** 2),
        inequality=lambda x, y: y[0][0] + y[1][0] - 0.3,
        x_set=Reals(),
        y_set=Product((Ball(np.array([1.0, 0.0, -1.0]), 0.7), Halfspace([1.0, 2.0], -1.0))),
    ).flat
    solve = solver(flat)
    for shift in (0.0, 1.5):
        a, b = cp.Variable(3), cp.Variable(2)
        rules = [cp.norm(a - [1.0, 0.0, -1.0]) <= 0.7, b[0] + 2.0 * b[1] <= -1.0, a[0] + b[0] <= 0.3]
        goal = cp.sum_squares(a - target[:3] - shift) + cp.sum_squares(b - target[3:])
        cp.Problem(cp.Minimize(goal), rules).solve(solver=cp.CLARABEL, **PRECISE)
        found = solve([shift])
        assert found.code == InnerCode.CONVERGED
        assert np.abs(found.y - np.concatenate([a.value, b.value])).max() < 1e-6
        assert found.multipliers.inequality.shape == (1,)


@pytest.mark.slow
def test_entropy_keeps_y_inside_its_bounds():
    """A logarithm that is NaN outside the simplex: its minimiser is a softmax."""
    cost = np.array([0.0, 1.0, 5.0, 20.0])
    flat = lower_level(lambda x, y: jnp.sum(y * jnp.log(y)) + jnp.dot(cost, y), Simplex(4))
    found = solver(flat)(tolerance=1e-10)
    exact = np.exp(-cost) / np.exp(-cost).sum()
    assert found.code == InnerCode.CONVERGED
    np.testing.assert_allclose(found.y, exact, rtol=1e-3, atol=1e-8)


def test_linear_programs_against_highs():
    rng = np.random.default_rng(7)
    rows, equal, inside = rng.standard_normal((6, 12)), rng.standard_normal((3, 12)), rng.uniform(0.2, 0.8, 12)
    flat = BilevelProblem(
        upper=lambda x, y: 0.0,
        lower=lambda x, y: x @ y,
        inequality=lambda x, y: rows @ (y - inside),
        equality=lambda x, y: equal @ (y - inside),
        x_set=Reals(12),
        y_set=Box(0.0, 1.0, shape=12),
    ).flat
    solve = solver(flat)
    for cost in rng.standard_normal((6, 12)):
        exact = linprog(cost, rows, rows @ inside, equal, equal @ inside, bounds=(0, 1), method="highs")
        found = solve(cost)
        assert found.code == InnerCode.CONVERGED
        assert found.iterations <= 25
        assert float(found.value) == pytest.approx(exact.fun, rel=1e-7)
        assert cost @ found.y == pytest.approx(exact.fun, rel=1e-6)
        assert np.abs(found.y - exact.x).max() < 1e-5


@pytest.mark.parametrize("name", few(["affine-equality", "everything"], "everything"))
@given(x=st.tuples(*[st.floats(-2.0, 2.0)] * 2), upper=st.sampled_from([0.0, 1e-4, 1.0]))
@settings(deadline=None, derandomize=True, max_examples=25)
def test_few_iterations_on_well_scaled_problems(name, x, upper):
    _, solve = family(name)
    found = solve(np.array(x), upper)
    assert found.code == InnerCode.CONVERGED
    assert found.iterations <= 25
    assert max(found.residuals) <= 1e-6


@pytest.mark.parametrize("name", few(["affine-equality", "nonlinear", "everything"], "everything"))
def test_twelve_digits_can_be_had(name):
    """Outer methods at a large gamma ask for 1e-12; the products must not run ahead of the residuals."""
    _, solve = family(name)
    rng = np.random.default_rng(2)
    for _ in range(20):
        found = solve(rng.standard_normal(2), tolerance=1e-12)
        assert max(found.residuals.stationarity, found.residuals.feasibility) < 1e-10


def test_nonlinear_constraints_to_twelve_digits():
    """min |y - x|^2 over the unit ball around (1, ..., 1) and a paraboloid: answers do not stop at eight digits."""
    flat = BilevelProblem(
        upper=lambda x, y: 0.0,
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        inequality=lambda x, y: jnp.sum((y - 1.0) ** 2) - 1.0,
        x_set=Reals(4),
        y_set=Reals(4),
    ).flat
    solve = solver(flat)
    rng = np.random.default_rng(0)
    for scale in (1.0, 3.0, 10.0, 100.0) * 3:
        x = 1.0 + scale * rng.standard_normal(4)
        exact = 1.0 + (x - 1.0) / max(np.linalg.norm(x - 1.0), 1.0)
        found = solve(x, tolerance=1e-12)
        assert np.abs(found.y - exact).max() < 1e-10


# --- batches and warm starts -----------------------------------------------------------------------------
def test_vmap_equals_one_by_one():
    problem, solve = family("affine-equality")
    flat = problem.flat
    points = 0.5 * np.random.default_rng(0).standard_normal((5, 2))
    with double_precision():
        cold = ORACLE.cold(flat)
        batch, _ = compile_ahead(
            jax.vmap(lambda x: ORACLE.solve(flat, x, weights(flat), cold, jnp.asarray(1e-9))), jnp.asarray(points)
        )
        found = jax.tree.map(np.asarray, batch(jnp.asarray(points)))
    for i, x in enumerate(points):
        alone = solve(x)
        assert found.code[i] == alone.code == InnerCode.CONVERGED
        assert found.iterations[i] == alone.iterations
        np.testing.assert_allclose(found.y[i], alone.y, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.multipliers.inequality[i], alone.multipliers.inequality, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", few(["affine-equality", "nonlinear", "everything", "simplex"], "everything"))
def test_warm_starts(name):
    problem, solve = family(name)
    first = solve([0.2, -0.1])
    same, nearby = solve([0.2, -0.1], warm=first.warm), solve([0.2 + 1e-4, -0.1], warm=first.warm)
    cold = solve([0.2 + 1e-4, -0.1])
    assert same.iterations < first.iterations
    assert nearby.iterations < cold.iterations
    assert nearby.code == InnerCode.CONVERGED
    np.testing.assert_allclose(nearby.y, cold.y, rtol=0, atol=1e-7)
    far = solve([2.0, 2.0], warm=first.warm)
    assert far.code == InnerCode.CONVERGED
    np.testing.assert_allclose(far.y, solve([2.0, 2.0]).y, rtol=0, atol=1e-7)
    assert jax.tree.structure(first.warm) == jax.tree.structure(ORACLE.cold(problem.flat))


def test_a_failed_solve_does_not_spoil_the_warm_start():
    flat = lower_level(
        lambda x, y: jnp.sum((y - 3.0) ** 2), Reals(2), lambda x, y: jnp.stack([y[0] - x[0], 1.0 - y[0]])
    )
    solve = solver(flat)
    good = solve([2.0])
    bad = solve([0.0], warm=good.warm)
    assert bad.code != InnerCode.CONVERGED
    again = solve([2.1], warm=bad.warm)
    assert again.code == InnerCode.CONVERGED
    np.testing.assert_allclose(again.y, [2.1, 3.0], atol=1e-7)


# --- verdicts --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", few(["box", "ball"], "ball"))
def test_infeasible(name):
    found = solver(infeasible_problems()[name])()
    assert found.code == InnerCode.INFEASIBLE


def test_unbounded():
    assert solver(unbounded_problems()["mixed"])().code == InnerCode.UNBOUNDED


@pytest.mark.slow
def test_shrinking_feasible_balls():
    """Multipliers grow like 1 / radius; the answer is always the point of the ball nearest to (2, 2)."""
    flat = lower_level(lambda x, y: jnp.sum((y - 2.0) ** 2), Reals(2), lambda x, y: jnp.sum(y**2) - x[0] ** 2)
    solve = solver(flat)
    for radius in (1.0, 1e-1, 1e-2, 1e-3):
        found = solve([radius])
        assert found.code in (InnerCode.CONVERGED, InnerCode.STALLED)
        assert np.abs(found.y - radius / np.sqrt(2.0)).max() < 1e-6


def test_not_finite():
    flat = BilevelProblem(
        upper=lambda x, y: 0.0,
        lower=lambda x, y: jnp.sum(y**2 + jnp.sqrt((y - 1.0) ** 2 + x[0])) + jnp.log(x[1]),
        x_set=Reals(2),
        y_set=Box(0.0, 2.0, shape=2),
    ).flat
    solve = solver(flat)
    assert solve([1.0, 1.0]).code == InnerCode.CONVERGED
    assert solve([1.0, -1.0]).code == InnerCode.NOT_FINITE  # a value
    assert solve([0.0, 1.0]).code == InnerCode.NOT_FINITE  # a derivative, in the middle of Y
    assert solve([np.nan, 1.0]).code == InnerCode.NOT_FINITE


def test_negative_curvature_is_reported():
    flat = lower_level(lambda x, y: x[0] * y[0] ** 2 + y[1] ** 2 + y[0], Box(-1.0, 1.0, shape=2))
    solve = solver(flat)
    assert not solve([1.0]).concave
    assert not solve([0.0]).concave
    bent = solve([-1.0])
    assert bent.concave
    assert np.isfinite(bent.y).all()


def test_stalled_when_out_of_iterations():
    flat = lower_level(lambda x, y: jnp.sum(jnp.exp(y)), Box(-1.0, 1.0, shape=1))
    found = solver(flat, InteriorPoint(max_iterations=3))()
    assert found.code == InnerCode.STALLED
    assert found.iterations == 3


# --- degenerate shapes -----------------------------------------------------------------------------------
TARGET = np.array([1.0, 2.0, 3.0])
ONES, ZERO = np.ones(3), np.zeros(3)


@cache
def projection(kind, count):
    """min |y - (1, 2, 3)|^2 under rows ``A y <= b`` or ``A y == b`` that come in x: one compilation for all rows."""
    flat = BilevelProblem(
        upper=lambda x, y: 0.0,
        lower=lambda x, y: jnp.sum((y - TARGET) ** 2),
        x_set=Product((Reals((count, 3)), Reals(count))),
        y_set=Reals(3),
        **{kind: lambda x, y: x[0] @ y - x[1]},
    ).flat
    solve = solver(flat)
    return lambda rows, rhs: solve(np.concatenate([np.ravel(rows), rhs]))


VACUOUS = (ZERO, 1.0)
SUM = (ONES, 3.0)
#: Rows and, for each, its multiplier (None where it is not unique). The answer is always (0, 1, 2).
DEGENERATE = {
    "four copies": ([SUM] * 4, None),
    "copies in other units": ([SUM, (2.0 * ONES, 6.0), (0.01 * ONES, 0.03), (100.0 * ONES, 300.0)], None),
    "three vacuous rows": ([SUM, VACUOUS, VACUOUS, VACUOUS], [2.0, 0.0, 0.0, 0.0]),
    "a very distant row": ([SUM, (np.eye(3)[0], 1e6), VACUOUS, VACUOUS], [2.0, 0.0, 0.0, 0.0]),
    "a row that just touches": ([SUM, (np.eye(3)[0], 0.0), VACUOUS, VACUOUS], [2.0, 0.0, 0.0, 0.0]),
    "large units": ([(1e6 * ONES, 3e6), (1e-6 * np.eye(3)[0], 1e-5), VACUOUS, VACUOUS], [2e-6, 0.0, 0.0, 0.0]),
    "small units": ([(1e-6 * ONES, 3e-6), (1e6 * np.eye(3)[0], 1e7), VACUOUS, VACUOUS], [2e6, 0.0, 0.0, 0.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_inequalities(case):
    pairs, prices = DEGENERATE[case]
    rows, rhs = np.array([row for row, _ in pairs]), np.array([value for _, value in pairs])
    found = projection("inequality", 4)(rows, rhs)
    touches = case == "a row that just touches"  # without strict complementarity half of the digits are lost
    assert found.code == InnerCode.CONVERGED or touches
    np.testing.assert_allclose(found.y, [0.0, 1.0, 2.0], atol=2e-5 if touches else 1e-6)
    np.testing.assert_allclose(rows.T @ found.multipliers.inequality, 2.0, rtol=2e-5 if touches else 1e-5)
    if prices is not None:
        np.testing.assert_allclose(found.multipliers.inequality, prices, rtol=1e-5, atol=1e-4)


def test_an_equality_hidden_in_two_inequalities():
    found = projection("inequality", 4)(np.array([ONES, -ONES, ZERO, ZERO]), np.array([3.0, -3.0, 1.0, 1.0]))
    np.testing.assert_allclose(found.y, [0.0, 1.0, 2.0], atol=1e-6)
    assert max(found.residuals) < 1e-5
    mu = found.multipliers.inequality
    assert mu[0] - mu[1] == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize(
    ("rows", "rhs"),
    [([ONES, 2.0 * ONES, [1.0, -1.0, 0.0]], [3.0, 6.0, 0.0]), ([ONES, ZERO, [1.0, -1.0, 0.0]], [3.0, 0.0, 0.0])],
    ids=["duplicated", "zero row"],
)
def test_dependent_equalities(rows, rhs):
    found = projection("equality", 3)(np.array(rows), np.array(rhs))
    assert found.code == InnerCode.CONVERGED
    np.testing.assert_allclose(found.y, [0.5, 0.5, 2.0], atol=1e-7)


def test_contradicting_equalities():
    found = projection("equality", 3)(np.array([ONES, 2.0 * ONES, ZERO]), np.array([3.0, 7.0, 0.0]))
    assert found.code == InnerCode.INFEASIBLE


def test_infeasible_rows():
    """y_0 <= 0 and y_0 >= gap, down to a small gap; none of them may pass for solved."""
    for gap in (10.0, 1.0, 1e-2, 1e-4):
        rows, rhs = np.array([np.eye(3)[0], -np.eye(3)[0], ZERO, ZERO]), np.array([0.0, -gap, 1.0, 1.0])
        found = projection("inequality", 4)(rows, rhs)
        assert found.code in (InnerCode.INFEASIBLE, InnerCode.STALLED)  # the elastic problem tells which
        assert found.residuals.feasibility >= 0.49 * gap


def projected(rules, y_set):
    return lower_level(lambda x, y: jnp.sum((y - TARGET) ** 2), y_set, lambda x, y: rules(y))


def test_fixed_variables():
    fixed = Box([0.5, -1.0, 2.0], [0.5, 1.0, 2.0])
    found = solver(projected(lambda y: jnp.sum(y) - 3.0, fixed))()
    assert found.code == InnerCode.CONVERGED
    np.testing.assert_allclose(found.y, [0.5, 0.5, 2.0], atol=1e-7)
    assert found.y[0] == 0.5
    all_fixed = solver(projected(lambda y: jnp.sum(y) - 9.0, Box([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])))()
    assert all_fixed.code == InnerCode.CONVERGED
    np.testing.assert_allclose(all_fixed.y, [1.0, 2.0, 3.0])


@pytest.mark.slow
def test_without_any_constraint():
    flat = lower_level(lambda x, y: jnp.sum((y - x[0]) ** 2 + jnp.exp(y)), Reals(3))
    solve = solver(flat)
    found = solve([1.0])
    assert found.code == InnerCode.CONVERGED
    assert found.multipliers.inequality.shape == (0,)
    assert found.multipliers.equality.shape == (0,)
    np.testing.assert_allclose(2.0 * (found.y - 1.0) + np.exp(found.y), 0.0, atol=1e-8)


def test_flat_directions_are_allowed():
    """A merely convex lower level: any y with y_0 + y_1 = 1 is optimal."""
    flat = lower_level(lambda x, y: (y[0] + y[1] - 1.0) ** 2, Reals(3), lambda x, y: y[2] ** 2 - 1.0)
    found = solver(flat)()
    assert found.code == InnerCode.CONVERGED
    assert found.y[0] + found.y[1] == pytest.approx(1.0, abs=1e-4)
    assert float(found.value) < 1e-9
    assert np.abs(found.y).max() < 10.0


def test_is_an_oracle():
    assert isinstance(ORACLE, InnerOracle)
    assert hash(InteriorPoint()) == hash(ORACLE)
    assert InteriorPoint(proximal=1e-8) != ORACLE


@pytest.mark.slow
@pytest.mark.parametrize("log_radius", [1.5, 2.0])
def test_a_curved_row_far_from_the_start_does_not_make_it_cycle(log_radius: float) -> None:
    """Logistic regression in a norm ball: every long step violates the ball's row a little."""
    generator = np.random.default_rng(0)
    planted, samples = generator.normal(size=20), generator.normal(size=(200, 20))
    labels = np.sign(samples @ planted + 0.5 * generator.normal(size=200))
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum(y**2),
        lower=lambda x, y: jnp.mean(jnp.logaddexp(0.0, -labels * (samples @ y))) + 0.0005 * jnp.sum(y**2),
        inequality=lambda x, y: jnp.sum(y**2) - jnp.exp(2.0 * x),
        x_set=Reals(),
        y_set=Reals(20),
    )
    found = solver(problem.flat)(x=np.array([log_radius]))
    assert found.code == InnerCode.CONVERGED
    assert found.iterations < 40
    reference = minimize(
        lambda y: float(np.mean(np.logaddexp(0.0, -labels * (samples @ y))) + 0.0005 * y @ y),
        np.zeros(20),
        constraints={"type": "ineq", "fun": lambda y: np.exp(2.0 * log_radius) - y @ y, "jac": lambda y: -2.0 * y},
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert found.y == pytest.approx(reference.x, abs=1e-4)
