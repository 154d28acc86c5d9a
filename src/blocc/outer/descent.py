"""One stage: minimise F_gamma for a fixed gamma from one point.

Over a box: L-BFGS-B, and where it meets the boundary of the follower's feasibility, descent along that boundary.
Elsewhere: spectral projected gradients. Where none of these reaches a vanishing gradient, F_gamma most likely has a
kink, and gradient sampling takes over.
"""

from __future__ import annotations

from blocc.outer.evaluator import Evaluator
from blocc.outer.nonsmooth import feasibility_boundary, gradient_sampling
from blocc.outer.smooth import quasi_newton, spectral_descent
from blocc.outer.tolerances import Endpoint, Stage, runs_away
from blocc.penalty import Evaluation

#: Iterations of gradient sampling in one stage.
_SAMPLING = 60


def descend(evaluator: Evaluator, first: Evaluation, stage: Stage) -> Endpoint:
    """Minimise F_gamma from the usable evaluation ``first``; gamma is the one of that evaluation."""
    end = follow_gradients(evaluator, first, stage)
    small = end.evaluation.x.size <= gradient_sampling.LARGEST_DIMENSION
    if runs_away(evaluator, end.evaluation) or end.stationarity <= stage.tolerance or end.limited or not small:
        return end
    sampled = gradient_sampling.minimise(evaluator, end.evaluation, stage._replace(max_iterations=_SAMPLING))
    better = float(sampled.evaluation.value) < float(end.evaluation.value)
    chosen = sampled if better or sampled.stationarity < end.stationarity else end
    return chosen._replace(met_boundary=end.met_boundary or sampled.met_boundary)


def follow_gradients(evaluator: Evaluator, first: Evaluation, stage: Stage) -> Endpoint:
    """The same by methods that follow gradients, which stop short of a kink."""
    if not evaluator.flat.x_set.is_box:
        return spectral_descent(evaluator, first, stage)
    end = quasi_newton(evaluator, first, stage)
    if not end.met_boundary:
        return end
    if first.x.size <= feasibility_boundary.LARGEST_DIMENSION:
        return feasibility_boundary.minimise(evaluator, end.evaluation, stage)
    return spectral_descent(evaluator, end.evaluation, stage)._replace(met_boundary=True)
