"""One stage: minimise F_gamma for a fixed gamma from one point.

Over a box: L-BFGS-B, and where it meets the boundary of the follower's feasibility, as elsewhere: spectral projected
gradients, whose steps can back off. Kinks of F_gamma end a stage early; descents of f(x, y(x)) itself go on from there.
"""

from __future__ import annotations

from blocc.outer.evaluator import Evaluator
from blocc.outer.smooth import quasi_newton, spectral_descent
from blocc.outer.tolerances import Endpoint, Stage
from blocc.penalty import Evaluation


def descend(evaluator: Evaluator, first: Evaluation, stage: Stage) -> Endpoint:
    """Minimise F_gamma from the usable evaluation ``first``; gamma is the one of that evaluation."""
    if not evaluator.flat.x_set.is_box:
        return spectral_descent(evaluator, first, stage)
    end = quasi_newton(evaluator, first, stage)
    if not end.met_boundary:
        return end
    return spectral_descent(evaluator, end.evaluation, stage)._replace(met_boundary=True)
