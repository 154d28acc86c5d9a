"""The margins' problem as a BilevelProblem: its functions, its oracle, and blocc's general methods on it."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import blocc
from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.errors import BloccError, OptionError, ProblemError
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.protocol import InnerCode, InnerSolution
from blocc.lagrangian import weights
from blocc.penalty import Evaluation, cold_pair, evaluate, no_upper_multipliers
from blocc.problem import BilevelProblem
from blocc.result import Result, Status
from blocc.svm.fitting import FitOptions, fit_margins
from blocc.svm.margins import scaled_problem
from blocc.svm.svm_problem import svm_problem
from clocks import counted
from svm_reference import Samples, margins_of, overlapping, solve_lower_level

SAMPLES = overlapping(22, 12, 2, 10, 0.5)
FACTOR = 30.0  #: features in other units
PENALTIES = ("sum", "squared", "norm")
FOLLOWER, PENALISED, LARGE_GAMMA = (0.0, 1.0), (1.0, 12.0), (1.0, 1e3)


@cache
def the_problem(c_penalty: str = "sum", intercept_weight: float = 0.0, factor: float = 1.0) -> BilevelProblem:
    samples = (factor * SAMPLES[0], SAMPLES[1], factor * SAMPLES[2], SAMPLES[3])
    return svm_problem(*samples, c_penalty=c_penalty, c_weight=2.0, intercept_weight=intercept_weight)


@cache
def solver(general: bool) -> Any:
    problem = the_problem("sum", 0.0, FACTOR)
    flat, oracle = problem.flat, InteriorPoint() if general else problem.oracle
    with double_precision():
        function = lambda x, w: oracle.solve(flat, x, w, oracle.cold(flat), jnp.asarray(1e-10))  # noqa: E731
        return compile_ahead(function, jnp.zeros(12), weights(flat, 1.0, 1.0))[0]


def answer(general: bool, c: np.ndarray, pair: tuple[float, float]) -> InnerSolution:
    flat = the_problem("sum", 0.0, FACTOR).flat
    with double_precision():
        found = solver(general)(jnp.asarray(c), weights(flat, *pair))
        return jax.tree.map(np.asarray, found)


@cache
def evaluator(c_penalty: str) -> Any:
    problem = the_problem(c_penalty)
    flat, oracle = problem.flat, problem.oracle
    with double_precision():
        cold, leader = cold_pair(flat, oracle), no_upper_multipliers(flat)
        function = lambda x, gamma: evaluate(flat, oracle, x, gamma, leader, cold, jnp.asarray(1e-12))  # noqa: E731
        return compile_ahead(function, jnp.zeros(12), jnp.asarray(1.0))[0]


def penalty(c_penalty: str, c: np.ndarray, gamma: float) -> Evaluation:
    with double_precision():
        return jax.tree.map(np.asarray, evaluator(c_penalty)(jnp.asarray(c), jnp.asarray(gamma)))


def some_margins(seed: int, width: float = 0.5) -> np.ndarray:
    generator = np.random.default_rng(seed)
    rows = margins_of(SAMPLES).rows
    return np.maximum(1.0 - rows @ generator.standard_normal(3), 0.0) + width * generator.uniform(0.2, 1.0, 12)


# --- functions ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("intercept_weight", [0.0, 0.7])
@pytest.mark.parametrize("c_penalty", PENALTIES)
def test_values(c_penalty: str, intercept_weight: float) -> None:
    flat = the_problem(c_penalty, intercept_weight).flat
    features, labels, validation, validation_labels = SAMPLES
    generator = np.random.default_rng(0)
    c, w, b = generator.uniform(size=12), generator.standard_normal(2), 0.3
    loss = sum(np.exp(1.0 - label * (z @ w + b)) for z, label in zip(validation, validation_labels, strict=True))
    price = {"sum": 2.0 * c.sum(), "squared": (c**2).sum(), "norm": 2.0 * np.linalg.norm(c)}[c_penalty]
    with double_precision():
        at, y = jnp.asarray(c), jnp.append(jnp.asarray(w), b)
        assert float(flat.upper(at, y)) == pytest.approx(loss + price)
        assert float(flat.lower(at, y)) == pytest.approx(0.5 * w @ w + 0.5 * intercept_weight * b**2)
        np.testing.assert_allclose(flat.inequality(at, y), 1.0 - c - labels * (features @ w + b), atol=1e-12)
    assert (flat.n_x, flat.n_y, flat.n_inequality) == (12, 3, 12)


def test_the_norm_has_a_finite_gradient_at_zero() -> None:
    problem = the_problem("norm")
    with double_precision():
        slope = jax.grad(problem.upper)(jnp.zeros(12), jnp.zeros(3))
    np.testing.assert_array_equal(slope, 0.0)


# --- the oracle -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("pair", [FOLLOWER, PENALISED, LARGE_GAMMA], ids=["follower", "penalised", "large gamma"])
def test_agrees_with_the_general_oracle(pair: tuple[float, float]) -> None:
    for seed in range(6):
        c = some_margins(seed)
        special, general = (answer(kind, c, pair) for kind in (False, True))
        assert int(special.code) == InnerCode.CONVERGED
        assert int(general.code) == InnerCode.CONVERGED
        close = 1e-6 * pair[1]
        np.testing.assert_allclose(special.y[:2], general.y[:2], atol=2e-6)
        if pair != FOLLOWER or np.linalg.norm(special.y[:2]) > 1e-6:  # otherwise b is not unique
            assert special.y[2] == pytest.approx(general.y[2], abs=2e-6)
        np.testing.assert_allclose(special.value, general.value, atol=close)
        np.testing.assert_allclose(special.multipliers.inequality, general.multipliers.inequality, atol=close)
        assert max(float(part) for part in special.residuals) <= 1e-7 * pair[1]


def test_margins_that_nobody_meets() -> None:
    assert solve_lower_level(margins_of(SAMPLES).rows, np.array([1.0, 1.0, 0.0]), np.zeros(12)) is None
    for pair in (FOLLOWER, PENALISED):
        assert int(answer(False, np.zeros(12), pair).code) == InnerCode.INFEASIBLE
    assert not penalty("sum", np.zeros(12), 12.0).usable


# --- F_gamma --------------------------------------------------------------------------------------------
def settled(found: Evaluation, c: np.ndarray) -> bool:
    """Strict complementarity, clearly, so that F is smooth across the difference quotient."""
    rows = margins_of(SAMPLES).rows
    slacks = [(rows @ solution.y - 1.0 + c, solution.multipliers.inequality) for solution in
              (found.follower, found.penalised)]  # fmt: skip
    return all((np.maximum(slack, price) > 1e-2).all() for slack, price in slacks)


@pytest.mark.parametrize("gamma", [1.0, 12.0, 1e3])
@pytest.mark.parametrize("c_penalty", ["sum", "norm"])
def test_gradient_agrees_with_finite_differences(c_penalty: str, gamma: float) -> None:
    step, checked = 1e-4, 0
    for seed in range(12):
        c = some_margins(seed)
        found = penalty(c_penalty, c, gamma)
        assert found.usable
        if not settled(found, c):
            continue
        checked += 1
        ends = [[penalty(c_penalty, c + side * step * e, gamma).value for side in (1.0, -1.0)] for e in np.eye(12)]
        difference = (np.array(ends) @ [1.0, -1.0]) / (2.0 * step)
        np.testing.assert_allclose(found.gradient, difference, atol=2e-5 * (1.0 + np.abs(difference).max()))
    assert checked >= 3


# --- blocc's own methods --------------------------------------------------------------------------------
@cache
def exact(c_penalty: str) -> float:
    return fit_margins(SAMPLES, FitOptions(c_penalty=c_penalty, c_weight=2.0)).result.upper_value


def descends_by_differences(c_penalty: str, result: Result, step: float = 1e-3) -> float:
    """By how much F_gamma falls, relative to the step, along minus its projected gradient and every coordinate."""
    base = penalty(c_penalty, result.x, result.gamma)
    falls = [0.0]
    moves = [sign * e for e in np.eye(12) for sign in (1.0, -1.0)] + [-base.gradient / np.linalg.norm(base.gradient)]
    for move in moves:
        c = np.maximum(result.x + step * move, 0.0)
        there = penalty(c_penalty, c, result.gamma)
        if there.usable and np.linalg.norm(c - result.x) > 0.1 * step:
            falls.append(float(base.value - there.value) / float(np.linalg.norm(c - result.x)))
    return max(falls)


@pytest.mark.parametrize("c_penalty", ["sum"])
def test_default_method_is_right_or_says_that_it_is_not(c_penalty: str) -> None:
    with counted(step=0.2):  # wherever the time limit falls, and here always at the same place
        result = blocc.solve(the_problem(c_penalty), np.ones(12), time_limit=3.0, progress=False)
    assert np.isfinite(result.upper_value)
    assert result.certificate.feasibility <= 1e-5
    best = exact(c_penalty)
    assert result.upper_value >= best * (1.0 - 1e-4)
    if result.success and result.upper_value > 1.01 * best:
        smooth_or_explained = result.certificate.radius > 0.0 or descends_by_differences(c_penalty, result) <= 1e-2
        assert smooth_or_explained


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.05, 0.5])
def test_gradient_steps_into_infeasible_margins(step: float) -> None:
    result = blocc.solve(
        the_problem(), np.full(12, 1.5), outer="pgd", gamma=12.0, step=step, max_iterations=60, progress=False
    )
    assert result.status not in (Status.CONVERGED, Status.INFEASIBLE)
    assert np.isfinite(result.upper_value)
    assert result.certificate.feasibility <= 1e-5
    assert (np.asarray(result.x) >= 0.0).all()


@pytest.mark.slow
def test_the_published_method_through_fit() -> None:
    options = FitOptions(c_weight=2.0, method="pgd", step=0.01, gamma=12.0, max_iterations=40)
    fit = fit_margins(SAMPLES, options, np.full(12, 1.5))
    assert not fit.is_global
    assert fit.bound == -np.inf
    assert fit.path.shape[1] == 3
    assert len(fit.path) == len(fit.path_rows)
    assert (np.diff(fit.path_rows) >= 0).all()
    assert fit.path_rows[-1] <= len(fit.result.history) - 1
    np.testing.assert_allclose(fit.path[-1], fit.result.y)


# --- bad inputs -----------------------------------------------------------------------------------------
def replaced(position: int, value: Any) -> Samples:
    return tuple(value if k == position else part for k, part in enumerate(SAMPLES))  # type: ignore[return-value]


BAD = [
    (0, np.ones(12), "X must"),
    (0, np.ones((0, 2)), "X must"),
    (0, np.full((12, 2), np.nan), "X must"),
    (0, np.ones((12, 3)), "X_val"),
    (1, np.ones(11), "labels must"),
    (1, np.ones((12, 1)), "labels must"),
    (1, np.tile([0.0, 1.0], 6), "labels must"),
    (2, np.ones(10), "X_val must"),
    (2, np.full((10, 2), np.inf), "X_val must"),
    (3, np.ones(9), "labels_val must"),
    (3, np.full(10, 2.0), "labels_val must"),
]


@pytest.mark.parametrize(("position", "value", "message"), BAD)
def test_bad_samples(position: int, value: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        svm_problem(*replaced(position, value))


@pytest.mark.parametrize(("name", "value"), [("c_penalty", "l1"), ("c_weight", 0.0), ("intercept_weight", -1.0)])
def test_bad_prices(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=name) as caught:
        svm_problem(*SAMPLES, **{name: value})
    assert isinstance(caught.value, BloccError)


def test_the_scaled_problem_is_the_same() -> None:
    scaled, units = scaled_problem(SAMPLES, c_weight=2.0, intercept_weight=0.7)
    raw = margins_of(SAMPLES, c_weight=2.0, intercept_weight=0.7)
    generator = np.random.default_rng(2)
    y, c = generator.standard_normal(3), generator.uniform(size=12)
    back = units.back(y)
    assert scaled.upper(c, y) == pytest.approx(raw.upper(c, back))
    assert scaled.lower(y) / units.unit**2 == pytest.approx(0.5 * np.sum(raw.ridge * back**2))
    np.testing.assert_allclose(scaled.rows @ y, raw.rows @ back, atol=1e-12)


@pytest.mark.slow
def test_the_exact_optimum_verifies() -> None:
    """What the solver of support vector machines calls optimal passes the judge of every other result."""
    few_samples = overlapping(22, 6, 2, 5, 0.5)
    result = fit_margins(few_samples, FitOptions(c_weight=2.0)).result
    assert result.success, result.message
    found = blocc.verify(svm_problem(*few_samples, c_weight=2.0), result)
    assert found.ok, str(found)
