"""Whether the follower's response lies on a kink of the follower's own functions, where no derivative of it counts.

Beyond such a kink other functions tell y(x): a derivative on this side says nothing about that one. Kinks that
an epigraph form has turned into rows of the follower's are rows of the pieces of phi, and are not asked for here.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from blocc._lib.arrays import Array
from blocc.corners import follower_sides, has_follower_sides
from blocc.flat_problem import FlatProblem
from blocc.judge.lower_level import TOUCHED, LowerKKT


def on_kink(flat: FlatProblem, r: LowerKKT) -> bool:
    """Whether y is as near to a kink as it is to a row that it touches; kinks that are rounded off do not count."""
    if flat.sides is not None or not flat.once(has_follower_sides):
        return False
    side, slopes = flat.program(_with_slopes)(r.x, r.y)
    reach = np.abs(np.asarray(slopes)) @ r.sizes.y
    return bool(((np.abs(side) <= TOUCHED * reach) & (reach > 0.0)).any())


def _with_slopes(flat: FlatProblem, x: Array, y: Array) -> Any:
    """What is zero on the kinks, and its derivatives in y."""

    def both(at: Array) -> tuple[Array, Array]:
        value = follower_sides(flat, x, at)
        return value, value

    slopes, value = jax.jacfwd(both, has_aux=True)(y)
    return value, slopes
