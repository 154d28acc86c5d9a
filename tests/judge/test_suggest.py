"""Numbers for the published algorithms: against closed forms, and refused where the theorems do not apply."""

from __future__ import annotations

import warnings

import jax.numpy as jnp
import pytest

from blocc import BilevelProblem, Box, MaxMin, OptionError, ProblemError, Reals, solve, suggest
from blocc.problems.toy import toy_problem


def quadratic() -> BilevelProblem:
    """F_gamma(x) = 3/2 x^2 + (2 gamma / (1 + 2 gamma)) (x - 1)^2 / 2 where the cap on y is not felt."""
    return BilevelProblem(
        upper=lambda x, y: 0.5 * (y - 1.0) ** 2 + 1.5 * x**2,
        lower=lambda x, y: (y - x) ** 2,
        inequality=lambda x, y: y - 10.0,
        x_set=Box(-1.0, 1.0),
        y_set=Reals(),
    )


def test_constants_are_those_of_a_closed_form() -> None:
    found = suggest(quadratic(), 0.5, epsilon=0.01)
    share = 2.0 * found.gamma / (1.0 + 2.0 * found.gamma)
    assert found.smoothness == pytest.approx(3.0 + share, rel=1e-4)
    assert found.eta == pytest.approx(1.0 / found.smoothness)
    assert found.strong_convexity == pytest.approx(2.0)
    assert found.inner_accuracy == pytest.approx(0.01 / found.gamma**2)
    assert found.primal_step == (pytest.approx(0.5), pytest.approx(1.0 / (1.0 + 2.0 * found.gamma)))
    assert found.dual_step == (pytest.approx(2.0), pytest.approx(2.0 * found.gamma - 1.0))
    assert found.iterations >= 4.0 * found.decrease * found.smoothness / 0.01


def test_orders_are_those_of_the_theorems() -> None:
    loose, tight = (suggest(quadratic(), 0.5, epsilon=epsilon) for epsilon in (1e-2, 1e-4))
    assert tight.gamma == pytest.approx(10.0 * loose.gamma)
    assert tight.iterations == pytest.approx(100 * loose.iterations, rel=0.1)  # l_F has a limit here
    assert tight.inner_iterations[0] == pytest.approx(100 * loose.inner_iterations[0], rel=0.1)  # eps_g ~ eps^2
    assert tight.inner_iterations_affine[0] < 5 * loose.inner_iterations_affine[0]


@pytest.mark.slow
def test_the_suggested_gamma_closes_the_distance() -> None:
    problem, epsilon = quadratic(), 1e-3
    found = suggest(problem, 0.5, epsilon=epsilon)
    result = solve(problem, 0.5, gamma=found.gamma)
    assert float(result.certificate.distance) ** 2 <= epsilon
    few = {**found.options, "max_iterations": 2, "inner": MaxMin.single_loop(iterations=3)}
    assert solve(problem, 0.5, **few).gamma == pytest.approx(found.gamma)
    assert found.options["inner"].iterations == found.inner_iterations


def test_what_the_theorems_do_not_cover_is_refused() -> None:
    flat = BilevelProblem(
        upper=lambda x, y: jnp.sum((y - 1.0) ** 2),
        lower=lambda x, y: (y[0] - x) ** 2 + 0.0 * y[1],
        x_set=Box(-1.0, 1.0),
        y_set=Box(-1.0, 1.0, shape=2),
    )
    with pytest.raises(ProblemError, match="strongly convex"):
        suggest(flat, 0.0, epsilon=0.1)
    for epsilon in (0.0, -1.0, float("inf"), "small", True):
        with pytest.raises(OptionError, match="epsilon must be a positive number"):
            suggest(quadratic(), 0.5, epsilon=epsilon)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="problem must be"):
        suggest("toy", epsilon=0.1)  # type: ignore[arg-type]


@pytest.mark.slow
def test_steps_longer_than_the_theory_allows_are_told() -> None:
    options = {"outer": "pgd", "inner": "interior-point", "gamma": 5.0, "max_iterations": 20}
    with pytest.warns(RuntimeWarning, match="step=1 exceeds 1 / l_F") as told:
        solve(toy_problem(), 0.7, step=1.0, **options)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(toy_problem(), 0.7, step=1e-3, **options)
