"""What the penalty hides at x, twice: out of the numbers that a result tells, and by oracles from a cold start."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.rounding import TINY
from blocc.flat_problem import FlatProblem
from blocc.inner.choice import general_oracles
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor, inner_residual
from blocc.penalty import no_upper_multipliers
from blocc.problem import BilevelProblem

#: A gamma that makes g so many times larger than f leaves nothing of f in double precision.
_DROWNED = 1e14
#: A gamma, in units of f and g, at which yF is within 1e-4 of y: its gradient is that of phi to about as much.
_CLOSE = 1e4


def wrong_gamma(gamma: float, hidden: bool, method: str | None, ratio: float) -> str:
    """Why ``gamma`` cannot be that of the result; empty where it can. ``hidden``: yF differs from y, or a gap is told.

    ``ratio`` is the size of g over that of f. A global search has no penalty and says zero; an
    infinite one is f(x, y(x)) itself.
    """
    if gamma == 0.0 and method == "global":
        return "no penalty, yet something is hidden" if hidden else ""
    if np.isinf(gamma) and gamma > 0.0:
        return "an infinite gamma, yet something is hidden" if hidden else ""
    if min(gamma, gamma * ratio) > _DROWNED:
        return "f drowns in gamma g"
    return "" if gamma > 0.0 else "no penalty has such a gamma"


def gap_of_numbers(flat: FlatProblem, x: np.ndarray, y: np.ndarray, y_penalty: np.ndarray, gamma: float) -> float:
    """``f(x, y) - F_gamma(x)`` out of both answers, without the terms of a leader's own constraints."""
    at = jnp.asarray(x)
    upper, lower = (
        float(function(at, jnp.asarray(y))) - float(function(at, jnp.asarray(y_penalty)))
        for function in (flat.upper, flat.lower)
    )
    return upper + gamma * lower


def downhill_by_oracles(problem: BilevelProblem, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """A gradient of F_gamma at x, by oracles from a cold start: a direction to look in where phi's is not to be had."""
    flat, at = problem.flat, (jnp.asarray(x), jnp.asarray(y))
    reach = jnp.maximum(1.0, jnp.abs(at[1]))
    bend = jax.jvp(lambda z: jax.grad(flat.lower, argnums=1)(at[0], z), (at[1],), (reach,))[1]
    pull = float(jnp.max(jnp.abs(jax.grad(flat.upper, argnums=1)(*at))))
    gamma = _CLOSE * max(pull, TINY) / max(float(jnp.max(jnp.abs(bend))), TINY) if pull > 0.0 else _CLOSE
    for oracle in [problem.oracle] if problem.oracle is not None else list(general_oracles(flat))[::-1]:
        found = Evaluator(flat, (oracle,), Monitor(problem.x_set.unravel))(x, gamma, no_upper_multipliers(flat), 1e-9)
        if found.usable and np.isfinite(np.asarray(found.gradient)).all():
            return np.asarray(found.gradient)
    return None


def gap_by_oracles(
    problem: BilevelProblem, x: np.ndarray, y: np.ndarray, gamma: float, wanted: float, feasible: bool
) -> tuple[float, str] | None:
    """``f(x, y) - F_gamma(x)`` and by which oracle; None where none is as accurate as ``wanted``.

    Residuals depend on units: an oracle whose follower does worse than a ``feasible`` y has not solved the problem.
    """
    flat, at = problem.flat, (jnp.asarray(x), jnp.asarray(y))
    oracles = [problem.oracle] if problem.oracle is not None else list(general_oracles(flat))[::-1]
    upper, lower = float(flat.upper(*at)), float(flat.lower(*at))
    for oracle in oracles:
        function = Evaluator(flat, (oracle,), Monitor(problem.x_set.unravel))
        found = function(x, gamma, no_upper_multipliers(flat), 1e-12)
        if not found.usable or max(gamma, 1.0) * inner_residual(found) > wanted:  # gamma magnifies what is left over
            continue
        if not (feasible and gamma * (float(found.lower_follower) - lower) > wanted):
            return upper - float(found.value), type(oracle).__name__
    return None
