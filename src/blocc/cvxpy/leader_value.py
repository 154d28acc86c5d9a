"""The leader's value at given answers and prices of the followers, with its derivatives.

The leader's cone program has columns of the followers' (known here) and of its own: what CVXPY added for norms and
maxima, the slack of softened constraints, payments. Over those it is minimised.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, Int, NDArray
from blocc.cvxpy.cone_program import ConeProgram, ConeSizes, Numbers
from blocc.cvxpy.penalised import Penalised
from blocc.cvxpy.scaling import row_blocks
from blocc.cvxpy.solvers import solve

Vector = Float[NDArray, " n"]
_TOLERANCE = 1e-12


class LeaderValue(NamedTuple):
    """The leader's value at columns that are known."""

    value: float
    columns: Vector  #: of the leader's program, known ones and her own
    prices: Vector  #: of the program's rows
    in_known: Vector  #: derivative in the columns that are known
    in_theta: Vector  #: derivative in the program's parameters


class LeaderParts(NamedTuple):
    """The leader's program with a row for each payment, first: linear in the columns that are known and her own.

    Rows without a column of her own are the followers': what attributes of their variables say.
    """

    numbers: Numbers
    offset: Vector  #: of the rows
    known: sp.csc_array  #: factors of the columns that are known in its rows
    own: sp.csc_array  #: factors of her own columns
    cones: ConeSizes


class LeaderProgram:
    """The leader's program as a function of the followers' columns that she looks at."""

    def __init__(self, penalised: Penalised, also: Int[NDArray, " k"] | None = None) -> None:
        self.program: ConeProgram = penalised.leader
        joint = penalised.leader_columns
        self.own: Int[NDArray, " own"] = np.flatnonzero(joint >= penalised.n_below)
        shared = np.flatnonzero(joint < penalised.n_below)
        paid = [penalised.paid_prices(one) for one in penalised.payments]
        #: Columns of the joint problem that are known here.
        self.places: Int[NDArray, " known"] = np.unique(
            np.concatenate([joint[shared], *paid, [] if also is None else also])
        ).astype(np.int64)
        known = np.searchsorted(self.places, joint[shared])
        self.n, self._columns = len(self.places), shared
        self._pick = sp.csr_array((np.ones(len(shared)), (np.arange(len(shared)), known)), (len(shared), self.n))
        self.payments = penalised.payments
        self._paid = [np.searchsorted(self.places, one) for one in paid]
        self.kept, self.cones = self._own_rows()

    def _own_rows(self) -> tuple[Int[NDArray, " rows"], ConeSizes]:
        """The rows, whole blocks of curved cones, that have a column of the leader's own."""
        entries, cones = self.program.constraint, self.program.cones
        blocks = row_blocks(cones)
        wanted = np.zeros(int(blocks[-1]) + 1 if len(blocks) else 0, dtype=bool)
        wanted[blocks[entries.rows[np.isin(entries.columns, self.own)]]] = True
        return np.flatnonzero(wanted[blocks]), cones.some(wanted)

    def all_prices(self, prices: Vector) -> Vector:
        """Multipliers of all rows of the program out of those of :meth:`parts`."""
        found = np.zeros(self.program.m)
        found[self.kept] = prices[len(self.payments) :]
        return found

    def columns(self, known: Vector, own: Vector) -> Vector:
        """All columns of the leader's program."""
        found = np.empty(self.program.n)
        found[self._columns], found[self.own] = self._pick @ known, own
        return found

    def curved(self, numbers: Numbers) -> tuple[sp.csr_array, sp.csr_array, sp.csr_array]:
        """P by columns that are known and by her own: known by known, her own by known, her own by her own."""
        rows = sp.csr_array(numbers.quadratic)
        above, below = rows[self._columns], rows[self.own]
        return (
            sp.csr_array(self._pick.T @ above[:, self._columns] @ self._pick),
            sp.csr_array(below[:, self._columns] @ self._pick),
            sp.csr_array(below[:, self.own]),
        )

    def parts(self, theta: Vector, known: Vector, quantities: list[Vector] | None = None) -> LeaderParts:
        """Rows at parameters, with payments at prices that are known, or linear around these and given quantities."""
        numbers, n = self.program.at(theta), len(self.payments)
        rows, offset = sp.csr_array(numbers.matrix)[self.kept], np.append(np.zeros(n), numbers.offset[self.kept])
        mine, theirs = rows[:, self.own], rows[:, self._columns] @ self._pick
        if n:
            place = np.full(self.program.n, -1)
            place[self.own] = np.arange(len(self.own))
            paid, priced = sp.lil_array((n, len(self.own))), sp.lil_array((n, self.n))
            for index, (payment, at) in enumerate(zip(self.payments, self._paid, strict=True)):
                paid[index, place[payment.total]] = 1.0
                paid[[index], place[payment.quantity.slice]] = -known[at]
                if quantities is not None:
                    priced[[index], at] = -quantities[index]
            mine, theirs = sp.vstack([paid, mine]), sp.vstack([priced, theirs])
        cones = self.cones._replace(zero=self.cones.zero + n)
        return LeaderParts(numbers, offset, sp.csc_array(theirs), sp.csc_array(mine), cones)

    def quantities(self, columns: Vector) -> list[Vector]:
        """What is paid for, out of the leader's columns."""
        return [columns[one.quantity.slice] for one in self.payments]

    def at(self, theta: Vector, known: Vector) -> LeaderValue | None:
        """The leader's value; None where it has none."""
        parts = self.parts(theta, known)
        numbers, n = parts.numbers, len(self.payments)
        _, across, mine = self.curved(numbers)
        offset = parts.offset + parts.known @ known
        own, prices = np.zeros(0), np.zeros(len(offset))
        if len(self.own):
            free = Numbers(sp.csc_array(mine), numbers.linear[self.own] + across @ known, 0.0, parts.own, offset)
            found = solve(free, parts.cones, _TOLERANCE, "clarabel")
            if not found.is_usable:
                return None
            own, prices = found.z, found.prices
        columns = self.columns(known, own)
        value = numbers.linear @ columns + 0.5 * columns @ (numbers.quadratic @ columns) + numbers.constant
        around = self.parts(theta, known, self.quantities(columns)) if n else parts
        pull = self.pull(around, columns, prices)
        prices = self.all_prices(prices)
        return LeaderValue(float(value), columns, prices, pull, self.program.slope(columns, prices))

    def pull(self, parts: LeaderParts, columns: Vector, prices: Vector) -> Vector:
        """The derivative of the leader's Lagrangian in the columns that are known."""
        bent = self._pick.T @ (parts.numbers.quadratic @ columns + parts.numbers.linear)[self._columns]
        return np.asarray(bent - parts.known.T @ prices)

    def crossed(self, columns: Vector, prices: Vector) -> sp.csr_array:
        """The derivative of :meth:`pull` in the program's parameters, columns and multipliers held."""
        return sp.csr_array(self._pick.T @ sp.csr_array(self.program.force_sides(columns, prices))[self._columns])
