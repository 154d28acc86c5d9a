"""The follower's classifier at given margins c, and the penalised one: a structured interior point.

    minimise   sum_j e_j exp(1 - v_j . y) + sum_k r_k y_k^2 / 2    over y = (w, b)
    subject to d_i . y >= 1 - c_i for every training sample

With e = 0 and r = (1, ..., 1, 0) this is the lower level, a quadratic program; with e = 1 and r = gamma (1, ..., 1, 0)
it is the penalised problem. b needs no ridge: the constraints hold it. Newton's matrix is as large as y, and a step
costs one pass over the samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from blocc._lib.arrays import Array, Bool, Float, Int
from blocc._lib.rounding import EXACT, TINY
from blocc.inner.mehrotra import IterationState, Pairs, Piece, Products, corrected_direction, iterate
from blocc.svm.newton import LIMITS, loss_limited_step, losses, solve_definite, weighted_gram

#: Keeps the weight of an active constraint finite where the follower's set has no interior.
SOFTENING = 1e-10
PAIRS = Pairs((("slack", "price"),), (1.0,))


class FollowerData(NamedTuple):
    """One instance. Rows of zeros with a demand of -1, and validation rows of weight 0, change nothing."""

    rows: Float[Array, "n p"]  #: l_i (z_i, 1)
    demand: Float[Array, "n"]  #: 1 - c_i
    validation: Float[Array, "m p"]
    weight: Float[Array, "m"]  #: e_j
    ridge: Float[Array, "p"]  #: r_k


class FollowerPoint(NamedTuple):
    """Primal and dual variables."""

    y: Float[Array, "p"]
    slack: Float[Array, "n"]
    price: Float[Array, "n"]  #: multipliers of the constraints


class FollowerAnswer(NamedTuple):
    """The solution, its relative KKT residual and the Newton steps it took."""

    point: FollowerPoint
    error: Float[Array, ""]
    iterations: Int[Array, ""]
    infeasible: Bool[Array, ""]  #: whether the multipliers prove that no y meets all demands
    state: IterationState  #: for another piece


def solve_follower(
    data: FollowerData, tolerance: float | Float[Array, ""], piece: Piece | None = None
) -> FollowerAnswer:
    """Solve one instance to ``tolerance`` (relative KKT residual), or as far as rounding or the ``piece`` permit."""
    n, p = data.rows.shape
    first = FollowerPoint(jnp.zeros(p), jnp.maximum(-data.demand, jnp.ones(n)), jnp.ones(n))
    end = iterate(
        first, lambda state: _step(data, state), lambda point: _error(data, point), tolerance, LIMITS, piece=piece
    )
    return FollowerAnswer(end.best, end.best_error, end.iteration, _unreachable(data, end.point.price), end)


def _gradient(data: FollowerData, point: FollowerPoint) -> tuple[Float[Array, "p"], Float[Array, "m"]]:
    """The gradient of the Lagrangian, and the validation losses."""
    loss = losses(data.validation, data.weight, point.y)
    return data.ridge * point.y - data.validation.T @ loss - data.rows.T @ point.price, loss


def _error(data: FollowerData, point: FollowerPoint) -> Float[Array, ""]:
    slope, _ = _gradient(data, point)
    scale = 1.0 + jnp.max(point.price, initial=0.0)
    gap = data.rows @ point.y - data.demand
    size = 1.0 + jnp.max(jnp.abs(point.y))
    complementarity = jnp.max(jnp.maximum(gap, 0.0) * point.price, initial=0.0)
    return jnp.maximum(
        jnp.maximum(jnp.max(jnp.abs(slope)) / scale, jnp.max(-gap, initial=0.0) / size), complementarity / scale
    )


def _newton(
    data: FollowerData, point: FollowerPoint, regularisation: Float[Array, ""]
) -> tuple[Callable[[Products], FollowerPoint], Float[Array, "m"]]:
    """Newton's direction for any change of the products, and the validation losses."""
    y, slack, price = point
    slope, loss = _gradient(data, point)
    primal = data.rows @ y - data.demand - slack
    stiffness = 1.0 / (slack / price + SOFTENING)
    matrix = weighted_gram(data.validation, loss) + weighted_gram(data.rows, stiffness) + jnp.diag(data.ridge)
    solve = solve_definite(matrix, regularisation)

    def direction(wanted: Products) -> FollowerPoint:
        (products,) = wanted
        pull = stiffness * (products / price - primal)
        change = solve(data.rows.T @ pull - slope)
        price_change = pull - stiffness * (data.rows @ change)
        return FollowerPoint(change, (products - slack * price_change) / price, price_change)

    return direction, loss


def _step(data: FollowerData, state: IterationState) -> FollowerPoint:
    point: FollowerPoint = state.point
    direction, loss = _newton(data, point, state.regularisation)
    change, barrier = corrected_direction(point, PAIRS, direction)
    primal_step, dual_step = PAIRS.longest_steps(point, change)
    # With the exponential loss the two sides are coupled nonlinearly and move together.
    smooth = jnp.any(data.weight > 0.0)
    together = jnp.minimum(primal_step, dual_step)
    damping = jnp.where(barrier < 1e-2, 0.999, 0.99) * loss_limited_step(data.validation, loss, change.y)
    primal_step = damping * jnp.where(smooth, together, primal_step)
    dual_step = damping * jnp.where(smooth, together, dual_step)
    return FollowerPoint(
        point.y + primal_step * change.y,
        point.slack + primal_step * change.slack,
        point.price + dual_step * change.price,
    )


def _unreachable(data: FollowerData, price: Float[Array, "n"]) -> Bool[Array, ""]:
    """Farkas: prices that combine the rows to nothing and the demands to something positive."""
    total = jnp.maximum(jnp.sum(price), TINY)
    combined = jnp.max(jnp.abs(data.rows.T @ price)) / total
    return (data.demand @ price / total > 10.0 * combined + EXACT) & (total > 1e6)
