"""The leader's convex problems: margins c are free, and some samples are held to their margin.

    minimise   sum_j e_j exp(1 - v_j . y) + sum_k r_k y_k^2 / 2 + lambda ||c||^2 / 2 + a . c    over y, c >= 0, mu >= 0
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
    solve_saddle,
    tame,
    weighted_gram,
)

Array = Any


class LeaderData(NamedTuple):
    """One instance. Rows of zeros with a demand of -1, and validation rows of weight 0, change nothing."""

    rows: Array  #: (n, p): l_i (z_i, 1)
    demand: Array  #: (n,): 1 for every sample
    validation: Array  #: (m, p)
    weight: Array  #: (m,): e_j
    ridge: Array  #: (p,): r_k
    c_weight: Array  #: lambda
    charge: Array  #: (n,): a_i
    held: Array  #: (n,) bool
    coupling: Array  #: (p,): q_k


class LeaderPoint(NamedTuple):
    """Primal and dual variables; ``slack`` counts for samples that are not held, ``support`` for those that are."""

    y: Array
    c: Array
    slack: Array  #: d_i . y + c_i - 1
    support: Array  #: mu_i
    margin_price: Array  #: multiplier of d_i . y + c_i - slack_i = 1
    c_price: Array  #: multiplier of c_i >= 0
    support_price: Array  #: multiplier of mu_i >= 0
    coupling_price: Array  #: multiplier of diag(q) y = sum mu_i d_i


class LeaderAnswer(NamedTuple):
    """The solution, its relative KKT residual, the Newton steps it took and y after each of them."""

    point: LeaderPoint
    error: Array
    iterations: Array
    path: Array


class _Residual(NamedTuple):
    y: Array
    c: Array
    support: Array
    margin: Array
    coupling: Array
    loss: Array


def start_at(data: LeaderData, y: Array, support: Array) -> LeaderPoint:
    """A point in the interior, near a classifier and its multipliers."""
    margin = data.rows @ y - data.demand
    c = jnp.maximum(-margin, 0.1)
    ones = jnp.ones_like(c)
    # The price of c is shared between its two multipliers; where it is high they must start high.
    half = jnp.maximum(1.0, 0.5 * data.charge)
    return LeaderPoint(
        y,
        c,
        jnp.where(data.held, 1.0, jnp.maximum(margin + c, 0.1)),
        jnp.where(data.held, jnp.maximum(support, 0.1), 0.0),
        jnp.where(data.held, data.charge - half, half),
        half,
        ones,
        jnp.zeros_like(y),
    )


def solve_leader(data: LeaderData, y: Array, support: Array, tolerance: Array, *, coupled: bool) -> LeaderAnswer:
    """Solve one instance from a classifier ``y`` and multipliers ``support`` to ``tolerance``."""
    first = start_at(data, y, support)
    end = lax.while_loop(
        lambda progress: may_continue(progress, tolerance),
        lambda progress: _step(data, progress, coupled),
        begin(first, first.y),
    )
    return LeaderAnswer(end.best, end.best_error, end.iteration, end.path)


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


def _products(data: LeaderData, point: LeaderPoint, coupled: bool) -> tuple[Array, Array, Array]:
    slack = jnp.where(data.held, 0.0, point.slack * point.margin_price)
    support = jnp.where(data.held & coupled, point.support * point.support_price, 0.0)
    return point.c * point.c_price, slack, support


def _error(data: LeaderData, point: LeaderPoint, coupled: bool) -> Array:
    left = _residual(data, point)
    scale = 1.0 + jnp.maximum(jnp.max(jnp.abs(point.margin_price)), jnp.max(jnp.abs(data.validation.T @ left.loss)))
    largest = lambda *parts: jnp.max(jnp.stack([jnp.max(jnp.abs(part), initial=0.0) for part in parts]))  # noqa: E731
    size = 1.0 + jnp.max(jnp.abs(point.y))
    error = jnp.maximum(largest(left.y, left.c, *_products(data, point, coupled)) / scale, largest(left.margin) / size)
    if coupled:
        strongest = 1.0 + jnp.max(jnp.where(data.held, point.support, 0.0))
        error = jnp.maximum(error, jnp.maximum(largest(left.support) / scale, largest(left.coupling) / strongest))
    return error


def _step(data: LeaderData, progress: Progress, coupled: bool) -> Progress:
    """Mehrotra's predictor and corrector."""
    point: LeaderPoint = progress.point
    held, rows = data.held, data.rows
    left = _residual(data, point)
    curvature = data.c_weight + point.c_price / point.c
    # Eliminating c and the slack leaves each sample a single weight in the matrix of y.
    stiffness = jnp.where(
        held, curvature, curvature * point.margin_price / (point.slack * curvature + point.margin_price)
    )
    matrix = weighted_gram(data.validation, left.loss) + weighted_gram(rows, stiffness) + jnp.diag(data.ridge)
    solve: Callable[[Array, Array], tuple[Array, Array]]
    if coupled:
        weight = jnp.where(held, point.support / point.support_price, 0.0)
        solve = solve_saddle(matrix, data.coupling, weighted_gram(rows, weight), progress.regularisation)
    else:
        definite = solve_definite(matrix, progress.regularisation)
        solve = lambda top, bottom: (definite(top), jnp.zeros_like(top))  # noqa: E731
    count = jnp.sum(jnp.ones_like(point.c)) + jnp.sum(jnp.where(held & (not coupled), 0.0, 1.0))

    def direction(products: tuple[Array, Array, Array]) -> LeaderPoint:
        by_c, by_slack, by_support = products
        known = left.c + by_c / point.c
        spread = point.slack * curvature + point.margin_price
        base = jnp.where(
            held, -left.margin, -(by_slack + point.slack * known + point.margin_price * left.margin) / spread
        )
        top = rows.T @ (curvature * base + known) - left.y
        bottom = left.coupling + rows.T @ jnp.where(
            held, (by_support + point.support * left.support) / point.support_price, 0.0
        )
        change, price_change = solve(top, bottom)
        moved = rows @ change
        c_change = base - jnp.where(held, moved, point.margin_price * moved / spread)
        support_price_change = jnp.where(held, rows @ price_change + left.support, 0.0)
        return LeaderPoint(
            change,
            c_change,
            jnp.where(held, 0.0, moved + c_change + left.margin),
            jnp.where(held, -(by_support + point.support * support_price_change) / point.support_price, 0.0),
            curvature * c_change + known,
            -(by_c + point.c_price * c_change) / point.c,
            support_price_change,
            price_change,
        )

    def length(change: LeaderPoint) -> Array:
        steps = [
            longest_step(point.c, change.c),
            longest_step(point.c_price, change.c_price),
            longest_step(point.slack, change.slack, ~held),
            longest_step(point.margin_price, change.margin_price, ~held),
        ]
        if coupled:
            steps.append(longest_step(point.support, change.support, held))
            steps.append(longest_step(point.support_price, change.support_price, held))
        return jnp.min(jnp.stack(steps))

    def moved_by(change: LeaderPoint, step: Array) -> LeaderPoint:
        return LeaderPoint(*(value + step * move for value, move in zip(point, change, strict=True)))

    products = _products(data, point, coupled)
    barrier = sum(jnp.sum(part) for part in products) / count
    predictor = direction(products)
    reached = sum(jnp.sum(part) for part in _products(data, moved_by(predictor, length(predictor)), coupled)) / count
    centre = jnp.clip((reached / barrier) ** 3, 1e-4, 1.0) * barrier
    corrected = (
        products[0] - centre + predictor.c * predictor.c_price,
        jnp.where(held, 0.0, products[1] - centre + predictor.slack * predictor.margin_price),
        jnp.where(held, products[2] - centre + predictor.support * predictor.support_price, 0.0),
    )
    change = direction(corrected)
    step = jnp.where(barrier > 1e-3, 0.99, 0.999) * length(change)
    step = jnp.minimum(step, tame(data.validation, left.loss, change.y))
    candidate = moved_by(change, step)
    return proceed(progress, candidate, _error(data, candidate, coupled), candidate.y)
