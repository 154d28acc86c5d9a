"""Families from practice, small: tolls and plateaus, tariffs, ridge and lasso weights."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from outside_case import Array, Case, Model, Units, box, build, reals, simplex
from outside_smooth import either

Generator = np.random.Generator


@functools.cache
def _toll(high: float) -> Model:
    return Model(
        "toll with a plateau",
        lambda m, x, y, d: -x * y,
        lambda m, x, y, d: (x - d["k"]) * y + 0.5 * d["s"] * y**2,
        box(0.0, high),
        box(0.0, np.inf),
    )


def toll_plateau(generator: Generator) -> Case:
    """y = max(0, k - x) / s: beyond the price k nobody comes and f is 0; starts on both sides."""
    high = [3.0, 20.0][generator.integers(2)]
    d = {"k": generator.uniform(0.8, 2.5), "s": generator.uniform(0.5, 2)}
    start = either(generator, 0.6, generator.uniform(0, high))
    return build(_toll(high), d, lambda x: max(0.0, d["k"] - x) / d["s"], start=start)


ROUTES = Model(
    "toll on one of three routes",
    lambda m, x, y, d: -x * y[0],
    lambda m, x, y, d: (d["cost"] + x * d["tolled"]) @ y,
    box(0.0, 6.0),
    simplex(3),
)


def toll_routes(generator: Generator) -> Case:
    """A linear follower takes the cheapest route; the best toll makes it indifferent. A jump, and a plateau behind."""
    cost = np.array([generator.uniform(0, 1), generator.uniform(1.5, 4), generator.uniform(1.5, 4)])
    d = {"cost": cost, "tolled": np.array([1.0, 0.0, 0.0])}

    def follower(x: float) -> Array:
        if cost[0] + x <= cost[1:].min() + 1e-12:
            return np.array([1.0, 0.0, 0.0])
        return np.array([0.0, 1.0, 0.0]) if cost[1] <= cost[2] else np.array([0.0, 0.0, 1.0])

    best = -(cost[1:].min() - cost[0])
    start = either(generator, 0.6, generator.uniform(0, 6))
    return build(ROUTES, d, follower, start=start, best=float(best), scale=1.0)


CABLE = Model(
    "price and cable",
    lambda m, x, y, d: d["cost"] * x[1] ** 2 - x[0] * m.sum(y),
    lambda m, x, y, d: x[0] * m.sum(y) + 0.5 * m.sum((y - d["wish"]) ** 2),
    box([0.0, 0.2], [5.0, 5.0]),
    box(0.0, np.inf, 2),
    inequality=lambda m, x, y, d: y - x[1],
)


def cable(generator: Generator) -> Case:
    """The harbour of the tutorial with other numbers: y = clip(wish - price, 0, cable)."""
    d = {"cost": generator.uniform(0.2, 1.5), "wish": generator.uniform(1, 5, 2)}
    start = either(generator, 0.7, generator.uniform([0.0, 0.2], [5.0, 5.0]))
    return build(CABLE, d, lambda x: np.clip(d["wish"] - x[0], 0.0, x[1]), start=start)


@functools.cache
def _ridge(size: int) -> Model:
    return Model(
        f"ridge of {size}",
        lambda m, x, y, d: m.sum((d["valid"] @ y - d["goal"]) ** 2),
        lambda m, x, y, d: m.sum((d["train"] @ y - d["seen"]) ** 2) + m.exp(x) * m.sum(y**2),
        box(-8.0, 6.0),
        reals(size),
    )


def ridge(generator: Generator) -> Case:
    """The log of a ridge weight, chosen by a validation set."""
    size = [2, 5][generator.integers(2)]
    truth = generator.standard_normal(size)
    d: dict[str, Any] = {"train": generator.standard_normal((size + 3, size))}
    d["valid"] = generator.standard_normal((8, size))
    d["seen"] = d["train"] @ truth + generator.standard_normal(size + 3) * generator.uniform(0.2, 1.5)
    d["goal"] = d["valid"] @ truth + 0.3 * generator.standard_normal(8)
    gram, right = d["train"].T @ d["train"], d["train"].T @ d["seen"]
    follower = lambda x: np.linalg.solve(gram + np.exp(x) * np.eye(size), right)  # noqa: E731
    start = either(generator, 0.6, generator.uniform(-8, 6))
    return build(_ridge(size), d, follower, start=start)


@functools.cache
def _lasso(size: int) -> Model:
    return Model(
        f"lasso of {size}, split",
        lambda m, x, y, d: m.sum((y[:size] - y[size:] - d["goal"]) ** 2),
        lambda m, x, y, d: 0.5 * m.sum((y[:size] - y[size:] - d["seen"]) ** 2) + x * m.sum(y),
        box(0.05, 5.0),
        box(0.0, np.inf, 2 * size),
    )


def lasso(generator: Generator) -> Case:
    """A lasso weight with an orthogonal design, weights split in positive and negative parts; all 0 beyond some x."""
    size = [2, 4][generator.integers(2)]
    seen = generator.uniform(-2.5, 2.5, size)
    d = {"seen": seen, "goal": seen - np.sign(seen) * generator.uniform(0, 1.5, size)}

    def follower(x: float) -> Array:
        weights = np.sign(seen) * np.maximum(np.abs(seen) - x, 0.0)
        return np.concatenate([np.maximum(weights, 0.0), np.maximum(-weights, 0.0)])

    return build(_lasso(size), d, follower, start=either(generator, 0.6, generator.uniform(0.05, 5)))


BUDGET = Model(
    "budget",
    lambda m, x, y, d: x**2 * d["w"] - d["v"] @ y,
    lambda m, x, y, d: -d["u"] @ y + 0.05 * m.sum(y**2),
    box(0.0, 5.0),
    box(0.0, 1.0, 4),
    inequality=lambda m, x, y, d: m.sum(y) - x,
)


def budget(generator: Generator) -> Case:
    """The leader pays for a budget that the follower spends by its own tastes: y = clip((u - price) / 0.1, 0, 1)."""
    d = {"w": generator.uniform(0.05, 0.5), "v": generator.uniform(-0.5, 2, 4), "u": generator.uniform(0.5, 2, 4)}

    def follower(x: float) -> Array:
        free = np.clip(d["u"] / 0.1, 0.0, 1.0)
        if free.sum() <= x:
            return free
        breaks = np.sort(np.concatenate([d["u"], d["u"] - 0.1]))[::-1]  # prices at which an item enters or is full
        sums = np.array([np.clip((d["u"] - price) / 0.1, 0.0, 1.0).sum() for price in breaks])
        price = np.interp(x, sums, breaks)
        return np.clip((d["u"] - price) / 0.1, 0.0, 1.0)

    units = Units(g_unit=10 ** generator.uniform(-3, 3))
    return build(BUDGET, d, follower, units, start=either(generator, 0.6, generator.uniform(0, 5)))
