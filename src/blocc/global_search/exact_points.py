"""Points that keep their rows in the units of each of their variables, and not to a solver's tolerance alone.

A tolerance of 1e-9 in a row with coefficients of 1e5 and 1e-5 is one of 1e-4 in some variable, and its gain is claimed.
"""

from __future__ import annotations

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.global_search.relaxation import PRECISION, Limits, Relaxation

_EPSILON = float(np.finfo(np.float64).eps)
#: What has no more room than this, relative to its size, is held.
_HELD = 1e-7
#: Newton steps on linear rows: one would do without rounding, and each gains as many digits as their condition leaves.
_STEPS = 4


def settled(
    relaxation: Relaxation, point: Float[NDArray, " columns"], limits: Limits
) -> Float[NDArray, " columns"] | None:
    """A nearby point that keeps every bound, and every linear row as far as numbers can; None where there is none."""
    r = relaxation
    straight = ~r.above[:, r.heights.start :].any(axis=1)  # rows with squares are looked at on their own
    above, right = r.above[straight], r.above_right[straight]
    low, high = limits.low, limits.high
    at = np.clip(point, low, high)
    for step in range(_STEPS + 1):
        missed = r.equal_right - r.equal @ at
        over = above @ at - right
        if (np.abs(missed) <= _allowed(r.equal, r.equal_right, at)).all() and (
            over <= _allowed(above, right, at)
        ).all():
            return at
        if step == _STEPS:
            return None
        size = 1.0 + np.abs(at)
        free = (at > low + _HELD * size) & (at < high - _HELD * size)
        free[r.heights.start :] = False
        held = over > -_HELD * (1.0 + np.abs(right))
        rows = np.concatenate([r.equal, above[held]])[:, free]
        wanted = np.concatenate([missed, -over[held]])
        length = np.linalg.norm(rows, axis=1)
        length = np.where(length > 0.0, length, 1.0)
        at = at.copy()
        at[free] += np.linalg.lstsq(rows / length[:, None], wanted / length, rcond=None)[0]
        at = np.clip(at, low, high)
    return None


def _allowed(rows: NDArray, right: NDArray, at: NDArray) -> Float[NDArray, " rows"]:
    """By how much a row may be missed: by the solver's tolerance in any one of its variables, or by rounding.

    Its numbers, its terms and their sum are rounded.
    """
    size = np.abs(rows)
    counted = size > _EPSILON * size.max(axis=1, initial=0.0)[:, None]
    least = np.where(counted, size, np.inf).min(axis=1, initial=np.inf)
    rounding = (counted.sum(axis=1) + 2) * _EPSILON * (size @ np.abs(at) + np.abs(right))
    return np.asarray(np.maximum(rounding, np.where(np.isfinite(least), PRECISION * least, 0.0)))
