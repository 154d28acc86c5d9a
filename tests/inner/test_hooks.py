"""The hooks of MaxMin: another dual or primal step in Algorithm 2, and everything around it as it was."""

from __future__ import annotations

import inspect

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, MaxMin, OptionError, Reals, solve
from blocc.inner.algorithm_2 import dual_update, primal_update
from blocc.inner.protocol import InnerCode
from inner_random_problems import FAMILIES, random_problem, solver


def optimistic(lagrangian, now, mu_half, y, eta_2):
    """Ascend along 2 gc(y_{t+1}) - gc(y_t)."""
    ascent = 2.0 * lagrangian.gradient_mu(y) - lagrangian.gradient_mu(now.y)
    return lagrangian.project_mu(mu_half + eta_2 * ascent)


def in_halves(lagrangian, y, mu_half, eta_1):
    """The same step twice, each of half the length."""
    y = primal_update(lagrangian, y, mu_half, 0.5 * eta_1)
    return primal_update(lagrangian, y, mu_half, 0.5 * eta_1)


def test_an_optimistic_dual_step_is_a_few_lines():
    """Against the optimistic iteration written out in NumPy, on a follower with an active row."""
    assert len(inspect.getsource(optimistic).splitlines()) <= 8
    problem = random_problem(3, n_affine=4)
    oracle = MaxMin.single_loop(iterations=40, primal_step=0.02, dual_step=0.05, dual_update=optimistic)
    found = solver(problem.flat, oracle)()
    low, high = problem.y_set.bounds_flat()
    y, mu = problem.y_set.interior_flat(), np.zeros(len(problem.affine_rhs))
    constraints = lambda y: problem.affine @ y - problem.affine_rhs  # noqa: E731
    for _ in range(40):
        before, y = y, np.clip(y - 0.02 * (problem.hessian @ y + problem.cost + problem.affine.T @ mu), low, high)
        mu = np.maximum(0.0, mu + 0.05 * (2.0 * constraints(y) - constraints(before)))
    assert (mu > 0.0).any()
    np.testing.assert_allclose(found.y, y, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.multipliers.inequality, mu, rtol=1e-10, atol=1e-12)
    plain = solver(problem.flat, MaxMin.single_loop(iterations=40, primal_step=0.02, dual_step=0.05))()
    assert np.abs(np.asarray(plain.multipliers.inequality) - mu).max() > 1e-6


@pytest.mark.parametrize("hooks", [{"dual_update": optimistic}, {"primal_update": in_halves}], ids=["dual", "primal"])
def test_the_version_with_a_stopping_test_takes_hooks_as_well(hooks):
    problem = random_problem(1, **FAMILIES["affine"])
    found = solver(problem.flat, MaxMin(**hooks))()
    assert found.code == InnerCode.CONVERGED
    assert np.abs(np.asarray(found.y) - problem.reference(0.0)).max() < 1e-6


def test_hooks_reach_a_whole_run():
    problem = BilevelProblem(
        upper=lambda x, y: (x - 1.0) ** 2 + (y - 2.0) ** 2,
        lower=lambda x, y: (y - 2.0 * x) ** 2,
        inequality=lambda x, y: y - x,
        x_set=Box(0.0, 3.0),
        y_set=Reals(),
    )
    inner = MaxMin.single_loop(iterations=200, primal_step=0.04, dual_step=0.5, dual_update=optimistic)
    result = solve(problem, 0.5, outer="pgd", inner=inner, gamma=10.0, step=0.02, max_iterations=300)
    assert result.x == pytest.approx(1.5, abs=1e-3)
    assert "dual_update=optimistic" in result.settings["inner"]


def test_hooks_are_functions():
    with pytest.raises(OptionError, match="dual_update must be a function"):
        MaxMin(dual_update=0.5)


@pytest.mark.parametrize("iterations", [5, None])
@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ({"primal_update": lambda L, y, mu, eta: y[:1]}, r"primal_update must return y, shape \(3,\) .* \(1,\)"),
        ({"primal_update": lambda L, y, mu, eta: y.astype("float32")}, r"it returned shape \(3,\) of float32"),
        ({"primal_update": lambda L, y, mu, eta: None}, "it returned NoneType"),
        ({"dual_update": lambda L, now, mu, y, eta: y}, r"dual_update must return mu, shape \(1,\) .* \(3,\)"),
        ({"dual_update": lambda L, now, mu, y, eta: (mu, mu)}, "it returned tuple"),
    ],
)  # fmt: skip
def test_what_cannot_stand_for_an_iterate_is_named(hooks, message, iterations):
    problem = BilevelProblem(
        upper=lambda x, y: (x - 1.0) ** 2 + jnp.sum(y**2),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        inequality=lambda x, y: jnp.sum(y) - x,
        x_set=Box(0.0, 3.0),
        y_set=Box(-1.0, 1.0, (3,)),
    )
    with pytest.raises(OptionError, match=message):
        solve(problem, outer="pgd", inner=MaxMin(iterations=iterations, **hooks), gamma=5.0, max_iterations=2)


def test_hooks_take_what_they_are_called_with():
    with pytest.raises(OptionError, match=r"dual_update must take \(lagrangian, now, mu_half, y, eta_2\)"):
        MaxMin(dual_update=lambda lagrangian, y: y)


def test_an_oracle_reads_the_same_in_every_process():
    assert repr(MaxMin(iterations=5, dual_update=optimistic)) == "MaxMin(iterations=5, dual_update=optimistic)"
    assert repr(MaxMin()) == "MaxMin()"
    assert MaxMin(dual_update=dual_update) == MaxMin()


def test_iterations_and_derivatives_are_counted_apart():
    problem = random_problem(5, **FAMILIES["affine"])
    found = solver(problem.flat, MaxMin(iterations=6, steps_y=7, primal_step=0.02, dual_step=0.01))()
    assert (int(found.iterations), int(found.derivatives)) == (6, 42)
    adaptive = solver(problem.flat, MaxMin(steps_y=3, check_every=5))()
    assert int(adaptive.derivatives) == 3 * int(adaptive.iterations) > 0
    assert jnp.issubdtype(adaptive.derivatives.dtype, jnp.integer)
