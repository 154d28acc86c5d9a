"""Families with followers in awkward places: offsets, cones, balls, simplices, flat powers, ties."""

from __future__ import annotations

import functools
from itertools import combinations
from typing import Any

import numpy as np

from outside_case import Array, Case, Model, Units, ball, box, build, project_simplex, reals, simplex
from outside_smooth import either, track_data, track_upper

Generator = np.random.Generator


OFFSETS = Model(
    "large offset beside a small one",
    lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * y[0],
    lambda m, x, y, d: d["v"] * (y[0] - d["c"] * x) ** 2 + (y[1] - d["far"]) ** 2,
    box(-3.0, 3.0),
    reals(2),
    inequality=lambda m, x, y, d: y[0] - d["s"] * x - d["k"],
)


def offsets(generator: Generator) -> Case:
    """y1 sits at 1e2 to 1e6, y0 of size 1 has a weight of 1e-4 to 1 and a cap."""
    d = {"a": generator.uniform(-1, 2), "w": generator.uniform(0.3, 2), "v": 10 ** generator.uniform(-4, 0)}
    d |= {"c": generator.uniform(0.5, 2), "s": generator.uniform(0.2, 1), "k": generator.uniform(-0.5, 0.5)}
    d["far"] = 10 ** generator.uniform(2, 6) * generator.choice([-1, 1])
    follower = lambda x: np.array([min(d["c"] * x, d["s"] * x + d["k"]), d["far"]])  # noqa: E731
    return build(OFFSETS, d, follower, start=either(generator, 0.5, generator.uniform(-3, 3)))


def _cone(least: float, lower: Any, size: int, name: str) -> Model:
    return Model(
        name,
        lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * m.sum((y - d["b"]) ** 2),
        lower,
        box(least, 3.0),
        reals(size),
        inequality=lambda m, x, y, d: m.linalg.norm(y) - x,
    )


@functools.cache
def _cone_near(least: float, size: int) -> Model:
    return _cone(least, lambda m, x, y, d: m.sum((y - d["t"]) ** 2), size, f"norm cone of {size}, nearest point")


@functools.cache
def _cone_linear(least: float, size: int) -> Model:
    return _cone(least, lambda m, x, y, d: d["t"] @ y, size, f"norm cone of {size}, linear")


def _cone_data(generator: Generator) -> tuple[float, int, dict[str, Any]]:
    least, size = [(0.0, 2), (0.2, 2), (0.0, 3)][generator.integers(3)]
    d = {"a": generator.uniform(-0.5, 2.5), "w": generator.uniform(0.2, 2), "b": generator.uniform(-1.5, 1.5, size)}
    return least, size, d | {"t": generator.standard_normal(size) * generator.uniform(0.3, 2)}


def cone_near(generator: Generator) -> Case:
    """norm(y) <= x: the follower takes the nearest point to t."""
    least, size, d = _cone_data(generator)
    follower = lambda x: d["t"] * min(1.0, x / np.linalg.norm(d["t"]))  # noqa: E731
    start = either(generator, 0.5, generator.uniform(least, 3))
    return build(_cone_near(least, size), d, follower, start=start)


def cone_linear(generator: Generator) -> Case:
    """norm(y) <= x and a linear follower: y = -x t / norm(t)."""
    least, size, d = _cone_data(generator)
    follower = lambda x: -x * d["t"] / np.linalg.norm(d["t"])  # noqa: E731
    start = either(generator, 0.5, generator.uniform(least, 3))
    return build(_cone_linear(least, size), d, follower, start=start)


BALLS = Model(
    "balls on both levels",
    lambda m, x, y, d: m.sum((x - d["a"]) ** 2) + d["w"] * m.sum((y - d["b"]) ** 2),
    lambda m, x, y, d: m.sum((y - d["map"] @ x) ** 2),
    ball([0.5, -0.5], 2.0),
    ball([0.0, 0.3], 1.0),
)


def balls(generator: Generator) -> Case:
    """X and Y are balls; the follower takes the nearest point of its ball to M x."""
    d = {"a": generator.uniform(-2, 2, 2), "b": generator.uniform(-1.5, 1.5, 2), "w": generator.uniform(0.2, 2)}
    d["map"] = np.eye(2) + generator.uniform(-0.5, 0.5, (2, 2))
    start = either(generator, 0.5, np.array([0.5, -0.5]) + generator.uniform(-1.4, 1.4, 2))
    units = Units(g_unit=10 ** generator.uniform(-4, 4), f_unit=10 ** generator.uniform(-4, 4))
    return build(BALLS, d, lambda x: BALLS.y_set.project(d["map"] @ x), units, start=start)


