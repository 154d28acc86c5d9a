"""No result is worse than the best exact value that its call has seen, the start included, however the call ends."""

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, Status, solve, solve_many


def feigned(generator, n, weight):
    """A follower with y = x, and a leader to whom an answer that is a little off seems worth anything; and its phi."""
    target = generator.uniform(-2.0, 2.0, n)
    sign = generator.choice([-1.0, 1.0], n)
    bend = generator.uniform(0.5, 2.0, n)
    problem = BilevelProblem(
        upper=lambda x, y: weight * sign @ (jnp.cosh(y) - jnp.cosh(x)) + jnp.sum((x - target) ** 2),
        lower=lambda x, y: jnp.sum(bend * (y - x) ** 2) + jnp.sum((y - x) ** 4),
        x_set=Box(-3.0, 3.0, shape=(n,)),
        y_set=Reals(shape=(n,)),
    )
    return problem, lambda x: float(np.sum((np.asarray(x) - target) ** 2))


@pytest.fixture(scope="module")
def steep():
    return feigned(np.random.default_rng(5), 2, 1e9)


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_a_run_that_is_stopped_is_worth_its_start(steps, steep):
    problem, value = steep
    start = np.random.default_rng(steps).uniform(-3.0, 3.0, 2)
    left = iter(range(steps))
    result = solve(problem, start, callback=lambda state: next(left, None) is None, progress=False)
    assert value(result.x) <= value(start) + 1e-9
    assert result.upper_value <= value(start) + 1e-9 * (1.0 + value(start))


def test_a_batch_that_is_stopped_is_worth_its_starts():
    generator = np.random.default_rng(7)
    problem, value = feigned(generator, 2, 1e3)
    starts = generator.uniform(-3.0, 3.0, (32, 2))
    found = solve_many(problem, starts, callback=lambda state: True, progress=False)
    assert len(found.results) == len(starts)
    for start, result in zip(starts, found.results, strict=True):
        if np.isfinite(result.upper_value):  # it was begun
            assert value(result.x) <= value(start) + 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_no_run_that_has_met_the_leaders_rows_says_that_nothing_does(seed):
    """The follower's bound -x ends what G can use: from far away descents come upon an admissible x in passing."""
    share, asked = np.random.default_rng(seed).uniform([0.2, 3.0], [0.3, 4.0])
    problem = BilevelProblem(
        upper=lambda x, y: (y - 0.8) ** 2 + 0.05 * (x + 1.7) ** 2,
        lower=lambda x, y: (y - share * x) ** 2,
        inequality=lambda x, y: y + x,
        upper_inequality=lambda x, y: y + asked,
        x_set=Box(-6.0, 6.0),
        y_set=Reals(),
    )
    result = solve(problem, -3.6, progress=False)
    assert result.certificate.leader_violation <= 1e-6
    assert result.status in (Status.CONVERGED, Status.STALLED)


@pytest.mark.parametrize("seed", range(4))
def test_a_nearly_flat_follower_feigns_no_value(seed):
    """y(x) = x whatever the curvature: a value that is printed is that of y = x, or the message says that none is."""
    generator = np.random.default_rng(seed)
    n, way = 3, generator.standard_normal(3)
    goal, flatness = generator.uniform(-1.0, 1.0, n), 10 ** generator.uniform(-12.0, -6.0)
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum((y - goal) ** 2) + 0.1 * jnp.sum(x**2),
        lower=lambda x, y: (way @ (y - x)) ** 2 + flatness * jnp.sum((y - x) ** 2),
        x_set=Reals(shape=(n,)),
        y_set=Reals(shape=(n,)),
    )
    start = goal / 1.1 + 0.01 * generator.standard_normal(n)

    def value(x):
        return float(np.sum((x - goal) ** 2) + 0.1 * np.sum(x**2))

    result = solve(problem, start, progress=False)
    assert value(np.asarray(result.x)) <= value(start) + 1e-12
    if "may be false" in result.message:
        assert not result.certificate.exact
        np.testing.assert_array_equal(result.x, start)
    else:
        assert result.upper_value == pytest.approx(value(np.asarray(result.x)), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_gamma_by_hand_ends_no_worse_than_its_start_at_a_kink(seed):
    generator = np.random.default_rng(seed)
    kink, price = generator.uniform(-1.0, 1.0, 2), generator.uniform(1.0, 4.0, 2)
    goal = kink + 0.4 * price * generator.uniform(-1.0, 1.0, 2)  # the minimum is at the kink
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum(price * jnp.abs(x - kink)) + jnp.sum((y - goal) ** 2),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(-3.0, 3.0, shape=(2,)),
        y_set=Reals(shape=(2,)),
    )
    result = solve(problem, kink, gamma=float(10 ** generator.uniform(0.0, 3.0)), progress=False)
    if result.status not in (Status.CONVERGED, Status.PENALTY_OPEN):
        x = np.asarray(result.x)
        assert price @ np.abs(x - kink) + np.sum((x - goal) ** 2) <= np.sum((kink - goal) ** 2) + 1e-9


def test_a_minimum_of_an_unbounded_x_is_not_asked_for_its_slope_again_and_again():
    problem = BilevelProblem(
        upper=lambda x, y: (y - 1.0) ** 2 + (x - 1.0) ** 2,
        lower=lambda x, y: (y - x) ** 2,
        x_set=Reals(),
        y_set=Reals(),
    )
    result = solve(problem, 3.0, progress=False)
    assert result.success
    assert result.counts["evaluations"] <= 20
