"""The nearest margins c and classifier (w, b) that meet every demand: a projection for methods that need one.

    minimise ||c - c0||^2 / 2 + ||y - y0||^2 / 2   subject to   c >= 0,   c + rows y >= 1

An interior point in which c is eliminated: Newton's matrices have the size of y alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = Any

TOLERANCE = 1e-12
STEPS = 60


class _Point(NamedTuple):
    c: Array
    y: Array
    slack: Array  #: of the demands
    price: Array  #: of the demands
    bound: Array  #: multipliers of c >= 0


def project_margins(rows: Array, c0: Array, y0: Array) -> tuple[Array, Array]:
    """The nearest (c, y) to (c0, y0)."""
    rows = jnp.asarray(rows)
    count = len(rows)
    size = 1.0 + jnp.abs(c0).max() + jnp.abs(y0).max()

    def residuals(p: _Point) -> tuple[Array, Array, Array]:
        return p.c - c0 - p.bound - p.price, p.y - y0 - rows.T @ p.price, p.slack - p.c - rows @ p.y + 1.0

    def gap(p: _Point) -> Array:
        return (p.slack @ p.price + p.c @ p.bound) / (2 * count)

    def error(p: _Point) -> Array:
        worst = jnp.stack([jnp.abs(part).max() for part in residuals(p)]).max()
        products = jnp.maximum(jnp.max(p.slack * p.price), jnp.max(p.c * p.bound))
        return jnp.maximum(worst, products) / size

    def step(p: _Point) -> _Point:
        along_c, along_y, along_slack = residuals(p)
        ratio = p.price / p.slack
        own = 1.0 + p.bound / p.c
        share = own / (own + ratio)  # written so that nothing cancels when the ratio is huge
        matrix = jnp.eye(rows.shape[1]) + rows.T @ ((ratio * share)[:, None] * rows)
        factor = jax.scipy.linalg.cho_factor(matrix)

        def direction(products: Array, bounds: Array) -> _Point:
            """Newton's step when slack x price and c x bound are to change by these amounts."""
            push = (products + p.price * along_slack) / p.slack
            rest = bounds / p.c - along_c
            inward = push * share - ratio * rest / (own + ratio)
            dy = jax.scipy.linalg.cho_solve(factor, rows.T @ inward - along_y)
            dc = (push + rest - ratio * (rows @ dy)) / (own + ratio)
            ds = dc + rows @ dy - along_slack
            return _Point(dc, dy, ds, (products - p.price * ds) / p.slack, (bounds - p.bound * dc) / p.c)

        def longest(d: _Point) -> Array:
            pairs = ((p.c, d.c), (p.slack, d.slack), (p.price, d.price), (p.bound, d.bound))
            return jnp.stack([jnp.min(jnp.where(dv < 0.0, -v / dv, jnp.inf), initial=1.0) for v, dv in pairs]).min()

        first = direction(-p.slack * p.price, -p.c * p.bound)
        reach = longest(first)
        after = (p.slack + reach * first.slack) @ (p.price + reach * first.price)
        after = (after + (p.c + reach * first.c) @ (p.bound + reach * first.bound)) / (2 * count)
        mean = gap(p)
        target = (after / mean) ** 3 * mean
        second = direction(
            target - p.slack * p.price - first.slack * first.price, target - p.c * p.bound - first.c * first.bound
        )
        length = jnp.minimum(1.0, 0.995 * longest(second))
        return jax.tree.map(lambda value, change: value + length * change, p, second)

    ones = jnp.ones(count)
    c = jnp.maximum(c0, 0.0) + 1.0
    start = _Point(c, y0, jnp.maximum(c + rows @ y0 - 1.0, 1.0), ones, ones)

    def advance(state: tuple[_Point, _Point, Array]) -> tuple[_Point, _Point, Array]:
        point, best, count = state
        new = step(point)
        better = error(new) < error(best)
        return new, jax.tree.map(lambda after, before: jnp.where(better, after, before), new, best), count + 1

    def goes_on(state: tuple[_Point, _Point, Array]) -> Array:
        # At the end of the arithmetic's precision steps lead nowhere, or to no number; the best point stands.
        return (error(state[0]) > TOLERANCE) & (state[2] < STEPS)

    _, found, _ = jax.lax.while_loop(goes_on, advance, (start, start, jnp.zeros((), int)))
    return jnp.maximum(found.c, 0.0), found.y
