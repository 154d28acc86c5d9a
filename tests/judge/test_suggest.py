"""Numbers for the published algorithms: closed forms, promises kept, and refusals where no theorem applies."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, MaxMin, OptionError, ProblemError, Reals, solve, suggest, theory
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
    constants = found.constants
    assert constants.smoothness == pytest.approx(3.0 + share, rel=1e-4)
    assert found.eta == pytest.approx(1.0 / constants.smoothness)
    assert constants.strong_convexity == pytest.approx(2.0)
    assert constants.curvature == pytest.approx(1.0)
    assert found.primal_step == (pytest.approx(0.5), pytest.approx(1.0 / (1.0 + 2.0 * found.gamma)))
    assert found.dual_step == (pytest.approx(2.0), pytest.approx(2.0 * found.gamma + 1.0))
    assert found.iterations >= 8.0 * constants.decrease * constants.smoothness / 0.01
    # (gamma alpha - l_f,1) |yF - yg| <= l_f,0, and half of sqrt(epsilon) is wanted.
    assert 2.0 * found.gamma == pytest.approx(2.0 * constants.slope / 0.1 + 1.0)


def priced() -> BilevelProblem:
    """A cap y <= x that the follower feels: mu_g = 2 (2 - x), and mu_F = gamma mu_g + 1 - x grows like gamma."""
    return BilevelProblem(
        upper=lambda x, y: 0.5 * (y - 1.0) ** 2 + 1.5 * x**2,
        lower=lambda x, y: (y - 2.0) ** 2,
        inequality=lambda x, y: y - x,
        x_set=Box(-1.0, 1.0),
        y_set=Reals(),
    )


def test_orders_are_those_of_the_theorems() -> None:
    loose, tight = (suggest(priced(), 0.5, epsilon=epsilon) for epsilon in (1e-2, 1e-4))
    assert tight.gamma == pytest.approx(10.0 * loose.gamma, rel=0.1)
    assert tight.iterations == pytest.approx(100 * loose.iterations, rel=0.1)  # l_F has a limit here
    assert tight.inner_bounds[0] == pytest.approx(100 * loose.inner_bounds[0], rel=0.1)  # eps_g ~ eps^2
    assert tight.inner_bounds[1] == pytest.approx(100 * loose.inner_bounds[1], rel=0.2)  # eps_F ~ eps, |mu_F| ~ gamma
    assert tight.inner_bounds_affine[0] < 5 * loose.inner_bounds_affine[0]


def curved(seed: int) -> BilevelProblem:
    """A random strongly convex follower under curved constraints, below an f that is not convex in x."""
    generator = np.random.default_rng(seed)
    n_x, n_y, rows = (int(generator.integers(*ends)) for ends in ((1, 4), (2, 6), (1, 3)))
    root = generator.standard_normal((n_y, n_y))
    H = root @ root.T / n_y * generator.uniform(0.1, 2.0) + generator.uniform(0.3, 2.0) * np.eye(n_y)
    C, A = generator.standard_normal((n_y, n_x)), generator.standard_normal((rows, n_y))
    B, t = 0.5 * generator.standard_normal((rows, n_x)), generator.standard_normal(n_y)
    bend, room = generator.uniform(0.2, 2.0, rows), generator.uniform(0.0, 0.5, rows) + np.abs(B).sum(axis=1)
    return BilevelProblem(
        upper=lambda x, y: 0.5 * jnp.sum((y - t) ** 2) + 0.5 * jnp.sum(jnp.cos(2.0 * x)),
        lower=lambda x, y: 0.5 * (y - C @ x) @ H @ (y - C @ x),
        inequality=lambda x, y: A @ y - B @ x - room + bend * jnp.sum(y**2),
        x_set=Box(-1.0, 1.0, (n_x,)),
        y_set=Box(-2.0, 2.0, (n_y,)),
    )


def test_steps_in_y_know_the_curvature_of_the_constraints() -> None:
    """g = y^2 / 2 wants the step 1; with y^2 <= x + 1/4 and f pulling at y, L_F's curvature holds 2 mu_F as well."""
    problem = BilevelProblem(
        upper=lambda x, y: (y - 8.0) ** 2 + (x - 0.5) ** 2,
        lower=lambda x, y: 0.5 * (y - 4.0) ** 2,
        inequality=lambda x, y: y**2 - x - 0.25,
        x_set=Box(0.0, 1.0),
        y_set=Reals(),
    )
    found = suggest(problem, 0.5, epsilon=0.5)
    y = np.sqrt(0.25)  # at x = 0 the multiplier is largest: 4 - y = 2 mu y
    most = (4.0 - y) / (2.0 * y)
    assert found.constants.follower.smoothness >= 1.0 + 2.0 * most
    assert found.primal_step[0] == pytest.approx(1.0 / found.constants.follower.smoothness)


@pytest.mark.parametrize("seed", [2, 5])
def test_the_promise_is_kept_by_solve(seed: int) -> None:
    problem, epsilon = curved(seed), 0.5
    x0 = np.random.default_rng(seed).uniform(-1.0, 1.0, problem.x_set.size)
    found = suggest(problem, x0, epsilon=epsilon)
    result = solve(problem, x0, progress=False, **found.options)
    squares = (result.history.step / found.eta) ** 2
    assert squares.sum() / found.iterations <= epsilon  # steps after a stop are none
    assert (result.history.distance**2 <= epsilon).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 40))
