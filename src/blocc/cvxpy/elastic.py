"""How far is a cone program from having a feasible point? ``min t  subject to  Az + b + t e in K``.

e is inside of every cone, and rows that must vanish may be off by t. The derivative of the least t in the parameters is
that of its Lagrangian: the way out for a leader whose follower has no answer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.cvxpy.alternatives import elastic
from blocc.cvxpy.cone_program import ConeProgram
from blocc.cvxpy.solvers import solve


class ConeViolation(NamedTuple):
    """The least violation of a cone program at one theta."""

    value: float  #: positive where there is no feasible point; not below -1
    slope: Float[NDArray, " parameters"]
    solved: bool
    z: Float[NDArray, " n"]


def least_violation(program: ConeProgram, theta: Float[NDArray, " parameters"]) -> ConeViolation:
    """Solve the elastic program."""
    cones = program.cones
    numbers, extended = elastic(program.at(theta), cones)
    found = solve(numbers, extended, 1e-10)
    z, prices = found.z[:-1], found.prices
    own = np.concatenate([prices[: cones.zero] - prices[cones.zero : 2 * cones.zero], prices[2 * cones.zero + 1 :]])
    value = float(found.z[-1]) if found.is_usable else np.inf
    return ConeViolation(value, program.slope(z, own, 0.0), found.is_usable, z)
