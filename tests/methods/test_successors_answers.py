"""What the papers of ALT-PBGD, PBGD-Free, the log-barrier and the sequential convex methods claim, on their
examples."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

import blocc
from blocc import BilevelProblem, Box, Reals, Status
from blocc._lib.precision import double_precision
from blocc.methods import steps_of
from blocc.methods.barrier import barrier_answer, barrier_rows
from blocc.methods.base import MethodDoesNotApply
from blocc.methods.registry import make_method
from blocc.problems.textbook import known_problem
from blocc.problems.toy import local_minimisers
from blocc.svm.svm_problem import svm_problem


def solved(problem: BilevelProblem, x0: Any, method: str, **options: Any) -> blocc.Result:
    return blocc.solve(problem, x0, method=method, progress=False, **options)


# --- ALT-PBGD and PBGD-Free --------------------------------------------------------------------------------------
def steep() -> BilevelProblem:
    """The authors' example: y = x - 1, and f(x, y(x)) = x^2 + 10 x - 10 is least at -5; f_x alone vanishes at 0."""
    return BilevelProblem(
        upper=lambda x, y: 10.0 * y + x**2,
        lower=lambda x, y: (y - x + 1.0) ** 2,
        x_set=Box(-8.0, 1.5),
        y_set=Box(-8.0, 1.5),
    )


@pytest.mark.slow
def test_the_value_function_matters_where_the_leader_is_not_flat() -> None:
    followed = solved(steep(), 1.0, "alt-pbgd", preset="toy", max_iterations=1000)
    np.testing.assert_allclose(followed.x, -5.0, atol=1e-3)
    assert followed.status is Status.CONVERGED
    free = solved(steep(), 1.0, "pbgd-free", preset="toy", max_iterations=1000)
    np.testing.assert_allclose(free.x, 0.0, atol=1e-3)  # as its authors say
    assert free.status is not Status.CONVERGED
    assert "stationary" in free.message


@pytest.mark.slow
def test_pbgd_free_needs_no_value_function_where_the_leader_is_flat() -> None:
    flat = BilevelProblem(
        upper=lambda x, y: (x - 1.0) ** 2 + (y - x) ** 2,  # f_y vanishes at y(x) = x
        lower=lambda x, y: (y - x) ** 2,
        x_set=Box(-2.0, 2.0),
        y_set=Reals(),
    )
    result = solved(flat, -1.0, "pbgd-free")
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.x, 1.0, atol=1e-3)


@pytest.mark.parametrize("gamma", [10.0, 1e4])
def test_a_step_of_alt_pbgd_need_not_shrink_with_gamma(gamma: float) -> None:
    """(x - 3)^2 + (2x - 1)^2 is least at 1. Steps of the same length in x and y together diverge at large gamma."""
    problem = BilevelProblem(
        upper=lambda x, y: (x - 3.0) ** 2 + (y - 1.0) ** 2,
        lower=lambda x, y: (y - 2.0 * x) ** 2,
        x_set=Reals(),
        y_set=Reals(),
    )
    numbers = {"alpha": 0.1, "step_y": 0.4, "step_dual": 0.0, "gamma": gamma}
    method = make_method("alt-pbgd", **numbers, steps=1, steps_y=40)
    end = steps_of(problem, method, 0.5, 1.0, 60)[-1]
    np.testing.assert_allclose(end.x, 1.0, atol=3.0 / gamma)
    x, y = 0.5, 1.0
    for _ in range(60):
        slope_x, slope_y = 2 * (x - 3) - 4 * gamma * (y - 2 * x), 2 * (y - 1) + 2 * gamma * (y - 2 * x)
        x, y = np.clip(x - 0.1 * slope_x, -1e9, 1e9), np.clip(y - 0.1 * slope_y, -1e9, 1e9)
    assert abs(x - 1.0) > 1e3


def test_pbgd_free_learns_nothing_about_the_margins_of_an_svm() -> None:
    """The validation loss does not contain c: whatever the samples, a step only shrinks c by its own price."""
    generator = np.random.default_rng(0)
    ends = []
    for labels in (np.sign(generator.normal(size=10)), np.sign(generator.normal(size=10))):
        X = generator.normal(size=(10, 3))
        problem = svm_problem(X, labels, X, labels, c_penalty="squared", c_weight=1.0, intercept_weight=1.0)
        method = make_method("pbgd-free", "paper")
        ends.append(steps_of(problem, method, np.full(10, 2.0), np.zeros(4), 5)[-1].x)
    for end in ends:
        np.testing.assert_allclose(end, 2.0 * (1.0 - 5e-3) ** 5, rtol=1e-14)


