"""A linear inequality that every answer of the follower satisfies, whatever x is.

Answers cost no more than any one feasible point, so that costs which are positive for all x bound them even where the
feasible set has no end: nobody drives in circles.
"""

from __future__ import annotations

import numpy as np
import scipy

from blocc._lib.arrays import Float, NDArray
from blocc.global_search.forms import Constraints, Follower

_ROOM = 1e-9  #: for rounding, relative


def answer_row(c: Constraints, follower: Follower) -> tuple[Float[NDArray, "n_y"], float] | None:
    """``(row, right)`` with ``<row, y> <= right`` at all answers; None where there is none, or x moves the set."""
    n_x = c.n_x
    if c.rows[:, :n_x].any() or c.equalities[:, :n_x].any():
        return None
    low, high = row_bounds(c)
    least = follower.linear + _extreme(follower.coupling, c.x_low, c.x_high)
    most = follower.linear - _extreme(-follower.coupling, c.x_low, c.x_high)
    rising, falling = (least >= 0.0) & np.isfinite(low), (most <= 0.0) & np.isfinite(high)
    mixed = ~rising & ~falling
    width = np.where(mixed, high - low, 0.0)
    reference = np.where(falling & ~rising, high, low)
    row = np.where(rising, least, np.where(falling, most, 0.0))
    if not np.isfinite(width).all() or not np.isfinite(least[mixed] * width[mixed]).all():
        return None
    found = scipy.optimize.linprog(
        row, A_ub=c.rows[:, n_x:], b_ub=c.right, A_eq=c.equalities[:, n_x:], b_eq=c.equal, bounds=(None, None)
    )
    if found.status != 0:
        return None
    ahead = np.asarray(found.x) - reference
    cost = 0.5 * float(found.x @ follower.hessian @ found.x) + float(follower.linear @ ahead)
    cost -= float(_extreme(-(ahead @ follower.coupling)[None], c.x_low, c.x_high)[0])
    right = cost + float(row @ reference) - float(np.minimum(least, 0.0)[mixed] @ width[mixed])
    return (row, right + _ROOM * (1.0 + abs(right))) if np.isfinite(right) else None


def row_bounds(c: Constraints) -> tuple[Float[NDArray, "n_y"], Float[NDArray, "n_y"]]:
    """Bounds of y, from the rows with one variable and without x."""
    low, high = np.full(c.n_y, -np.inf), np.full(c.n_y, np.inf)
    rows = c.rows[:, c.n_x :]
    for index in np.flatnonzero(((rows != 0.0).sum(axis=1) == 1) & ~c.rows[:, : c.n_x].any(axis=1)):
        at = int(rows[index].argmax() if rows[index].max() > 0.0 else rows[index].argmin())
        end = float(c.right[index] / rows[index, at])
        if rows[index, at] > 0.0:
            high[at] = min(high[at], end)
        else:
            low[at] = max(low[at], end)
    return low, high


def _extreme(matrix: Float[NDArray, "k n"], low: Float[NDArray, "n"], high: Float[NDArray, "n"]) -> Float[NDArray, "k"]:
    """The least of ``matrix x`` over a box, for each row."""
    ends = np.where(matrix > 0.0, low, high)
    return np.asarray(np.where(matrix != 0.0, matrix * np.where(matrix != 0.0, ends, 0.0), 0.0).sum(axis=1))
