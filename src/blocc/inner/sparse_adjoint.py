"""The derivative of ``f(x, y(x))`` by one adjoint system, with the sparse KKT matrix at the follower's answer.

The answer solves ``L_y - z = 0, c + s = 0, e = 0`` with all products of slacks and prices kept as they are. With K the
matrix of :mod:`blocc.inner.sparse_factor` and ``K a = (f_y, 0, 0)`` the derivative of f(x, y(x)) is
``f_x - <a, d(L_y, c, e)/dx>``. Where a row has neither slack nor price y(x) has a kink, and this is a derivative
between those of both sides.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array, Float
from blocc.flat_problem import FlatProblem
from blocc.inner.newton_system import Bounds, PrimalDual, scale
from blocc.inner.protocol import Adjoint
from blocc.inner.sparse_newton import SparseMatrices
from blocc.lagrangian import Weights, leader_value

#: Slacks and prices are not smaller where derivatives are taken.
_SMALLEST = 1e-18
#: The system is solved where its residual, relative to the right side, is below the first; its solution times the
#: curvature may exceed the right side by the second: a reply that any little slope moves far has no derivative.
_SOLVED, _FARTHEST = 1e-6, 1e7


def adjoint(
    flat: FlatProblem,
    x: Float[Array, "n_x"],
    y: Float[Array, "n_y"],
    found: PrimalDual,
    weights: Weights,
    matrices: SparseMatrices,
    proximal: float,
) -> Adjoint:
    """Differentiate f(x, y(x)) at the follower's answer ``y``; ``found`` has it with all multipliers, unscaled."""
    bounds = Bounds.of(flat)
    scaled = scale(flat, x, weights, y, matrices)
    goal, inequality, equality = scaled.objective_scale, scaled.inequality_scale, scaled.equality_scale
    point = PrimalDual(
        y,
        jnp.maximum(found.slack, _SMALLEST) * inequality,
        jnp.maximum(found.inequality, _SMALLEST) * goal / inequality,
        found.equality * goal / equality,
        found.lower * goal,
        found.upper * goal,
    )
    newton = matrices.factorise(jnp.asarray(proximal), scaled, bounds, point)
    value, (upper_x, upper_y) = jax.value_and_grad(lambda a, b: leader_value(flat, a, b, weights), (0, 1))(x, y)
    upper_y = upper_y * bounds.free
    price, *others = newton.solve_whole(upper_y, jnp.zeros_like(point.slack), jnp.zeros_like(point.equality))

    def conditions(a: Array) -> Array:
        """The follower's conditions at (a, y), each times its part of the solution."""

        def rows(b: Array) -> tuple[Array, Array]:
            first = jnp.concatenate([flat.inequality(a, b), flat.y_set.inequality_flat(b)])
            return inequality * first, equality * jnp.concatenate([flat.equality(a, b), flat.y_set.equality_flat(b)])

        def lagrangian(b: Array) -> Array:
            first, second = rows(b)
            return goal * flat.lower(a, b) + point.inequality @ first + point.equality @ second

        first, second = rows(y)
        return jax.jvp(lagrangian, (y,), (price,))[1] + others[0] @ first + others[1] @ second

    gradient = upper_x - jax.grad(conditions)(x)
    # The first rows of the system once more, without the matrix.
    below, above = bounds.distances(y)
    bend = jax.jvp(lambda b: scaled.gradient_and_rows(b, point.inequality, point.equality)[0], (y,), (price,))[1]
    bend += (point.lower / below + point.upper / above) * price + newton.jacobian.transposed_times(others[0])
    left = (bend + scaled.equality_matrix.transposed_times(others[1])) * bounds.free - upper_y
    largest = lambda vector: jnp.max(jnp.abs(vector), initial=0.0)  # noqa: E731
    size, curvature = largest(upper_y), jnp.maximum(newton.curvature, largest(scaled.start.gradient) / (1 + largest(y)))
    regular = (largest(left) <= _SOLVED * size) & (largest(price) * curvature <= _FARTHEST * size) & ~newton.concave
    regular &= (found.y == y).all() & jnp.isfinite(gradient).all()
    return Adjoint(value, gradient, regular, price, jnp.zeros_like(y), jnp.asarray(1))
