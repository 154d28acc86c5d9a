"""Numbers given as data: one compilation serves all problems that differ only in them."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, ProblemError, Reals, solve


@pytest.fixture(scope="module")
def family() -> BilevelProblem:
    """y = max(x, floor) in each entry; the leader wants x at the goal and pays for y. Answer: x = goal / 2 or so."""
    return BilevelProblem(
        upper=lambda x, y, d: jnp.sum((x - d["goal"]) ** 2) + jnp.sum(y**2),
        lower=lambda x, y, d: 0.5 * jnp.sum((y - x) ** 2),
        inequality=lambda x, y, d: d["floor"] - y,
        x_set=Box(-4.0, 4.0, shape=2),
        y_set=Reals(2),
        data={"goal": np.array([2.0, 2.0]), "floor": -10.0},
    )


def test_other_numbers_compile_nothing(family: BilevelProblem) -> None:
    first = solve(family)
    assert first.success, first.message
    np.testing.assert_allclose(first.x, [1.0, 1.0], atol=1e-4)
    other = family.with_data({"goal": np.array([1, 3]), "floor": 1})
    second = solve(other)
    assert second.success, second.message
    # The first entry of y stays at its floor while x1 <= 1; the second follows x2.
    np.testing.assert_allclose(second.x, [1.0, 1.5], atol=1e-3)
    assert second.seconds["compile"] == 0.0
    np.testing.assert_allclose(solve(family).x, [1.0, 1.0], atol=1e-4)


@pytest.mark.parametrize("data", [{"goal": np.ones(1), "floor": 0.0}, {"goal": np.ones(2)}, [1.0, 2.0]], ids=str)
def test_data_of_another_shape_are_refused(family: BilevelProblem, data: dict) -> None:
    with pytest.raises(ProblemError, match="data must have the structure, shapes and dtypes"):
        family.with_data(data)


def test_data_must_be_there_and_be_numbers() -> None:
    parts = {"x_set": Reals(), "y_set": Reals()}
    plain = BilevelProblem(upper=lambda x, y: x**2, lower=lambda x, y: (y - x) ** 2, **parts)
    with pytest.raises(ProblemError, match="built with data"):
        plain.with_data(1.0)
    with pytest.raises(ProblemError, match="data must hold real numbers"):
        BilevelProblem(upper=lambda x, y, d: x**2, lower=lambda x, y, d: (y - x) ** 2, data="one", **parts)


def test_a_problem_with_another_function_shares_nothing(family: BilevelProblem) -> None:
    solve(family)
    other = replace(family, upper=lambda x, y, d: jnp.sum((x - 3.0 * d["goal"]) ** 2) + jnp.sum(y**2))
    np.testing.assert_allclose(solve(other).x, [3.0, 3.0], atol=1e-4)
    assert other.shared is not family.shared
    np.testing.assert_allclose(solve(other.with_data({"goal": np.ones(2), "floor": -9.0})).x, [1.5, 1.5], atol=1e-4)


def test_data_changed_in_place_are_refused(family: BilevelProblem) -> None:
    goal = np.array([2.0, 2.0])
    problem = family.with_data({"goal": goal, "floor": -10.0})
    assert not problem.renew()
    goal[0] = 1.0
    with pytest.raises(ProblemError, match=r"given as data were changed in place.*problem\.with_data"):
        problem.renew()
    np.testing.assert_array_equal(problem.data["goal"], [2.0, 2.0])
    assert not problem.with_data({"goal": goal, "floor": -10.0}).renew()
    assert not family.renew()
    goal[0] = 2.0
    assert not problem.renew()


def test_numbers_that_lose_digits_are_no_change() -> None:
    parts = {"x_set": Reals(), "y_set": Reals()}
    data = {
        "long": np.longdouble(1) / 3 * np.ones(2, dtype=np.longdouble),
        "half": np.ones(2, dtype=np.float16) / 3,
        "none": np.array([np.nan, 1.0]),
        "index": np.array([1, 2]),
        "flag": np.array([True]),
        "list": [1, 2.5],
        "jax": jnp.ones(2) / 3,
    }
    problem = BilevelProblem(
        upper=lambda x, y, d: x**2 + d["long"][0], lower=lambda x, y, d: (y - x) ** 2, data=data, **parts
    )
    assert not problem.renew()
    whole = BilevelProblem(upper=lambda x, y, d: x**2 + d, lower=lambda x, y, d: (y - x) ** 2, data=1.5, **parts)
    assert not whole.with_data(np.array(2**60 + 1)).renew()


def test_data_cannot_be_written_to(family: BilevelProblem) -> None:
    for problem in (family, family.with_data({"goal": np.array([1, 2]), "floor": 0})):
        with pytest.raises(ValueError, match="read-only"):
            problem.data["goal"][0] = 3.0
        with pytest.raises(ValueError, match="read-only"):
            problem.data["floor"][()] = 3.0


def test_problems_that_share_programs_change_together() -> None:
    factor = [1.0]
    problem = BilevelProblem(
        upper=lambda x, y, goal: (x - factor[0] * goal) ** 2,
        lower=lambda x, y, goal: (y - x) ** 2,
        x_set=Box(-9.0, 9.0),
        y_set=Reals(),
        data=1.0,
    )
    other = problem.with_data(2.0)
    assert other.shared is problem.shared
    factor[0] = 3.0
    assert problem.renew()
    assert other.renew()
    assert other.shared is problem.shared
    np.testing.assert_allclose(solve(problem).x, 3.0, atol=1e-4)
    second = solve(other)
    np.testing.assert_allclose(second.x, 6.0, atol=1e-4)
    assert second.seconds["compile"] == 0.0
    assert not problem.with_data(4.0).renew()
