"""Few coupled rows over many variables, without matrices: an augmented Lagrangian, and its derivative.

With multipliers ``m`` and weights ``r`` of the rows c <= 0 and h = 0, the follower

    min over y in Y of  g + (|[m_c + r c]_+|^2 - |m_c|^2) / (2 r) + <m_h, h> + r |h|^2 / 2

has no rows and the same minimiser if m is right; m + r c is closer to what it should be (Hestenes; Powell; Rockafellar,
Mathematics of Operations Research 1, 1976). A row adds one large eigenvalue, which conjugate gradients take one
iteration for. At fixed m the minimiser y(x, m) has derivatives by the systems of :mod:`blocc.inner.adjoint`; those rows
that are held at zero tell how m moves with x, which is a Schur complement of as many rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from blocc._lib.arrays import AnyArray, Array, Bool, Float
from blocc._lib.rounding import TINY
from blocc.flat_problem import FlatProblem
from blocc.inner.adjoint import adjoint
from blocc.inner.conjugate_gradients import Scales
from blocc.inner.protocol import Adjoint, InnerCode, InnerOracle, InnerSolution, finish
from blocc.lagrangian import Multipliers, Weights
from blocc.terms import FlatFunction

#: Rows up to which each is worth a system of its own.
MOST_ROWS = 50
#: First curvature of a row in units of the largest of the objective, and the factor by which it grows while violations
#: fall by less than its root: errors of multipliers then fall tenfold and more in each round.
_WEIGHT, _FALL = 10.0, 0.3
_ROUNDS = 20  #: of multipliers: each gains a digit or more
#: A row has a kink beside it where both multiplier and slack are smaller, in lengths of y: the root of the precision.
_KINK = 1e-8


class Prices(NamedTuple):
    """Multipliers and weights of all rows, inequalities first."""

    multipliers: Float[Array, "rows"]
    weights: Float[Array, "rows"]


def rows_of(flat: FlatProblem, x: AnyArray, y: AnyArray) -> Float[Array, "rows"]:
    """gc and h."""
    return jnp.concatenate([flat.inequality(x, y), flat.equality(x, y)])


def without_rows(flat: FlatProblem, gamma: AnyArray | float, prices: Prices) -> FlatProblem:
    """The follower's problem with its rows in the objective, which weighs g by gamma."""
    n, (multipliers, weights) = flat.n_inequality, prices

    def lower(x: AnyArray, y: AnyArray) -> Array:
        found = rows_of(flat, x, y)
        shifted = multipliers + weights * found
        squares = jnp.sum((jnp.maximum(shifted[:n], 0.0) ** 2 - multipliers[:n] ** 2) / (2.0 * weights[:n]))
        linear = jnp.sum(found[n:] * (multipliers[n:] + 0.5 * weights[n:] * found[n:]))
        return flat.lower(x, y) + (squares + linear) / gamma

    return _unconstrained(flat, lower)


def _unconstrained(flat: FlatProblem, lower: FlatFunction) -> FlatProblem:
    def none(x: AnyArray, y: AnyArray) -> Array:
        return jnp.zeros(0)

    return replace(
        flat, lower=lower, inequality=none, equality=none, n_inequality=0, n_equality=0, joint_projection=None
    )


class _Rounds(NamedTuple):
    warm: Any  #: of the oracle, which knows no rows; its y is the answer
    code: Array
    concave: Array
    iterations: Array
    rows: Prices
    left: Float[Array, "rows"]  #: what the multipliers were off by
    number: Array
    running: Array


