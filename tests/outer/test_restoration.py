"""A start without an answer of the follower's moves to a near x that has one."""

from __future__ import annotations

import numpy as np
import pytest

from blocc import BilevelProblem, Box
from blocc._lib.precision import double_precision
from blocc.inner.interior_point import InteriorPoint
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor
from blocc.outer.restoration import FEASIBLE, restore


@pytest.mark.parametrize(("start", "edge"), [(1.0, np.sqrt(3.0)), (-0.5, -np.sqrt(3.0))])
def test_the_near_side_is_chosen(start: float, edge: float) -> None:
    """y <= 1 and y >= 4 - x^2: feasible from x^2 = 3 on, on either side."""
    problem = BilevelProblem(
        upper=lambda x, y: x + y,
        lower=lambda x, y: y**2,
        inequality=lambda x, y: 4.0 - x**2 - y,
        x_set=Box(-10.0, 10.0),
        y_set=Box(0.0, 1.0),
    )
    with double_precision():
        function = Evaluator(problem.flat, (InteriorPoint(),), Monitor(problem.x_set.unravel))
        x, violation = restore(function, np.array([start]))
    assert violation <= FEASIBLE
    assert x[0] == pytest.approx(edge, abs=0.05)
