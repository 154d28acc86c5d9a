"""One Newton step on the bounds and rows that hold a point of the relaxation.

Tangents find the least value to high accuracy, and the place of the least value to its square root only.
"""

from __future__ import annotations

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import EXACT
from blocc.global_search.relaxation import Limits, Relaxation

#: What has no more room than this, relative to its size, is held.
_HELD = 1e-7
#: A step may violate what is not held by this.
_ROOM = 1e-8


def polished(relaxation: Relaxation, point: Float[NDArray, " columns"], limits: Limits) -> Float[NDArray, " columns"]:
    """A nearby point with a lower objective that keeps what holds ``point``; the same where there is none."""
    r = relaxation
    if not len(r.squares) or len(r.concave) or not r.cost[r.heights].all():
        return point  # nothing to gain, or a curved constraint, which has no place in this system
    free, low, high = slice(0, r.heights.start), limits.low, limits.high
    size = 1.0 + np.abs(point)
    held = ((point <= low + _HELD * size) | (point >= high - _HELD * size))[free]
    tight = r.above_right - r.above @ point <= _HELD * (1.0 + np.abs(r.above_right))
    rows = np.concatenate([r.equal[:, free], r.above[tight, free], np.eye(len(held))[held]])
    width, count = len(held), len(rows)
    matrix = np.zeros((width + count, width + count))
    matrix[: r.n, : r.n] = 2.0 * r.squares.T @ r.squares
    matrix[width:, :width], matrix[:width, width:] = rows, rows.T
    gradient = matrix[:width, :width] @ point[free] + r.cost[free]
    step = np.linalg.lstsq(matrix, np.concatenate([-gradient, np.zeros(count)]), rcond=1e-12)[0]
    moved = point.copy()
    moved[free] += step[:width]
    room = _ROOM * (1.0 + np.abs(moved))
    inside = (moved >= low - room)[free].all() and (moved <= high + room)[free].all()
    kept = np.abs(r.equal @ moved - r.equal_right).max(initial=0.0) <= _ROOM
    under = (r.above @ moved - r.above_right).max(initial=0.0) <= _ROOM
    moved[free] = np.clip(moved, low, high)[free]
    return moved if inside and kept and under and r.value(moved) <= r.value(point) + EXACT else point
