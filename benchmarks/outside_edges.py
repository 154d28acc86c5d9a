"""Families whose followers have no interior: missing Slater points, isolated x, edges of the feasible x."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from outside_case import Array, Case, Model, box, build, reals
from outside_smooth import either, track_data, track_upper

Generator = np.random.Generator
SQUARE = 30.0  # a row y^2 <= 0 that holds to 1e-5 leaves y to 3e-3: f is judged 30 times as loosely


TWO_SIDED = Model(
    "equality as two inequalities",
    track_upper,
    lambda m, x, y, d: (y - d["t"]) ** 2,
    box(-3.0, 3.0),
    reals(),
    inequality=lambda m, x, y, d: m.stack([y - d["c"] * x - d["e"], d["c"] * x + d["e"] - y]),
)


def two_sided(generator: Generator) -> Case:
    """y <= c x + e and y >= c x + e: no Slater point, but linear rows need none."""
    d = track_data(generator) | {"t": generator.uniform(-2, 2)}
    start = either(generator, 0.5, generator.uniform(-3, 3))
    return build(TWO_SIDED, d, lambda x: d["c"] * x + d["e"], start=start)


@functools.cache
def _squared(kind: str) -> Model:
    row = {
        "point": lambda m, x, y, d: (y[0] - x) ** 2 + (y[1] - d["s"]) ** 2,
        "line": lambda m, x, y, d: (y[0] + y[1] - x) ** 2,
    }[kind]
    return Model(
        f"squared {kind}",
        lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * m.sum((y - d["b"]) ** 2),
        lambda m, x, y, d: m.sum((y - d["t"]) ** 2),
        box(-2.0, 2.0),
        reals(2),
        inequality=row,
    )


def squared(generator: Generator) -> Case:
    """A sum of squares <= 0: one point, or a line, and no multiplier: refusals are honest."""
    kind = ["point", "line"][generator.integers(2)]
    d = {"a": generator.uniform(-1, 1), "w": generator.uniform(0.2, 1), "b": generator.uniform(-1, 1, 2)}
    d |= {"t": generator.uniform(-1, 1, 2), "s": generator.uniform(-1, 1)}

    def follower(x: float) -> Array:
        return np.array([x, d["s"]]) if kind == "point" else d["t"] - 0.5 * (d["t"].sum() - x)

    return build(_squared(kind), d, follower, well_posed=False, looseness=SQUARE)


@functools.cache
def _isolated(kind: str) -> Model:
    rows = {
        "parabola": lambda m, x, y, d: m.stack([(x - d["p"]) ** 2 - y, y]),
        "wedge": lambda m, x, y, d: m.stack([x - d["p"] - y, d["p"] - x - y, y]),
    }[kind]
    return Model(
        f"isolated x, {kind}",
        lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * (y - d["b"]) ** 2,
        lambda m, x, y, d: (y - d["t"]) ** 2,
        box(-2.0, 2.0),
        reals(),
        inequality=rows,
    )


def isolated(generator: Generator) -> Case:
    """The follower has an answer at x = p alone; the wedge is linear, the parabola is not."""
    kind = ["parabola", "wedge"][generator.integers(2)]
    d = {name: generator.uniform(-1, 1) for name in ("a", "b", "p", "t")} | {"w": generator.uniform(0.2, 1)}
    follower = lambda x: 0.0 if abs(x - d["p"]) <= 1e-9 else None  # noqa: E731
    start = either(generator, 0.5, d["p"] if generator.random() < 0.3 else generator.uniform(-2, 2))
    best = (d["p"] - d["a"]) ** 2 + d["w"] * d["b"] ** 2
    rest: dict[str, Any] = {"well_posed": False, "looseness": SQUARE, "best": best, "scale": 1.0}
    return build(_isolated(kind), d, follower, start=start, scan=(d["p"] - 1.0, d["p"] + 1.0), **rest)


EDGE = Model(
    "answer at the edge",
    lambda m, x, y, d: d["w"] * (x - d["a"]) + (y - d["b"]) ** 2,
    lambda m, x, y, d: (y - d["t"]) ** 2,
    box(-3.0, 3.0),
    box(0.0, 5.0),
    inequality=lambda m, x, y, d: y - d["c"] * (x - d["p"]),
)


def edge(generator: Generator) -> Case:
    """0 <= y <= c (x - p): no answer below p, where f wants to go; the best x is often p itself."""
    d = {"a": 0.0, "w": generator.uniform(0.5, 2), "b": generator.uniform(-1, 0.5), "t": generator.uniform(0.2, 3)}
    d |= {"c": generator.uniform(0.5, 2), "p": generator.uniform(-2, 1)}

    def follower(x: float) -> float | None:
        room = d["c"] * (x - d["p"])
        return None if room < 0 else min(d["t"], room)

    start = either(generator, 0.7, generator.uniform(-3, 3))
    return build(EDGE, d, follower, start=start)


EDGE_2 = Model(
    "edge in two dimensions",
    lambda m, x, y, d: m.sum((x - d["a"]) ** 2) + d["w"] * m.sum((y - d["b"]) ** 2),
    lambda m, x, y, d: m.sum((y - d["t"]) ** 2),
    box(-2.0, 2.0, 2),
    box(0.0, 1.0, 2),
    inequality=lambda m, x, y, d: d["n"] @ x - y[0] - y[1],
)


def edge_2d(generator: Generator) -> Case:
    """y0 + y1 >= n x and y <= 1: x with n x > 2 have no answer, and f wants to go there."""
    d = {"a": generator.uniform(0.5, 2, 2), "w": generator.uniform(0.1, 1), "b": generator.uniform(-1, 2, 2)}
    d |= {"t": generator.uniform(-0.5, 1.5, 2), "n": generator.uniform(0.7, 1.5, 2)}

    def follower(x: Array) -> Array | None:
        need = float(d["n"] @ x)
        if need > 2.0:
            return None
        low, high = np.zeros(2), np.ones(2)
        y = np.clip(d["t"], low, high)
        if y.sum() >= need:
            return y
        # y = clip(t + s) with y0 + y1 = need: the sum is piecewise linear in s with breaks where an entry hits a bound
        breaks = np.sort(np.concatenate([low - d["t"], high - d["t"]]))
        sums = np.array([np.clip(d["t"] + s, low, high).sum() for s in breaks])
        return np.clip(d["t"] + np.interp(need, sums, breaks), low, high)

    start = either(generator, 0.7, generator.uniform(-2, 2, 2))
    return build(EDGE_2, d, follower, start=start)


NOWHERE = Model(
    "no answer anywhere",
    track_upper,
    lambda m, x, y, d: (y - d["c"] * x - d["e"]) ** 2,
    box(-3.0, 3.0),
    box(-1.0, 1.0),
    inequality=lambda m, x, y, d: m.stack([y - d["k"] * x**2 + 20.0, -y - 0.5]),
)


def nowhere(generator: Generator) -> Case:
    """Rows that no y meets at any x: only a refusal is right."""
    d = track_data(generator) | {"k": generator.uniform(0.5, 1.5)}
    return build(NOWHERE, d, lambda x: None, start=either(generator, 0.5, generator.uniform(-3, 3)), well_posed=False)