# --- the log-barrier ---------------------------------------------------------------------------------------------
def test_the_barrier_s_answer_is_interior_and_tends_to_the_follower_s() -> None:
    """y(x) = x on the toy: the value's error falls with t, and every answer stays inside."""
    flat, x = known_problem("blocc_toy").problem.flat, jnp.asarray([1.0])
    errors = []
    with double_precision():
        answer = jax.jit(lambda t: barrier_answer(flat, t, x).y)
        for t in (1e-1, 1e-2, 1e-3, 1e-4):
            y = answer(t)
            assert (np.asarray(barrier_rows(flat, x, y)) < 0.0).all()
            errors.append(abs(float(flat.upper(x, y)) - float(flat.upper(x, x))))
    assert all(after < 0.2 * before for before, after in pairwise(errors))
    assert errors[-1] < 1e-3


@pytest.mark.slow
def test_the_barrier_on_the_toy_as_published() -> None:
    known = known_problem("blocc_toy")
    result = solved(known.problem, 2.7, "log-barrier", preset="paper", max_iterations=1000)
    assert np.abs(local_minimisers() - float(result.x)).min() < 5e-3
    assert result.certificate.feasibility < 1e-9


# --- sequential convex programs ----------------------------------------------------------------------------------
def constrained_ridge(seed: int) -> tuple[BilevelProblem, Any]:
    """As VF-iDCA was published with: least squares with |w|^2 / 2 <= r, and r chosen by validation."""
    generator = np.random.default_rng(seed)
    A, A_val = generator.normal(size=(12, 4)), generator.normal(size=(20, 4))
    truth = np.array([1.0, -0.5, 0.0, 0.3])
    b, b_val = A @ truth + 1.5 * generator.normal(size=12), A_val @ truth + 1.5 * generator.normal(size=20)
    problem = BilevelProblem(
        upper=lambda r, w: 0.5 * jnp.sum((A_val @ w - b_val) ** 2),
        lower=lambda r, w: 0.5 * jnp.sum((A @ w - b) ** 2),
        inequality=lambda r, w: 0.5 * jnp.sum(w**2) - r,
        x_set=Box(0.01, 5.0),
        y_set=Reals(4),
    )

    def value(r: float) -> float:
        """With the follower's answer by SciPy."""
        room = {"type": "ineq", "fun": lambda w: r - 0.5 * w @ w, "jac": lambda w: -w}
        start = 0.1 * truth
        found = minimize(
            lambda w: 0.5 * np.sum((A @ w - b) ** 2),
            start,
            jac=lambda w: A.T @ (A @ w - b),
            constraints=[room],
            method="SLSQP",
            options={"ftol": 1e-12},
        )
        return float(0.5 * np.sum((A_val @ found.x - b_val) ** 2))

    return problem, value


@pytest.mark.slow
@pytest.mark.parametrize("method", ["vf-idca", pytest.param("ip-dwca", marks=pytest.mark.slow)])
def test_ridge_chosen_by_validation(method: str) -> None:
    problem, value = constrained_ridge(2)
    grid = np.linspace(0.01, 5.0, 60)
    start = grid[int(np.argmin([value(r) for r in grid]))]
    best = minimize_scalar(value, bounds=(max(start - 0.1, 0.01), start + 0.1), method="bounded")
    assert 0.02 < best.x < 2.0, "the best r should be one that binds"
    result = solved(problem, 0.3, method, max_iterations=300)
    # A few digits: the programs degenerate next to the answer, where g - v and its derivative vanish together.
    assert result.upper_value == pytest.approx(best.fun, rel=5e-4)
    assert value(0.3) > best.fun + 0.1, "the start is no answer"
    assert result.certificate.feasibility < 1e-8


# --- refusals ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "parts", "needs"),
    [
        ("alt-pbgd", {"upper_inequality": lambda x, y: y - 5.0}, "no upper_inequality"),
        ("pbgd-free", {"upper_inequality": lambda x, y: y - 5.0}, "no upper_inequality"),
        ("log-barrier", {"upper_inequality": lambda x, y: y - 5.0}, "no upper_inequality"),
        ("vf-idca", {"lower": lambda x, y: y**2 - 3.0 * x * y}, "a lower objective that is convex in x and y together"),
        ("vf-idca", {"inequality": lambda x, y: y - x**2}, "convex in x and y together, and affine equalities"),
        ("ip-dwca", {"equality": lambda x, y: y - x**2}, "affine equalities"),
    ],
)
def test_refuses_what_it_cannot_do(method: str, parts: dict[str, Any], needs: str) -> None:
    whole: dict[str, Any] = {"upper": lambda x, y: (x - 1.0) ** 2 + y**2, "lower": lambda x, y: (y - x) ** 2}
    problem = BilevelProblem(**{**whole, "x_set": Box(-2.0, 2.0), "y_set": Reals(), **parts})
    with pytest.raises(MethodDoesNotApply, match=needs):
        solved(problem, 0.5, method)


@pytest.mark.slow
def test_a_barrier_without_an_interior_says_so() -> None:
    """Two inequalities that make an equality leave the barrier no room."""
    known = known_problem("pinched")
    result = solved(known.problem, known.starts[0], "log-barrier", max_iterations=50)
    assert not result.success