def test_the_promise_is_kept_on_random_problems(seed: int) -> None:
    problem = curved(seed)
    x0 = np.random.default_rng(seed).uniform(-1.0, 1.0, problem.x_set.size)
    found = theory(problem, x0, epsilon=0.5)
    assert found.curves["outer"].measured[-1] <= 0.5 or found.curves["outer"].at[-1] < found.suggestion.iterations
    assert all(curve.holds for curve in found.curves.values()), str(found)


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


def parts(**changes: Any) -> BilevelProblem:
    """A follower that copies x, with some parts of the problem changed."""
    same: dict[str, Any] = {
        "upper": lambda x, y: (x - 1.0) ** 2 + (y - 0.5) ** 2,
        "lower": lambda x, y: (y - x) ** 2,
        "x_set": Box(-1.0, 1.0),
        "y_set": Reals(),
    }
    return BilevelProblem(**{**same, **changes})


@pytest.mark.parametrize("tell", [suggest, theory])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"inequality": lambda x, y: jnp.stack([y - 0.3, y - 0.3])},
            r"LICQ.*inequality\[0\], inequality\[1\] are linearly dependent",
        ),
        ({"inequality": lambda x, y: y - 0.3, "y_set": Box(-1.0, 0.3)}, r"LICQ.*inequality\[0\] are.*bounds of y_set"),
        ({"upper_inequality": lambda x, y: y - 0.3}, "upper_inequality: state what depends on x alone in x_set"),
        ({"upper": lambda x, y: y - x**4, "x_set": Reals()}, "unbounded below"),
        ({"upper": lambda x, y: jnp.abs(x - 0.3) + y**2}, "that of upper jumps at a kink"),
        ({"upper": lambda x, y: jnp.max(jnp.stack([y, 2.0 * x])) + y**2}, "that of upper jumps at a kink"),
        ({"lower": lambda x, y: (y - x) ** 2 + jnp.maximum(y - 0.1, 0.0)}, "that of lower jumps at a kink"),
        ({"inequality": lambda x, y: jnp.stack([jnp.abs(y) - 0.7])}, "that of inequality jumps at a kink"),
        ({"upper": lambda x, y: x + y, "x_set": Reals()}, "unbounded below"),
    ],
)
def test_problems_outside_the_theorems_are_refused_with_the_reason(
    tell: Callable[..., object], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ProblemError, match=words):
        tell(parts(**changes), 0.2, epsilon=0.1)


def test_a_squared_hinge_is_smooth_enough() -> None:
    """Its derivative is continuous: the theorems take it, with its curvature on either side."""
    hinge = parts(upper=lambda x, y: jnp.maximum(y - 0.3, 0.0) ** 2 + (x - 1.0) ** 2)
    assert suggest(hinge, 0.2, epsilon=0.1).constants.curvature == pytest.approx(2.0)
    never = parts(upper=lambda x, y: jnp.abs(y + 50.0) + (x - 1.0) ** 2 + y**2)
    assert suggest(never, 0.2, epsilon=0.1).constants.curvature == pytest.approx(2.0)


def test_rows_in_other_units_are_not_called_dependent() -> None:
    """Two independent rows hold y in R^2, one in units of a million: what that costs is told, as iterations."""
    problem = parts(
        upper=lambda x, y: (x - 1.0) ** 2 + jnp.sum(y**2),
        lower=lambda x, y: jnp.sum((y - x - 2.0) ** 2),
        inequality=lambda x, y: jnp.stack([y[0], 1e-6 * y[1]]),
        y_set=Reals(2),
    )
    with pytest.raises(OptionError, match=r"epsilon=0\.1 needs T_g, T_F or T_y"):
        suggest(problem, 0.2, epsilon=0.1)


def test_no_number_of_iterations_is_cut() -> None:
    capped = parts(inequality=lambda x, y: y - 0.3)
    with pytest.raises(OptionError, match=r"epsilon=1e-12 needs T = .* take a larger epsilon"):
        suggest(capped, 0.2, epsilon=1e-12)
    found = suggest(capped, 0.2, epsilon=3e-8)
    assert found.iterations >= 8.0 * found.constants.decrease * found.constants.smoothness / 3e-8
    assert found.inner_bounds[0] > 10**9  # the theorem's own, beside the counted ones
    assert found.inner_iterations[0] < 10**3


def test_a_problem_without_constraints_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = suggest(parts(), 0.2, epsilon=0.1)
    assert found.inner_iterations == found.inner_bounds == (1, 1)


@pytest.mark.slow
def test_steps_longer_than_the_theory_allows_are_told() -> None:
    options = {"outer": "pgd", "inner": "interior-point", "gamma": 5.0, "max_iterations": 20}
    with pytest.warns(RuntimeWarning, match="step=1 exceeds 1 / l_F") as told:
        solve(toy_problem(), 0.7, step=1.0, **options)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(toy_problem(), 0.7, step=1e-3, **options)


@pytest.mark.parametrize("front_door", [suggest, theory])
def test_a_start_without_derivatives_is_named(front_door: Any) -> None:
    """It was said that the follower has no answer there."""
    problem = BilevelProblem(
        upper=lambda x, y: jnp.linalg.norm(x - 1.0) + y**2,
        lower=lambda x, y: (y - x[0]) ** 2,
        inequality=lambda x, y: y - x[0],
        x_set=Box(0.0, 3.0, (2,)),
        y_set=Reals(),
    )
    with pytest.raises(ProblemError, match=r"smooth, but there the derivative of upper\(x, y\) in x is not finite"):
        front_door(problem, np.ones(2), epsilon=0.1)