@functools.cache
def _simplex_follower(size: int) -> Model:
    return Model(
        f"follower on a simplex of {size}",
        lambda m, x, y, d: m.sum((x - d["a"]) ** 2) + d["w"] * m.sum((y - d["b"]) ** 2),
        lambda m, x, y, d: m.sum((y - x) ** 2),
        box(-1.0, 2.0, size),
        simplex(size),
    )


def simplex_follower(generator: Generator) -> Case:
    """The follower projects x onto a simplex, with g times 1e-8 to 1e2; beyond two dimensions the best value is 0."""
    size = [2, 3, 6][generator.integers(3)]
    d: dict[str, Any] = {"a": generator.uniform(-1, 2, size), "w": generator.uniform(0.2, 2)}
    d["b"] = generator.uniform(-0.5, 1.5, size) if size == 2 else project_simplex(d["a"])
    rest: dict[str, Any] = {} if size == 2 else {"best": 0.0}
    rest["start"] = either(generator, 0.5, generator.uniform(-1, 2, size))
    units = Units(g_unit=10 ** generator.uniform(-8, 2))
    return build(_simplex_follower(size), d, project_simplex, units, **rest)


@functools.cache
def _simplex_leader(size: int) -> Model:
    return Model(
        f"leader on a simplex of {size}",
        lambda m, x, y, d: m.sum((y - d["b"]) ** 2) + 0.1 * m.sum(x**2),
        lambda m, x, y, d: m.sum((y - d["map"] @ x) ** 2),
        simplex(size),
        reals(2),
    )


def quadratic_on_simplex(hessian: Array, linear: Array) -> float:
    """Return the least x'Hx - 2 q'x over the simplex, H positive definite: the best stationary point of all faces."""
    size, best = linear.size, np.inf
    for count in range(1, size + 1):
        for face in combinations(range(size), count):
            inner = hessian[np.ix_(face, face)]
            system = np.block([[2 * inner, np.ones((count, 1))], [np.ones((1, count)), np.zeros((1, 1))]])
            x = np.linalg.solve(system, np.append(2 * linear[list(face)], 1.0))[:-1]
            if np.all(x >= 0):
                best = min(best, float(x @ inner @ x - 2 * linear[list(face)] @ x))
    return best


def simplex_leader(generator: Generator) -> Case:
    """X is a simplex of 3 or 5 shares and y = M x: a convex quadratic, solved over all faces."""
    size = [3, 5][generator.integers(2)]
    d = {"b": generator.uniform(-1, 1, 2), "map": generator.uniform(-1.5, 1.5, (2, size))}
    best = quadratic_on_simplex(d["map"].T @ d["map"] + 0.1 * np.eye(size), d["map"].T @ d["b"]) + d["b"] @ d["b"]
    start = either(generator, 0.5, generator.dirichlet(np.ones(size)))
    return build(_simplex_leader(size), d, lambda x: d["map"] @ x, start=start, best=float(best))


@functools.cache
def _flat(power: int, capped: bool) -> Model:
    return Model(
        f"flat follower of power {power}",
        track_upper,
        lambda m, x, y, d: (y - d["c"] * x - d["e"]) ** power,
        box(-3.0, 3.0),
        reals(),
        inequality=(lambda m, x, y, d: y - d["k"]) if capped else None,
    )


def flat_power(generator: Generator) -> Case:
    """(y - c x - e)^4, 6 or 8, with and without a cap on y."""
    power, capped = [(4, False), (6, False), (8, False), (4, True)][generator.integers(4)]
    d = track_data(generator) | ({"k": generator.uniform(-0.5, 1.5)} if capped else {})
    limit = d.get("k", np.inf)
    start = either(generator, 0.5, generator.uniform(-3, 3))
    return build(_flat(power, capped), d, lambda x: min(d["c"] * x + d["e"], limit), start=start)


FLAT_PULLED = Model(
    "quartic follower with a pull",
    track_upper,
    lambda m, x, y, d: 0.25 * (y - d["c"] * x - d["e"]) ** 4 - d["k"] * y,
    box(-3.0, 3.0),
    reals(),
)


def flat_pulled(generator: Generator) -> Case:
    """A quartic follower pulled off its flat point by 1e-3 to 1: y = c x + e + k^(1/3)."""
    d = track_data(generator) | {"k": 10 ** generator.uniform(-3, 0)}
    follower = lambda x: d["c"] * x + d["e"] + np.cbrt(d["k"])  # noqa: E731
    return build(FLAT_PULLED, d, follower, start=either(generator, 0.5, generator.uniform(-3, 3)))


ENTROPIC = Model(
    "entropic follower",
    lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * m.sum((y - d["b"]) ** 2),
    lambda m, x, y, d: m.sum(y * (m.log(y) - 1.0)) - (d["e"] + d["c"] * x) @ y,
    box(-2.0, 2.0),
    box(0.0, np.inf, 2),
)


