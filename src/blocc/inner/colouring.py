"""Sparse Jacobians out of few directional derivatives.

Columns that share no row can be told apart in one directional derivative: they get the same colour. Rows with many
entries would keep all their columns apart; they are found by reverse sweeps, one each, and not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import lax

from blocc._lib.arrays import Array, Float, Int, NDArray
from blocc.inner.dependencies import TooDense
from blocc.local.derivatives import TOGETHER


def columns_coloured(pattern: sp.csr_array) -> Int[NDArray, " columns"]:
    """A colour for each column, greedily, so that columns of one colour share no row."""
    counts = pattern.astype(np.int32)
    neighbours = sp.csr_array(counts.T @ counts)
    starts, others = neighbours.indptr.tolist(), neighbours.indices.tolist()
    colours = [-1] * pattern.shape[1]
    for column in range(pattern.shape[1]):
        taken = {colours[other] for other in others[starts[column] : starts[column + 1]]}
        colour = 0
        while colour in taken:
            colour += 1
        colours[column] = colour
    return np.asarray(colours, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Coloured:
    """The pattern of a Jacobian, with the sweeps that recover its entries: those of short rows first."""

    shape: tuple[int, int]
    rows: Int[NDArray, " entries"]
    columns: Int[NDArray, " entries"]
    colours: Int[NDArray, " columns"]
    long_rows: Int[NDArray, " long"]  #: found by reverse sweeps
    short_entries: int

    @classmethod
    def of(cls, pattern: sp.csr_array, limit: int) -> Coloured:
        """The cheapest division into short and long rows, and colours for the short ones.

        :raises TooDense: where there are more than ``limit`` pairs of columns that share a row
        """
        lengths = np.diff(pattern.indptr)
        order = np.argsort(-lengths, kind="stable")
        # With the k longest rows apart, the longest of the others is a lower bound on the number of colours.
        sweeps = np.arange(lengths.size + 1) + np.append(lengths[order], 0)
        long_rows = np.sort(order[: int(np.argmin(sweeps))])
        is_long = np.zeros(lengths.size, dtype=bool)
        is_long[long_rows] = True
        if np.sum(lengths[~is_long].astype(float) ** 2) > limit:
            raise TooDense
        rows, columns = pattern.tocoo().coords
        short = ~is_long[rows]
        sorted_by_kind = np.concatenate([np.flatnonzero(short), np.flatnonzero(~short)])
        kept = sp.csr_array((np.ones(int(short.sum()), dtype=bool), (rows[short], columns[short])), shape=pattern.shape)
        return cls(
            pattern.shape,
            rows[sorted_by_kind].astype(np.int32),
            columns[sorted_by_kind].astype(np.int32),
            columns_coloured(kept),
            long_rows.astype(np.int32),
            int(short.sum()),
        )

    @property
    def sweeps(self) -> int:
        """Directional derivatives and reverse sweeps for one Jacobian."""
        forward = int(self.colours.max(initial=-1)) + 1 if self.short_entries else 0
        return forward + self.long_rows.size

    def entries(self, function: Callable[[Array], Array], point: Float[Array, " columns"]) -> Float[Array, " entries"]:
        """The entries of the Jacobian of ``function`` at ``point``, in the order of :attr:`rows`."""
        n_short, parts = self.short_entries, []
        if n_short:
            colours, rows, columns = constants(self.colours, self.rows[:n_short], self.columns[:n_short])
            _, push = jax.linearize(function, point)
            pushed = lax.map(
                lambda colour: push((colours == colour).astype(point.dtype)),
                jnp.arange(self.sweeps - self.long_rows.size, dtype=colours.dtype),
                batch_size=TOGETHER,
            )
            parts.append(pushed[colours[columns], rows])
        if self.long_rows.size:
            _, pull = jax.vjp(function, point)
            which, columns = constants(self.long_rows, self.columns[n_short:])
            place = constants(np.searchsorted(self.long_rows, self.rows[n_short:]))[0]
            unit = lambda row: jnp.zeros(self.shape[0], point.dtype).at[row].set(1.0)  # noqa: E731
            pulled = lax.map(lambda row: pull(unit(row))[0], which, batch_size=TOGETHER)
            parts.append(pulled[place, columns])
        return jnp.concatenate(parts) if parts else jnp.zeros(0, point.dtype)


def constants(*arrays: NDArray) -> tuple[Array, ...]:
    """The arrays in a program, kept from the compiler, which would compute with large constants itself, slowly."""
    found: tuple[Array, ...] = lax.optimization_barrier(tuple(jnp.asarray(array) for array in arrays))
    return found


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A matrix with the pattern of ``where``."""

    where: Coloured
    entries: Float[Array, " entries"]

    def times(self, vector: Float[Array, " columns"]) -> Float[Array, " rows"]:
        """``A v``."""
        rows, columns = constants(self.where.rows, self.where.columns)
        return jnp.zeros(self.where.shape[0]).at[rows].add(self.entries * vector[columns])

    def transposed_times(self, vector: Float[Array, " rows"]) -> Float[Array, " columns"]:
        """``A' v``."""
        rows, columns = constants(self.where.rows, self.where.columns)
        return jnp.zeros(self.where.shape[1]).at[columns].add(self.entries * vector[rows])

    def largest(self) -> Float[Array, " rows"]:
        """The largest absolute entry of each row."""
        return jnp.zeros(self.where.shape[0]).at[constants(self.where.rows)[0]].max(jnp.abs(self.entries))

    def sums(self) -> Float[Array, " rows"]:
        """The sum of absolute entries of each row."""
        return jnp.zeros(self.where.shape[0]).at[constants(self.where.rows)[0]].add(jnp.abs(self.entries))

    def scaled(self, rows: Float[Array, " rows"]) -> SparseRows:
        """Each row times its number."""
        return SparseRows(self.where, self.entries * rows[constants(self.where.rows)[0]])

    def restricted(self, columns: Float[Array, " columns"] | NDArray) -> SparseRows:
        """Each column times its number."""
        return SparseRows(self.where, self.entries * jnp.asarray(columns)[constants(self.where.columns)[0]])
