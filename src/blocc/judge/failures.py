"""Why there is no answer, in a status and a sentence: infeasible, unbounded, not convex, no Slater point."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray
from blocc._lib.rounding import ROUNDED
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerCode
from blocc.judge.convexity import JensenTest
from blocc.judge.curvature import curvature_of
from blocc.outer.evaluator import Evaluator
from blocc.outer.recovery import beside_the_middle
from blocc.penalty import Evaluation
from blocc.result import Status


def infeasible(violation: float) -> tuple[Status, str]:
    """The follower has no answer at the start, nor anywhere a descent of its violation led."""
    return (
        Status.INFEASIBLE,
        "The follower cannot satisfy inequality(x, y) <= 0 and equality(x, y) == 0 within y_set: the smallest "
        f"violation found over x_set is {violation:.3g}.",
    )


#: A follower whose constraints leave less room than this has no Slater point, for a solver.
NO_ROOM = 1e-7


def no_slater(value: float) -> str:
    """That the follower's feasible set has no interior, in words."""
    return (
        "no point satisfies the follower's inequalities strictly (no Slater point): the smallest value that the "
        f"largest of them can have at x is {value:.1e}"
    )


def name_nonfinite(flat: FlatProblem, x: AnyArray, y: AnyArray) -> str | None:
    """Which user function is NaN or infinite at (x, y), in value or in derivative."""
    at_x, at_y = jnp.asarray(x), jnp.asarray(y)
    parts = {
        "upper": flat.upper,
        "lower": flat.lower,
        "inequality": flat.inequality,
        "equality": flat.equality,
        "upper_inequality": flat.upper_inequality,
    }
    for name, function in parts.items():
        value = np.asarray(function(at_x, at_y))
        if not np.isfinite(value).all():
            return f"{name}(x, y) returns {value.ravel()[~np.isfinite(value.ravel())][0]}"
        for argument, label in ((0, "x"), (1, "y")):
            slope = jax.grad(lambda a, b, f=function: jnp.sum(f(a, b)), argnums=argument)(at_x, at_y)
            if not np.isfinite(np.asarray(slope)).all():
                return f"the derivative of {name}(x, y) in {label} is not finite"
    return None


def explain_failure(evaluator: Evaluator, convexity: JensenTest, first: Evaluation) -> tuple[Status, str]:
    """Why no inner solution could be had at the start."""
    flat = evaluator.flat
    for y in (beside_the_middle(flat), first.follower.y, first.penalised.y, flat.y_set.interior_flat()):
        if np.isfinite(y).all() and (cause := name_nonfinite(flat, first.x, np.asarray(y))):
            return Status.NOT_FINITE, f"At the start, {cause}."
    codes = int(first.follower.code), int(first.penalised.code)
    if codes[0] == InnerCode.UNBOUNDED:
        return (
            Status.UNBOUNDED,
            "The lower level is unbounded: lower(x, y) falls without limit over the follower's set.",
        )
    failure = convexity(first.x, np.asarray(first.follower.y)).failure()
    if failure or bool(first.follower.concave):
        return Status.NOT_CONVEX, f"{failure or 'The lower level is not convex in y'}, and no solution of it was found."
    if codes[0] == InnerCode.INFEASIBLE:
        return infeasible(float(first.follower.residuals.feasibility))
    if codes[1] == InnerCode.UNBOUNDED:
        return (
            Status.UNBOUNDED,
            f"upper + gamma lower falls without limit in y at gamma = {float(first.gamma):g}: gamma is too small, "
            "or the leader's objective is unbounded over the follower's answers.",
        )
    if bool(first.penalised.concave):
        return Status.NOT_CONVEX, gamma_too_small(flat, first)
    if codes[0] == InnerCode.CONVERGED:
        return Status.STALLED, (
            f"The follower responds at the start, but upper + gamma lower at gamma = {float(first.gamma):g} could not "
            "be minimised over y, as where upper has kinks in y. A larger gamma may help, or 'auto'."
        )
    if flat.n_inequality and abs(room := float(evaluator.violation(first.x).value)) <= NO_ROOM:
        return Status.STALLED, f"The lower level could not be solved at the start: {no_slater(room)}."
    return Status.STALLED, "The lower level could not be solved at the start; problem.check(x0) may tell why."


def gamma_too_small(flat: FlatProblem, evaluation: Evaluation) -> str:
    """Say that L_F is not convex in y at this gamma, and which gamma would make it so at this point."""
    x = jnp.asarray(evaluation.x)
    y = np.asarray(evaluation.penalised.y)
    smallest_f, _ = curvature_of(lambda z: flat.upper(x, z))(y)
    smallest_g, _ = curvature_of(lambda z: flat.lower(x, z))(y)
    message = f"upper + gamma lower is not convex in y at gamma = {float(evaluation.gamma):g}: gamma is too small"
    if smallest_g > ROUNDED and smallest_f < 0:
        return f"{message}; it must exceed {-smallest_f / smallest_g:.4g} near this point, or be 'auto'."
    return f"{message}; use a larger one or gamma='auto'."
