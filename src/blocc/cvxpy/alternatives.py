"""Two programs that always have an answer, and tell whether another one has: the elastic one and that of its rays."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, NDArray
from blocc.cvxpy.cone_program import ConeSizes, Numbers


def elastic(numbers: Numbers, cones: ConeSizes) -> tuple[Numbers, ConeSizes]:
    """``min t  subject to  Az + b + t e in K, t >= -1``: e is inside of every cone, rows of zeros may be off by t.

    The rows are two for each row of zeros, then ``t >= -1``, then the others; the last column is t.
    """
    n, equal, rest = len(numbers.linear), slice(0, cones.zero), slice(cones.zero, None)
    rows = sp.csr_array(numbers.matrix)
    ones = np.ones((cones.zero, 1))
    blocks = [
        [rows[equal], ones],  # Az + b + t >= 0 and -(Az + b) + t >= 0 where Az + b must vanish
        [-rows[equal], ones],
        [sp.csr_array((1, n)), np.ones((1, 1))],
        [rows[rest], _inside(cones)[:, None]],
    ]
    matrix = sp.csc_array(sp.vstack([sp.hstack([left, sp.csr_array(right)]) for left, right in blocks]))
    offset = np.concatenate([numbers.offset[equal], -numbers.offset[equal], [1.0], numbers.offset[rest]])
    # A little of |z|^2 keeps z bounded where the program leaves it free.
    small = sp.diags_array(np.append(np.full(n, 1e-10), 0.0), format="csc")
    found = Numbers(sp.csc_array(small), np.append(np.zeros(n), 1.0), 0.0, matrix, offset)
    return found, cones._replace(zero=0, nonnegative=2 * cones.zero + 1 + cones.nonnegative)


def rays(numbers: Numbers, cones: ConeSizes) -> tuple[Numbers, ConeSizes]:
    """``min q'd  subject to  Ad in K, Pd = 0, |d_i| <= 1``: negative where the objective falls without limit."""
    n, first, last = len(numbers.linear), cones.zero, cones.zero + cones.nonnegative
    rows, bent = sp.csr_array(numbers.matrix), sp.csr_array(numbers.quadratic)
    bent = bent[np.flatnonzero(np.diff(bent.indptr))]
    unit = sp.eye_array(n, format="csr")
    matrix = sp.vstack([rows[:first], bent, rows[first:last], unit, -unit, rows[last:]])
    offset = np.zeros(matrix.shape[0])
    begin = last + bent.shape[0]
    offset[begin : begin + 2 * n] = 1.0
    found = Numbers(sp.csc_array((n, n)), numbers.linear, 0.0, sp.csc_array(matrix), offset)
    return found, cones._replace(zero=first + bent.shape[0], nonnegative=cones.nonnegative + 2 * n)


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
