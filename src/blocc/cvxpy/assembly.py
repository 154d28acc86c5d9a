"""Several cone programs put together in one: rows sorted by the kind of their cones, matrices out of blocks."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, Int, NDArray
from blocc.cvxpy.cone_program import ConeSizes

Vector = Float[NDArray, " n"]


class SortedRows:
    """Rows of several programs, sorted by the kind of their cones."""

    def __init__(self, parts: list[ConeSizes]) -> None:
        self.cones = ConeSizes.joined(parts)
        begins = np.concatenate([[0], np.cumsum(self.cones.kinds)])[:-1]
        self.rows = []
        for part in parts:
            self.rows.append(
                np.concatenate([start + np.arange(size) for start, size in zip(begins, part.kinds, strict=True)])
            )
            begins = begins + np.asarray(part.kinds)


class Triplets:
    """A sparse matrix that is put together from blocks."""

    def __init__(self) -> None:
        self.data: list[Vector] = []
        self.rows: list[Int[NDArray, " n"]] = []
        self.columns: list[Int[NDArray, " n"]] = []

    def add(self, block: sp.sparray, rows: Int[NDArray, " m"], columns: Int[NDArray, " n"]) -> None:
        """A block at given rows and columns."""
        if isinstance(block, (sp.csc_array, sp.csr_array)):  # as coo_array does it, with fewer checks
            along = np.repeat(np.arange(len(block.indptr) - 1), np.diff(block.indptr))
            places = (block.indices, along) if isinstance(block, sp.csc_array) else (along, block.indices)
            self.data.append(block.data)
        else:
            one = sp.coo_array(block)
            places = one.coords
            self.data.append(one.data)
        self.rows.append(rows[places[0]])
        self.columns.append(columns[places[1]])

    def matrix(self, n_rows: int, n_columns: int) -> sp.csc_array:
        """The matrix."""
        entries = (np.concatenate(self.rows), np.concatenate(self.columns))
        return sp.csc_array((np.concatenate(self.data), entries), shape=(n_rows, n_columns))
