"""Sparse matrices for the interior point: a factor of the whole KKT matrix, computed by SciPy.

Newton's system is held as

    [ H + D + shift   J'        E'  ] [ dy  ]
    [ J              -s/mu          ] [ dmu ]
    [ E                         0   ] [ dnu ]

with D from the bounds. With a little taken from the lowest block it has a factor L diag(d) L' in every order of its
rows, so the order is chosen once, by the pattern alone, and the signs of d tell whether the curvature is right. XLA
has no sparse factors for CPUs: the numbers go to the host by a callback and the solutions come back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import SuperLU, spilu, splu

from blocc._lib.arrays import Array, Bool, Float, Int, NDArray
from blocc._lib.callbacks import call_back
from blocc.inner.colouring import Coloured, SparseRows, constants
from blocc.inner.newton_system import Bounds, PrimalDual, Residual, Rows, Scaled
from blocc.inner.sparsity import TooDense

#: Taken from the diagonal of the equalities; iterative refinement solves for the matrix without it.
_DUAL_SHIFT = 1e-9
_REFINEMENTS = 6
#: Factors that are remembered: those of one point are asked for several times.
_REMEMBERED = 4


@cache
def _worker(process: int) -> ThreadPoolExecutor:
    """The thread of this process in which SuperLU works: what one thread allocates no other can free."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="blocc-factors")


