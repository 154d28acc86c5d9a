"""Dense matrices for the interior point: Cholesky factors of the reduced matrix and of its Schur complement."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from blocc._lib.arrays import Array, Float
from blocc._lib.operations import largest
from blocc.inner.newton_system import Bounds, Change, PrimalDual, Residual, Rows, Scaled


class DenseRows(NamedTuple):
    """A matrix as an array."""

    array: Float[Array, "rows columns"]

    def times(self, vector: Float[Array, " columns"]) -> Float[Array, " rows"]:
        """``A v``."""
        return self.array @ vector

    def transposed_times(self, vector: Float[Array, " rows"]) -> Float[Array, " columns"]:
        """``A' v``."""
        return self.array.T @ vector

    def largest(self) -> Float[Array, " rows"]:
        """The largest absolute entry of each row."""
        return jnp.max(jnp.abs(self.array), axis=1, initial=0.0)

    def sums(self) -> Float[Array, " rows"]:
        """The sum of absolute entries of each row."""
        return jnp.sum(jnp.abs(self.array), axis=1)

    def scaled(self, rows: Float[Array, " rows"]) -> DenseRows:
        """Each row times its number."""
        return DenseRows(self.array * rows[:, None])


class DenseNewton(NamedTuple):
    """Cholesky factors of Newton's matrix, reduced to y and the multipliers of the equalities."""

    jacobian: DenseRows
    concave: Array
    equality: Array
    matrix: Array
    factor: Array
    schur_factor: Array
    scaled_equality: Array  #: L^-1 E'
    bounds: Bounds

    def solve(self, p: PrimalDual, r: Residual) -> Change:
        """Newton's step, by elimination down to y and the multipliers of the equalities."""
        has_equalities = p.equality.shape[0] > 0
        rhs = -r.stationarity
        if p.slack.shape[0]:
            rhs = rhs + self.jacobian.transposed_times(r.slack / p.slack - p.inequality / p.slack * r.inequality)
        if self.bounds.exist:
            below, above = self.bounds.distances(p.y)
            rhs = rhs - r.lower / below + r.upper / above
        rhs = self.bounds.among_free(rhs)
        dy, d_equality = self._once(rhs, -r.equality)
        # One step of iterative refinement: the factors lose digits when the products s mu differ by many orders.
        top, bottom = rhs - self.matrix @ dy, r.equality
        if has_equalities:
            top, bottom = top - self.equality.T @ d_equality, -r.equality - self.equality @ dy
        again = self._once(top, bottom)
        dy = self.bounds.among_free(dy + again[0])
        d_slack = -r.inequality - self.jacobian.times(dy)
        d_equality = d_equality + again[1] if has_equalities else d_equality
        return Change(dy, d_slack, -(r.slack + p.inequality * d_slack) / p.slack, d_equality)

    def _once(self, top: Array, bottom: Array) -> tuple[Array, Array]:
        if bottom.shape[0] == 0:
            return _solved(self.factor, top), bottom
        half = _halfway(self.factor, top)
        multipliers = _solved(self.schur_factor, self.scaled_equality.T @ half - bottom)
        change = _halfway(self.factor, half - self.scaled_equality @ multipliers, back=True)
        return change, multipliers


class DenseMatrices:
    """Matrices as arrays, for small and medium problems."""

    def inequality_rows(self, function: Callable[[Array], Array], y: Array, rows: int) -> DenseRows:
        """The Jacobian of the inequalities."""
        return DenseRows(dense_jacobian(function, y, rows))

    def equality_rows(self, function: Callable[[Array], Array], y: Array, rows: int) -> DenseRows:
        """The Jacobian of the equalities."""
        return DenseRows(dense_jacobian(function, y, rows))

    def factorise(self, proximal: Array, scaled: Scaled, bounds: Bounds, p: PrimalDual) -> DenseNewton:
        """Factor Newton's matrix at ``p``, shifted by at least ``proximal``."""
        identity, n_c = jnp.eye(p.y.shape[0]), p.slack.shape[0]
        hessian, jacobian = jax.jacfwd(scaled.gradient_and_rows)(p.y, p.inequality, p.equality)  # one sweep for both
        jacobian = bounds.among_free(jacobian)
        matrix = bounds.among_free(bounds.among_free(0.5 * (hessian + hessian.T)).T)
        # Convexity is tested where the method stands, by a factor that exists only without negative curvature.
        allowed = 1e-7 * (scaled.objective_scale + largest(matrix))
        concave = ~jnp.isfinite(_lower_factor(matrix + allowed * identity)).all() & jnp.isfinite(matrix).all()
        if n_c:
            matrix = matrix + jacobian.T @ ((p.inequality / p.slack)[:, None] * jacobian)
        if bounds.exist:
            below, above = bounds.distances(p.y)
            matrix = matrix + identity * (p.lower / below + p.upper / above + (1.0 - bounds.free))
        elif not bounds.free.all():
            matrix = matrix + identity * (1.0 - bounds.free)
        size = 1.0 + largest(jnp.sum(matrix * identity, axis=0))

        def factor(shift: Array) -> Array:
            return _lower_factor(matrix + shift * identity)

        # The smallest shift at which the factor exists; in a convex problem the first one nearly always does.
        def failed(pair: tuple[Array, Array]) -> Array:
            return ~jnp.isfinite(pair[1]).all() & (pair[0] < 1e4 * size)

        shift, lower = lax.while_loop(
            failed, lambda pair: (pair[0] * 100.0, factor(pair[0] * 100.0)), (proximal, factor(proximal))
        )
        equality = half = schur_factor = _array(scaled.equality_matrix)
        if equality.shape[0]:
            equality = bounds.among_free(equality)
            half = _halfway(lower, equality.T)
            schur = half.T @ half
            # Dependent rows leave the Schur complement singular; the shift is relative to its largest entry.
            shift_schur = 1e-14 * (1e-2 + largest(jnp.diag(schur)))
            schur_factor = jnp.linalg.cholesky(schur + shift_schur * jnp.eye(schur.shape[0]))
        shifted = matrix + shift * identity
        return DenseNewton(DenseRows(jacobian), concave, equality, shifted, lower, schur_factor, half, bounds)


def _lower_factor(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Cholesky's factor of a matrix that is symmetric already: nothing has to be compiled to make it so."""
    return lax.linalg.cholesky(matrix, symmetrize_input=False)


def _halfway(factor: Float[Array, "n n"], right: Float[Array, "n *columns"], back: bool = False) -> Array:
    """``L^-1 right``, or ``L'^-1 right``: half of a solution with Cholesky's factor."""
    columns = right if right.ndim == 2 else right[:, None]
    found = lax.linalg.triangular_solve(factor, columns, left_side=True, lower=True, transpose_a=back)
    return found if right.ndim == 2 else found[:, 0]


def _solved(factor: Float[Array, "n n"], right: Float[Array, "n"]) -> Float[Array, "n"]:
    return _halfway(factor, _halfway(factor, right), back=True)


def _array(rows: Rows) -> Array:
    assert isinstance(rows, DenseRows)
    return rows.array


def dense_jacobian(function: Callable[[Array], Array], y: Array, rows: int) -> Array:
    """Dense Jacobian of a function with so many rows, forward or reverse, whichever needs fewer sweeps."""
    if rows == 0:
        return jnp.zeros((0, y.shape[0]), dtype=y.dtype)
    return (jax.jacrev if rows <= y.shape[0] else jax.jacfwd)(function)(y)
