"""The derivative of ``phi(x) = f(x, y(x))`` without matrices, for followers too large for dense second derivatives.

It applies where the follower has few coupled constraints or none: y is the fixed point of a projected gradient step on
its Lagrangian. One adjoint system gives the derivative of f, one more that of each row of G, and one for each coupled
row what its multiplier does. Everything is computed from the problem's functions at (x, y), with the multipliers that
prove y.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array
from blocc.flat_problem import FlatProblem
from blocc.inner.adjoint import adjoint
from blocc.inner.augmented import MOST_ROWS, coupled_adjoint
from blocc.inner.conjugate_gradients import scales_of
from blocc.inner.protocol import Adjoint
from blocc.judge.value_slope import Hypergradient
from blocc.judge.ways import LeaderRows, ways_of, weigh
from blocc.lagrangian import Multipliers, zero_multipliers

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


def _differentiated(flat: FlatProblem, x: Array, y: Array, multipliers: Multipliers) -> _Differentiated:
    def functions(a: Array, b: Array) -> Array:
        return jnp.concatenate([flat.upper(a, b)[None], flat.upper_inequality(a, b)])

    slope = jax.grad(flat.lower, argnums=1)
    _, hessian = jax.linearize(lambda v: slope(x, v), y)
    scales = scales_of(hessian, flat.n_y)
    count = 1 + flat.n_upper_inequality

    def along(row: Array) -> Adjoint:
        def upper(a: Array, b: Array) -> Array:
            return row @ functions(a, b)

        if flat.n_inequality + flat.n_equality:
            return coupled_adjoint(flat, x, y, multipliers, upper, scales, _ACCURACY, _PRODUCTS)
        return adjoint(flat, x, y, upper, scales, _ACCURACY, _PRODUCTS)

    found = jax.lax.map(along, jnp.eye(count))
    return _Differentiated(
        found.gradient,
        found.regular.all(),
        flat.upper_inequality(x, y),
        flat.x_set.inequality_flat(x),
        jax.jacfwd(flat.x_set.inequality_flat)(x),
        jax.jacfwd(flat.x_set.equality_flat)(x),
    )


def slope_without_matrices(
    flat: FlatProblem, x: np.ndarray, y: np.ndarray, multipliers: Multipliers | None
) -> Hypergradient | None:
    """The derivative of phi at (x, y); None where there is none that can be trusted, or no way to it.

    ``multipliers`` of the follower's are those with which y was found to be its answer.
    """
    most = 0 if multipliers is None or flat.prox is not None else MOST_ROWS
    if flat.n_inequality + flat.n_equality > most or flat.n_upper_inequality > _MOST_ROWS:
        return None
    prices = zero_multipliers(flat) if multipliers is None else Multipliers(*map(np.asarray, multipliers))
    found = flat.program(_differentiated)(np.asarray(x), np.asarray(y), prices)
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
    ways = ways_of(x, weighed, sizes, rows, None).found
    return Hypergradient(gradients[0], sizes, constraint, weighed.left, ways, np.abs(constraint) @ sizes)
