"""What is called converged is the minimum, however large terms are that cancel, vanish or are constant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem
from blocc.result import Status

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")


class Drawn(NamedTuple):
    problem: BilevelProblem
    start: float
    best: float  #: the value of the only minimum
    at: float  #: its x


def _offset(weight: float, m: float) -> Drawn:
    """A constant hides what f varies by."""
    x, y = cp.Parameter(name="x", bounds=[-4, 4]), cp.Variable(name="y")
    follower = cp.Problem(cp.Minimize(cp.square(y - x)), [y <= 3.5])
    return Drawn(BilevelProblem(cp.Minimize(weight + cp.square(y - m)), follower, x), 3.0, weight, m)


def _cancelled(weight: float, m: float) -> Drawn:
    """A weight on what is always zero."""
    x, y = cp.Parameter(name="x", bounds=[-4, 4]), cp.Variable(2, name="y")
    follower = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(y) + x * y[0]), [y[0] + y[1] == 3])
    leader = cp.Minimize(weight * cp.square(y[0] + y[1] - 3) + cp.square(y[0] - m))
    return Drawn(BilevelProblem(leader, follower, x), 3.0, 0.0, 3 - 2 * m)  # y0 = (3 - x) / 2


def _tracked(weight: float, m: float) -> Drawn:
    """The same, with the follower's own objective."""
    x, y = cp.Parameter(name="x", bounds=[-4, 4]), cp.Variable(name="y")
    leader = cp.Minimize(weight * cp.square(y - x) + cp.square(x - m))
    return Drawn(BilevelProblem(leader, cp.Problem(cp.Minimize(cp.square(y - x))), x), 3.0, 0.0, m)


@pytest.mark.parametrize("make", [_offset, _cancelled, _tracked])
@pytest.mark.parametrize("seed", range(3))
def test_converged_is_the_minimum_and_elsewhere_is_not_verified(make: Callable[..., Drawn], seed: int) -> None:
    generator = np.random.default_rng(seed)
    weight, m = 10.0 ** generator.uniform(2, 8), float(generator.uniform(0.2, 1.5))
    problem, start, best, at = make(weight, m)
    result = problem.solve(start, progress=False)
    assert result.status in (Status.CONVERGED, Status.STALLED), result
    if result.success:
        assert result.upper_value <= best + 1e-4, (weight, result)
        assert problem.verify(result).ok, problem.verify(result)
    elsewhere = problem.solve(at + 0.4, callback=lambda state: True, time_limit=1e-9, progress=False)
    assert not problem.verify(replace(elsewhere, status=Status.CONVERGED)).ok
