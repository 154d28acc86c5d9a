"""The nearest margins c and classifier (w, b) that meet every demand: a projection for methods that need one.

    minimise ||c - c0||^2 / 2 + ||y - y0||^2 / 2   subject to   c >= 0,   c + rows y >= 1

An interior point in which c is eliminated: Newton's matrices have the size of y alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

from blocc._lib.arrays import AnyArray, Array, Float
from blocc.inner.mehrotra import IterationState, Limits, Pairs, Products, corrected_direction, iterate, move

TOLERANCE = 1e-12
LIMITS = Limits(max_iterations=60, patience=60)
PAIRS = Pairs((("slack", "price"), ("c", "bound")), (1.0, 1.0))


class _Point(NamedTuple):
    c: Float[Array, "n"]
    y: Float[Array, "p"]
    slack: Float[Array, "n"]  #: of the demands
    price: Float[Array, "n"]  #: of the demands
    bound: Float[Array, "n"]  #: multipliers of c >= 0


def project_margins(
    rows: Float[AnyArray, "n p"], c0: Float[Array, "n"], y0: Float[Array, "p"]
) -> tuple[Float[Array, "n"], Float[Array, "p"]]:
    """The nearest (c, y) to (c0, y0)."""
    rows = jnp.asarray(rows)
    size = 1.0 + jnp.abs(c0).max() + jnp.abs(y0).max()

    def residuals(p: _Point) -> tuple[Array, Array, Array]:
        return p.c - c0 - p.bound - p.price, p.y - y0 - rows.T @ p.price, p.slack - p.c - rows @ p.y + 1.0

    def error(p: _Point) -> Float[Array, ""]:
        worst = [jnp.abs(part).max() for part in (*residuals(p), *PAIRS.products(p, p))]
        return jnp.max(jnp.stack(worst)) / size

    def newton(p: _Point) -> Callable[[Products], _Point]:
        along_c, along_y, along_slack = residuals(p)
        ratio = p.price / p.slack
        own = 1.0 + p.bound / p.c
        share = own / (own + ratio)  # written so that nothing cancels when the ratio is huge
        factor = cho_factor(jnp.eye(len(p.y)) + rows.T @ ((ratio * share)[:, None] * rows))

        def direction(wanted: Products) -> _Point:
            products, bounds = wanted
            push = (products + p.price * along_slack) / p.slack
            rest = bounds / p.c - along_c
            inward = push * share - ratio * rest / (own + ratio)
            dy = cho_solve(factor, rows.T @ inward - along_y)
            dc = (push + rest - ratio * (rows @ dy)) / (own + ratio)
            ds = dc + rows @ dy - along_slack
            return _Point(dc, dy, ds, (products - p.price * ds) / p.slack, (bounds - p.bound * dc) / p.c)

        return direction

    def step(state: IterationState) -> _Point:
        change, _ = corrected_direction(state.point, PAIRS, newton(state.point))
        return move(state.point, change, PAIRS.longest_step(state.point, change, 0.995))

    ones = jnp.ones(len(rows))
    c = jnp.maximum(c0, 0.0) + 1.0
    first = _Point(c, y0, jnp.maximum(c + rows @ y0 - 1.0, 1.0), ones, ones)
    found = iterate(first, step, error, TOLERANCE, LIMITS).best
    return jnp.maximum(found.c, 0.0), found.y
