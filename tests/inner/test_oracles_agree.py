"""Four oracles, one answer: they agree with each other and with solvers that share no code with them.

All numbers of a problem travel in x, so each pair of family and oracle is compiled once for all draws.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.maxmin import MaxMin
from blocc.inner.pdhg import PrimalDualHybridGradient
from blocc.inner.protocol import InnerCode
from blocc.lagrangian import weights
from blocc.problem import BilevelProblem
from blocc.sets import Box, Product, Reals
from selections import few

ORACLES = {
    "maxmin": MaxMin(),
    "single loop": MaxMin.single_loop(),
    "primal-dual": PrimalDualHybridGradient(),
    "interior point": InteriorPoint(),
}
SIZE, ROWS = 4, 2
FAMILIES = ("affine", "nonlinear", "affine, nonlinear, equality, box")
LOW, HIGH = -0.5, 0.6

_generator = np.random.default_rng(0)
MATRIX = _generator.standard_normal((ROWS, SIZE))
EQUALITY = np.array([1.0, -1.0, 2.0, 0.5])
CENTERS = 0.3 * _generator.standard_normal((ROWS, SIZE))


class Numbers(NamedTuple):
    """What is drawn: curvatures, linear costs, the leader's target, changes of the rows, and room at the origin."""

    curvature: np.ndarray
    cost: np.ndarray
    target: np.ndarray
    tilt: np.ndarray
    room: np.ndarray

    def flat(self):
        return np.concatenate([np.ravel(part) for part in self])


def shapes():
    return Numbers(Reals(SIZE), Reals(SIZE), Reals(SIZE), Reals((ROWS, SIZE)), Reals(ROWS))


def lower(x, y):
    return 0.5 * jnp.sum(x.curvature * y**2) + x.cost @ y


def upper(x, y):
    return 0.5 * jnp.sum((y - x.target) ** 2)


def affine(x, y):
    return (MATRIX + x.tilt) @ y - x.room


def nonlinear(x, y):
    """Balls and one exponential; all satisfied strictly at the origin."""
    balls = jnp.sum((y - CENTERS - x.tilt) ** 2, axis=1) - jnp.sum((CENTERS + x.tilt) ** 2, axis=1) - x.room
    return {"balls": balls, "exp": jnp.exp(y[0] + y[1]) - 1.5}


def problem(family):
    rules = {"affine": affine, "nonlinear": nonlinear}.get(family, lambda x, y: (affine(x, y), nonlinear(x, y)))
    parts = {"inequality": rules, "y_set": Reals(SIZE)}
    if "equality" in family:
        parts |= {"equality": lambda x, y: EQUALITY @ y, "y_set": Box(LOW, HIGH, shape=SIZE)}
    return BilevelProblem(upper=upper, lower=lower, x_set=Product(shapes()), **parts)


@cache
def compiled(family, oracle):
    flat, solver = problem(family).flat, ORACLES[oracle]
    with double_precision():
        cold, number, x = solver.cold(flat), jnp.asarray(1.0), jnp.zeros(flat.n_x)

    def solve(x, upper_weight):
        w = weights(flat)._replace(upper=upper_weight)
        return solver.solve(flat, x, w, cold, jnp.asarray(1e-9))

    function, _ = compile_ahead(solve, x, number)

    def call(numbers, upper_weight):
        with double_precision():
            return jax.tree.map(np.asarray, function(jnp.asarray(numbers.flat()), jnp.asarray(float(upper_weight))))

    return call


def clarabel(numbers, upper_weight):
    y = cp.Variable(SIZE)
    goal = 0.5 * cp.sum(cp.multiply(numbers.curvature, y**2)) + numbers.cost @ y
    goal += upper_weight * 0.5 * cp.sum_squares(y - numbers.target)
    rules = [(MATRIX + numbers.tilt) @ y <= numbers.room]
    precise = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
    cp.Problem(cp.Minimize(goal), rules).solve(solver=cp.CLARABEL, **precise)
    return np.asarray(y.value)