@dataclass(frozen=True, eq=False)
class SparseKKT:
    """The pattern of a follower's KKT matrix: its parts, an order of elimination, and the fill that comes of it."""

    hessian: Coloured  #: symmetric
    inequality: Coloured
    equality: Coloured
    order: Int[NDArray, " size"]
    fill: int  #: entries of the factor

    @classmethod
    def of(cls, hessian: sp.csr_array, inequality: sp.csr_array, equality: sp.csr_array, limit: int) -> SparseKKT:
        """Colours and an order for the given patterns.

        :raises TooDense: where the factor, or what is computed on the way, has more than ``limit`` entries
        """
        symmetric = sp.csr_array(hessian + hessian.T)
        whole = _assembled(symmetric, inequality, equality)
        order = _ordered(whole)
        fill = _fill(whole[order][:, order], limit)
        first, second, third = (Coloured.of(pattern, limit) for pattern in (symmetric, inequality, equality))
        return cls(first, second, third, order, fill)

    @property
    def sweeps(self) -> int:
        """Directional derivatives and reverse sweeps for all matrices at one point."""
        return self.hessian.sweeps + self.inequality.sweeps + self.equality.sweeps

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Variables, inequalities and equalities."""
        return self.hessian.shape[0], self.inequality.shape[0], self.equality.shape[0]

    @cached_property
    def mirror(self) -> Int[NDArray, " entries"]:
        """For each entry of the Hessian the number of the one across the diagonal."""
        n = self.hessian.shape[0]
        here = self.hessian.rows.astype(np.int64) * n + self.hessian.columns
        there = self.hessian.columns.astype(np.int64) * n + self.hessian.rows
        sorted_by_place = np.argsort(here)
        return sorted_by_place[np.searchsorted(here[sorted_by_place], there)].astype(np.int32)

    @cached_property
    def host(self) -> Factoriser:
        """What computes with the numbers."""
        return Factoriser(self)


def _assembled(hessian: sp.csr_array, inequality: sp.csr_array, equality: sp.csr_array) -> sp.csr_array:
    unit = lambda size: sp.eye_array(size, dtype=bool)  # noqa: E731
    blocks = [
        [hessian + unit(hessian.shape[0]), inequality.T, equality.T],
        [inequality, unit(inequality.shape[0]), None],
        [equality, None, unit(equality.shape[0])],
    ]
    return sp.csr_array(sp.block_array(blocks, format="csr", dtype=bool))


def _ordered(pattern: sp.csr_array) -> Int[NDArray, " size"]:
    """An order of elimination: multiple minimum degree by SuperLU, with the fullest rows last."""
    degrees = np.diff(pattern.indptr)
    full = degrees > max(32.0, 10.0 * np.sqrt(pattern.shape[0]))
    rest = np.flatnonzero(~full)
    if rest.size < 3:
        return np.arange(pattern.shape[0])
    dominant = sp.csc_array(pattern[rest][:, rest].astype(float) + sp.diags_array(2.0 * degrees[rest] + 1.0))
    # An incomplete factor that drops all it may is a cheap way to SuperLU's order.
    incomplete = spilu(dominant, drop_tol=1.0, fill_factor=1.0, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0)
    return np.concatenate([rest[np.argsort(incomplete.perm_c)], np.flatnonzero(full)])


def _fill(pattern: sp.csr_array, limit: int) -> int:
    """Entries of the factor of a symmetric matrix, counted along its elimination tree."""
    starts, columns = pattern.indptr.tolist(), pattern.indices.tolist()
    size = pattern.shape[0]
    parent, mark, total = [-1] * size, [-1] * size, size
    for row in range(size):
        mark[row] = row
        for column in columns[starts[row] : starts[row + 1]]:
            while column < row and mark[column] != row:
                if parent[column] == -1:
                    parent[column] = row
                total += 1
                mark[column] = row
                column = parent[column]
        if total > limit:
            raise TooDense
    return total


class Factoriser:
    """Factors KKT matrices of one pattern on the host: pure functions of their arguments, with a memory."""

    def __init__(self, pattern: SparseKKT) -> None:
        n, n_c, n_e = pattern.sizes
        size = n + n_c + n_e
        place = np.empty(size, dtype=np.int64)
        place[pattern.order] = np.arange(size)
        j, e, diagonal = pattern.inequality, pattern.equality, np.arange(size)
        rows = [pattern.hessian.rows, n + j.rows, j.columns, n + n_c + e.rows, e.columns, diagonal]
        columns = [pattern.hessian.columns, j.columns, n + j.rows, e.columns, n + n_c + e.rows, diagonal]
        n_h, n_j, n_q = pattern.hessian.rows.size, j.rows.size, e.rows.size
        source = [
            np.arange(n_h),
            *[n_h + np.arange(n_j)] * 2,
            *[n_h + n_j + np.arange(n_q)] * 2,
            n_h + n_j + n_q + diagonal,
        ]
        at = place[np.concatenate(columns)] * size + place[np.concatenate(rows)]
        unique, target = np.unique(at, return_inverse=True)
        ones = np.ones(target.size)
        self._gather = sp.csr_array(
            (ones, (target, np.concatenate(source))), shape=(unique.size, n_h + n_j + n_q + size)
        )
        starts = np.searchsorted(unique, np.arange(size + 1) * size)
        self._structure = (unique % size).astype(np.int32), starts.astype(np.int32)
        self._size, self._n, self._n_rows, self._n_h, self._order = size, n, n + n_c, n_h, pattern.order
        self._signs = np.where(pattern.order < n, 1.0, -1.0)
        self._hessian = pattern.hessian
        entries = np.ones(n_h, dtype=bool), (self._hessian.rows, self._hessian.columns)
        self._hessian_order = _ordered(sp.csr_array(entries, shape=(n, n)))
        self._convex: tuple[NDArray, float, bool] | None = None

    def factorise(self, values: NDArray, shift: NDArray, allowed: NDArray) -> tuple[float, float]:
        """The smallest shift from ``shift`` on at which the matrix has the right curvature, and whether H has not."""
        return _worker(os.getpid()).submit(self._factorise, values, float(shift), float(allowed)).result()

    def solve(self, values: NDArray, shift: NDArray, rhs: NDArray) -> NDArray:
        """The solution for one right-hand side, by iterative refinement; NaN where there is no factor."""
        return _worker(os.getpid()).submit(self._solve, values, float(shift), rhs).result()

    def _factorise(self, values: NDArray, shift: float, allowed: float) -> tuple[float, float]:
        if not np.isfinite(values).all():
            return shift, 0.0
        largest = 1e4 * (1.0 + float(np.max(np.abs(values[-self._size :][: self._n]), initial=0.0)))
        while self._factor(values, shift) is None and shift < largest:
            shift *= 100.0
        return shift, float(self._bends_down(values[: self._n_h], allowed))

    def _solve(self, values: NDArray, shift: float, rhs: NDArray) -> NDArray:
        wanted, answer = rhs[self._order], np.full(rhs.size, np.nan)
        if not (np.isfinite(values).all() and np.isfinite(wanted).all()):
            return answer
        factor = self._factor(values, shift)
        if factor is None:
            return answer
        matrix = self._matrix(values, shift, 0.0)
        # The rows of inactive constraints have a huge diagonal: what they are off by counts in its units.
        size = 1.0 + np.abs(matrix.diagonal())
        small = 1e-14 * float(np.max(np.abs(wanted) / size, initial=0.0))
        found, left, best = np.zeros_like(wanted), wanted, np.inf
        for _ in range(_REFINEMENTS):
            candidate = found + factor.solve(left)
            left = wanted - matrix @ candidate
            error = float(np.max(np.abs(left) / size, initial=0.0))
            better, enough = error < best, error <= small or not error < 0.5 * best
            found, best = (candidate, error) if better else (found, best)
            if enough:
                break
        answer[self._order] = found
        return answer

    def _matrix(self, values: NDArray, shift: float, dual_shift: float) -> sp.csc_array:
        moved = values.copy()
        diagonal = moved[-self._size :]
        diagonal[: self._n] += shift
        diagonal[self._n_rows :] -= dual_shift
        return sp.csc_array((self._gather @ moved, *self._structure), shape=(self._size, self._size))

    def _factor(self, values: NDArray, shift: float) -> SuperLU | None:
        """The factor, from memory where it is there; None where the signs of its diagonal are wrong."""
        for owner, known, weight, factor in _memory:
            if owner is self and weight == shift and np.array_equal(known, values):
                return factor
        found = _symmetric_factor(self._matrix(values, shift, _DUAL_SHIFT), self._signs)
        _memory[:] = [(self, values.copy(), shift, found), *_memory[: _REMEMBERED - 1]]
        return found

    def _bends_down(self, entries: NDArray, allowed: float) -> bool:
        """Whether the Hessian has an eigenvalue below ``-allowed``."""
        last = self._convex
        if last is not None and last[1] == allowed and np.array_equal(last[0], entries):
            return last[2]
        where, diagonal = self._hessian, self._hessian.rows == self._hessian.columns
        if diagonal.all():
            found = bool(np.min(entries, initial=0.0) < -allowed)
        else:
            matrix = sp.csc_array((entries, (where.rows, where.columns)), shape=where.shape)
            matrix = matrix + allowed * sp.eye_array(self._n, format="csc")
            order = self._hessian_order
            found = _symmetric_factor(sp.csc_array(matrix[order][:, order]), np.ones(self._n)) is None
        self._convex = entries.copy(), allowed, found
        return found


def _symmetric_factor(matrix: sp.csc_array, signs: NDArray) -> SuperLU | None:
    """The factor without changes of the order; None where its diagonal has other signs."""
    try:
        factor = splu(
            matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0, panel_size=1, options={"SymmetricMode": True}
        )
    except RuntimeError:  # exactly singular
        return None
    diagonal = factor.U.diagonal()
    straight = np.array_equal(factor.perm_r, np.arange(signs.size))
    return factor if straight and bool((diagonal * signs > 0.0).all()) else None


_memory: list[tuple[Factoriser, NDArray, float, SuperLU | None]] = []  #: seen by the worker alone


@dataclass(frozen=True, eq=False)
class SparseNewton:
    """Newton's matrix at one point; its factor waits on the host."""

    jacobian: SparseRows
    concave: Bool[Array, ""]
    host: Factoriser
    values: Float[Array, " values"]
    shift: Float[Array, ""]
    bounds: Bounds

    def solve(self, p: PrimalDual, r: Residual) -> tuple[Array, Array]:
        """The changes of y and of the multipliers of the equalities."""
        below, above = self.bounds.distances(p.y)
        top = (-r.stationarity - r.lower / below + r.upper / above) * self.bounds.free
        rhs = jnp.concatenate([top, r.slack / p.inequality - r.inequality, -r.equality])
        shape = jax.ShapeDtypeStruct(rhs.shape, rhs.dtype)
        found = call_back(self.host.solve, shape, self.values, self.shift, rhs)
        n, n_c = p.y.shape[0], p.slack.shape[0]
        return found[:n] * self.bounds.free, found[n + n_c :]


