"""What counts as done: one stage at a fixed gamma, where its descent ended, and the tolerances of the whole run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from blocc._lib.rounding import KEPT, ROUNDED
from blocc.lagrangian import InnerPairs
from blocc.outer.evaluator import Evaluator, stationarity
from blocc.penalty import Evaluation, UpperMultipliers


class Stage(NamedTuple):
    """What holds during one stage; gamma is that of the evaluation it starts from."""

    leader: UpperMultipliers  #: multipliers of the leader's own constraints
    inner_tolerance: float
    tolerance: float  #: of the stationarity of x
    max_iterations: int
    trials: int = 4  #: evaluations that a step may take, on average


class Endpoint(NamedTuple):
    """Where a descent of F_gamma ended."""

    evaluation: Evaluation
    stationarity: float
    radius: float  #: 0 for a gradient at x; otherwise gradients within this radius were combined (a kink)
    met_boundary: bool = False  #: a point without lower-level answer was met
    limited: bool = False  #: the iterations ran out
    stop_met: bool = False  #: the stopping test of Algorithm 1 ended it, before step T
    inner: InnerPairs | None = None  #: the inner solutions that Algorithm 1 itself ended with, flat


@dataclass(frozen=True)
class Tolerances:
    """What counts as done, in numbers relative to the problem's size."""

    tolerance: float = 1e-5
    leader_tolerance: float = 1e-6  #: of the leader's own constraints
    max_iterations: int = 500  #: of each stage
    inner_tolerance: float | None = None  #: None: tied to gamma
    finest: float = 1e-12  #: accuracy that can be asked of an inner solution
    origin: float = 0.0  #: f where the descent began: a constant added to f must not loosen anything

    def inner(self, gamma: float, final: bool = False) -> float:
        """Accuracy of the inner solutions: tight enough that gamma cannot magnify the error, tighter at the end."""
        if self.inner_tolerance is not None:
            return self.inner_tolerance
        if np.isinf(gamma):  # what y is off by counts in full: no second minimisation cancels it
            return float(np.clip(1e-5 * self.tolerance, self.finest, 1e-10))
        if final:
            return float(np.clip(0.01 * self.tolerance / max(gamma, 1.0), self.finest, 1e-10))
        wanted = max(self.tolerance, 0.01 / max(gamma, 1.0))
        return float(np.clip(0.1 * wanted / max(gamma, 1.0), self.finest, 1e-8))

    def scale(self, evaluation: Evaluation) -> float:
        """Size of the upper objective, or what it has varied by if that is less, to measure gaps and gradients by."""
        return 1.0 + min(abs(evaluation.upper_value), abs(evaluation.upper_value - self.origin))

    def exact(self, evaluation: Evaluation) -> bool:
        """Whether the penalty is closed: yF and the follower's answer agree, and so do F and f."""
        size = 1.0 + float(np.linalg.norm(np.asarray(evaluation.answer)))
        closed = abs(evaluation.gap) <= self.tolerance * self.scale(evaluation)
        return closed and evaluation.distance <= 10.0 * self.tolerance * size

    def stationary(self, end: Endpoint) -> bool:
        """Whether x is stationary for F_gamma, as far as gradients magnified by gamma can tell."""
        gamma = float(end.evaluation.gamma)
        noise = 0.0 if np.isinf(gamma) else self.finest * gamma
        return end.stationarity <= self.slope(end.evaluation, self.tolerance) + noise

    def slope(self, evaluation: Evaluation, tolerance: float) -> float:
        """The largest entry that a gradient may keep: small itself, and small in sum over very many variables."""
        wanted = tolerance * self.scale(evaluation)
        return min(wanted, float(np.sqrt(wanted / evaluation.x.size)))

    def admissible(self, evaluation: Evaluation) -> bool:
        """Whether the leader's own constraints hold."""
        return evaluation.violation <= self.leader_allowance(evaluation)

    def leader_allowance(self, evaluation: Evaluation) -> float:
        """How far the leader's own constraints may be violated: rounding of very large variables apart, a constant."""
        return self.leader_tolerance * max(1.0, KEPT * float(np.max(np.abs(evaluation.x), initial=0.0)))


def measure(evaluator: Evaluator, evaluation: Evaluation) -> float:
    """Stationarity of x at one evaluation."""
    return stationarity(evaluator.project, evaluation.x, evaluation.gradient)


def better(new: Evaluation, old: Evaluation, slope: Callable[[Evaluation], float]) -> bool:
    """Lower, or equal up to rounding and closer to stationary, as ``slope`` measures it."""
    noise = ROUNDED * (1.0 + abs(float(old.value)))
    difference = float(new.value) - float(old.value)
    return difference < -noise or (difference <= noise and slope(new) < slope(old))


def runs_away(evaluator: Evaluator, evaluation: Evaluation) -> bool:
    """Whether x has left the start a millionfold, where X does not end: the leader's objective falls without limit."""
    if np.isfinite(evaluator.flat.x_set.bounds_flat()).all():
        return False
    return float(np.max(np.abs(evaluation.x), initial=0.0)) > 1e6 * evaluator.start_size
