"""One stage: minimise F_gamma for a fixed gamma from one point, with whatever the terrain asks for.

Over a box: L-BFGS-B, and when it runs into a wall, descent along the wall. Elsewhere: spectral projected gradients.
Where none of these reaches a vanishing gradient, F_gamma most likely has a kink, and gradient sampling takes over.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from blocc.outer import smooth as lbfgsb
from blocc.outer import spectral
from blocc.outer.evaluator import PenaltyFunction
from blocc.outer.nonsmooth import feasibility_boundary as walls
from blocc.outer.nonsmooth import gradient_sampling as kinks
from blocc.outer.stage import Outcome, Stage, measure, runs_away
from blocc.penalty import Evaluation


def descend(function: PenaltyFunction, first: Evaluation, stage: Stage) -> Outcome:
    """Minimise F_gamma from the usable evaluation ``first``; gamma is the one of that evaluation."""
    outcome = smooth(function, first, stage)
    if runs_away(function, outcome.evaluation):
        return outcome
    walled = outcome.walled
    small = outcome.evaluation.x.size <= kinks.LARGEST_DIMENSION
    if outcome.stationarity > stage.tolerance and small and not outcome.limited:
        sampled = kinks.minimise(function, outcome.evaluation, stage._replace(max_iterations=60))
        better = float(sampled.evaluation.value) < float(outcome.evaluation.value)
        if better or sampled.stationarity < outcome.stationarity:
            outcome = sampled
        walled = walled or sampled.walled
    return outcome._replace(walled=walled)


def smooth(function: PenaltyFunction, first: Evaluation, stage: Stage) -> Outcome:
    """The same by methods that follow gradients, which stop short of a kink."""
    if not function.flat.x_set.is_box:
        return _spectral(function, first, stage)
    outcome = lbfgsb.minimise(function, first, stage)
    if not outcome.walled:
        return outcome
    if first.x.size <= walls.LARGEST_DIMENSION:
        return walls.minimise(function, outcome.evaluation, stage)
    return _spectral(function, outcome.evaluation, stage)._replace(walled=True)


def _spectral(function: PenaltyFunction, first: Evaluation, stage: Stage) -> Outcome:
    """Drive the spectral state machine from Python, one evaluation at a time."""
    gamma = float(first.gamma)
    advance = function.advance
    state = advance(spectral.start(jnp.asarray(first.x)), first.value, first.gradient, first.usable)
    best = current = first
    walled = False
    for _ in range(4 * stage.max_iterations):
        if (
            float(state.stationarity) <= stage.tolerance
            or bool(state.failed)
            or int(state.iteration) >= stage.max_iterations
        ):
            break
        found = function(np.asarray(spectral.trial(state)), gamma, stage.leader, stage.inner_tolerance)
        walled = walled or not bool(found.usable)
        state = advance(state, found.value, found.gradient, found.usable)
        if bool(state.accepted):
            current = found
            function.monitor.record(found, float(state.stationarity), function.evaluations)
            if float(found.value) < float(best.value):
                best = found
    limited = not walled and int(state.iteration) >= stage.max_iterations
    # The search is not monotone: the last point is the stationary one, unless an earlier one is clearly lower.
    if float(state.stationarity) <= stage.tolerance or best is current:
        return Outcome(current, float(state.stationarity), 0.0, walled, limited)
    return Outcome(best, measure(function, best), 0.0, walled, limited)
