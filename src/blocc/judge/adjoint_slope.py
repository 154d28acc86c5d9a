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
from blocc.judge.value_slope import Slope
from blocc.judge.ways import LeaderRows, ways_of, weigh

_ACCURACY = 1e-9  #: of the adjoint systems, relative
_PRODUCTS = 2000  #: Hessian-vector products of one of them
_MOST_ROWS = 20  #: of the leader's own constraints


class _Differentiated(NamedTuple):
    gradients: AnyArray  #: of f and of each row of G along y(x)
    regular: AnyArray
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
    return _Differentiated(
        found.gradient,
        found.regular.all(),
        flat.upper_inequality(x, y),
        flat.x_set.inequality_flat(x),
        jax.jacfwd(flat.x_set.inequality_flat)(x),
        jax.jacfwd(flat.x_set.equality_flat)(x),
    )


def slope_without_matrices(flat: FlatProblem, x: np.ndarray, y: np.ndarray) -> Slope | None:
    """The derivative of phi at (x, y); None where there is none that can be trusted, or no way to it."""
    if flat.n_inequality or flat.n_equality or flat.n_upper_inequality > _MOST_ROWS:
        return None
    found = flat.program(_differentiated)(np.asarray(x), np.asarray(y))
    if not found.regular or not all(np.isfinite(part).all() for part in found):
        return None
    sizes = np.maximum(1.0, np.abs(x))
    gradients, constraint = np.asarray(found.gradients), np.asarray(found.gradients)[1:]
    rows = LeaderRows(
        np.concatenate([found.x_inequality, found.constraint]),
        np.concatenate([found.x_inequality_jacobian, constraint]),
        np.asarray(found.x_equality_jacobian),
    )
    weighed = weigh(flat, x, gradients[0], sizes, rows)
    ways = ways_of(x, weighed, sizes, rows, None)
    return Slope(gradients[0], sizes, constraint, weighed.left, ways, np.abs(constraint) @ sizes)
