"""The follower's answer at a given x, from its matrices: what a search guesses good leaves by, and checks answers with.

No bound is proven by it: a leaf is solved on its own.
"""

from __future__ import annotations

import numpy as np
import scipy

from blocc._lib.arrays import Float, NDArray
from blocc.global_search.forms import Constraints, Follower

#: What the follower may lose at an answer: relative to the terms of its objective, and to their largest coefficient.
_LOST, _NOTHING = 1e-7, 1e-10
#: The follower's variables up to which SciPy's SLSQP minimises a quadratic objective.
_LARGEST = 60


def reply_at(c: Constraints, follower: Follower, x: Float[NDArray, "n_x"]) -> Float[NDArray, "n_y"] | None:
    """A minimiser of the follower's problem at ``x``; None where none was found."""
    n_x, slope = c.n_x, follower.linear + follower.coupling @ x
    rows, right = c.rows[:, n_x:], c.right - c.rows[:, :n_x] @ x
    equalities, equal = c.equalities[:, n_x:], c.equal - c.equalities[:, :n_x] @ x
    curved = bool(follower.hessian.any())
    cost = np.zeros(c.n_y) if curved else slope
    found = scipy.optimize.linprog(
        cost, A_ub=rows, b_ub=right, A_eq=equalities, b_eq=equal, bounds=(None, None), method="highs"
    )
    if found.status != 0 or not curved:
        return np.asarray(found.x) if found.status == 0 else None
    if c.n_y > _LARGEST:
        return None
    ended = scipy.optimize.minimize(
        lambda y: slope @ y + 0.5 * y @ follower.hessian @ y,
        np.asarray(found.x),
        jac=lambda y: slope + follower.hessian @ y,
        method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": lambda y: right - rows @ y, "jac": lambda y: -rows},
            {"type": "eq", "fun": lambda y: equalities @ y - equal, "jac": lambda y: equalities},
        ][: 1 + bool(len(equal))],
        options={"ftol": 1e-14, "maxiter": 200},
    )
    return np.asarray(ended.x) if ended.success else None


def is_answer(c: Constraints, follower: Follower, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> bool:
    """Whether the follower loses next to nothing by ``y``, measured in what it pays and not in its slopes.

    Slopes below every tolerance still matter where quantities are large.
    """
    best = reply_at(c, follower, x)
    if best is None:  # nothing speaks against it
        return True
    slope = follower.linear + follower.coupling @ x

    def paid(at: Float[NDArray, "n_y"]) -> tuple[float, float]:
        terms = np.append(slope * at, 0.5 * at * (follower.hessian @ at))
        return float(terms.sum()), float(np.abs(terms).sum())

    (own, size), (least, other) = paid(y), paid(best)
    return own - least <= _LOST * max(size, other) + _NOTHING * (1.0 + float(np.max(np.abs(y), initial=0.0)))
