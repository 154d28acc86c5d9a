"""The derivative of ``f(x, y(x))`` by one adjoint system, matrix-free: for followers without coupled constraints.

The follower's answer is the fixed point ``y = P(y - tau grad g(x, y))`` of a projected gradient step, so that with D
the derivative of P at ``y - tau grad g`` and H the Hessian of g in y

    dy/dx = D s,   [D (I - D) + tau D H D] s = -tau D d(grad g)/dx,

and the derivative of f(x, y(x)) is ``df/dx - tau <d(grad g)/dx, D a>`` where the same symmetric system with the right
side ``D df/dy`` has the solution a.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array
from blocc.inner.conjugate_gradients import Scales, conjugate_gradients
from blocc.inner.protocol import Adjoint
from blocc.lagrangian import Weights, exactly, leader_value
from blocc.problem import FlatProblem

#: A system is solved where its residual, relative to the right side, is below this.
_SOLVED = 1e-6
#: Accuracy that can be asked for.
_FINEST = 1e-13


def adjoint(
    flat: FlatProblem, x: Array, y: Array, weights: Weights, scales: Scales, accuracy: Array, most: int
) -> Adjoint:
    """Differentiate at the follower's answer ``y``. ``scales`` are those of the Hessian of g in y."""
    tau = 1.0 / scales.largest

    def slope(x: Array, y: Array) -> Array:
        return exactly(jax.grad(flat.lower, argnums=1)(x, y))

    here, hessian = jax.linearize(lambda v: slope(x, v), y)
    _, derivative = jax.linearize(flat.y_set.project_flat, y - tau * here)
    value, (upper_x, upper_y) = jax.value_and_grad(leader_value, argnums=(1, 2))(flat, x, y, weights)

    def operator(v: Array) -> Array:
        kept = derivative(v)
        return kept + derivative(tau * hessian(kept) - kept)

    right = derivative(exactly(upper_y))
    size = jnp.linalg.norm(right)
    solved = conjugate_gradients(operator, right, scales.preconditioner, jnp.maximum(accuracy, _FINEST) * size, most)
    kept = derivative(solved.solution)
    _, pull = jax.vjp(lambda v: slope(v, y), x)
    gradient = exactly(upper_x) - tau * exactly(pull(kept)[0])
    regular = (jnp.linalg.norm(solved.residual) <= _SOLVED * size) & ~solved.concave & jnp.isfinite(gradient).all()
    return Adjoint(value, gradient, regular, solved.products)
