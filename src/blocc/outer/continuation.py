"""Continuation in gamma, and the augmented Lagrangian of the leader's own constraints.

A small gamma makes F_gamma easy to descend and forgiving about local minima; a large one makes it exact. So gamma grows
in stages, each started where the last one ended, until yF and the follower's answer agree and the penalty hides
nothing. A leader's constraint ``G(x, y) <= 0`` adds an inner cycle: minimise, update its multipliers, minimise again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from blocc.outer.descent import descend
from blocc.outer.evaluator import PenaltyFunction
from blocc.outer.nonsmooth.saddle_check import escape
from blocc.outer.stage import Outcome, Stage, runs_away
from blocc.penalty import Evaluation, Leader

FACTOR = 4.0  #: by which gamma grows from stage to stage
LARGEST_GAMMA = 1e8


@dataclass(frozen=True)
class Goal:
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

    def stationary(self, outcome: Outcome) -> bool:
        """Whether x is stationary for F_gamma, as far as gradients magnified by gamma can tell."""
        noise = self.finest * float(outcome.evaluation.gamma)
        return outcome.stationarity <= self.slope(outcome.evaluation, self.tolerance) + noise

    def slope(self, evaluation: Evaluation, tolerance: float) -> float:
        """The largest entry that a gradient may keep: small itself, and small in sum over very many variables."""
        wanted = tolerance * self.scale(evaluation)
        return min(wanted, float(np.sqrt(wanted / evaluation.x.size)))

    def admissible(self, evaluation: Evaluation) -> bool:
        """Whether the leader's own constraints hold."""
        return evaluation.violation <= self.leader_allowance(evaluation)

    def leader_allowance(self, evaluation: Evaluation) -> float:
        """How far the leader's own constraints may be violated: rounding of very large variables apart, a constant."""
        return self.leader_tolerance * max(1.0, 1e-6 * float(np.max(np.abs(evaluation.x), initial=0.0)))


def first_gamma(function: PenaltyFunction, x: np.ndarray, leader: Leader, goal: Goal) -> Evaluation:
    """The smallest gamma 1, 4, 16, ... at which L_F behaves at ``x``: convex, bounded, and yF not far from yg."""
    gamma = 1.0
    while True:
        found = function(x, gamma, leader, goal.inner(gamma))
        size = 1.0 + float(np.linalg.norm(np.asarray(found.follower.y)))
        near = float(np.linalg.norm(np.asarray(found.penalised.y - found.follower.y))) <= size
        bent = bool(found.penalised.concave) and not bool(found.follower.concave)
        if (found.usable and near and not bent) or gamma >= 1e6 or found.follower.code >= 2:
            return found
        gamma *= FACTOR


def direct_gamma(function: PenaltyFunction, first: Evaluation, leader: Leader, goal: Goal) -> Evaluation | None:
    """An evaluation at the same x with a gamma so large that the penalty is nearly closed there.

    Descending from it stays in the valley of x, where continuation from a small gamma may leave it for better or worse.
    None where no larger gamma can be had.
    """
    loose = replace(goal, tolerance=max(1e-3, goal.tolerance))
    found = first
    while not loose.exact(found) or found.gamma < 60.0 * first.gamma:
        gamma = FACTOR * float(found.gamma)
        following = function(first.x, gamma, leader, goal.inner(gamma))
        if not following.usable or gamma > LARGEST_GAMMA:
            break
        found = following
    return None if found is first else found


def leave(function: PenaltyFunction, outcome: Outcome, leader: Leader, goal: Goal) -> Evaluation | None:
    """A lower point beside the end of a stage, or None where that is a minimum as far as probes can tell."""
    e = outcome.evaluation
    return escape(function, outcome, leader, goal.inner(float(e.gamma), final=True), goal.slope(e, goal.tolerance))


def minimise(
    function: PenaltyFunction,
    first: Evaluation,
    leader: Leader,
    goal: Goal,
    *,
    fixed_gamma: bool,
) -> tuple[Outcome, Leader]:
    """Descend in stages of growing gamma (one stage if ``fixed_gamma``) from the usable evaluation ``first``."""
    evaluation, gamma = first, float(first.gamma)
    escapes = 0
    while True:
        outcome, leader = _stage(function, evaluation, leader, goal, fixed_gamma)
        evaluation = outcome.evaluation
        if runs_away(function, evaluation):
            return outcome, leader
        done = goal.exact(evaluation) and goal.admissible(evaluation)
        for _ in range(3):  # exact already: finish the loose stage; tolerances shrink with f, hence more than once
            if not (done or fixed_gamma) or goal.stationary(outcome):
                break
            before = float(evaluation.value)
            outcome, leader = _stage(function, evaluation, leader, goal, True)
            evaluation = outcome.evaluation
            done = goal.exact(evaluation) and goal.admissible(evaluation)
            if not float(evaluation.value) < before:
                break
        if fixed_gamma or done or gamma >= LARGEST_GAMMA:
            lower = leave(function, outcome, leader, goal) if escapes < 3 and goal.stationary(outcome) else None
            if lower is None:
                return outcome, leader
            evaluation, escapes = lower, escapes + 1
            continue
        gamma *= FACTOR
        following = function(evaluation.x, gamma, leader, goal.inner(gamma))
        if not following.usable:  # out of precision: the last stage is the best that can be had
            return outcome, leader
        evaluation = following


def _stage(
    function: PenaltyFunction,
    first: Evaluation,
    leader: Leader,
    goal: Goal,
    last: bool,
) -> tuple[Outcome, Leader]:
    """One gamma: descend, and for a constrained leader update the multipliers until they settle."""
    gamma = float(first.gamma)
    accuracy = goal.inner(gamma, final=last)
    wanted = goal.tolerance if last else max(goal.tolerance, 0.01 / max(gamma, 1.0))

    def run(start: Evaluation) -> Outcome:
        stage = Stage(leader, accuracy, goal.slope(start, wanted), goal.max_iterations)
        return descend(function, start, stage)

    outcome = run(first)
    if function.flat.n_upper_inequality == 0:
        return outcome, leader
    previous = np.inf
    for _ in range(20):
        constraint = np.asarray(function.leader_constraint(outcome.evaluation.x, outcome.evaluation.penalised.y))
        multipliers = np.maximum(leader.multipliers + leader.penalty * constraint, 0.0)
        # Violated, or priced although slack: the distance from satisfying the leader's complementarity conditions.
        error = float(np.max(np.abs(np.maximum(constraint, -leader.multipliers / leader.penalty)), initial=0.0))
        if error <= 0.1 * goal.leader_allowance(outcome.evaluation):
            break
        penalty = leader.penalty * (5.0 if error > 0.3 * previous else 1.0)
        leader, previous = Leader(multipliers, np.minimum(penalty, 1e6)), error
        again = function(outcome.evaluation.x, gamma, leader, accuracy)
        if not again.usable:
            break
        outcome = run(again)
    return outcome, leader
