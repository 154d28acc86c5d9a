"""Continuation in gamma, and the augmented Lagrangian of the leader's own constraints.

A small gamma makes F_gamma easy to descend and forgiving about local minima; a large one makes it exact. So gamma grows
in stages, each started where the last one ended, until yF and the follower's answer agree and the penalty hides
nothing. A leader's constraint ``G(x, y) <= 0`` adds an inner cycle: minimise, update its multipliers, minimise again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from blocc.outer.descent import descend
from blocc.outer.evaluator import Evaluator
from blocc.outer.tolerances import Endpoint, Stage, Tolerances, measure, runs_away
from blocc.penalty import Evaluation, UpperMultipliers

FACTOR = 4.0  #: by which gamma grows from stage to stage
LARGEST_GAMMA = 1e8
#: Steps of an exact descent within which the slope must halve: among many kinks it does not.
_ROUND = 50


def first_gamma(evaluator: Evaluator, x: np.ndarray, leader: UpperMultipliers, tolerances: Tolerances) -> Evaluation:
    """The smallest gamma 1, 4, 16, ... at which L_F behaves at ``x``: convex, bounded, and yF not far from yg."""
    gamma = 1.0
    while True:
        found = evaluator(x, gamma, leader, tolerances.inner(gamma))
        size = 1.0 + float(np.linalg.norm(np.asarray(found.follower.y)))
        near = float(np.linalg.norm(np.asarray(found.penalised.y - found.follower.y))) <= size
        bent = bool(found.penalised.concave) and not bool(found.follower.concave)
        if (found.usable and near and not bent) or gamma >= 1e6 or found.follower.code >= 2:
            return found
        gamma *= FACTOR


def direct_gamma(
    evaluator: Evaluator, first: Evaluation, leader: UpperMultipliers, tolerances: Tolerances
) -> Evaluation | None:
    """An evaluation at the same x with a gamma so large that the penalty is nearly closed there.

    Descending from it stays in the valley of x, where continuation from a small gamma may leave it for better or worse.
    None where no larger gamma can be had.
    """
    loose = replace(tolerances, tolerance=max(1e-3, tolerances.tolerance))
    found = first
    while not loose.exact(found) or found.gamma < 60.0 * first.gamma:
        gamma = FACTOR * float(found.gamma)
        following = evaluator(first.x, gamma, leader, tolerances.inner(gamma))
        if not following.usable or gamma > LARGEST_GAMMA:
            break
        found = following
    return None if found is first else found


def minimise(
    evaluator: Evaluator,
    first: Evaluation,
    leader: UpperMultipliers,
    tolerances: Tolerances,
    *,
    fixed_gamma: bool,
) -> tuple[Endpoint, UpperMultipliers]:
    """Descend in stages of growing gamma (one stage if ``fixed_gamma``) from the usable evaluation ``first``."""
    evaluation, gamma = first, float(first.gamma)
    while True:
        end, leader = _stage(evaluator, evaluation, leader, tolerances, fixed_gamma)
        evaluation = end.evaluation
        if runs_away(evaluator, evaluation):
            return end, leader
        done = tolerances.exact(evaluation) and tolerances.admissible(evaluation)
        for _ in range(3):  # exact already: finish the loose stage; tolerances shrink with f, hence more than once
            if not (done or fixed_gamma) or tolerances.stationary(end):
                break
            before = float(evaluation.value)
            end, leader = _stage(evaluator, evaluation, leader, tolerances, True)
            evaluation = end.evaluation
            done = tolerances.exact(evaluation) and tolerances.admissible(evaluation)
            if not float(evaluation.value) < before:
                break
        if fixed_gamma or done or gamma >= LARGEST_GAMMA:
            return end, leader
        gamma *= FACTOR
        following = evaluator(evaluation.x, gamma, leader, tolerances.inner(gamma))
        if not following.usable:  # out of precision: the last stage is the best that can be had
            return end, leader
        evaluation = following


def minimise_exactly(
    evaluator: Evaluator, first: Evaluation, leader: UpperMultipliers, tolerances: Tolerances
) -> tuple[Endpoint, UpperMultipliers] | None:
    """Descend f(x, y(x)) itself by its derivative, from an evaluation at an infinite gamma.

    None where that does not end at a stationary point: the penalty function is the more forgiving one.
    """
    steps = min(tolerances.max_iterations, _ROUND)
    end = Endpoint(first, measure(evaluator, first), 0.0)
    for _ in range(0, tolerances.max_iterations, steps):
        before = end.stationarity
        end, leader = _stage(evaluator, end.evaluation, leader, replace(tolerances, max_iterations=steps), True)
        if not (end.limited and end.stationarity < 0.5 * before):
            break
    e = end.evaluation
    good = runs_away(evaluator, e) or (tolerances.stationary(end) and tolerances.admissible(e))
    return (end, leader) if good else None


def _stage(
    evaluator: Evaluator,
    first: Evaluation,
    leader: UpperMultipliers,
    tolerances: Tolerances,
    last: bool,
) -> tuple[Endpoint, UpperMultipliers]:
    """One gamma: descend, and for a constrained leader update the multipliers until they settle."""
    gamma = float(first.gamma)
    accuracy = tolerances.inner(gamma, final=last)
    wanted = tolerances.tolerance if last else max(tolerances.tolerance, 0.01 / max(gamma, 1.0))

    def run(start: Evaluation) -> Endpoint:
        stage = Stage(leader, accuracy, tolerances.slope(start, wanted), tolerances.max_iterations)
        return descend(evaluator, start, stage)

    end = run(first)
    if evaluator.flat.n_upper_inequality == 0:
        return end, leader
    previous = np.inf
    for _ in range(20):
        constraint = np.asarray(evaluator.leader_constraint(end.evaluation.x, end.evaluation.penalised.y))
        multipliers = np.maximum(leader.multipliers + leader.penalty * constraint, 0.0)
        # Violated, or priced although slack: the distance from satisfying the leader's complementarity conditions.
        error = float(np.max(np.abs(np.maximum(constraint, -leader.multipliers / leader.penalty)), initial=0.0))
        if error <= 0.1 * tolerances.leader_allowance(end.evaluation):
            break
        penalty = leader.penalty * (5.0 if error > 0.3 * previous else 1.0)
        leader, previous = UpperMultipliers(multipliers, np.minimum(penalty, 1e6)), error
        again = evaluator(end.evaluation.x, gamma, leader, accuracy)
        if not again.usable:
            break
        end = run(again)
    return end, leader
