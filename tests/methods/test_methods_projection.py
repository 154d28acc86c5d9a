"""The joint projection: active sets against a conic solver, and every way against the others."""

from __future__ import annotations

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals
from blocc._lib.precision import double_precision
from blocc.methods import projection
from blocc.methods.projection import project, projector
from blocc.svm.svm_problem import svm_problem
from selections import few

N_X, N_Y, ROWS = 4, 5, 8


def affine_problem(seed: int, equalities: int) -> tuple[BilevelProblem, np.ndarray, np.ndarray]:
    """Random affine rows through a box, with a point inside; the matrix and the limits beside it."""
    generator = np.random.default_rng(seed)
    matrix = generator.normal(size=(ROWS, N_X + N_Y))
    inside = generator.uniform(0.2, 0.8, N_X + N_Y)
    limit = matrix @ inside + np.r_[np.zeros(equalities), generator.uniform(0.0, 0.5, ROWS - equalities)]
    rows = lambda x, y: matrix @ jnp.concatenate([x, y]) - limit  # noqa: E731
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum(x**2) + jnp.sum(y),
        lower=lambda x, y: jnp.sum((y - 1.0) ** 2),
        inequality=lambda x, y: rows(x, y)[equalities:],
        equality=(lambda x, y: rows(x, y)[:equalities]) if equalities else None,
        x_set=Box(np.zeros(N_X), np.ones(N_X)),
        y_set=Box(np.zeros(N_Y), np.full(N_Y, np.inf)),
    )
    return problem, matrix, limit


def nearest(point: np.ndarray, matrix: np.ndarray, limit: np.ndarray, equalities: int) -> np.ndarray:
    w = cp.Variable(len(point))
    rows = [matrix[equalities:] @ w <= limit[equalities:], w >= 0, w[:N_X] <= 1]
    rows += [matrix[:equalities] @ w == limit[:equalities]] if equalities else []
    exact = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-13)
    cp.Problem(cp.Minimize(cp.sum_squares(w - point)), rows).solve(solver=cp.CLARABEL, **exact)
    return w.value


@pytest.mark.slow
@pytest.mark.parametrize("equalities", few([0, 2], 2))
@pytest.mark.parametrize("seed", range(1))
def test_active_sets_agree_with_a_conic_solver(seed: int, equalities: int) -> None:
    problem, matrix, limit = affine_problem(seed, equalities)
    generator = np.random.default_rng(seed)
    with double_precision():
        carried = projector(problem.flat, jnp.full(N_X, 0.5), jnp.full(N_Y, 0.5))
        assert carried is not None
        step = jax.jit(lambda point, carried: project(problem.flat, point, carried))
        settled = 0
        for scale in (0.1, 1.0, 1.0, 10.0, 10.0):
            point = 0.5 + scale * generator.normal(size=N_X + N_Y)
            settled += bool(projection._active_sets(problem.flat, jnp.asarray(point), carried)[1])
            found, carried = step(point, carried)
            np.testing.assert_allclose(found, nearest(point, matrix, limit, equalities), atol=2e-6 * (1 + scale))
    assert settled == 5  # else it is the interior point that was tested


@pytest.mark.slow
def test_where_the_active_sets_do_not_settle_the_interior_point_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "CHANGES", 0)
    problem, matrix, limit = affine_problem(0, 0)
    point = 3.0 * np.random.default_rng(1).normal(size=N_X + N_Y)
    with double_precision():
        carried = projector(problem.flat, jnp.full(N_X, 0.5), jnp.full(N_Y, 0.5))
        several = jax.jit(jax.vmap(lambda point: project(problem.flat, point, carried)[0]))
        found = several(np.stack([point, 0.5 * point]))
    np.testing.assert_allclose(found[0], nearest(point, matrix, limit, 0), atol=1e-5)


def test_curved_constraints_take_the_general_way() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum(x) + jnp.sum(y),
        lower=lambda x, y: jnp.sum(y**2),
        inequality=lambda x, y: jnp.sum(y**2) - x,
        x_set=Reals(1),
        y_set=Reals(2),
    )
    with double_precision():
        assert projector(problem.flat, jnp.ones(1), jnp.ones(2)) is None


@pytest.mark.slow
def test_a_problem_that_knows_its_projection_is_asked() -> None:
    generator = np.random.default_rng(3)
    features, labels = generator.normal(size=(14, 2)), np.where(np.arange(14) % 2, 1.0, -1.0)
    problem = svm_problem(features, labels, features[:4], labels[:4])
    rows = labels[:, None] * np.c_[features, np.ones(14)]
    for scale in (0.3, 3.0):
        point = scale * generator.normal(size=14 + 3)
        with double_precision():
            found, _ = project(problem.flat, jnp.asarray(point), projector(problem.flat, point[:14], point[14:]))
        c, y = cp.Variable(14), cp.Variable(3)
        distance = cp.sum_squares(c - point[:14]) + cp.sum_squares(y - point[14:])
        cp.Problem(cp.Minimize(distance), [c >= 0, c + rows @ y >= 1]).solve(solver=cp.CLARABEL)
        np.testing.assert_allclose(found, np.r_[c.value, y.value], atol=1e-5)
