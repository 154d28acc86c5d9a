"""Many starts in one compiled loop: how often it looks at the clock changes nothing but when it stops."""

from __future__ import annotations

import numpy as np
import pytest

from blocc._lib.precision import double_precision
from blocc.inner.choice import choose_oracles
from blocc.outer import many_starts
from blocc.outer.monitor import Monitor, StopReason
from blocc.outer.tolerances import Tolerances
from blocc.problems.toy import toy_problem

STARTS = np.array([[0.3], [2.4], [1.7]])
TOY = toy_problem()


def batch(time_limit: float | None = None) -> many_starts.BatchOutcome:
    monitor, oracle = Monitor(TOY.x_set.unravel, time_limit=time_limit), choose_oracles(TOY, "auto")[0]
    with double_precision():
        return many_starts.minimise(TOY.flat, oracle, monitor, STARTS, Tolerances(), gamma=5.0, first_gamma=1.0)


@pytest.mark.slow
def test_looks_at_the_clock_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = batch()
    assert at_once.stopped is None
    assert at_once.evaluations.min() > 2
    monkeypatch.setattr(many_starts, "_PACE", 1)
    often = batch()
    np.testing.assert_array_equal(often.evaluations, at_once.evaluations)
    for one, other in zip(often.ends, at_once.ends, strict=True):
        np.testing.assert_array_equal(one.evaluation.x, other.evaluation.x)
        assert one.stationarity == other.stationarity
    stopped = batch(time_limit=0.0)
    assert stopped.stopped is StopReason.TIME_LIMIT
    assert stopped.evaluations.tolist() == [1, 1, 1]
    assert all(end.evaluation.usable for end in stopped.ends)