def solve_with_rows(
    oracle: InnerOracle, flat: FlatProblem, x: Array, weights: Weights, warm: Any, tolerance: Array
) -> InnerSolution:
    """Rounds of an oracle that knows no rows, until their multipliers are right.

    Its warm start has fields ``y``, ``rows`` (:class:`Prices`) and ``curvature``: zero if that is to be measured again.
    """
    n, none = flat.n_inequality, Prices(jnp.zeros(0), jnp.zeros(0))
    size = lambda y: 1.0 + jnp.max(jnp.abs(y), initial=0.0)  # noqa: E731
    largest = lambda vector: jnp.max(jnp.abs(vector), initial=0.0)  # noqa: E731
    known = (warm.rows.weights > 0.0).all()

    def advance(r: _Rounds) -> _Rounds:
        found = oracle.solve(without_rows(flat, weights.lower, r.rows), x, weights, r.warm, tolerance)
        values, squares = _rows_and_squares(flat, x, jnp.asarray(found.y))
        multipliers, stiff = r.rows
        left = jnp.concatenate([jnp.maximum(values[:n], -multipliers[:n] / stiff[:n]), values[n:]])
        done = (largest(left) <= tolerance * size(found.y)) & (found.code == int(InnerCode.CONVERGED))
        slow = jnp.abs(left) > _FALL * jnp.abs(r.left)
        after = Prices(multipliers + stiff * left, jnp.where(slow, _WEIGHT * stiff, stiff))
        # The first round of all leaves the rows out, and tells by which curvature they are to be weighed.
        first = (r.number == 0) & ~known
        fresh = Prices(warm.rows.multipliers, _WEIGHT * found.warm.curvature / squares)
        after = jax.tree.map(lambda new, old: jnp.where(first, new, old), fresh, after)
        # A row that begins to hold, or a larger weight, changes the curvature.
        changed = first | slow.any() | ((after.multipliers > 0.0) != (multipliers > 0.0))[:n].any()
        return _Rounds(
            found.warm._replace(curvature=jnp.where(changed, 0.0, found.warm.curvature)),
            jnp.asarray(found.code),
            jnp.asarray(found.concave),
            r.iterations + found.iterations,
            after,
            jnp.where(first, jnp.inf, left),
            r.number + 1,
            (first | ~done & jnp.isfinite(left).all()) & jnp.isfinite(found.y).all() & (r.number < _ROUNDS),
        )

    free = Prices(jnp.zeros_like(warm.rows.weights), jnp.full_like(warm.rows.weights, TINY))
    rows = jax.tree.map(lambda old, new: jnp.where(known, old, new), warm.rows, free)
    zero, no = jnp.asarray(0), jnp.asarray(False)
    begin = _Rounds(warm._replace(rows=none), zero, no, zero, rows, jnp.full_like(rows.weights, jnp.inf), zero, ~no)
    end = jax.lax.while_loop(lambda r: r.running, advance, begin)
    y = jnp.asarray(end.warm.y)
    multipliers = Multipliers(jnp.maximum(end.rows.multipliers[:n], 0.0), end.rows.multipliers[n:])
    done = largest(end.left) <= tolerance * size(y)
    return finish(
        flat,
        x,
        y,
        multipliers,
        weights,
        iterations=end.iterations,
        code=jnp.where(done, end.code, jnp.maximum(end.code, int(InnerCode.STALLED))),
        warm=end.warm._replace(rows=Prices(jnp.append(*multipliers), end.rows.weights)),
        concave=end.concave,
    )


def _rows_and_squares(flat: FlatProblem, x: Array, y: Array) -> tuple[Array, Array]:
    """The rows, and the squared lengths of their gradients in y; one for a row that has none."""
    values, pull = jax.vjp(lambda b: rows_of(flat, x, b), y)
    squares = jnp.sum(jax.vmap(lambda row: pull(row)[0])(jnp.eye(values.size)) ** 2, axis=1)
    return values, jnp.where(squares > 0.0, squares, 1.0)


def coupled_adjoint(
    flat: FlatProblem,
    x: Array,
    y: Array,
    multipliers: Multipliers,
    upper: Callable[[Array, Array], Array],
    scales: Scales,
    accuracy: Array | float,
    most: int,
) -> Adjoint:
    """The derivative of ``upper(x, y(x))`` at the follower's answer with its multipliers."""
    count = flat.n_inequality + flat.n_equality
    normals = jax.jacrev(lambda b: rows_of(flat, x, b))(y)
    squares = jnp.sum(normals**2, axis=1)
    weights = scales.largest / jnp.where(squares > 0.0, squares, 1.0)
    every = jnp.concatenate([jnp.asarray(multipliers.inequality), jnp.asarray(multipliers.equality)])
    held, clear = _held(flat, x, y, every, weights, squares)

    def lower(a: AnyArray, b: AnyArray) -> Array:
        """What is not held has no multiplier, and is left out."""
        values = rows_of(flat, a, b)
        return flat.lower(a, b) + jnp.sum(jnp.where(held, values * (every + 0.5 * weights * values), 0.0))

    part = _unconstrained(flat, lower)

    def functions(a: Array, b: Array) -> Array:
        return jnp.concatenate([upper(a, b)[None], rows_of(flat, a, b)])

    found = jax.lax.map(
        lambda row: adjoint(part, x, y, lambda a, b: row @ functions(a, b), scales, accuracy, most),
        jnp.eye(1 + count),
    )
    schur = found.price[1:] @ normals.T
    both = held[:, None] & held
    schur = jnp.where(both, schur, jnp.eye(count))
    share = jnp.where(held, found.price[0] @ normals.T, 0.0)
    moving = jnp.linalg.solve(schur, share)
    gradient = found.gradient[0] - moving @ jnp.where(held[:, None], found.gradient[1:], 0.0)
    price = found.price[0] - moving @ jnp.where(held[:, None], found.price[1:], 0.0)
    regular = (found.regular | jnp.concatenate([jnp.zeros(1, bool), ~held])).all() & clear
    regular &= jnp.isfinite(gradient).all()
    return Adjoint(found.value[0], gradient, regular, price, found.shift[0], found.products.sum())


def _held(
    flat: FlatProblem, x: Array, y: Array, multipliers: Array, weights: Array, squares: Array
) -> tuple[Bool[Array, "rows"], Bool[Array, ""]]:
    """Which rows are held at zero, and whether that is clear for all."""
    slack = -rows_of(flat, x, y)
    is_equality = jnp.arange(multipliers.shape[0]) >= flat.n_inequality
    held = is_equality | (multipliers / weights > slack)
    length = jnp.maximum(jnp.abs(multipliers) / weights, jnp.abs(slack)) / jnp.sqrt(jnp.maximum(squares, TINY))
    return held, (is_equality | (length > _KINK * (1.0 + jnp.max(jnp.abs(y), initial=0.0)))).all()
