"""How far is a cone program from having a feasible point? ``min t  subject to  Az + b + t e in K``.

e is inside of every cone, and rows that must vanish may be off by t. The derivative of the least t in the parameters is
that of its Lagrangian: the way out for a leader whose follower has no answer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, NDArray
from blocc.cvxpy.cone_program import ConeProgram, ConeSizes, Numbers
from blocc.cvxpy.solvers import solve


class ConeViolation(NamedTuple):
    """The least violation of a cone program at one theta."""

    value: float  #: positive where there is no feasible point; not below -1
    slope: Float[NDArray, " parameters"]
    solved: bool
    z: Float[NDArray, " n"]


def _inside(cones: ConeSizes) -> Float[NDArray, " rows"]:
    """A point inside of every cone behind the rows that must vanish."""
    parts = [np.ones(cones.nonnegative)]
    parts += [np.eye(1, size)[0] for size in cones.second_order]
    for order in cones.semidefinite:
        columns, rows = np.tril_indices(order)
        parts.append((rows == columns).astype(np.float64))
    parts += [np.array([0.0, 1.0, 3.0])] * cones.exponential
    parts += [np.array([1.0, 1.0, 0.0])] * len(cones.power)
    return np.concatenate(parts)


def least_violation(program: ConeProgram, theta: Float[NDArray, " parameters"]) -> ConeViolation:
    """Solve the elastic program."""
    at, cones = program.at(theta), program.cones
    equal, rest = slice(0, cones.zero), slice(cones.zero, None)
    ones = np.ones((cones.zero, 1))
    blocks = [
        [at.matrix[equal], ones],  # Az + b + t >= 0 and -(Az + b) + t >= 0 where Az + b must vanish
        [-at.matrix[equal], ones],
        [sp.csr_array((1, program.n)), np.ones((1, 1))],  # t >= -1
        [at.matrix[rest], _inside(cones)[:, None]],
    ]
    matrix = sp.csc_array(sp.vstack([sp.hstack([left, sp.csr_array(right)]) for left, right in blocks]))
    offset = np.concatenate([at.offset[equal], -at.offset[equal], [1.0], at.offset[rest]])
    linear = np.append(np.zeros(program.n), 1.0)
    # A little of |z|^2 keeps z bounded where the program leaves it free.
    small = sp.diags_array(np.append(np.full(program.n, 1e-10), 0.0), format="csc")
    numbers = Numbers(sp.csc_array(small), linear, 0.0, matrix, offset)
    extended = cones._replace(zero=0, nonnegative=2 * cones.zero + 1 + cones.nonnegative)
    found = solve(numbers, extended, 1e-10)
    z, prices = found.z[:-1], found.prices
    own = np.concatenate([prices[: cones.zero] - prices[cones.zero : 2 * cones.zero], prices[2 * cones.zero + 1 :]])
    value = float(found.z[-1]) if found.is_usable else np.inf
    return ConeViolation(value, program.slope(z, own, 0.0), found.is_usable, z)
