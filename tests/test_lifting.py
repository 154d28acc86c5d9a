"""Norms beside coupled constraints: answers, values and derivatives against CVXPY and differences."""

from __future__ import annotations

from functools import cache

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import (
    L1,
    BilevelProblem,
    Box,
    GroupL2,
    OptionError,
    Product,
    Reals,
    lower_level,
    solve,
    solve_global,
    solve_many,
    verify,
)
from blocc._lib.precision import double_precision
from blocc.inner.choice import choose_oracles
from blocc.inner.pdhg import PrimalDualHybridGradient
from blocc.inner.protocol import InnerCode
from blocc.lifting import Lifted
from blocc.penalty import cold_pair, evaluate, no_upper_multipliers
from inner_random_problems import solver
from selections import few

N, ROWS = 8, 12
_generator = np.random.default_rng(3)
TRUTH = np.array([0.0, 0.0, 0.8, -0.5, 0.0, 0.0, 0.0, 0.6])


def _measured(rows):
    matrix = _generator.standard_normal((rows, N))
    return matrix, matrix @ TRUTH + 0.7 * _generator.standard_normal(rows)


MATRIX, TARGET = _measured(ROWS)
VALID, VALID_TARGET = _measured(30)
DATA = {"matrix": MATRIX, "target": TARGET}
X = np.array([0.15, 0.5])


def loss(xp, x, y):
    return 0.5 * xp.mean((VALID @ xp.ravel(y) - VALID_TARGET) ** 2) + 0.01 * x[1] ** 2


def upper(x, y, data):
    return loss(jnp, x, y)


def lower(x, y, data):
    return 0.5 * jnp.mean((data["matrix"] @ jnp.ravel(y) - data["target"]) ** 2)


def limits(x, y, data):
    return {"budget": jnp.sum(jnp.ravel(y)) - x[1], "first": -0.05 - jnp.ravel(y)[:1]}


def weight(x, data):
    return x[0]


CASES = {
    "l1": (Reals(N), [L1(weight)]),
    "l1 in a box": (Box(np.array([-0.3, -np.inf, 0.0, 0.02, -0.1, -0.5, -0.2, -0.1]), 0.15, shape=N), [L1(weight)]),
    "groups": (Reals((4, 2)), [GroupL2(weight)]),
    "sparse groups": (Reals((4, 2)), [GroupL2(lambda x, data: 0.6 * x[0]), L1(lambda x, data: 0.5 * x[0])]),
}


@cache
def case(name):
    y_set, terms = CASES[name]
    return BilevelProblem(
        upper=upper,
        lower=lower,
        lower_terms=terms,
        inequality=limits,
        x_set=Box(0.01, 2.0, shape=2),
        y_set=y_set,
        data=DATA,
    )


def by_cvxpy(name, x):
    """The follower's answer and value by a conic solver."""
    y = cp.Variable(N)
    cost = 0.5 / ROWS * cp.sum_squares(DATA["matrix"] @ y - DATA["target"])
    rules = [cp.sum(y) <= x[1], y[0] >= -0.05]
    if name == "l1 in a box":
        low, high = CASES[name][0].bounds_flat()
        kept = np.isfinite(low)
        rules += [y[kept] >= low[kept], y <= high]
    groups = cp.sum([cp.norm(y[2 * k : 2 * k + 2]) for k in range(4)])
    cost += x[0] * {"groups": groups, "sparse groups": 0.6 * groups + 0.5 * cp.norm1(y)}.get(name, cp.norm1(y))
    options = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    value = cp.Problem(cp.Minimize(cost), rules).solve(solver=cp.CLARABEL, **options)
    return y.value, value


def flat_y(target, flat):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(target.y_set.unravel(np.asarray(flat)))])