def entropic(generator: Generator) -> Case:
    """g is y log y, finite only for y > 0: y = exp(e + c x)."""
    d = {"a": generator.uniform(-1, 1), "w": generator.uniform(0.1, 1), "b": generator.uniform(0, 2, 2)}
    d |= {"e": generator.uniform(-2, 0.5, 2), "c": generator.uniform(-1, 1, 2)}
    start = either(generator, 0.5, generator.uniform(-2, 2))
    return build(ENTROPIC, d, lambda x: np.exp(d["e"] + d["c"] * x), start=start)


STRONG = Model(
    "large multiplier",
    lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * (y - d["b"]) ** 2,
    lambda m, x, y, d: (y - d["t"]) ** 2,
    box(-3.0, 3.0),
    reals(),
    inequality=lambda m, x, y, d: y - d["c"] * x,
)


def large_multiplier(generator: Generator) -> Case:
    """A target 1e1 to 1e4 beyond a cap that always binds, and a row in small units: multipliers up to 1e10."""
    d = {"a": generator.uniform(-2, 2), "b": generator.uniform(-2, 2), "w": generator.uniform(0.2, 2)}
    d |= {"c": generator.uniform(0.3, 1.5), "t": 10 ** generator.uniform(1, 4)}
    units = Units(row_units=10 ** generator.uniform(-3, 0), g_unit=10 ** generator.uniform(0, 3))
    start = either(generator, 0.5, generator.uniform(-3, 3))
    return build(STRONG, d, lambda x: min(d["c"] * x, d["t"]), units, start=start)


REDUNDANT = Model(
    "redundant rows",
    lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * m.sum((y - d["b"]) ** 2),
    lambda m, x, y, d: m.sum((y - d["t"]) ** 2),
    box(0.0, 3.0),
    reals(2),
    inequality=lambda m, x, y, d: m.stack([y[0] - x, y[0] - x, d["k"] * (y[0] - x), y[0] - x - 5.0, -y[0] - 50.0]),
    equality=lambda m, x, y, d: m.stack([y[0] + y[1] - d["s"], 3.0 * (y[0] + y[1] - d["s"])]),
)


def redundant(generator: Generator) -> Case:
    """The same cap three times, two rows that never bind, and the same equality twice."""
    d = {"a": generator.uniform(0, 3), "w": generator.uniform(0.2, 2), "b": generator.uniform(-1, 2, 2)}
    d |= {"t": generator.uniform(-1, 2, 2), "s": generator.uniform(0, 2), "k": 10 ** generator.uniform(-3, 3)}

    def follower(x: float) -> Array:
        first = min(0.5 * (d["t"][0] - d["t"][1] + d["s"]), x)  # the nearest point of the line, then the cap
        return np.array([first, d["s"] - first])

    units = Units(equality_unit=10 ** generator.uniform(-4, 4))
    return build(REDUNDANT, d, follower, units, start=either(generator, 0.5, generator.uniform(0, 3)))


TIES = Model(
    "linear follower with ties",
    lambda m, x, y, d: (x - d["a"]) ** 2 + m.sum(d["w"] * (y - d["b"]) ** 2),
    lambda m, x, y, d: -d["k"] * (y[0] + y[1]),
    box(0.0, 3.0),
    box(0.0, 1.0, 2),
    inequality=lambda m, x, y, d: y[0] + y[1] - x,
)


def ties(generator: Generator) -> Case:
    """All of a face is optimal below; the leader takes the best of it."""
    d = {"a": generator.uniform(0, 3), "w": generator.uniform(0.2, 2, 2), "b": generator.uniform(-0.5, 1.5, 2)}
    d["k"] = generator.uniform(0.3, 3)

    def follower(x: float) -> Array:
        total = min(x, 2.0)
        first = (d["w"][0] * d["b"][0] + d["w"][1] * (total - d["b"][1])) / d["w"].sum()
        first = min(max(first, total - 1.0, 0.0), total, 1.0)
        return np.array([first, total - first])

    return build(TIES, d, follower, start=either(generator, 0.5, generator.uniform(0, 3)))


INDIFFERENT = Model(
    "indifferent follower",
    lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * (y - d["b"]) ** 2,
    lambda m, x, y, d: 0.0 * y,
    box(0.0, 3.0),
    box(0.0, 5.0),
    inequality=lambda m, x, y, d: y - x,
)


def indifferent(generator: Generator) -> Case:
    """g is 0: the leader takes the y that it likes best under the follower's cap."""
    d = {"a": generator.uniform(0, 3), "w": generator.uniform(0.2, 2), "b": generator.uniform(-0.5, 3)}
    follower = lambda x: min(max(d["b"], 0.0), x)  # noqa: E731
    return build(INDIFFERENT, d, follower, start=either(generator, 0.5, generator.uniform(0, 3)))
