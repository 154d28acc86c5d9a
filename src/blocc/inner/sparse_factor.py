"""Factors of sparse KKT matrices, computed on the host by QDLDL.

    [ H + D + shift   J'        E'  ]
    [ J              -s/mu          ]
    [ E                         0   ]

With a little taken from the two lower blocks the matrix is quasi-definite: it has a factor L diag(d) L' in every order
of its rows. So the order (AMD) and the pattern of L are found once, and serve all numbers; and the signs of d tell
whether the curvature is right. What was taken is given back by iterative refinement. It also keeps the small pivots
s/mu of active rows from drowning H.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Bool, Float, Int, NDArray
from blocc.inner.kkt_pattern import SparseKKT

#: Taken from the diagonal of all rows.
_DUAL_SHIFT = 1e-9
#: Rounds of refinement, and the relative error at which they end.
_REFINEMENTS, _ACCURACY = 10, 1e-13


class Factor:
    """A factor of one pattern, for one set of numbers after the other; its order is found when it is made."""

    def __init__(self, rows: Int[NDArray, " entries"], columns: Int[NDArray, " entries"], positive: NDArray) -> None:
        """The entries on and above the diagonal, column by column, each once; which signs d must have."""
        import qdldl

        size = positive.size
        starts = np.searchsorted(columns, np.arange(size + 1))
        diagonal = rows == columns
        # Any numbers serve that dominate their rows.
        degrees = np.bincount(np.concatenate([rows, columns]), minlength=size)
        numbers = np.where(diagonal, (2.0 * degrees * np.where(positive, 1.0, -1.0))[columns], 1.0)
        self._upper = sp.csc_array((numbers, rows.astype(np.int32), starts.astype(np.int32)), shape=(size, size))
        self._solver: Any = qdldl.Solver(self._upper, upper=True)
        self._signs = np.where(positive, 1.0, -1.0)[np.asarray(self._solver.factors()[2])]

    def update(self, numbers: Float[NDArray, " entries"]) -> bool:
        """Factor the matrix with these entries; whether the signs of d are right."""
        self._upper.data = numbers
        self._solver.update(self._upper, upper=True)
        return bool((self._solver.factors()[1] * self._signs > 0.0).all())

    def solve(self, rhs: Float[NDArray, " size"]) -> Float[NDArray, " size"]:
        """With the last numbers."""
        found: NDArray = self._solver.solve(rhs)
        return found


class _Matrix(NamedTuple):
    """A KKT matrix, as it is."""

    values: NDArray
    shift: float
    upper: sp.csc_array
    diagonal: NDArray
    good: bool  #: whether it is finite, and has a factor with the right signs

    def times(self, vector: NDArray) -> NDArray:
        found: NDArray = self.upper @ vector + self.upper.T @ vector - self.diagonal * vector
        return found


class Factoriser:
    """Factors KKT matrices of one pattern: pure functions of their arguments, which remember the last factor."""

    def __init__(self, pattern: SparseKKT) -> None:
        n, n_c, n_e = pattern.sizes
        h, j, e = pattern.hessian, pattern.inequality, pattern.equality
        upper = np.flatnonzero(h.rows < h.columns)
        own = np.flatnonzero(h.rows == h.columns)
        size, diagonal = n + n_c + n_e, np.arange(n + n_c + n_e)
        rows = np.concatenate([h.rows[upper], j.columns, e.columns, diagonal])
        columns = np.concatenate([h.columns[upper], n + j.rows, n + n_c + e.rows, diagonal])
        n_h, entries = h.rows.size, h.rows.size + j.rows.size + e.rows.size
        source = np.concatenate([upper, np.arange(n_h, entries), entries + diagonal])
        order = np.lexsort((rows, columns))
        self._source = source[order]  #: for each entry of the upper triangle its place among the values
        self._own = own, entries + h.rows[own]  #: entries of H that belong to the diagonal, and where
        self._structure = rows[order].astype(np.int32), np.searchsorted(columns[order], np.arange(size + 1))
        self._n, self._size, self._n_h = n, size, n_h
        self._factor = Factor(rows[order], columns[order], diagonal < n)
        self._last: _Matrix | None = None
        self._hessian = _Curvature(h.rows, h.columns, n)
        self._lock = threading.Lock()

    def factorise(self, values: NDArray, shift: NDArray, allowed: NDArray) -> tuple[float, float]:
        """The smallest shift from ``shift`` on at which the matrix has the right curvature, and whether H has not.

        :param values: the entries of H, J and E, and the diagonal
        """
        weight = float(shift)
        if not np.isfinite(values).all():
            return weight, 0.0
        largest = 1e4 * (1.0 + float(np.max(np.abs(values[-self._size :][: self._n]), initial=0.0)))
        with self._lock:
            while not self._factored(values, weight).good and weight < largest:
                weight *= 100.0
            return weight, float(self._hessian.bends_down(values[: self._n_h], float(allowed)))

    def solve(self, values: NDArray, shift: NDArray, rhs: NDArray) -> NDArray:
        """The solution for one right-hand side, by iterative refinement; NaN where there is no factor."""
        found, left, best = np.zeros_like(rhs), rhs, np.inf
        with self._lock:
            matrix = self._factored(values, float(shift))
            if not (matrix.good and np.isfinite(rhs).all()):
                return np.full(rhs.size, np.nan)
            # The rows of inactive constraints have a huge diagonal: what they are off by counts in its units.
            size = 1.0 + np.abs(matrix.diagonal)
            small = _ACCURACY * float(np.max(np.abs(rhs) / size, initial=0.0))
            for _ in range(_REFINEMENTS):
                candidate = found + self._factor.solve(left)
                left = rhs - matrix.times(candidate)
                error = float(np.max(np.abs(left) / size, initial=0.0))
                better, enough = error < best, error <= small or not error < 0.5 * best
                found, best = (candidate, error) if better else (found, best)
                if enough:
                    break
        return found

    def _factored(self, values: NDArray, shift: float) -> _Matrix:
        """The matrix with these values; the factor is now its own."""
        last = self._last
        if last is not None and last.shift == shift and np.array_equal(last.values, values):
            return last
        moved = values.copy()
        moved[self._own[1]] += values[self._own[0]]
        diagonal = moved[-self._size :]
        diagonal[: self._n] += shift
        upper = sp.csc_array((moved[self._source], *self._structure), shape=(self._size, self._size))
        self._last = _Matrix(values.copy(), shift, upper, diagonal.copy(), False)
        diagonal[self._n :] -= _DUAL_SHIFT
        if np.isfinite(values).all():
            self._last = self._last._replace(good=self._factor.update(moved[self._source]))
        return self._last


class _Curvature:
    """Whether symmetric matrices of one pattern have negative eigenvalues."""

    def __init__(self, rows: Int[NDArray, " entries"], columns: Int[NDArray, " entries"], size: int) -> None:
        self._own = rows == columns
        self._diagonal = bool(self._own.all())
        if not self._diagonal:
            missing = np.setdiff1d(np.arange(size), rows[self._own])
            upper = np.flatnonzero(rows <= columns)
            both = np.concatenate([rows[upper], missing]), np.concatenate([columns[upper], missing])
            self._order, self._upper = np.lexsort(both), upper
            at = both[0][self._order], both[1][self._order]
            self._on_diagonal: Bool[NDArray, " upper"] = at[0] == at[1]
            self._missing = np.zeros(missing.size)
            self._factor = Factor(*at, np.ones(size, dtype=bool))
        self._known: tuple[NDArray, float, bool] | None = None

    def bends_down(self, entries: Float[NDArray, " entries"], allowed: float) -> bool:
        """Whether there is an eigenvalue below ``-allowed``."""
        if self._diagonal:
            return bool(np.min(entries, initial=0.0) < -allowed)
        last = self._known
        if last is None or last[1] != allowed or not np.array_equal(last[0], entries):
            numbers = np.concatenate([entries[self._upper], self._missing])[self._order]
            last = entries.copy(), allowed, not self._factor.update(numbers + allowed * self._on_diagonal)
            self._known = last
        return last[2]
