"""Bad inputs of problems in CVXPY: refused before any work, with the argument's name and what would be right."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem
from blocc.errors import OptionError, ProblemError


def _problem(
    *, factor: Any = 1.0, limit: Any = 2.0, wish: Any = 1.0, most: Any = None, objective: Any = None, **attributes: Any
) -> BilevelProblem:
    x, y = cp.Parameter(name="x", bounds=[0, 5]), cp.Variable(2, name="y", **attributes)
    plain = cp.real(y) if attributes else y
    below = cp.sum_squares(plain - x * np.ones(2)) + cp.real(factor) * plain[0]
    follower = cp.Problem(cp.Minimize(below), [plain <= limit])
    wanted = objective or cp.Minimize(cp.sum_squares(plain - wish))
    return BilevelProblem(wanted, follower, x, [] if most is None else [cp.sum(y) <= most])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"complex": True}, "follower: y has the attribute complex; write its real and its imaginary part"),
        ({"imag": True}, "follower: y has the attribute imag"),
        ({"factor": cp.Parameter(complex=True, name="q")}, "follower: q has the attribute complex"),
        ({"factor": np.nan}, "follower: .* has a constant that is NaN; it must be finite"),
        ({"limit": np.array([1.0, np.nan])}, "follower: y <= .* has a constant that is NaN"),
        ({"limit": np.array([1.0, np.inf])}, "follower: y <= .* that is infinite; .* leave out limits that are none"),
        ({"wish": np.nan}, "objective: .* has a constant that is NaN"),
        ({"most": np.nan}, "constraints: .* has a constant that is NaN"),
    ],
)
def test_complex_and_missing_numbers_are_refused_with_their_place(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        _problem(**given)


@pytest.mark.parametrize("call", ["solve", "solve_many", "verify"])
def test_a_parameter_that_became_nan_is_named(call: str) -> None:
    limit = cp.Parameter(2, name="limit", value=np.ones(2))
    problem = _problem(limit=limit)
    known = problem.solve(1.0, progress=False)
    limit.value[1] = np.nan
    given: dict[str, Any] = {"verify": {"result": known}, "solve": {"x0": 1.0}, "solve_many": {"starts": 2}}[call]
    with pytest.raises(ProblemError, match="the parameter limit has a value that is NaN"):
        getattr(problem, call)(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"seed": -1}, "seed must be a whole number, at least 0, got -1"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"callback": 3}, "callback must be a function of the state, got int"),
        ({"max_iterations": 0}, "max_iterations must be a whole number, at least 1, got 0"),
        ({"time_limit": "1"}, "time_limit must be a positive number of seconds, got '1'"),
        ({"gamma": np.inf}, "gamma must be 'auto' or a positive finite number, got inf"),
        ({"tolerance": True}, "tolerance must be a number between"),
    ],
)
def test_bad_options_are_refused_before_any_work(given: dict[str, Any], words: str) -> None:
    problem = _problem()
    for call in (problem.solve, problem.solve_many):
        with pytest.raises(OptionError, match=words):
            call(**given)


def test_what_is_no_problem_parameter_or_result_is_refused() -> None:
    y, x = cp.Variable(name="y"), cp.Parameter(name="x")
    follower, wanted = cp.Problem(cp.Minimize(cp.square(y - x))), cp.Minimize(y)
    with pytest.raises(ProblemError, match=r"follower must be a cp\.Problem or several of them, got"):
        BilevelProblem(wanted, None, x)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match=r"x must be one cp\.Parameter or several"):
        BilevelProblem(wanted, follower, None)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="constraints: 3 is no constraint"):
        BilevelProblem(wanted, follower, x, 3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="result must be a Result"):
        BilevelProblem(wanted, follower, x).verify(3)  # type: ignore[arg-type]


def test_a_plain_function_that_is_nan_at_the_start_is_told_as_that() -> None:
    result = _problem(objective=lambda x, y: np.nan * y["y"][0]).solve(1.0, progress=False)
    assert result.status.value == "stalled"
    assert "not a number (NaN) at the start" in result.message


def test_bounds_of_some_entries_hold_for_those() -> None:
    x = cp.Parameter(2, name="x", bounds=[np.array([0.5, -np.inf]), np.array([np.inf, 3.0])])
    y = cp.Variable(2, name="y")
    problem = BilevelProblem(
        cp.Minimize(cp.sum_squares(y - np.array([-1.0, 4.0]))), cp.Problem(cp.Minimize(cp.sum_squares(y - x))), x
    )
    np.testing.assert_allclose(problem.solve(np.ones(2), progress=False).x["x"], [0.5, 3.0], atol=1e-6)
