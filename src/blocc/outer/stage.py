"""One stage of a run, F_gamma at a fixed gamma: what the methods that descend it are told, and what they return."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from blocc.outer.evaluator import PenaltyFunction, stationarity
from blocc.penalty import Evaluation, Leader


class Stage(NamedTuple):
    """What holds during one stage; gamma is that of the evaluation it starts from."""

    leader: Leader  #: multipliers of the leader's own constraints
    inner_tolerance: float
    tolerance: float  #: of the stationarity of x
    max_iterations: int


class Outcome(NamedTuple):
    """Where a descent of F_gamma ended."""

    evaluation: Evaluation
    stationarity: float
    radius: float  #: 0 for a gradient at x; otherwise gradients within this radius were combined (a kink)
    walled: bool = False  #: a point without lower-level answer was met
    limited: bool = False  #: the iterations ran out


def measure(function: PenaltyFunction, evaluation: Evaluation) -> float:
    """Stationarity of x at one evaluation."""
    return stationarity(function.project, evaluation.x, evaluation.gradient)


def better(new: Evaluation, old: Evaluation, slope: Callable[[Evaluation], float]) -> bool:
    """Lower, or equal up to rounding and closer to stationary, as ``slope`` measures it."""
    noise = 1e-12 * (1.0 + abs(float(old.value)))
    difference = float(new.value) - float(old.value)
    return difference < -noise or (difference <= noise and slope(new) < slope(old))


def runs_away(function: PenaltyFunction, evaluation: Evaluation) -> bool:
    """Whether x has left the start a millionfold: the leader's objective then falls without limit."""
    return float(np.max(np.abs(evaluation.x), initial=0.0)) > 1e6 * function.start_size