@dataclass(frozen=True, eq=False)
class SparseMatrices:
    """Matrices by their entries, for large problems with few of them."""

    pattern: SparseKKT

    def inequality_rows(self, function: Callable[[Array], Array], y: Array) -> SparseRows:
        """The Jacobian of the inequalities."""
        return SparseRows(self.pattern.inequality, self.pattern.inequality.entries(function, y))

    def equality_rows(self, function: Callable[[Array], Array], y: Array) -> SparseRows:
        """The Jacobian of the equalities."""
        return SparseRows(self.pattern.equality, self.pattern.equality.entries(function, y))

    def factorise(self, proximal: Array, scaled: Scaled, bounds: Bounds, p: PrimalDual) -> SparseNewton:
        """Factor Newton's matrix at ``p``, shifted by at least ``proximal``."""
        where, free = self.pattern.hessian, jnp.asarray(bounds.free)
        below, above = bounds.distances(p.y)
        rows, columns, mirror = constants(where.rows, where.columns, self.pattern.mirror)
        hessian = where.entries(lambda y: scaled.gradient(y, p.inequality, p.equality), p.y)
        hessian = 0.5 * (hessian + hessian[mirror]) * free[rows] * free[columns]
        jacobian = self.inequality_rows(scaled.inequality, p.y).restricted(free)
        diagonal = p.lower / below + p.upper / above + (1.0 - free)
        lower_blocks = [-p.slack / p.inequality, jnp.zeros_like(p.equality)]
        equality = _entries(scaled.equality_matrix, free)
        values = jnp.concatenate([hessian, jacobian.entries, equality, diagonal, *lower_blocks])
        allowed = 1e-7 * (scaled.objective_scale + jnp.max(jnp.abs(hessian), initial=0.0))
        number = jax.ShapeDtypeStruct((), values.dtype)
        host = self.pattern.host
        shift, concave = call_back(host.factorise, (number, number), values, proximal, allowed)
        return SparseNewton(jacobian, concave > 0.0, host, values, shift, bounds)


def _entries(rows: Rows, free: Array) -> Array:
    assert isinstance(rows, SparseRows)
    return rows.restricted(free).entries