@pytest.mark.parametrize("name", few(CASES, "sparse groups"))
def test_the_answer_is_that_of_a_conic_solver(name):
    exact, value = by_cvxpy(name, X)
    found = solver(case(name).flat, choose_oracles(case(name), "auto")[0])(x=X, tolerance=1e-8)
    assert found.code == InnerCode.CONVERGED
    assert np.abs(flat_y(case(name), found.y) - exact).max() < (1e-5 if "groups" in name else 1e-6)
    if "groups" in name:  # as users are shown them, groups are zero or not
        shown, norms = case(name).y_set.shown(found.y), np.linalg.norm(exact.reshape(4, 2), axis=1)
        assert ((shown == 0.0).all(axis=1) == (norms < 1e-6)).all()
        assert 0 < (norms < 1e-6).sum() < 4
    assert float(found.objective) == pytest.approx(value, rel=1e-6)
    assert 0 < (np.abs(exact) < 1e-6).sum() < N


@pytest.mark.slow
def test_a_first_order_oracle_has_the_same_answer():
    exact, _ = by_cvxpy("l1", X)
    found = solver(case("l1").flat, PrimalDualHybridGradient())(x=X, tolerance=1e-9)
    assert np.abs(flat_y(case("l1"), found.y) - exact).max() < 1e-5


@pytest.mark.parametrize("name", few(["l1 in a box", "sparse groups"], "sparse groups"))
def test_gradient_of_the_penalty_function(name):
    flat = case(name).flat
    with double_precision():
        oracle = choose_oracles(case(name), "auto")[0]
        at, cold = flat.program(evaluate, oracle), cold_pair(flat, oracle)
        value = lambda x: at(x, np.asarray(20.0), no_upper_multipliers(flat), cold, np.asarray(1e-12))  # noqa: E731
        middle = value(X)
        for index in range(2):
            step = 1e-4 * np.eye(2)[index]
            slope = (float(value(X + step).value) - float(value(X - step).value)) / 2e-4
            assert float(middle.gradient[index]) == pytest.approx(slope, rel=1e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["l1"])
def test_derivatives_of_the_answer(name):
    found = lower_level(case(name), X)
    assert found.regular
    exact, _ = by_cvxpy(name, X)
    assert np.abs(np.ravel(found.y) - exact).max() < 1e-6
    with jax.enable_x64(True):
        slopes = np.asarray(jax.jacfwd(lambda x: lower_level(case(name), x).y)(jnp.asarray(X))).reshape(N, 2)
    for index in range(2):
        step = 1e-4 * np.eye(2)[index]
        differences = (lower_level(case(name), X + step).y - lower_level(case(name), X - step).y) / 2e-4
        assert np.abs(slopes[:, index] - np.ravel(differences)).max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["l1", pytest.param("groups", marks=pytest.mark.slow)])
def test_the_leader_tunes_the_weight(name):
    target = case(name)
    found = solve(target, np.array([0.3, 0.5]))
    assert found.success
    exact, value = by_cvxpy(name, found.x)
    assert np.abs(np.ravel(found.y) - exact).max() < 1e-5
    zeros = np.abs(exact) < 1e-7
    assert zeros.any()
    assert (np.ravel(found.y)[zeros] == 0.0).all()  # not just small
    assert found.y.shape == target.y_set.template.shape
    assert found.lower_value == pytest.approx(value, rel=1e-6)
    assert set(found.multipliers.inequality) == {"budget", "first"}
    assert verify(target, found).ok
    grid = [found.x + 0.02 * np.array([np.cos(t), np.sin(t)]) for t in np.linspace(0.0, 6.0, 7)]
    values = [loss(np, x, by_cvxpy(name, x)[0]) for x in grid if (x > 0.01).all()]
    assert min(values) >= found.upper_value - 1e-6


