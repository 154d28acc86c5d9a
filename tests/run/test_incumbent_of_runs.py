"""No result is worse than the best exact value that its call has seen, the start included, however the call ends."""

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, solve, solve_many


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
