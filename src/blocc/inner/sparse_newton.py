"""Sparse matrices for the interior point.

Newton's system is held as

    [ H + D + shift   J'        E'  ] [ dy  ]
    [ J              -s/mu          ] [ dmu ]
    [ E                         0   ] [ dnu ]

with D from the bounds. XLA has no sparse factors for CPUs: the numbers go to the host by a callback, are factored there
(:mod:`blocc.inner.sparse_factor`), and the solutions come back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array, Bool, Float
from blocc._lib.callbacks import call_back
from blocc._lib.operations import largest
from blocc.inner.colouring import SparseRows, constants
from blocc.inner.kkt_pattern import SparseKKT
from blocc.inner.newton_system import Bounds, Change, PrimalDual, Residual, Rows, Scaled
from blocc.inner.sparse_factor import Factoriser


@dataclass(frozen=True, eq=False)
class SparseNewton:
    """Newton's matrix at one point; its factor waits on the host."""

    jacobian: SparseRows
    concave: Bool[Array, ""]
    curvature: Float[Array, ""]  #: the largest entry of the Hessian
    host: Factoriser
    values: Float[Array, " values"]
    shift: Float[Array, ""]
    bounds: Bounds

    def solve(self, p: PrimalDual, r: Residual) -> Change:
        """Newton's step."""
        below, above = self.bounds.distances(p.y)
        top = (-r.stationarity - r.lower / below + r.upper / above) * self.bounds.free
        dy, d_inequality, d_equality = self.solve_whole(top, r.slack / p.inequality - r.inequality, -r.equality)
        # Of slack and price the smaller one follows from the larger: the other way round rounding would be magnified.
        d_slack = -r.inequality - self.jacobian.times(dy)
        held = p.slack < p.inequality
        return Change(
            dy,
            jnp.where(held, -(r.slack + p.slack * d_inequality) / p.inequality, d_slack),
            jnp.where(held, d_inequality, -(r.slack + p.inequality * d_slack) / p.slack),
            d_equality,
        )

    def solve_whole(self, top: Array, middle: Array, bottom: Array) -> tuple[Array, Array, Array]:
        """All three parts of the solution for one right-hand side."""
        rhs = jnp.concatenate([top, middle, bottom])
        found = call_back(self.host.solve, jax.ShapeDtypeStruct(rhs.shape, rhs.dtype), self.values, self.shift, rhs)
        n, n_c = top.shape[0], middle.shape[0]
        return found[:n] * self.bounds.free, found[n : n + n_c], found[n + n_c :]


@dataclass(frozen=True, eq=False)
class SparseMatrices:
    """Matrices by their entries, for large problems with few of them."""

    pattern: SparseKKT
    host: Factoriser

    def inequality_rows(self, function: Callable[[Array], Array], y: Array, rows: int) -> SparseRows:
        """The Jacobian of the inequalities."""
        return SparseRows(self.pattern.inequality, self.pattern.inequality.entries(function, y))

    def equality_rows(self, function: Callable[[Array], Array], y: Array, rows: int) -> SparseRows:
        """The Jacobian of the equalities."""
        return SparseRows(self.pattern.equality, self.pattern.equality.entries(function, y))

    def factorise(self, proximal: Array, scaled: Scaled, bounds: Bounds, p: PrimalDual) -> SparseNewton:
        """Factor Newton's matrix at ``p``, shifted by at least ``proximal``."""
        where, free = self.pattern.hessian, jnp.asarray(bounds.free)
        below, above = bounds.distances(p.y)
        rows, columns, mirror = constants(where.rows, where.columns, self.pattern.mirror)
        hessian = where.entries(lambda y: scaled.gradient_and_rows(y, p.inequality, p.equality)[0], p.y)
        hessian = 0.5 * (hessian + hessian[mirror]) * free[rows] * free[columns]
        jacobian = self.inequality_rows(scaled.inequality, p.y, p.slack.shape[0]).restricted(free)
        diagonal = p.lower / below + p.upper / above + (1.0 - free)
        lower_blocks = [-p.slack / p.inequality, jnp.zeros_like(p.equality)]
        equality = _entries(scaled.equality_matrix, free)
        values = jnp.concatenate([hessian, jacobian.entries, equality, diagonal, *lower_blocks])
        curvature = largest(hessian)
        allowed = 1e-7 * (scaled.objective_scale + curvature)
        number = jax.ShapeDtypeStruct((), values.dtype)
        shift, concave = call_back(self.host.factorise, (number, number), values, proximal, allowed)
        return SparseNewton(jacobian, concave > 0.0, curvature, self.host, values, shift, bounds)


def _entries(rows: Rows, free: Array) -> Array:
    assert isinstance(rows, SparseRows)
    return rows.restricted(free).entries
