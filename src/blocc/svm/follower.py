"""The follower's classifier at given margins c, and the penalised one: a structured interior point.

    minimise   sum_j e_j exp(1 - v_j . y) + sum_k r_k y_k^2 / 2    over y = (w, b)
    subject to d_i . y >= 1 - c_i for every training sample

With e = 0 and r = (1, ..., 1, 0) this is the lower level, a quadratic program; with e = 1 and r = gamma (1, ..., 1, 0)
it is the penalised problem. b needs no ridge: the constraints hold it. Newton's matrix is as large as y, and a step
costs one pass over the samples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from blocc.svm.newton import (
    Progress,
    begin,
    longest_step,
    losses,
    may_continue,
    proceed,
    solve_definite,
    tame,
    weighted_gram,
)

Array = Any

#: Keeps the weight of an active constraint finite where the follower's set has no interior.
SOFTENING = 1e-10


class FollowerData(NamedTuple):
    """One instance. Rows of zeros with a demand of -1, and validation rows of weight 0, change nothing."""

    rows: Array  #: (n, p): l_i (z_i, 1)
    demand: Array  #: (n,): 1 - c_i
    validation: Array  #: (m, p)
    weight: Array  #: (m,): e_j
    ridge: Array  #: (p,): r_k


class FollowerPoint(NamedTuple):
    """Primal and dual variables."""

    y: Array
    slack: Array
    price: Array  #: multipliers of the constraints


class FollowerAnswer(NamedTuple):
    """The solution, its relative KKT residual and the Newton steps it took."""

    point: FollowerPoint
    error: Array
    iterations: Array
    infeasible: Array  #: whether the multipliers prove that no y meets all demands


def start_cold(data: FollowerData) -> FollowerPoint:
    """w = 0: unit slacks and prices."""
    ones = jnp.ones(data.rows.shape[0])
    return FollowerPoint(jnp.zeros(data.rows.shape[1]), jnp.maximum(-data.demand, ones), ones)


def solve_follower(data: FollowerData, tolerance: Array) -> FollowerAnswer:
    """Solve one instance to ``tolerance`` (relative KKT residual), or as far as rounding permits."""
    first = start_cold(data)
    end = lax.while_loop(
        lambda progress: may_continue(progress, tolerance),
        lambda progress: _step(data, progress),
        begin(first, first.y),
    )
    return FollowerAnswer(end.best, end.best_error, end.iteration, _unreachable(data, end.point.price))


def _gradient(data: FollowerData, point: FollowerPoint) -> tuple[Array, Array]:
    loss = losses(data.validation, data.weight, point.y)
    slope = data.ridge * point.y - data.validation.T @ loss - data.rows.T @ point.price
    return slope, loss


def _error(data: FollowerData, point: FollowerPoint) -> Array:
    slope, _ = _gradient(data, point)
    scale = 1.0 + jnp.max(point.price, initial=0.0)
    gap = data.rows @ point.y - data.demand
    size = 1.0 + jnp.max(jnp.abs(point.y))
    complementarity = jnp.max(jnp.maximum(gap, 0.0) * point.price, initial=0.0)
    return jnp.maximum(
        jnp.maximum(jnp.max(jnp.abs(slope)) / scale, jnp.max(-gap, initial=0.0) / size), complementarity / scale
    )


def _step(data: FollowerData, progress: Progress) -> Progress:
    """Mehrotra's predictor and corrector."""
    y, slack, price = progress.point
    slope, loss = _gradient(data, progress.point)
    primal = data.rows @ y - data.demand - slack
    stiffness = 1.0 / (slack / price + SOFTENING)
    matrix = weighted_gram(data.validation, loss) + weighted_gram(data.rows, stiffness) + jnp.diag(data.ridge)
    solve = solve_definite(matrix, progress.regularisation)
    count = slack.shape[0]
    barrier = slack @ price / count

    def direction(products: Array) -> FollowerPoint:
        pull = -stiffness * (products / price + primal)
        change = solve(data.rows.T @ pull - slope)
        price_change = pull - stiffness * (data.rows @ change)
        return FollowerPoint(change, -(products + slack * price_change) / price, price_change)

    def lengths(change: FollowerPoint) -> tuple[Array, Array]:
        return longest_step(slack, change.slack), longest_step(price, change.price)

    predictor = direction(slack * price)
    shortest = jnp.minimum(*lengths(predictor))
    reached = (slack + shortest * predictor.slack) @ (price + shortest * predictor.price) / count
    centre = jnp.maximum((reached / barrier) ** 3, 1e-6) * barrier
    change = direction(slack * price - centre + predictor.slack * predictor.price)
    primal_step, dual_step = lengths(change)
    # With the exponential loss the two sides are coupled nonlinearly and move together.
    smooth = jnp.any(data.weight > 0.0)
    together = jnp.minimum(primal_step, dual_step)
    damping = jnp.where(barrier < 1e-2, 0.999, 0.99) * tame(data.validation, loss, change.y)
    primal_step = damping * jnp.where(smooth, together, primal_step)
    dual_step = damping * jnp.where(smooth, together, dual_step)
    candidate = FollowerPoint(
        y + primal_step * change.y, slack + primal_step * change.slack, price + dual_step * change.price
    )
    return proceed(progress, candidate, _error(data, candidate), candidate.y)


def _unreachable(data: FollowerData, price: Array) -> Array:
    """Farkas: prices that combine the rows to nothing and the demands to something positive."""
    total = jnp.maximum(jnp.sum(price), 1e-300)
    combined = jnp.max(jnp.abs(data.rows.T @ price)) / total
    return (data.demand @ price / total > 10.0 * combined + 1e-9) & (total > 1e6)
