"""The derivative of ``f(x, y(x))`` by one adjoint system, matrix-free: for followers without coupled constraints.

The follower's answer is the fixed point ``y = P(y - tau grad g(x, y))`` of a projected gradient step, so that with D
the derivative of P at ``y - tau grad g`` and H the Hessian of g in y

    dy/dx = D s,   [D (I - D) + tau D H D] s = -tau D d(grad g)/dx,

and the derivative of f(x, y(x)) is ``df/dx - tau <d(grad g)/dx, D a>`` where the same symmetric system with the right
side ``D df/dy`` has the solution a. Where g has simple terms, P is :meth:`FlatProblem.backward`, and depends on x too;
D is then zero but for few entries, and the system is solved among them (:mod:`blocc.inner.restriction`).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array
from blocc.flat_problem import FlatProblem
from blocc.inner.conjugate_gradients import Scales, conjugate_gradients
from blocc.inner.protocol import Adjoint
from blocc.inner.restriction import Restriction, few_places, most_places, restricted_to
from blocc.lagrangian import exactly

#: A system is solved where its residual, relative to the right side, is below this.
_SOLVED = 1e-6
#: Accuracy that can be asked for.
_FINEST = 1e-13


def adjoint(
    flat: FlatProblem,
    x: Array,
    y: Array,
    upper: Callable[[Array, Array], Array],
    scales: Scales,
    accuracy: Array | float,
    most: int,
    guess: Array | None = None,
) -> Adjoint:
    """Differentiate ``upper(x, y(x))`` at the follower's answer ``y``; ``scales`` are those of g's Hessian in y.

    ``guess`` is the price at a nearby x.
    """
    count = most_places(flat)
    if not count:
        return _adjoint(flat, x, y, upper, scales, accuracy, most, guess)
    tau = 1.0 / scales.largest
    backward = flat.backward(x, y - tau * exactly(jax.grad(flat.lower, argnums=1)(x, y)), tau)
    return jax.lax.cond(
        jnp.sum((y != 0.0) | (backward != 0.0)) <= count,
        lambda: _among_few(flat, x, y, upper, scales, accuracy, most, guess, few_places(y, backward, count)),
        lambda: _adjoint(flat, x, y, upper, scales, accuracy, most, guess),
    )


def _among_few(
    flat: FlatProblem,
    x: Array,
    y: Array,
    upper: Callable[[Array, Array], Array],
    scales: Scales,
    accuracy: Array | float,
    most: int,
    guess: Array | None,
    places: Array,
) -> Adjoint:
    """The same where all but the entries at ``places`` stay zero."""
    few = Restriction(places, flat.n_y)
    weights = jnp.where(places < flat.n_y, few.take(scales.preconditioner), 1.0)
    shapes = (jax.ShapeDtypeStruct(point.shape, point.dtype) for point in (x, y))
    part, z = few.of(upper, *shapes), few.take(y)
    known = None if guess is None else few.take(guess)
    found = _adjoint(restricted_to(flat, few), x, z, part, Scales(weights, scales.largest), accuracy, most, known)
    return found._replace(price=few.put(found.price), shift=few.put(found.shift))


def _adjoint(
    flat: FlatProblem,
    x: Array,
    y: Array,
    upper: Callable[[Array, Array], Array],
    scales: Scales,
    accuracy: Array | float,
    most: int,
    guess: Array | None,
) -> Adjoint:
    tau = 1.0 / scales.largest

    def slope(x: Array, y: Array) -> Array:
        return exactly(jax.grad(flat.lower, argnums=1)(x, y))

    here, hessian = jax.linearize(lambda v: slope(x, v), y)
    forward = y - tau * here
    backward, derivative = jax.linearize(lambda v: flat.backward(x, v, tau), forward)
    value, (upper_x, upper_y) = jax.value_and_grad(upper, argnums=(0, 1))(x, y)
    upper_y = exactly(upper_y)

    def operator(v: Array) -> Array:
        kept = derivative(v)
        return kept + derivative(tau * hessian(kept) - kept)

    right = derivative(upper_y)
    size = jnp.linalg.norm(right)
    wanted = jnp.maximum(accuracy, _FINEST) * size
    solved = conjugate_gradients(operator, right, scales.preconditioner, wanted, most, guess)
    kept = derivative(solved.solution)
    # What a Newton step on y would still change: the value is then as accurate as y squared.
    off = y - backward
    value += jnp.dot(kept, tau * hessian(off) - off) - jnp.dot(upper_y, off)
    _, pull = jax.vjp(lambda v: slope(v, y), x)
    gradient = exactly(upper_x) - tau * exactly(pull(kept)[0])
    shift = upper_y + kept - tau * hessian(kept)
    if flat.prox is not None:  # the weights of simple terms may depend on x
        _, pull = jax.vjp(lambda v: flat.backward(v, forward, tau), x)
        gradient += exactly(pull(shift)[0])
    regular = (jnp.linalg.norm(solved.residual) <= _SOLVED * size) & ~solved.concave & jnp.isfinite(gradient).all()
    return Adjoint(value, gradient, regular, tau * kept, shift, solved.products)
