"""Dense matrices for the interior point: Cholesky factors of the reduced matrix and of its Schur complement."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve, solve_triangular

from blocc._lib.arrays import Array, Float
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
        free, (below, above) = self.bounds.free, self.bounds.distances(p.y)
        rhs = -r.stationarity + self.jacobian.transposed_times(
            r.slack / p.slack - p.inequality / p.slack * r.inequality
        )
        rhs = (rhs - r.lower / below + r.upper / above) * free
        dy, d_equality = self._once(rhs, -r.equality)
        # One step of iterative refinement: the factors lose digits when the products s mu differ by many orders.
        again = self._once(rhs - self.matrix @ dy - self.equality.T @ d_equality, -r.equality - self.equality @ dy)
        dy = (dy + again[0]) * free
        d_slack = -r.inequality - self.jacobian.times(dy)
        return Change(dy, d_slack, -(r.slack + p.inequality * d_slack) / p.slack, d_equality + again[1])

    def _once(self, top: Array, bottom: Array) -> tuple[Array, Array]:
        if bottom.shape[0] == 0:
            return cho_solve((self.factor, True), top), bottom
        half = solve_triangular(self.factor, top, lower=True)
        multipliers = cho_solve((self.schur_factor, True), self.scaled_equality.T @ half - bottom)
        change = solve_triangular(self.factor.T, half - self.scaled_equality @ multipliers, lower=False)
        return change, multipliers


class DenseMatrices:
    """Matrices as arrays, for small and medium problems."""

    def inequality_rows(self, function: Callable[[Array], Array], y: Array) -> DenseRows:
        """The Jacobian of the inequalities."""
        return DenseRows(dense_jacobian(function, y))

    def equality_rows(self, function: Callable[[Array], Array], y: Array) -> DenseRows:
        """The Jacobian of the equalities."""
        return DenseRows(dense_jacobian(function, y))

    def factorise(self, proximal: Array, scaled: Scaled, bounds: Bounds, p: PrimalDual) -> DenseNewton:
        """Factor Newton's matrix at ``p``, shifted by at least ``proximal``."""
        identity = jnp.eye(p.y.shape[0])
        below, above = bounds.distances(p.y)
        hessian = jax.jacfwd(scaled.gradient)(p.y, p.inequality, p.equality)
        jacobian = dense_jacobian(scaled.inequality, p.y) * bounds.free
        matrix = 0.5 * (hessian + hessian.T) * bounds.free * bounds.free[:, None]
        # Convexity is tested where the method stands, by a factor that exists only without negative curvature.
        allowed = 1e-7 * (scaled.objective_scale + jnp.max(jnp.abs(matrix)))
        concave = ~jnp.isfinite(_lower_factor(matrix + allowed * identity)).all() & jnp.isfinite(matrix).all()
        matrix = matrix + jacobian.T @ ((p.inequality / p.slack)[:, None] * jacobian)
        matrix = matrix + jnp.diag(p.lower / below + p.upper / above + (1.0 - bounds.free))
        size = 1.0 + jnp.max(jnp.abs(jnp.diag(matrix)))

        def factor(shift: Array) -> Array:
            return _lower_factor(matrix + shift * identity)

        # The smallest shift at which the factor exists; in a convex problem the first one nearly always does.
        def failed(pair: tuple[Array, Array]) -> Array:
            return ~jnp.isfinite(pair[1]).all() & (pair[0] < 1e4 * size)

        shift, lower = lax.while_loop(
            failed, lambda pair: (pair[0] * 100.0, factor(pair[0] * 100.0)), (proximal, factor(proximal))
        )
        equality = _array(scaled.equality_matrix) * bounds.free
        half, schur_factor = equality.T, equality @ equality.T
        if equality.shape[0]:
            half = solve_triangular(lower, equality.T, lower=True)
            schur = half.T @ half
            # Dependent rows leave the Schur complement singular; the shift is relative to its largest entry.
            shift_schur = 1e-14 * (1e-2 + jnp.max(jnp.abs(jnp.diag(schur))))
            schur_factor = jnp.linalg.cholesky(schur + shift_schur * jnp.eye(schur.shape[0]))
        shifted = matrix + shift * identity
        return DenseNewton(DenseRows(jacobian), concave, equality, shifted, lower, schur_factor, half, bounds)


def _lower_factor(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Cholesky's factor of a matrix that is symmetric already: nothing has to be compiled to make it so."""
    return lax.linalg.cholesky(matrix, symmetrize_input=False)


def _array(rows: Rows) -> Array:
    assert isinstance(rows, DenseRows)
    return rows.array


def dense_jacobian(function: Callable[[Array], Array], y: Array) -> Array:
    """Dense Jacobian, forward or reverse, whichever needs fewer sweeps."""
    rows = jax.eval_shape(function, y).shape[0]
    if rows == 0:
        return jnp.zeros((0, y.shape[0]), dtype=y.dtype)
    return (jax.jacrev if rows <= y.shape[0] else jax.jacfwd)(function)(y)
