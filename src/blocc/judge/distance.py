"""Small residuals of an ill-conditioned follower are no small distance: how far may its response lie from y?

A regular piece tells by a Newton step (:mod:`blocc.judge.value_slope`). Without one two things are asked of y. Within
the tolerance of (x, y), in natural sizes, lies a point at which the follower's rows hold to first order: rows that
nearly cancel are violated by little very far from where they hold. And along each direction free of the priced rows in
which the follower is nearly flat, what is left of its slope, and the rounding of that, divided by the curvature is
within the tolerance (Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapter 7): or neither f nor G
notices. Where the curvature is none but for rounding every point is as good for the follower, and the leader chooses
(:mod:`blocc.local.selection`).
"""

from __future__ import annotations

import numpy as np
import scipy

from blocc._lib.rounding import TINY
from blocc.flat_problem import FlatProblem
from blocc.judge.lower_level import LowerKKT, held_rows
from blocc.local.derivatives import local
from blocc.local.scales import ROUNDING, row_sizes
from blocc.local.selection import null_space

_EPS = float(np.finfo(float).eps)
#: Curvature above which residuals within the tolerance are what they say: the root of the rounding.
_FLAT = _EPS**0.5


def undetermined(flat: FlatProblem, r: LowerKKT, tolerance: float) -> str:
    """Why y is not known to be within the tolerance of the response, in words; empty where it is."""
    if not _rows_hold_nearby(flat, r, tolerance):
        return f"no point within {tolerance:.0e} of (x, y), relative to their sizes, meets the follower's constraints"
    off = _flat_distance(flat, r, tolerance)
    if off > tolerance:
        return f"the follower is too ill-conditioned: y is not determined to better than {off:.1e} of its size"
    return ""


def _rows_hold_nearby(flat: FlatProblem, r: LowerKKT, tolerance: float) -> bool:
    """Whether the linearised rows hold, up to their rounding, somewhere within the tolerance of (x, y)."""
    n_x, sizes, z = flat.n_x, r.sizes.both, np.concatenate([r.x, r.y])
    equality = r.local.equality_jacobian
    jacobian = np.concatenate([np.concatenate([r.rows.jacobian_x, r.rows.jacobian], axis=1), equality, -equality])
    value = np.concatenate([r.rows.value, r.local.equality, -r.local.equality])
    size = np.concatenate([r.rows.size, *2 * [row_sizes(equality, sizes, z)]])
    size = np.maximum(size, TINY)
    excess = value / size - ROUNDING * (np.abs(jacobian) @ np.maximum(np.abs(z), sizes)) / size
    if not (excess > 0.0).any():
        return True
    # In shares of the tolerance: the least violation over the box, which always exists.
    low, high = flat.x_set.bounds_flat()
    reach = np.ones((len(z), 2)) * [-1.0, 1.0]
    reach[:n_x, 0] = np.clip((low - r.x) / (tolerance * r.sizes.x), -1.0, 0.0)
    reach[:n_x, 1] = np.clip((high - r.x) / (tolerance * r.sizes.x), 0.0, 1.0)
    found = scipy.optimize.linprog(
        np.concatenate([np.zeros(len(z)), [1.0]]),
        A_ub=np.concatenate([jacobian * sizes / size[:, None], -np.ones((len(size), 1))], axis=1),
        b_ub=-excess / tolerance,
        bounds=[*map(tuple, reach), (0.0, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return bool(found.status == 0 and found.fun <= ROUNDING / tolerance)


def _flat_distance(flat: FlatProblem, r: LowerKKT, tolerance: float) -> float:
    """How far, in sizes of y, the response may lie along directions that are nearly flat and that f or G notices."""
    n_x, held = flat.n_x, held_rows(r)
    if not r.y.size:
        return 0.0
    found = local(flat, r.x, r.y, r.mu, r.nu) if r.mu.any() or r.nu.any() else r.local
    unit = r.sizes.y / np.sqrt(r.slope)
    normals = np.concatenate([r.rows.jacobian[held], found.equality_jacobian[:, n_x:]])
    free = null_space(normals * unit)
    bend = unit[:, None] * (found.lower_hessian + found.constraint_hessian)[n_x:, n_x:] * unit
    values, vectors = np.linalg.eigh(free.T @ bend @ free)
    flat_ones = (values > ROUNDING) & (values <= _FLAT)
    prices = np.concatenate([r.mu, r.bound])
    left = found.lower_gradient[n_x:] + prices @ r.rows.jacobian + r.nu @ found.equality_jacobian[:, n_x:]
    far = 0.0
    for value, vector in zip(values[flat_ones], (free @ vectors[:, flat_ones]).T, strict=True):
        step = (abs(float(vector @ (unit * left))) + _EPS * float(np.abs(vector) @ np.sqrt(r.slope))) / value
        move = step * unit * vector
        off = float(np.max(np.abs(move) / r.sizes.y))
        if off > tolerance and _noticed(flat, r, move / max(1.0, off), tolerance):
            far = max(far, off)
    return far


def _noticed(flat: FlatProblem, r: LowerKKT, move: np.ndarray, tolerance: float) -> bool:
    """Whether f or G changes by more than the tolerance as y moves; differences beyond its size count as that."""
    n_x, at = flat.n_x, r.local
    change = abs(float(at.upper_gradient[n_x:] @ move)) + 0.5 * abs(float(move @ at.upper_hessian[n_x:, n_x:] @ move))
    rows = np.abs(at.upper_inequality_jacobian[:, n_x:] @ move)
    allowed = tolerance * (np.abs(at.upper_inequality_jacobian) @ r.sizes.both)
    return bool(change > tolerance * float(np.abs(at.upper_gradient) @ r.sizes.both) or (rows > allowed).any())
