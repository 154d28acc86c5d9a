"""The leader's convex problems: margins c are free, and some samples are held to their margin.

    minimise   sum_j e_j exp(1 - v_j . y) + sum_k r_k y_k^2 / 2 + sum_i lambda_i c_i^2 / 2 + a . c
    over y, c >= 0, mu >= 0
    subject to d_i . y + c_i = 1       and mu_i >= 0   for the samples that are held,
               d_i . y + c_i >= 1      and mu_i = 0    for the others,
               diag(q) y = sum_i mu_i d_i              (only when ``coupled``)

The last line says that y is the follower's answer to c: w is a nonnegative combination of the samples that are held,
and b is balanced (q = (1, ..., 1, 0), or the weight of b last). For a fixed set of held samples all this is convex, and
its solution is the best bilevel answer with these support vectors. Without the coupling it is a relaxation: a lower
bound.

Every variable of a sample is eliminated by hand, so Newton's matrix has one row for each feature (two when coupled).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int
from blocc.inner.mehrotra import IterationState, Pairs, Piece, Products, corrected_direction, iterate, move
from blocc.svm.newton import LIMITS, loss_limited_step, losses, solve_definite, solve_saddle, weighted_gram


class LeaderData(NamedTuple):
    """One instance. Rows of zeros with a demand of -1, and validation rows of weight 0, change nothing."""

    rows: Float[Array, "n p"]  #: l_i (z_i, 1)
    demand: Float[Array, "n"]  #: 1 for every sample
    validation: Float[Array, "m p"]
    weight: Float[Array, "m"]  #: e_j
    ridge: Float[Array, "p"]  #: r_k
    c_weight: Float[Array, "n"]  #: lambda_i
    charge: Float[Array, "n"]  #: a_i
    held: Bool[Array, "n"]
    coupling: Float[Array, "p"]  #: q_k


class LeaderPoint(NamedTuple):
    """Primal and dual variables; ``slack`` counts for samples that are not held, ``support`` for those that are."""

    y: Float[Array, "p"]
    c: Float[Array, "n"]
    slack: Float[Array, "n"]  #: d_i . y + c_i - 1
    support: Float[Array, "n"]  #: mu_i
    margin_price: Float[Array, "n"]  #: multiplier of d_i . y + c_i - slack_i = 1
    c_price: Float[Array, "n"]  #: multiplier of c_i >= 0
    support_price: Float[Array, "n"]  #: multiplier of mu_i >= 0
    coupling_price: Float[Array, "p"]  #: multiplier of diag(q) y = sum mu_i d_i


class LeaderAnswer(NamedTuple):
    """The solution, its relative KKT residual, the Newton steps it took and y after each of them."""

    point: LeaderPoint
    error: Float[Array, ""]
    iterations: Int[Array, ""]
    path: Float[Array, "steps p"]
    state: IterationState  #: for another piece


class _Residual(NamedTuple):
    y: Float[Array, "p"]
    c: Float[Array, "n"]
    support: Float[Array, "n"]
    margin: Float[Array, "n"]
    coupling: Float[Array, "p"]
    loss: Float[Array, "m"]


def solve_leader(
    data: LeaderData,
    y: Float[Array, "p"],
    support: Float[Array, "n"],
    tolerance: float | Float[Array, ""],
    piece: Piece | None = None,
    *,
    coupled: bool,
) -> LeaderAnswer:
    """Solve one instance from a classifier ``y`` and multipliers ``support``: all the way, or a piece of it."""
    pairs = _pairs(data, coupled)
    end = iterate(
        _start(data, y, support),
        lambda state: _step(data, pairs, state, coupled),
        lambda point: _error(data, pairs, point, coupled),
        tolerance,
        LIMITS,
        record=lambda point: point.y,
        piece=piece,
    )
    return LeaderAnswer(end.best, end.best_error, end.iteration, end.record, end)


def project_margins(
    rows: Float[AnyArray, "n p"], c: Float[Array, "n"], y: Float[Array, "p"]
) -> tuple[Float[Array, "n"], Float[Array, "p"]]:
    """The nearest margins and classifier that meet every demand: the relaxation in the change of y, without losses."""
    rows = jnp.asarray(rows)
    width = len(y)
    none, ones = jnp.zeros(width), jnp.ones(width)
    demand, free = 1.0 - rows @ y, jnp.zeros(len(c), dtype=bool)
    data = LeaderData(rows, demand, none[None], jnp.zeros(1), ones, jnp.ones_like(c), -c, free, none)
    found = solve_leader(data, none, jnp.zeros_like(c), 1e-12, coupled=False).point
    return jnp.maximum(found.c, 0.0), y + found.y


def _start(data: LeaderData, y: Float[Array, "p"], support: Float[Array, "n"]) -> LeaderPoint:
    """A point in the interior, near a classifier and its multipliers."""
    margin = data.rows @ y - data.demand
    c = jnp.maximum(-margin, 0.1)
    # The price of c is shared between its two multipliers; where it is high they must start high.
    half = jnp.maximum(1.0, 0.5 * data.charge)
    return LeaderPoint(
        y,
        c,
        jnp.where(data.held, 1.0, jnp.maximum(margin + c, 0.1)),
        jnp.where(data.held, jnp.maximum(support, 0.1), 0.0),
        jnp.where(data.held, data.charge - half, half),
        half,
        jnp.ones_like(c),
        jnp.zeros_like(y),
    )


def _pairs(data: LeaderData, coupled: bool) -> Pairs:
    pairs = [
        (("c", "c_price"), jnp.ones_like(data.demand)),
        (("slack", "margin_price"), jnp.where(data.held, 0.0, 1.0)),
        (("support", "support_price"), jnp.where(data.held, 1.0, 0.0)),
    ]
    names, weights = zip(*pairs[: 3 if coupled else 2], strict=True)
    return Pairs(names, weights)


def _residual(data: LeaderData, point: LeaderPoint) -> _Residual:
    held, rows = data.held, data.rows
    loss = losses(data.validation, data.weight, point.y)
    slope = data.ridge * point.y - data.validation.T @ loss - rows.T @ point.margin_price
    combined = rows.T @ jnp.where(held, point.support, 0.0)
    return _Residual(
        slope - data.coupling * point.coupling_price,
        data.c_weight * point.c + data.charge - point.margin_price - point.c_price,
        jnp.where(held, rows @ point.coupling_price - point.support_price, 0.0),
        rows @ point.y + point.c - data.demand - jnp.where(held, 0.0, point.slack),
        data.coupling * point.y - combined,
        loss,
    )


def _error(data: LeaderData, pairs: Pairs, point: LeaderPoint, coupled: bool) -> Float[Array, ""]:
    left = _residual(data, point)
    scale = 1.0 + jnp.maximum(jnp.max(jnp.abs(point.margin_price)), jnp.max(jnp.abs(data.validation.T @ left.loss)))
    largest = lambda *parts: jnp.max(jnp.stack([jnp.max(jnp.abs(part), initial=0.0) for part in parts]))  # noqa: E731
    size = 1.0 + jnp.max(jnp.abs(point.y))
    error = jnp.maximum(largest(left.y, left.c, *pairs.products(point, point)) / scale, largest(left.margin) / size)
    if coupled:
        strongest = 1.0 + jnp.max(jnp.where(data.held, point.support, 0.0))
        error = jnp.maximum(error, jnp.maximum(largest(left.support) / scale, largest(left.coupling) / strongest))
    return error


def _newton(
    data: LeaderData, point: LeaderPoint, left: _Residual, regularisation: Float[Array, ""], coupled: bool
) -> Callable[[Products], LeaderPoint]:
    """Newton's direction for any change of the products."""
    held, rows = data.held, data.rows
    curvature = data.c_weight + point.c_price / point.c
    # Eliminating c and the slack leaves each sample a single weight in the matrix of y.
    spread = point.slack * curvature + point.margin_price
    stiffness = jnp.where(held, curvature, curvature * point.margin_price / spread)
    matrix = weighted_gram(data.validation, left.loss) + weighted_gram(rows, stiffness) + jnp.diag(data.ridge)
    if coupled:
        weight = jnp.where(held, point.support / point.support_price, 0.0)
        solve = solve_saddle(matrix, data.coupling, weighted_gram(rows, weight), regularisation)
    else:
        definite = solve_definite(matrix, regularisation)
        solve = lambda top, bottom: (definite(top), jnp.zeros_like(top))  # noqa: E731

    def direction(wanted: Products) -> LeaderPoint:
        of_c, of_slack, of_support = wanted if coupled else (*wanted, jnp.zeros_like(point.c))
        known = left.c - of_c / point.c
        base = jnp.where(
            held, -left.margin, (of_slack - point.slack * known - point.margin_price * left.margin) / spread
        )
        carried = jnp.where(held, (point.support * left.support - of_support) / point.support_price, 0.0)
        change, price_change = solve(rows.T @ (curvature * base + known) - left.y, left.coupling + rows.T @ carried)
        moved = rows @ change
        c_change = base - jnp.where(held, moved, point.margin_price * moved / spread)
        support_price_change = jnp.where(held, rows @ price_change + left.support, 0.0)
        return LeaderPoint(
            change,
            c_change,
            jnp.where(held, 0.0, moved + c_change + left.margin),
            jnp.where(held, (of_support - point.support * support_price_change) / point.support_price, 0.0),
            curvature * c_change + known,
            (of_c - point.c_price * c_change) / point.c,
            support_price_change,
            price_change,
        )

    return direction


def _step(data: LeaderData, pairs: Pairs, state: IterationState, coupled: bool) -> LeaderPoint:
    point: LeaderPoint = state.point
    left = _residual(data, point)
    direction = _newton(data, point, left, state.regularisation, coupled)
    change, barrier = corrected_direction(point, pairs, direction, least_centring=1e-4)
    step = jnp.where(barrier > 1e-3, 0.99, 0.999) * pairs.longest_step(point, change)
    return move(point, change, jnp.minimum(step, loss_limited_step(data.validation, left.loss, change.y)))
