"""Points that no probe along coordinates shows to be none: saddles, and one coordinate of many that is off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem
from blocc.result import Result


def _told(problem: BilevelProblem, found: Result, x: np.ndarray, upper: float) -> Result:
    """The claim of a result at another x, where the follower responds with y = x."""
    name = problem.x[0].name()
    given: dict[str, Any] = {"x": {name: x}, "y": {"y": x}, "upper_value": upper, "lower_value": 0.0}
    return replace(found, **given)


@pytest.mark.parametrize("n", [3, 12])
def test_strict_saddles_are_left_and_refused(n: int) -> None:
    generator = np.random.default_rng(n)
    for _ in range(2):
        curvature, normal = generator.uniform(1.15, 2.0), generator.standard_normal(n)
        a = normal / np.linalg.norm(normal)
        x, y = cp.Parameter(n, name="x", bounds=[-2, 2]), cp.Variable(n, name="y")
        follower = cp.Problem(cp.Minimize(cp.sum_squares(y - x)), [y <= 5])
        bend = curvature * cp.square(a @ x)
        problem = BilevelProblem(cp.Minimize(cp.sum_squares(y) - bend + cp.power(a @ y, 4) / 4), follower, x)
        start = generator.uniform(-1.0, 1.0, n)
        found = problem.solve(start - (a @ start) * a, progress=False)  # from which plain descent ends at 0
        assert found.success, found
        assert found.upper_value == pytest.approx(-((curvature - 1.0) ** 2), abs=1e-5)
        assert problem.verify(found).ok
        assert not problem.verify(_told(problem, found, np.zeros(n), 0.0)).ok


@pytest.mark.parametrize(("n", "off"), [(30, 0.3), (60, 0.05)])
def test_one_coordinate_of_many_that_is_off_is_seen(n: int, off: float) -> None:
    generator = np.random.default_rng(n)
    wanted = generator.uniform(-1.0, 1.0, n)
    x, y = cp.Parameter(n, name="x", bounds=[-2, 2]), cp.Variable(n, name="y")
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - x)), [y >= -1])
    problem = BilevelProblem(cp.Minimize(cp.sum_squares(y - wanted) + 0.1 * cp.sum_squares(y)), follower, x)
    found = problem.solve(np.zeros(n), progress=False)
    assert found.success, found
    assert problem.verify(found).ok
    wrong = wanted / 1.1
    wrong[generator.integers(n)] += off
    value = float(np.sum((wrong - wanted) ** 2) + 0.1 * np.sum(wrong**2))
    assert not problem.verify(_told(problem, found, wrong, value)).ok
