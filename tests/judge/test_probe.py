"""Probes around x: what they saw, and what follows where the follower did not answer them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, solve
from blocc._lib.precision import double_precision
from blocc.judge.examine import Judge
from blocc.judge.probe import FINE, Probing, Value, probe
from blocc.judge.verdict import Verdict


def probing() -> Probing:
    return Probing(np.ones(1), 1e-13, 1e-5, 1e-6, distances=FINE)


def silent_above(x: np.ndarray) -> Value | None:
    """A follower who answers at x <= 0 alone; the leader's value is x^2."""
    return None if x[0] > 0.0 else Value(x, x, float(x[0] ** 2), 0.0)


def test_tells_the_directions_without_any_answer() -> None:
    here = Value(np.zeros(1), np.zeros(1), 0.0, 0.0)
    found = probe(silent_above, lambda x: x, here, [np.ones(1)], probing())
    assert found.better is None
    np.testing.assert_allclose(found.unanswered, [[0.1]])


def test_points_nearer_than_the_nearest_probe_are_not_told_from_x() -> None:
    here = Value(np.zeros(1), np.zeros(1), 0.0, 0.0)
    found = probe(silent_above, lambda x: np.minimum(x, 5e-7), here, [np.ones(1)], probing())
    assert found.unanswered == ()


def silent_verdict(row: Callable[[Any, Any], Any]) -> Verdict:
    """The verdict on an answer of a follower who is held to a point by a square, and answers nowhere else."""
    problem = BilevelProblem(
        upper=lambda x, y: (x + 1.0) ** 2 + y**2,
        lower=lambda x, y: (y - 1.0) ** 2,
        inequality=row,
        x_set=Box(-2.0, 2.0),
        y_set=Reals(),
    )
    with double_precision():
        judge = Judge.of(problem, lambda x: None)
        # A square has no slope at zero: y is off by 1e-9, and its multiplier 1e9.
        return judge.examine(np.zeros(1), np.full(1, 1e-9), polishing=False)


def test_silence_of_a_follower_who_could_answer_is_no_evidence() -> None:
    verdict = silent_verdict(lambda x, y: (y - x) ** 2)
    assert verdict.lower_optimal
    assert verdict.first_order is None
    assert verdict.inconclusive
    assert not verdict.holds
    assert "could not be found" in verdict.objection()


def test_silence_where_the_follower_cannot_answer_is_expected() -> None:
    verdict = silent_verdict(lambda x, y: y**2 + x**2)
    assert verdict.lower_optimal
    assert verdict.first_order is None
    assert not verdict.inconclusive
    assert verdict.holds


@pytest.mark.slow
def test_a_follower_held_by_a_square_is_not_left_at_the_start() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: (x + 0.8) ** 2 + 0.5 * ((y - 0.7) ** 2).sum(),
        lower=lambda x, y: ((y - np.array([-0.9, 0.1])) ** 2).sum(),
        inequality=lambda x, y: (y[0] + y[1] - x) ** 2,
        x_set=Box(-2.0, 2.0),
        y_set=Reals(2),
    )
    result = solve(problem)

    def value(x: np.ndarray) -> np.ndarray:
        y = np.array([-0.9, 0.1])[:, None] + 0.5 * (x + 0.8)
        return (x + 0.8) ** 2 + 0.5 * ((y - 0.7) ** 2).sum(axis=0)

    best = value(np.linspace(-2.0, 2.0, 40001)).min()
    assert not result.success or result.upper_value == pytest.approx(best, abs=1e-3)
