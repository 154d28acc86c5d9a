"""The pattern of a follower's KKT matrix, and how many entries its factor will have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spilu

from blocc._lib.arrays import Int, NDArray
from blocc.inner.colouring import Coloured
from blocc.inner.dependencies import TooDense


@dataclass(frozen=True, eq=False)
class SparseKKT:
    """The pattern of a follower's KKT matrix: its parts, and how full its factor is."""

    hessian: Coloured  #: symmetric
    inequality: Coloured
    equality: Coloured
    fill: int  #: entries of the factor

    @classmethod
    def of(cls, hessian: sp.csr_array, inequality: sp.csr_array, equality: sp.csr_array, limit: int) -> SparseKKT:
        """Colours for the given patterns.

        :raises TooDense: where the factor, or what is computed on the way, has more than ``limit`` entries
        """
        symmetric = sp.csr_array(hessian + hessian.T)
        whole = _assembled(symmetric, inequality, equality)
        order = _ordered(whole)
        fill = _fill(whole[order][:, order], limit)
        first, second, third = (Coloured.of(pattern, limit) for pattern in (symmetric, inequality, equality))
        return cls(first, second, third, fill)

    @property
    def sweeps(self) -> int:
        """Directional derivatives and reverse sweeps for all matrices at one point."""
        return self.hessian.sweeps + self.inequality.sweeps + self.equality.sweeps

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Variables, inequalities and equalities."""
        return self.hessian.shape[0], self.inequality.shape[0], self.equality.shape[0]

    @property
    def density(self) -> float:
        """The share of entries of the Hessian and both Jacobians that can differ from zero."""
        return sum(part.rows.size for part in (self.hessian, self.inequality, self.equality)) / (
            self.sizes[0] * sum(self.sizes)
        )

    @cached_property
    def mirror(self) -> Int[NDArray, " entries"]:
        """For each entry of the Hessian the number of the one across the diagonal."""
        n = self.hessian.shape[0]
        here = self.hessian.rows.astype(np.int64) * n + self.hessian.columns
        there = self.hessian.columns.astype(np.int64) * n + self.hessian.rows
        sorted_by_place = np.argsort(here)
        return sorted_by_place[np.searchsorted(here[sorted_by_place], there)].astype(np.int32)


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
