"""Algorithm 2: the published iteration to the last digit, its rates, and the automatic mode against exact answers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc._lib.precision import double_precision
from blocc.errors import OptionError
from blocc.inner import maxmin
from blocc.inner.algorithm_2 import Iterate
from blocc.inner.choice import choose_oracles
from blocc.inner.maxmin import MaxMin, inner_lagrangian
from blocc.inner.protocol import InnerCode, InnerOracle
from blocc.lagrangian import weights
from blocc.penalty import cold_pair, evaluate, no_upper_multipliers
from blocc.presets import make_options
from blocc.problem import BilevelProblem
from blocc.problems.toy import toy_problem
from blocc.sets import Box, Reals
from inner_random_problems import (
    FAMILIES,
    infeasible_problems,
    random_problem,
    smoothing_problem,
    solver,
    unbounded_problems,
)
from selections import few


def published(problem, iterations, steps_y, primal_step, dual_step, accelerated, upper):
    """Algorithm 2 in plain NumPy, written from the paper."""
    y = problem.y_set.interior_flat()
    low, high = problem.y_set.bounds_flat()
    mu = previous = np.zeros(len(problem.affine_rhs) + len(problem.radii))
    nu = previous_nu = np.zeros(len(problem.equality_rhs))
    for t in range(iterations):
        factor = (t - 1) / (t + 2) if accelerated else 0.0
        half, half_nu = mu + factor * (mu - previous), nu + factor * (nu - previous_nu)
        for _ in range(steps_y):
            slope = problem.hessian @ y + problem.cost + upper * (y - problem.target)
            slope = slope + problem.affine.T @ half[: len(problem.affine_rhs)] + problem.equality.T @ half_nu
            for price, center in zip(half[len(problem.affine_rhs) :], problem.centers, strict=True):
                slope = slope + price * 2.0 * (y - center)
            y = np.clip(y - primal_step * slope, low, high)
        balls = ((y - problem.centers) ** 2).sum(axis=1) - problem.radii**2
        constraint = np.concatenate([problem.affine @ y - problem.affine_rhs, balls])
        previous, previous_nu = mu, nu
        mu = np.maximum(0.0, half + dual_step * constraint)
        nu = half_nu + dual_step * (problem.equality @ y - problem.equality_rhs)
    return y, mu, nu


@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("steps_y", [1, 7])
def test_paper_mode_is_the_published_algorithm(accelerated, steps_y):
    problem = random_problem(5, **FAMILIES["everything"])
    options = {"accelerated": accelerated, "steps_y": steps_y, "primal_step": 0.02, "dual_step": 0.01}
    found = solver(problem.flat, MaxMin(iterations=60, **options))(upper=0.3)
    y, mu, nu = published(problem, 60, steps_y, 0.02, 0.01, accelerated, 0.3)
    assert found.iterations == 60
    assert np.abs(np.asarray(found.y) - y).max() < 1e-10
    assert np.abs(np.asarray(found.multipliers.inequality) - mu).max() < 1e-10
    assert np.abs(np.asarray(found.multipliers.equality) - nu).max() < 1e-10


@pytest.mark.parametrize("family", few(FAMILIES, "everything"))
def test_agrees_with_the_exact_answer(family):
    problem = random_problem(1, **FAMILIES[family])
    solve = solver(problem.flat, MaxMin())
    for upper in (0.0, 0.1):
        found = solve(upper=upper)
        assert found.code == InnerCode.CONVERGED
        assert np.abs(np.asarray(found.y) - problem.reference(upper)).max() < 1e-6


@pytest.mark.parametrize("oracle", [MaxMin(accelerated=False), MaxMin.single_loop()], ids=["plain", "single loop"])
@pytest.mark.parametrize("family", few(["affine", "everything"], "everything"))
def test_other_versions_agree_with_the_exact_answer(oracle, family):
    problem = random_problem(1, **FAMILIES[family])
    found = solver(problem.flat, oracle)(upper=0.1)
    assert found.code == InnerCode.CONVERGED
    assert np.abs(np.asarray(found.y) - problem.reference(0.1)).max() < 1e-6


def test_single_loop_converges_linearly():
    # Affine gc of full rank, Y the whole space, strong convexity: the theory promises a straight line.
    problem = random_problem(2, n_affine=4, condition=5.0)
    exact = problem.reference()
    solve = solver(problem.flat, MaxMin.single_loop(iterations=20))
    errors, warm = [], None
    for _ in range(12):
        # Without momentum the iteration has no memory but (y, mu): twenty steps more continue the same run.
        found = solve(warm=warm)
        warm = found.warm
        errors.append(float(found.residuals.stationarity) + float(found.residuals.feasibility))
    kept = np.log([error for error in errors[2:] if error > 1e-12])
    assert np.abs(np.asarray(found.y) - exact).max() < 1e-4
    count = 20.0 * np.arange(len(kept))
    slope, start = np.polyfit(count, kept, 1)
    assert len(kept) >= 5
    assert slope < -0.01
    assert np.corrcoef(count, kept)[0, 1] < -0.99
    assert np.abs(kept - start - slope * count).max() < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("seed", few([0, 1], 0))
def test_momentum_pays_on_an_ill_conditioned_dual(seed):
    problem = random_problem(seed, size=10, n_equality=6, condition=5.0)
    scaled = problem.equality * np.geomspace(1.0, 0.1, 6)[:, None]
    problem = type(problem)(
        **{**problem.__dict__, "equality": scaled, "equality_rhs": problem.equality_rhs * np.geomspace(1.0, 0.1, 6)}
    )
    fast = solver(problem.flat, MaxMin(max_iterations=100_000))(tolerance=1e-7)
    slow = solver(problem.flat, MaxMin(accelerated=False, max_iterations=100_000))(tolerance=1e-7)
    assert fast.code == InnerCode.CONVERGED
    assert 3 * fast.iterations < slow.iterations


@pytest.mark.parametrize("name", few(infeasible_problems(), "ball"))
def test_infeasible(name):
    assert solver(infeasible_problems()[name], MaxMin())().code == InnerCode.INFEASIBLE


@pytest.mark.parametrize("name", few(unbounded_problems(), "mixed"))
def test_unbounded(name):
    assert solver(unbounded_problems()[name], MaxMin())().code == InnerCode.UNBOUNDED


@pytest.mark.slow
def test_a_hundred_thousand_variables():
    solve = solver(smoothing_problem(100_000), MaxMin(max_iterations=2000))
    found = solve(tolerance=1e-4)
    assert found.code == InnerCode.CONVERGED
    assert found.iterations < 1000


@pytest.mark.parametrize(
    "options",
    [
        {"steps_y": 0},
        {"iterations": -1},
        {"primal_step": 0.0},
        {"dual_step": float("inf")},
        {"iterations": (1, 0)},
        {"dual_step": (1.0,)},
    ],
    ids=str,
)
def test_impossible_options(options):
    with pytest.raises(OptionError, match=next(iter(options))):
        MaxMin(**options)


def test_protocol():
    assert isinstance(MaxMin(), InnerOracle)
    assert MaxMin.single_loop(iterations=5) == MaxMin(accelerated=False, steps_y=1, iterations=5)


def test_given_steps_are_steps_on_the_lagrangians_as_written():
    """T steps on L_g and on L_F, counted and measured apart, against the same in plain NumPy; gamma divides nothing."""
    gamma, x = 4.0, 0.8
    problem = BilevelProblem(
        upper=lambda x, y: (y - 3.0) ** 2 + x * y,
        lower=lambda x, y: (y - 2.0 * x) ** 2,
        inequality=lambda x, y: y - x,
        x_set=Box(0.0, 3.0),
        y_set=Reals(),
    )
    counts, primal, dual = (7, 11), (0.1, 0.03), (0.2, 0.4)
    oracle = MaxMin.single_loop(iterations=counts, primal_step=primal, dual_step=dual)
    flat = problem.flat
    with double_precision():
        cold, leader = cold_pair(flat, oracle), no_upper_multipliers(flat)
        numbers = (jnp.asarray(gamma), leader, cold, jnp.asarray(1e-8))
        found = jax.jit(lambda x, *more: evaluate(flat, oracle, x, *more))(jnp.array([x]), *numbers)
    for index, solution in enumerate((found.follower, found.penalised)):
        y = mu = 0.0
        for _ in range(counts[index]):
            slope = 2.0 * (y - 2.0 * x) if index == 0 else 2.0 * (y - 3.0) + x + gamma * 2.0 * (y - 2.0 * x)
            y = y - primal[index] * (slope + mu)
            mu = max(0.0, mu + dual[index] * (y - x))
        assert int(solution.iterations) == counts[index]
        assert float(solution.y[0]) == pytest.approx(y, rel=1e-12)
        assert float(solution.multipliers.inequality[0]) == pytest.approx(mu, rel=1e-12)


def test_a_restart_of_the_momentum_begins_at_the_new_multipliers():
    problem = random_problem(5, **FAMILIES["affine"])
    flat, oracle = problem.flat, MaxMin()
    with double_precision():
        w, x = weights(flat), jnp.zeros(flat.n_x)
        rows = flat.n_inequality + flat.n_equality
        steps = maxmin._Steps(jnp.asarray(0.01), jnp.asarray(0.01), jnp.asarray(1))
        # Momentum of this age that points away from the ascent direction must be dropped.
        y, mu = jnp.asarray(flat.y_set.interior_flat()), jnp.full(rows, 5.0)
        now = Iterate(y, mu, jnp.full(rows, 50.0), jnp.asarray(30))
        lagrangian, step = inner_lagrangian(flat, x, w), jnp.asarray(0.01)
        after, kept = (
            oracle._adaptive(lagrangian, maxmin._Point(at, step), steps).at for at in (now, now._replace(mu_before=mu))
        )
    assert int(after.t) == 0
    np.testing.assert_array_equal(after.mu_before, after.mu)
    assert int(kept.t) == 31
    np.testing.assert_array_equal(kept.mu_before, now.mu)


def test_the_published_program_has_fixed_inner_steps():
    (oracle,) = choose_oracles(toy_problem(), make_options("toy", {}).inner)
    assert oracle == MaxMin.single_loop(iterations=100, primal_step=0.1, dual_step=0.1)
    assert oracle.expects_unscaled()
    assert not MaxMin(iterations=5).expects_unscaled()