@pytest.mark.slow
def test_an_equality_and_one_part_of_a_product():
    """A portfolio of four assets with costs of trading, and its answer by hand: the dearest trade is not made."""
    target = BilevelProblem(
        upper=lambda x, y: jnp.sum(y["bought"] ** 2) + x**2,
        lower=lambda x, y: 0.5 * jnp.sum((y["bought"] - jnp.array([1.0, 0.6, -0.1, 0.1])) ** 2) + 0.5 * y["cash"] ** 2,
        lower_terms=[L1(lambda x: x, of="bought")],
        equality=lambda x, y: jnp.sum(y["bought"]) + y["cash"] - 1.0,
        x_set=Box(0.05, 1.0),
        y_set=Product({"bought": Reals(4), "cash": Reals()}),
    )
    bought, cash = cp.Variable(4), cp.Variable()
    cost = 0.5 * cp.sum_squares(bought - np.array([1.0, 0.6, -0.1, 0.1])) + 0.5 * cash**2 + 0.2 * cp.norm1(bought)
    cp.Problem(cp.Minimize(cost), [cp.sum(bought) + cash == 1.0]).solve(solver=cp.CLARABEL)
    found = lower_level(target, 0.2)
    assert np.abs(found.y["bought"] - bought.value).max() < 1e-5
    assert float(found.y["cash"]) == pytest.approx(float(cash.value), abs=1e-5)
    many = solve_many(target, starts=3)
    assert all(result.success for result in many.results)


def smooth_problem():
    return BilevelProblem(
        upper=lambda x, y: (y[0] - 0.2) ** 2 + 0.01 * x**2 + y[1],
        lower=lambda x, y: 0.5 * jnp.sum((y - jnp.array([1.0, 0.3])) ** 2),
        lower_terms=[L1(lambda x: x)],
        x_set=Box(0.0, 2.0),
        y_set=Box(-2.0, 2.0, shape=2),
    )


@pytest.mark.slow
def test_every_way_takes_norms():
    target = smooth_problem()
    by_name = solve(target, 0.5)
    others = [solve(target, 0.5, inner="interior-point"), solve_global(target), solve(target, 0.5, method="lv-hba")]
    assert by_name.success
    assert [other.y.shape for other in others] == [(2,)] * 3
    for other in others[:2]:
        assert other.success
        assert other.upper_value == pytest.approx(by_name.upper_value, abs=1e-5)
        assert other.x == pytest.approx(by_name.x, abs=1e-3)
    assert others[1].gap is not None
    with pytest.raises(OptionError, match=r"takes problem\.lifted"):
        choose_oracles(target, "pdhg")
    assert target.check(0.5).ok


def test_a_weight_of_zero_is_no_norm():
    target = smooth_problem().lifted
    found = lower_level(target, 0.0)
    assert found.code == InnerCode.CONVERGED
    assert np.abs(found.y - [1.0, 0.3]).max() < 1e-6


def test_the_set_of_all_variables():
    hidden = case("sparse groups").y_set
    assert isinstance(hidden, Lifted)
    assert hidden.size == 8 + 8 + 4
    y = _generator.standard_normal((4, 2))
    flat = hidden.ravel(y)
    assert np.array_equal(hidden.unravel(flat), y)
    inside = hidden.interior_flat()
    with double_precision():
        assert np.abs(np.asarray(hidden.project_flat(jnp.asarray(flat))) - flat).max() < 1e-12
        assert (np.asarray(hidden.inequality_flat(jnp.asarray(inside))) < 0.0).all()
    point = _generator.standard_normal(hidden.size)
    positive, negative, norms = cp.Variable(8), cp.Variable(8), cp.Variable(4)
    rules = [positive >= 0.0, negative >= 0.0]
    for k in range(4):
        pair = slice(2 * k, 2 * k + 2)
        rules.append(cp.norm(cp.hstack([positive[pair], negative[pair]])) <= norms[k])
    distance = cp.sum_squares(cp.hstack([positive, negative, norms]) - point)
    cp.Problem(cp.Minimize(distance), rules).solve(solver=cp.CLARABEL)
    with double_precision():
        nearest = np.asarray(hidden.project_flat(jnp.asarray(point)))
    assert np.abs(nearest - np.concatenate([positive.value, negative.value, norms.value])).max() < 1e-5
