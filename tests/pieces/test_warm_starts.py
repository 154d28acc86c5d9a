"""Runs that go on from an earlier result: as good, much sooner, and nothing is compiled for them."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, solve
from blocc.errors import OptionError

DESIRED = np.array([3.0, 5.0])


def harbour() -> BilevelProblem:
    return BilevelProblem(
        upper=lambda x, y, desired: 0.75 * x[1] ** 2 - x[0] * jnp.sum(y),
        lower=lambda x, y, desired: x[0] * jnp.sum(y) + 0.5 * jnp.sum((y - desired) ** 2),
        inequality=lambda x, y, desired: y - x[1],
        x_set=Box([0.0, 0.5], [5.0, 5.0]),
        y_set=Box(0.0, np.inf, shape=2),
        data=DESIRED,
    )


def test_a_sequence_costs_a_fifth_and_compiles_nothing() -> None:
    problem = harbour()
    last = solve(problem)
    cold, warm, compiled = 0, 0, 0.0
    for step in range(1, 6):
        changed = problem.with_data(DESIRED + 0.02 * step)
        anew, last = solve(changed), solve(changed, start=last)
        assert last.success, last.message
        assert last.upper_value <= anew.upper_value + 1e-9
        cold += anew.counts["evaluations"]
        warm += last.counts["evaluations"]
        compiled += last.seconds["compile"]
    assert 5 * warm <= cold
    assert compiled == 0.0


def test_where_the_active_set_has_changed_the_response_is_found_all_the_same() -> None:
    """The cable binds in the morning as well."""
    problem = harbour()
    changed = problem.with_data(np.array([5.0, 3.0]))
    result = solve(changed, start=solve(problem))
    assert result.success, result.message
    assert result.upper_value == pytest.approx(-3.375, abs=1e-9)
    np.testing.assert_allclose(result.y, [1.5, 0.75], atol=1e-9)


def test_a_result_of_another_problem_gives_its_x_alone() -> None:
    other = BilevelProblem(
        upper=lambda x, y: jnp.sum((x - 2.0) ** 2) + y,
        lower=lambda x, y: (y - x[0]) ** 2,
        x_set=Box([0.0, 0.5], [5.0, 5.0]),
        y_set=Reals(),
    )
    begun = solve(harbour())
    with pytest.raises(Exception, match=r"start\.y"):
        solve(other, start=begun)
    result = solve(other, start=replace(begun, y=np.asarray(0.0)))
    assert result.success, result.message
    np.testing.assert_allclose(result.x, [1.5, 2.0], atol=1e-9)


def test_two_starts_are_refused() -> None:
    problem = harbour()
    result = solve(problem)
    with pytest.raises(OptionError, match="either x0 or start"):
        solve(problem, result.x, start=result)
    with pytest.raises(OptionError, match="give a point as x0"):
        solve(problem, start=result.x)  # type: ignore[call-overload]
