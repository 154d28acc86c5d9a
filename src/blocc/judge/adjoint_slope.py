"""The derivative of ``phi(x) = f(x, y(x))`` without matrices, for followers too large for dense second derivatives.

It applies where the follower has no coupled constraints: y then is the fixed point of a projected gradient step, and
one adjoint system gives the derivative of f, and one more that of each row of G. Everything is computed from the
problem's functions at (x, y).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array
from blocc.flat_problem import FlatProblem
from blocc.inner.adjoint import adjoint
from blocc.inner.conjugate_gradients import scales_of
from blocc.judge.value_slope import LeaderRows, Slope, weighed

_ACCURACY = 1e-9  #: of the adjoint systems, relative
_PRODUCTS = 2000  #: Hessian-vector products of one of them
_MOST_ROWS = 20  #: of the leader's own constraints
_MOST_TERMS = 1000  #: variables of the leader's, for each of which the terms of the derivative are summed by size
_SHARE = 1e-2  #: of the largest terms: no variable of the leader's is measured by less
_ROUNDING = 1e-9  #: terms below this share of all that f may change by are rounding


class _Differentiated(NamedTuple):
    gradients: AnyArray  #: of f and of each row of G along y(x)
    regular: AnyArray
    terms: (
        AnyArray  #: sizes of the terms that the derivative of f is made of, one sum for each variable of the leader's
    )
    whole: AnyArray  #: what f changes by when all variables move by their sizes
    constraint: AnyArray  #: G
    x_inequality: AnyArray
    x_inequality_jacobian: AnyArray
    x_equality_jacobian: AnyArray


def _differentiated(flat: FlatProblem, x: Array, y: Array) -> _Differentiated:
    def functions(a: Array, b: Array) -> Array:
        return jnp.concatenate([flat.upper(a, b)[None], flat.upper_inequality(a, b)])

    slope = jax.grad(flat.lower, argnums=1)
    _, hessian = jax.linearize(lambda v: slope(x, v), y)
    scales = scales_of(hessian, flat.n_y)
    count = 1 + flat.n_upper_inequality
    found = jax.lax.map(
        lambda row: adjoint(flat, x, y, lambda a, b: row @ functions(a, b), scales, _ACCURACY, _PRODUCTS),
        jnp.eye(count),
    )
    upper_x, upper_y = jax.grad(flat.upper, argnums=(0, 1))(x, y)
    terms = jnp.abs(found.gradient[0] - upper_x)
    if flat.n_x <= _MOST_TERMS:
        terms = _sizes_of_terms(flat, x, y, found.price[0], found.shift[0], 1.0 / scales.largest)
    sizes_x, sizes_y = (jnp.maximum(1.0, jnp.abs(point)) for point in (x, y))
    return _Differentiated(
        found.gradient,
        found.regular.all(),
        jnp.abs(upper_x) + terms,
        jnp.abs(upper_x) @ sizes_x + jnp.abs(upper_y) @ sizes_y,
        flat.upper_inequality(x, y),
        flat.x_set.inequality_flat(x),
        jax.jacfwd(flat.x_set.inequality_flat)(x),
        jax.jacfwd(flat.x_set.equality_flat)(x),
    )


def _sizes_of_terms(flat: FlatProblem, x: Array, y: Array, price: Array, shift: Array, tau: Array) -> Array:
    """For each variable of the leader's: the terms of the derivative of f that come from the follower, signs apart."""
    slope, push = jax.linearize(lambda v: jax.grad(flat.lower, argnums=1)(v, y), x)
    _, move = jax.linearize(lambda v: flat.backward(v, y - tau * slope, tau), x)

    def size(index: Array) -> Array:
        unit = jnp.zeros(flat.n_x).at[index].set(1.0)
        return jnp.abs(push(unit)) @ jnp.abs(price) + jnp.abs(move(unit)) @ jnp.abs(shift)

    return jax.lax.map(size, jnp.arange(flat.n_x))


def slope_without_matrices(flat: FlatProblem, x: np.ndarray, y: np.ndarray) -> Slope | None:
    """The derivative of phi at (x, y); None where there is none that can be trusted, or no way to it."""
    if flat.n_inequality or flat.n_equality or flat.n_upper_inequality > _MOST_ROWS:
        return None
    found = flat.program(_differentiated)(np.asarray(x), np.asarray(y))
    if not found.regular or not all(np.isfinite(part).all() for part in found):
        return None
    sizes = np.maximum(1.0, np.abs(x))
    terms = found.terms * sizes
    # Without second derivatives of f, a variable that hardly matters here is measured by those that do.
    scale = np.maximum(terms, max(_SHARE * float(np.max(terms)), _ROUNDING * float(found.whole))) + 1e-300
    gradients, constraint = np.asarray(found.gradients), np.asarray(found.gradients)[1:]
    rows = LeaderRows(
        np.concatenate([found.x_inequality, found.constraint]),
        np.concatenate([found.x_inequality_jacobian, constraint]),
        np.asarray(found.x_equality_jacobian),
    )
    return weighed(flat, x, gradients[0], sizes, scale, constraint, rows)
