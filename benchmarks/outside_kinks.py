"""Families with kinks from abs, maximum and where, and constraint functions that are not convex although the set is."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from outside_case import Array, Case, Model, box, build, project_simplex, reals
from outside_smooth import either, track_data

Generator = np.random.Generator
NAMED = ("kink", "smooth", "differentiab")  # a refusal that says what is wrong with the function is honest

UPPER: dict[str, Any] = {
    "abs": lambda m, t: m.abs(t),
    "maximum": lambda m, t: m.maximum(t, -2.0 * t),
    "where": lambda m, t: m.where(t > 0, t + t**2, -0.5 * t),
    "relu": lambda m, t: m.maximum(t, 0.0) + 0.1 * t**2,
}
LOWER: dict[str, tuple[Any, Any]] = {  # a kink, and its proximal point: argmin over z of kink(z) + (z - t)^2 / 2
    "abs": (lambda m, z: m.abs(z), lambda t: np.sign(t) * max(abs(t) - 1.0, 0.0)),
    "maximum": (lambda m, z: m.maximum(z, -2.0 * z), lambda t: max(t - 1.0, 0.0) + min(t + 2.0, 0.0)),
    "relu": (lambda m, z: m.maximum(z, 0.0), lambda t: max(t - 1.0, 0.0) + min(t, 0.0)),
    "where": (lambda m, z: m.where(z > 0, z, -0.5 * z), lambda t: max(t - 1.0, 0.0) + min(t + 0.5, 0.0)),
}


@functools.cache
def _kink_upper(kind: str) -> Model:
    bend = UPPER[kind]
    return Model(
        f"{kind} above",
        lambda m, x, y, d: bend(m, x - d["a"]) + d["w"] * bend(m, y - d["b"]),
        lambda m, x, y, d: (y - d["c"] * x - d["e"]) ** 2,
        box(-4.0, 4.0),
        reals(),
    )


def kink_upper(generator: Generator) -> Case:
    """f is a sum of kinks of x and of y = c x + e: the answer sits at one of them."""
    kind = list(UPPER)[generator.integers(len(UPPER))]
    d = track_data(generator)
    start = either(generator, 0.5, generator.uniform(-4, 4))
    return build(_kink_upper(kind), d, lambda x: d["c"] * x + d["e"], start=start, honest_words=NAMED)


KINK_UPPER_2 = Model(
    "abs above in two dimensions",
    lambda m, x, y, d: m.sum(m.abs(x - d["a"])) + d["w"] * m.maximum(y[0] - d["b"], y[1] - d["b"]) + 0.1 * m.sum(y**2),
    lambda m, x, y, d: m.sum((y - d["map"] @ x) ** 2),
    box(-3.0, 3.0, 2),
    reals(2),
)


def kink_upper_2d(generator: Generator) -> Case:
    """A polyhedral f of x and y = M x in the plane."""
    d = {"a": generator.uniform(-2, 2, 2), "b": generator.uniform(-1, 1), "w": generator.uniform(0.3, 2)}
    d["map"] = np.eye(2) + generator.uniform(-0.6, 0.6, (2, 2))
    start = either(generator, 0.5, generator.uniform(-3, 3, 2))
    return build(KINK_UPPER_2, d, lambda x: d["map"] @ x, start=start, honest_words=NAMED)


@functools.cache
def _kink_lower(kind: str) -> Model:
    bend = LOWER[kind][0]
    return Model(
        f"{kind} below",
        lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * (y - d["b"]) ** 2,
        lambda m, x, y, d: d["k"] * bend(m, y - d["c"] * x) + 0.5 * (y - d["t"]) ** 2,
        box(-4.0, 4.0),
        reals(),
    )


def kink_lower(generator: Generator) -> Case:
    """g has a kink at y = c x, where the answer sticks for a while."""
    kind = list(LOWER)[generator.integers(len(LOWER))]
    d = track_data(generator) | {"k": generator.uniform(0.3, 2), "t": generator.uniform(-2, 2)}
    near = LOWER[kind][1]
    follower = lambda x: d["c"] * x + d["k"] * near((d["t"] - d["c"] * x) / d["k"])  # noqa: E731
    start = either(generator, 0.5, generator.uniform(-4, 4))
    return build(_kink_lower(kind), d, follower, start=start, honest_words=NAMED)


ROWS: dict[str, tuple[Any, Any]] = {  # a row, and the interval of y that it allows
    "abs": (lambda m, x, y: m.abs(y) - x, lambda x: (-x, x)),
    "relu": (lambda m, x, y: m.maximum(y, 0.0) - x, lambda x: (-np.inf, x)),
    "where": (
        lambda m, x, y: m.where(y > 1.0, 2.0 * y - 1.0, y) - x,
        lambda x: (-np.inf, x if x < 1 else 0.5 * (x + 1)),
    ),
    "maximum": (lambda m, x, y: m.maximum(y - x, -0.5 * y - x), lambda x: (-2 * x, x)),
}


@functools.cache
def _kink_row(kind: str) -> Model:
    row = ROWS[kind][0]
    return Model(
        f"{kind} in a row",
        lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * (y - d["b"]) ** 2,
        lambda m, x, y, d: (y - d["t"]) ** 2,
        box(0.1, 3.0),
        reals(),
        inequality=lambda m, x, y, d: row(m, x, y),
    )


def kink_row(generator: Generator) -> Case:
    """abs(y) <= x and its like: y is clipped to an interval that grows with x."""
    kind = list(ROWS)[generator.integers(len(ROWS))]
    d = {"a": generator.uniform(0, 3), "b": generator.uniform(-2, 2), "w": generator.uniform(0.2, 2)}
    d["t"] = generator.uniform(-3, 3)
    follower = lambda x: min(max(d["t"], ROWS[kind][1](x)[0]), ROWS[kind][1](x)[1])  # noqa: E731
    start = either(generator, 0.5, generator.uniform(0.1, 3))
    return build(_kink_row(kind), d, follower, start=start, honest_words=NAMED)


DIAMOND = Model(
    "sum of abs in a row",
    lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * m.sum((y - d["b"]) ** 2),
    lambda m, x, y, d: m.sum((y - d["t"]) ** 2),
    box(0.1, 3.0),
    reals(2),
    inequality=lambda m, x, y, d: m.sum(m.abs(y)) - x,
)


def diamond(generator: Generator) -> Case:
    """abs(y0) + abs(y1) <= x: a lasso in its constrained form."""
    d = {"a": generator.uniform(0, 3), "b": generator.uniform(-1.5, 1.5, 2), "w": generator.uniform(0.2, 2)}
    d["t"] = generator.uniform(-2, 2, 2)

    def follower(x: float) -> Array:
        if np.abs(d["t"]).sum() <= x:
            return d["t"]
        return np.sign(d["t"]) * project_simplex(np.abs(d["t"]), x)

    return build(DIAMOND, d, follower, start=either(generator, 0.5, generator.uniform(0.1, 3)), honest_words=NAMED)


CURVED: dict[str, Any] = {  # rows that say y <= x for y > 0, none of them convex in y
    "cube": lambda m, x, y: y**3 - x**3,
    "log": lambda m, x, y: m.log(y) - m.log(x),
    "tanh": lambda m, x, y: m.tanh(y) - m.tanh(x),
    "root": lambda m, x, y: m.sqrt(y) - m.sqrt(x),
}


@functools.cache
def _curved(kind: str) -> Model:
    row = CURVED[kind]
    return Model(
        f"{kind} row",
        lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * (y - d["b"]) ** 2,
        lambda m, x, y, d: (y - d["t"]) ** 2,
        box(0.3, 3.0),
        reals() if kind in ("cube", "tanh") else box(0.01, 10.0),
        inequality=lambda m, x, y, d: row(m, x, y),
    )


def curved_row(generator: Generator) -> Case:
    """y <= x, written as y^3 <= x^3, log y <= log x...: a convex set behind a function that the docs do not allow."""
    kind = list(CURVED)[generator.integers(len(CURVED))]
    d = {"a": generator.uniform(0.3, 3), "b": generator.uniform(0, 3), "w": generator.uniform(0.2, 2)}
    d["t"] = generator.uniform(0.2, 4)
    start = either(generator, 0.5, generator.uniform(0.3, 3))
    return build(_curved(kind), d, lambda x: min(d["t"], x), start=start, well_posed=False)


HYPERBOLA = Model(
    "hyperbola",
    lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * m.sum((y - d["b"]) ** 2),
    lambda m, x, y, d: y[0] + d["k"] * y[1],
    box(0.3, 3.0),
    box(0.02, 20.0, 2),
    inequality=lambda m, x, y, d: x - y[0] * y[1],
)


def hyperbola(generator: Generator) -> Case:
    """y0 y1 >= x > 0: a convex set behind a function that is not; y = (sqrt(k x), sqrt(x / k))."""
    d = {"a": generator.uniform(0.3, 3), "b": generator.uniform(0, 2, 2), "w": generator.uniform(0.2, 2)}
    d["k"] = generator.uniform(0.3, 3)
    follower = lambda x: np.array([np.sqrt(d["k"] * x), np.sqrt(x / d["k"])])  # noqa: E731
    start = either(generator, 0.5, generator.uniform(0.3, 3))
    return build(HYPERBOLA, d, follower, start=start, well_posed=False)