def slsqp(numbers, upper_weight, bounded):
    n = numbers

    def constraint(y):
        balls = np.sum((y - CENTERS - n.tilt) ** 2, axis=1) - np.sum((CENTERS + n.tilt) ** 2, axis=1) - n.room
        rows = (MATRIX + n.tilt) @ y - n.room if bounded else []
        return -np.concatenate([balls, [np.exp(y[0] + y[1]) - 1.5], rows])

    def jacobian(y):
        e = np.exp(y[0] + y[1])
        rows = MATRIX + n.tilt if bounded else np.zeros((0, SIZE))
        return -np.vstack([2.0 * (y - CENTERS - n.tilt), [[e, e, 0.0, 0.0]], rows])

    rules = [{"type": "ineq", "fun": constraint, "jac": jacobian}]
    rules += [{"type": "eq", "fun": lambda y: EQUALITY @ y, "jac": lambda y: EQUALITY}] if bounded else []
    found = minimize(
        lambda y: 0.5 * n.curvature @ y**2 + n.cost @ y + upper_weight * 0.5 * np.sum((y - n.target) ** 2),
        np.zeros(SIZE),
        jac=lambda y: n.curvature * y + n.cost + upper_weight * (y - n.target),
        method="SLSQP",
        bounds=[(LOW, HIGH)] * SIZE if bounded else None,
        constraints=rules,
        options={"ftol": 1e-15, "maxiter": 300},
    )
    return found.x


def vectors(shape, low, high):
    return arrays(np.float64, shape, elements=st.floats(low, high, allow_subnormal=False))


numbers = st.builds(
    Numbers,
    vectors(SIZE, 1.0, 5.0),
    vectors(SIZE, -3.0, 3.0),
    vectors(SIZE, -2.0, 2.0),
    vectors((ROWS, SIZE), -0.2, 0.2),
    vectors(ROWS, 0.05, 0.5),
)


@pytest.mark.parametrize("family", few(FAMILIES, FAMILIES[-1]))
@given(drawn=numbers, gamma=st.sampled_from([None, 1.0, 10.0, 1e3]))
@settings(deadline=None, derandomize=True, max_examples=8)
def test_oracles_agree(family, drawn, gamma):
    upper_weight = 0.0 if gamma is None else 1.0 / gamma
    if "nonlinear" in family:
        reference = slsqp(drawn, upper_weight, bounded="box" in family)
    else:
        reference = clarabel(drawn, upper_weight)
    for oracle in ORACLES:
        found = compiled(family, oracle)(drawn, upper_weight)
        assert found.code == InnerCode.CONVERGED, oracle
        assert np.abs(found.y - reference).max() < 1e-6, oracle
        assert max(found.residuals) < 1e-6, oracle
        assert (found.multipliers.inequality >= 0.0).all(), oracle


@pytest.mark.parametrize("family", few(FAMILIES, FAMILIES[-1]))
def test_multipliers_and_values_agree(family):
    """At a point where the active constraints have independent gradients the multipliers are unique, too."""
    rng = np.random.default_rng(1)
    drawn = Numbers(
        rng.uniform(1.0, 5.0, SIZE),
        2.0 * rng.standard_normal(SIZE),
        rng.standard_normal(SIZE),
        0.1 * rng.standard_normal((ROWS, SIZE)),
        rng.uniform(0.01, 0.05, ROWS),
    )
    found = {oracle: compiled(family, oracle)(drawn, 0.1) for oracle in ORACLES}
    exact = found["interior point"]
    assert exact.multipliers.inequality.max() > 1e-2
    for oracle, other in found.items():
        assert float(other.value) == pytest.approx(float(exact.value), rel=1e-8, abs=1e-9), oracle
        for mine, theirs in zip(exact.multipliers, other.multipliers, strict=True):
            np.testing.assert_allclose(theirs, mine, rtol=1e-4, atol=1e-5, err_msg=oracle)
