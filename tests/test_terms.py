"""Norms in the follower's objective: proximal operators, answers and derivatives against CVXPY and differences."""

from __future__ import annotations

from functools import cache

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import L1, BilevelProblem, Box, GroupL2, ProblemError, Product, Reals, solve, verify
from blocc._lib.precision import double_precision
from blocc.inner.newton_cg import NewtonCG
from blocc.inner.protocol import InnerCode
from blocc.penalty import cold_pair, evaluate_exactly, no_upper_multipliers
from blocc.simple_sets import Ball
from inner_random_problems import solver
from selections import few

N, ROWS = 24, 16
_generator = np.random.default_rng(0)
DATA = {
    "train": _generator.standard_normal((ROWS, N)),
    "target": _generator.standard_normal(ROWS),
    "valid": _generator.standard_normal((ROWS, N)),
    "valid_target": _generator.standard_normal(ROWS),
}


def upper(x, y, data):
    return 0.5 * jnp.mean((data["valid"] @ jnp.ravel(y) - data["valid_target"]) ** 2)


def lower(x, y, data):
    return 0.5 * jnp.mean((data["train"] @ jnp.ravel(y) - data["target"]) ** 2) + 0.5 * jnp.exp(x[1]) * jnp.sum(y**2)


def first_weight(x, data):
    return jnp.exp(x[0])


def problem(y_set, *terms, **more):
    return BilevelProblem(
        upper=upper, lower=lower, lower_terms=terms, x_set=Box(-6.0, 2.0, shape=2), y_set=y_set, data=DATA, **more
    )


CASES = {
    "elastic net": (Reals(N), [L1(first_weight)]),
    "nonnegative lasso": (Box(0.0, 0.1, shape=N), [L1(first_weight)]),
    "groups": (Reals((6, 4)), [GroupL2(first_weight)]),
    "sparse groups": (Reals((6, 4)), [GroupL2(first_weight), L1(0.02)]),
}


@cache
def case(name):
    y_set, terms = CASES[name]
    return problem(y_set, *terms)


def by_cvxpy(name, x):
    """The follower's answer by a conic solver."""
    y = cp.Variable(N)
    weight, l2 = np.exp(x)
    cost = 0.5 / ROWS * cp.sum_squares(DATA["train"] @ y - DATA["target"]) + 0.5 * l2 * cp.sum_squares(y)
    rules = [y >= 0.0, y <= 0.1] if name == "nonnegative lasso" else []
    if "groups" in name:
        cost += weight * cp.sum([cp.norm(y[4 * k : 4 * k + 4]) for k in range(6)])
        cost += 0.02 * cp.norm1(y) if name == "sparse groups" else 0.0
    else:
        cost += weight * cp.norm1(y)
    options = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
    value = cp.Problem(cp.Minimize(cost), rules).solve(solver=cp.CLARABEL, **options)
    return y.value, value


@pytest.mark.parametrize("name", few(CASES, "sparse groups"))
def test_the_answer_is_that_of_a_conic_solver(name):
    x = np.array([-2.5, -3.0])
    exact, value = by_cvxpy(name, x)
    found = solver(case(name).flat, NewtonCG())(x=x, tolerance=1e-11)
    assert found.code == InnerCode.CONVERGED
    assert np.abs(found.y - exact).max() < 1e-5
    assert float(found.objective) == pytest.approx(value, rel=1e-8)
    zeros = np.abs(exact) < 1e-7
    assert 0 < zeros.sum() < N
    assert (found.y[zeros] == 0.0).all()  # exactly


@pytest.mark.parametrize("name", few(CASES, "nonnegative lasso"))
def test_derivatives_of_the_value_by_both_weights(name):
    flat = case(name).flat
    with double_precision():
        oracle, leader = NewtonCG(), no_upper_multipliers(flat)
        at = flat.program(evaluate_exactly, oracle)
        cold, accuracy = cold_pair(flat, oracle), jnp.asarray(1e-12)
        x = np.array([-2.5, -3.0])
        middle = jax.device_get(at(jnp.asarray(x), leader, cold, accuracy))
        for index in range(2):
            step = 1e-5 * np.eye(2)[index]
            ends = [float(at(jnp.asarray(x + sign * step), leader, cold, accuracy).value) for sign in (1.0, -1.0)]
            assert float(middle.gradient[index]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-8)
    assert middle.usable


@pytest.mark.slow
def test_the_leader_tunes_an_elastic_net():
    target = case("elastic net")
    found = solve(target, np.array([-1.0, -1.0]))
    assert found.success
    grid = np.linspace(-6.0, 2.0, 9)
    flat = target.flat
    with double_precision():
        at = flat.program(evaluate_exactly, NewtonCG())
        cold, accuracy, leader = cold_pair(flat, NewtonCG()), jnp.asarray(1e-9), no_upper_multipliers(flat)
        around = found.x + 0.05 * _generator.standard_normal((8, 2))
        points = [np.clip(point, -6.0, 2.0) for point in around]
        values = [float(at(jnp.asarray(point), leader, cold, accuracy).value) for point in points]
    assert min(values) >= found.upper_value - 1e-6
    assert (found.y == 0.0).any() or found.x[0] <= grid[1]
    assert verify(target, found).ok
    exact, _ = by_cvxpy("elastic net", found.x)
    assert np.abs(found.y - exact).max() < 1e-5


def test_one_part_of_a_product():
    two = BilevelProblem(
        upper=lambda x, y: jnp.sum((y["w"] - 1.0) ** 2) + y["b"] ** 2,
        lower=lambda x, y: 0.5 * jnp.sum((y["w"] - jnp.arange(4.0)) ** 2) + 0.5 * (y["b"] - 2.0) ** 2,
        lower_terms=[L1(lambda x: x, of="w")],
        x_set=Box(0.0, 5.0),
        y_set=Product({"w": Reals(4), "b": Reals()}),
    )
    found = solver(two.flat, NewtonCG())(x=np.array([1.5]), tolerance=1e-12)
    assert np.allclose(found.y, [2.0, 0.0, 0.0, 0.5, 1.5])  # b comes first
    assert float(found.objective) == pytest.approx(0.5 * (1.0 + 2.25 + 2.25) + 1.5 * 2.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lower_terms": L1(0.1)}, "must be a list"),
        ({"lower_terms": [L1(0.1), L1(0.2)]}, "two terms of the same kind"),
        ({"lower_terms": [L1(0.1, of="w")]}, "no such part"),
        ({"lower_terms": [L1(0.1)], "y_set": Ball(np.zeros(3))}, "needs a box"),
        ({"lower_terms": [GroupL2(0.1)], "y_set": Box(0.0, 1.0, shape=3)}, "needs Reals"),
        ({"lower_terms": [L1(0.1)], "y_set": Product({"w": Reals(3)})}, "name the part"),
        ({"lower_terms": [L1(0.1)], "oracle": NewtonCG()}, "without oracle"),
        ({"lower_terms": [Box(0.0, 1.0, shape=3)]}, "make the set y_set"),
    ],
)
def test_mistakes_are_named(change, message):
    parts = {
        "upper": lambda x, y: x,
        "lower": lambda x, y: x**2,
        "x_set": Reals(),
        "y_set": Reals(3),
        **change,
    }
    with pytest.raises(ProblemError, match=message):
        BilevelProblem(**parts)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf, "0.1", None, np.array([0.1, -0.1])])
def test_weights_are_checked(weight):
    with pytest.raises(ProblemError, match="weight"):
        L1(weight)
