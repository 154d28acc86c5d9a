"""A cone program in units in which its numbers are of the size 1, and the way back.

With ``z = t D w``, rows times E, and the objective times ``1 / t^2``, the program

    minimise  q'z + z'Pz/2   subject to   Az + b in K

becomes one in w with the numbers ``D q / t``, ``D P D``, ``E A D`` and ``E b / t``: K is a cone, and E has one number
for each of its curved blocks. The objective is divided by what its largest entry is then, so that a solver's tolerances
are shares of it. These are the entries of the symmetric matrix of P, A, q and b, with rows and columns
times (D, E, 1 / t), and the factors are Ruiz's for it (RAL-TR-2001-034): square roots of the largest entries, again and
again. All are powers of two, so nothing is rounded. Solvers measure by absolute numbers whether a program has no
answer; so measured it is the same in all units of the user's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, Int, NDArray
from blocc.cvxpy.cone_program import ConeSizes, Numbers

Vector = Float[NDArray, " n"]
#: Rounds of Ruiz's method, each of which halves the logarithm of what is left: from 1e300 to 2.
_ROUNDS = 10
#: Factors lie between this and its inverse, the root of the unit of rounding: smaller columns are rounding errors.
_LEAST = 2.0**-26


class Scaled(NamedTuple):
    """A program in its own units."""

    numbers: Numbers
    columns: Vector  #: the user's columns over own ones: t D
    rows: Vector  #: the user's multipliers over own ones: t E times the objective's size
    forces: Vector  #: own residuals of stationarity over the user's
    slacks: Vector  #: own slacks over the user's
    objective: float  #: the size of the objective in the user's units, 1 where it is larger: no limit gets wider

    def z(self, own: Vector) -> Vector:
        """Columns in the user's units."""
        return self.columns * own

    def prices(self, own: Vector) -> Vector:
        """Multipliers in the user's units."""
        return self.rows * own


def scaled(numbers: Numbers, cones: ConeSizes) -> Scaled:
    """The program in units of its own."""
    bent, entries = sp.coo_array(numbers.quadratic), sp.coo_array(numbers.matrix)
    columns, rows, last = _equilibrated(numbers, bent, entries, row_blocks(cones))
    curved, costs = _weighted(bent, columns, columns), last * columns * numbers.linear
    # Ruiz's factors leave a small P or q beside a large A as it is: the objective has a factor of its own.
    largest = max(float(np.max(np.abs(part), initial=0.0)) for part in (curved, costs))
    unit = 2.0 ** float(np.round(np.log2(largest))) if 0.0 < largest < np.inf else 1.0
    own = Numbers(
        sp.csc_array((curved / unit, bent.coords), shape=bent.shape),
        costs / unit,
        0.0,
        sp.csc_array((_weighted(entries, rows, columns), entries.coords), shape=entries.shape),
        last * rows * numbers.offset,
    )
    size = min((largest or 1.0) / last**2, 1.0)
    return Scaled(own, columns / last, unit * rows / last, last * columns / unit, last * rows, size)


def _equilibrated(
    numbers: Numbers, bent: sp.coo_array, entries: sp.coo_array, blocks: Int[NDArray, " rows"]
) -> tuple[Vector, Vector, float]:
    """D, E and 1 / t."""
    columns, rows, last = np.ones(bent.shape[0]), np.ones(len(blocks)), 1.0
    costs, sides = np.abs(numbers.linear), np.abs(numbers.offset)
    for _ in range(_ROUNDS):
        inside, curved = np.abs(_weighted(entries, rows, columns)), np.abs(_weighted(bent, columns, columns))
        of_columns, of_rows = last * columns * costs, last * rows * sides
        of_last = max(float(np.max(of_columns, initial=0.0)), float(np.max(of_rows, initial=0.0)))
        np.maximum.at(of_columns, entries.coords[1], inside)
        np.maximum.at(of_columns, bent.coords[1], curved)
        np.maximum.at(of_rows, entries.coords[0], inside)
        of_blocks = np.zeros(len(blocks))
        np.maximum.at(of_blocks, blocks, of_rows)
        before = np.concatenate([columns, rows, [last]])
        columns, rows = _divided(columns, of_columns), _divided(rows, of_blocks[blocks])
        last = float(_divided(np.array([last]), np.array([of_last]))[0])
        if np.array_equal(before, np.concatenate([columns, rows, [last]])):
            break
    return columns, rows, last


def _divided(factors: Vector, sizes: Vector) -> Vector:
    """Factors over the nearest powers of two to the square roots of sizes; as they are where there is no entry."""
    some = (sizes > 0.0) & np.isfinite(sizes)
    found = factors.copy()
    found[some] = np.clip(factors[some] * 2.0 ** -np.round(0.5 * np.log2(sizes[some])), _LEAST, 1.0 / _LEAST)
    return found


def _weighted(matrix: sp.coo_array, left: Vector, right: Vector) -> Vector:
    """The entries of ``diag(left) M diag(right)``."""
    return np.asarray(left[matrix.coords[0]] * matrix.data * right[matrix.coords[1]])


def row_blocks(cones: ConeSizes) -> Int[NDArray, " rows"]:
    """A number for every row, the same for the rows of one block of a curved cone."""
    sizes = [1] * (cones.zero + cones.nonnegative) + list(cones.second_order)
    sizes += [order * (order + 1) // 2 for order in cones.semidefinite]
    sizes += [3] * (cones.exponential + len(cones.power))
    return np.repeat(np.arange(len(sizes)), sizes)
