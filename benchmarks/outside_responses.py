"""Families of awkward responses: ties and tolls, hidden wells, large offsets over a follower that is not convex,
flat faces, projections, logarithms, roots; and functions that are not finite everywhere."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from outside_case import Array, Case, Model, Units, box, build, project_simplex, reals, simplex
from outside_cores import Data, dimension, unit, weight

Generator = np.random.Generator


def _pick(generator: Generator, *names: Any) -> Any:
    return names[generator.integers(len(names))]


@functools.cache
def _ties(n: int) -> Model:
    return Model(
        f"responses that jump, n = {n}",
        lambda m, x, y, d: m.sum(d["k"] * (x - d["t"]) ** 2) - d["w"] @ y,
        lambda m, x, y, d: (x - d["s"]) @ y,
        box(-4.0, 4.0, n),
        box(0.0, 1.0, n),
    )


def jumping_ties(generator: Generator) -> Case:
    """y_i = 1 where x_i < s_i, 0 beyond, either at the tie: the leader may want to sit exactly there."""
    n = int(_pick(generator, 1, 1, 2, 3, 5, 8))
    d: Data = {"k": generator.uniform(0.3, 2, n), "t": generator.uniform(-2, 2, n), "w": generator.uniform(-3, 3, n)}
    d["s"] = np.where(
        generator.random(n) < 0.3, d["t"] + 10 ** generator.uniform(-8, -3, n), generator.uniform(-2, 2, n)
    )
    if generator.random() < 0.3:
        d["w"] *= weight(generator, 4)

    def follower(x: Array) -> Array:
        inside = np.where(x < d["s"], 1.0, 0.0)
        return np.where(x == d["s"], np.where(d["w"] > 0, 1.0, 0.0), inside)

    def reduced(x: Array) -> float:
        return float(np.sum(d["k"] * (x - d["t"]) ** 2) - d["w"] @ follower(x))

    at_tie = d["k"] * (d["s"] - d["t"]) ** 2 - np.maximum(d["w"], 0)
    free = -d["w"] * (d["t"] < d["s"])
    luck = generator.random()
    return build(
        _ties(n),
        d,
        follower,
        start=None if luck < 0.4 else generator.uniform(-4, 4, n) if luck < 0.8 else d["t"],
        reduced=reduced,
        best=float(np.sum(np.minimum(at_tie, free))),
        solution=np.where(at_tie < free, d["s"], d["t"]),
        strict_ties=True,
        well_posed=False,
    )


@functools.cache
def _tolls(tolled: int, free: int) -> Model:
    return Model(
        f"tolls on {tolled} of {tolled + free} routes",
        lambda m, x, y, d: -d["w"] * (x @ y[:tolled]) + d["r"] * m.sum((x - d["t"]) ** 2),
        lambda m, x, y, d: (d["c"][:tolled] + x) @ y[:tolled] + d["c"][tolled:] @ y[tolled:],
        box(0.0, 6.0, tolled),
        simplex(tolled + free),
    )


def tolls_at_ties(generator: Generator) -> Case:
    """One traveller takes the cheapest route; the best toll makes a tolled one tie with the best free one."""
    tolled, free = int(_pick(generator, 1, 1, 2, 3, 5)), int(generator.integers(1, 4))
    c = generator.uniform(0, 2, tolled + free)
    c[tolled:] += generator.uniform(0.5, 2)
    d: Data = {"c": c, "w": weight(generator, 3), "r": _pick(generator, 0.0, 1e-3), "t": np.zeros(tolled)}

    def follower(x: Array) -> Array:
        cost = np.concatenate([c[:tolled] + x, c[tolled:]])
        tied = np.flatnonzero(cost <= np.min(cost))
        gains = np.concatenate([x, np.zeros(free)])
        y = np.zeros(tolled + free)
        y[tied[np.argmax(gains[tied])]] = 1.0
        return y

    def reduced(x: Array) -> float:
        near = min((follower(x + s) for s in (0.0, 1e-12, -1e-12)), key=lambda y: -x @ y[:tolled])
        return float(-d["w"] * (x @ near[:tolled]) + d["r"] * np.sum((x - d["t"]) ** 2))

    gap = float(np.min(c[tolled:]) - np.min(c[:tolled]))
    toll = np.full(tolled, 6.0)
    first = int(np.argmin(c[:tolled]))
    toll[first] = max(gap, 0.0)
    ready = np.maximum(np.min(c[tolled:]) - c[:tolled], 0.0)  # lowest tolls that keep the others from undercutting
    solution = ready if d["r"] else toll
    return build(
        _tolls(tolled, free),
        d,
        follower,
        start=None if generator.random() < 0.4 else generator.uniform(0, 4, tolled),
        reduced=reduced,
        best=reduced(solution) if not d["r"] else None,
        solution=solution,
        scale=float(d["w"] * max(gap, 0.1)),
        strict_ties=True,
        well_posed=False,
    )


def _global(case_data: Data, lower: Any, low: float, high: float) -> Any:
    """Return the response of a follower of one variable by a dense search and Newton-free refinement."""
    grid = np.linspace(low, high, 8001)

    def follower(x: Array) -> Array:
        values = lower(np, x, grid, case_data)
        best = int(np.argmin(values))
        left, right = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
        for _ in range(60):
            third = (right - left) / 3
            if lower(np, x, left + third, case_data) <= lower(np, x, right - third, case_data):
                right -= third
            else:
                left += third
        return np.array([0.5 * (left + right)])

    return follower


def _wells(m: Any, x: Any, y: Any, d: Data) -> Any:
    return d["a"] * (y - d["c"] * x[0]) ** 2 - d["h"] * m.exp(-(((y - d["p"]) / d["s"]) ** 2))


HIDDEN = Model(
    "a follower with a hidden well",
    lambda m, x, y, d: (x[0] - d["t"]) ** 2 + d["w"] * (y[0] - d["b"]) ** 2,
    lambda m, x, y, d: _wells(m, x, y[0], d),
    box(-3.0, 3.0, 1),
    box(-6.0, 6.0, 1),
)


def _refusable(model: Model, d: Data, follower: Any, generator: Generator, units: Units | None = None) -> Case:
    def reduced(x: Array) -> float:
        return float(np.ravel(model.upper(np, x, follower(x), d))[0])

    grid = [np.array([x]) for x in np.linspace(model.x_set.lower[0], model.x_set.upper[0], 601)]
    solution = min(grid, key=reduced)
    start = None if generator.random() < 0.5 else generator.uniform(-3, 3, 1)
    shift = abs(units.f_shift) if units else 0.0
    return build(
        model,
        d,
        follower,
        units,
        start=start,
        reduced=reduced,
        best=reduced(solution) - 1e-3,
        solution=solution,
        rounding=shift,
        well_posed=False,
    )


def hidden_wells(generator: Generator) -> Case:
    """A parabola with a narrow, deeper well elsewhere: y(x) by a dense search; a refusal is honest."""
    d: Data = {"a": generator.uniform(0.05, 0.5), "c": generator.uniform(-1, 1), "h": generator.uniform(0.5, 8)}
    d |= {"p": generator.uniform(-4, 4), "s": generator.uniform(0.05, 0.8), "t": generator.uniform(-2, 2)}
    d |= {"b": generator.uniform(-2, 2), "w": generator.uniform(0.2, 2)}
    return _refusable(HIDDEN, d, _global(d, _wells, -6.0, 6.0), generator)


def _double(m: Any, x: Any, y: Any, d: Data) -> Any:
    return d["a"] * (y**2 - d["p"]) ** 2 + d["c"] * x[0] * y + d["h"] * y


DOUBLE = Model(
    "a double well under an offset",
    lambda m, x, y, d: (x[0] - d["t"]) ** 2 + d["w"] * (y[0] - d["b"]) ** 2,
    lambda m, x, y, d: _double(m, x, y[0], d),
    box(-3.0, 3.0, 1),
    box(-3.0, 3.0, 1),
)


def offsets_double_well(generator: Generator) -> Case:
    """The follower is not convex, and a constant of 1e6 to 1e12 hides it in rounding."""
    d: Data = {"a": generator.uniform(0.2, 2), "p": generator.uniform(0.3, 2), "c": generator.uniform(-1, 1)}
    d |= {"h": generator.uniform(-0.5, 0.5), "t": generator.uniform(-2, 2), "b": generator.uniform(-2, 2)}
    d["w"] = generator.uniform(0.2, 2)
    units = Units(g_shift=10 ** generator.uniform(6, 12) * generator.choice([-1, 1]))
    return _refusable(DOUBLE, d, _global(d, _double, -3.0, 3.0), generator, units)


@functools.cache
def _face(n: int) -> Model:
    return Model(
        f"a concave f over a flat face, n = {n}",
        lambda m, x, y, d: m.sum((x - d["t"]) ** 2) + (y[0] - d["b"]) ** 2 - m.sum(d["k"] * (y[1:] - d["p"]) ** 2),
        lambda m, x, y, d: (y[0] - d["q"] @ x) ** 2,
        box(-3.0, 3.0, 2),
        box(-1.0, 1.0, n),
    )


def flat_faces(generator: Generator) -> Case:
    """The follower does not care about y1..., f is concave in them: the optimistic response is the better vertex."""
    n = int(_pick(generator, 2, 2, 3, 5))
    d: Data = {"t": generator.uniform(-2, 2, 2), "b": generator.uniform(-0.8, 0.8), "q": generator.uniform(-1, 1, 2)}
    d |= {"k": generator.uniform(0.3, 2, n - 1), "p": generator.uniform(-0.5, 0.5, n - 1)}

    def follower(x: Array) -> Array:
        return np.concatenate([[np.clip(d["q"] @ x, -1, 1)], np.where(d["p"] > 0, -1.0, 1.0)])

    def reduced(x: Array) -> float:
        return float(_face(n).upper(np, x, follower(x), d))

    return build(
        _face(n),
        d,
        follower,
        start=None if generator.random() < 0.5 else generator.uniform(-3, 3, 2),
        reduced=reduced,
        well_posed=False,
    )


@functools.cache
def _projection(n: int, kind: str) -> Model:
    sets = {"box": box(0.0, 1.0, n), "simplex": simplex(n)}
    return Model(
        f"projection on a {kind}, n = {n}",
        lambda m, x, y, d: (
            d["u"] * m.sum((x - d["t"]) ** 2) + d["w"] * m.sum((y - d["target"]) ** 2) + d["v"] * (m.sum(y) - d["one"])
        ),
        lambda m, x, y, d: 0.5 * m.sum((y - d["M"] @ x) ** 2),
        box(-4.0, 4.0, n),
        sets[kind],
    )  # fmt: skip


def projections(generator: Generator) -> Case:
    """y = projection of M x on a box or simplex, f a distance to (t, y(t)): 0 at t; W (sum y - 1) on the simplex."""
    kind = _pick(generator, "box", "simplex")
    n = dimension(generator, least=2, large=0.15)
    matrix = np.eye(n) + generator.uniform(-0.5, 0.5, (n, n)) / np.sqrt(n)
    d: Data = {"M": matrix, "t": generator.uniform(-1.5, 1.5, n), "u": generator.uniform(0.05, 1)}
    d |= {"w": generator.uniform(0.5, 10), "v": weight(generator) if kind == "simplex" else 0.0, "one": 1.0}

    def follower(x: Array) -> Array:
        return np.clip(matrix @ x, 0, 1) if kind == "box" else project_simplex(matrix @ x)

    d["target"] = follower(d["t"])
    luck = generator.random()
    start = None if luck < 0.3 else generator.uniform(-4, 4, n) if luck < 0.8 else d["t"] + 1e-4
    return build(
        _projection(n, kind),
        d,
        follower,
        start=start,
        reduced=lambda x: float(d["u"] * np.sum((x - d["t"]) ** 2) + d["w"] * np.sum((follower(x) - d["target"]) ** 2)),
        best=0.0,
        solution=d["t"],
        rounding=d["v"],
        well_posed=d["v"] <= 1e7,
    )


ROSEN = Model(
    "a follower with a curved valley",
    lambda m, x, y, d: m.sum((x - d["t"]) ** 2) + d["w"] * (y[1] - d["b"]) ** 2 + d["big"] * (y[1] - y[0] ** 2),
    lambda m, x, y, d: (y[0] - d["q"] @ x) ** 2 + d["c"] * (y[1] - y[0] ** 2) ** 2,
    box(-2.0, 2.0, 2),
    box(-6.0, 40.0, 2),
)


def rosen_follower(generator: Generator) -> Case:
    """g is Rosenbrock's function, unimodal but not convex: y = (q'x, (q'x)^2); a refusal is honest."""
    d: Data = {"t": generator.uniform(-1, 1, 2), "b": generator.uniform(0, 2), "w": generator.uniform(0.2, 2)}
    d |= {
        "q": unit(generator, 2),
        "c": 10 ** generator.uniform(0, 2),
        "big": _pick(generator, 0.0, weight(generator, 6)),
    }

    def follower(x: Array) -> Array:
        return np.array([d["q"] @ x, (d["q"] @ x) ** 2])

    return build(
        ROSEN,
        d,
        follower,
        start=None if generator.random() < 0.3 else generator.uniform(-2, 2, 2),
        reduced=lambda x: float(np.sum((x - d["t"]) ** 2) + d["w"] * ((d["q"] @ x) ** 2 - d["b"]) ** 2),
        rounding=8 * d["big"],
        well_posed=False,
    )


@functools.cache
def _rosen_leader(n: int) -> Model:
    return Model(
        f"a leader with a curved valley, n = {n}",
        lambda m, x, y, d: m.sum(d["c"] * (y[1:] - x[:-1] * y[:-1]) ** 2) + m.sum((1 - y) ** 2) + d["w"] * m.sum(y - x),
        lambda m, x, y, d: m.sum((y - x) ** 2) + 0.1 * m.sum((y - x) ** 4),
        box(-2.0, 2.0, n),
        reals(n),
    )


def rosen_leader(generator: Generator) -> Case:
    """Rosenbrock's function in x and y(x) = x, weights 1 to 100, with W sum(y - x) on top."""
    n = int(_pick(generator, 2, 2, 3, 5, 8))
    d: Data = {"c": 10 ** generator.uniform(0, 2), "w": _pick(generator, 0.0, weight(generator))}

    def reduced(x: Array) -> float:
        return float(np.sum(d["c"] * (x[1:] - x[:-1] ** 2) ** 2) + np.sum((1 - x) ** 2))

    return build(
        _rosen_leader(n),
        d,
        lambda x: x,
        start=None if generator.random() < 0.2 else generator.uniform(-2, 2, n),
        reduced=reduced,
        best=0.0,
        solution=np.ones(n),
        rounding=4 * n * d["w"],
        well_posed=d["w"] <= 1e7,
    )


LOGS = Model(
    "logarithms and roots of the response",
    lambda m, x, y, d: (
        m.log1p((x[0] - d["t"]) ** 2) + d["w"] * m.abs(m.sqrt(y[0]) - m.sqrt(d["b"])) + d["big"] * (m.log(y[0]) - x[0])
    ),
    lambda m, x, y, d: y[0] * (m.log(y[0]) - 1) - x[0] * y[0],
    box(-3.0, 3.0, 1),
    box(1e-4, 200.0, 1),
)


def log_responses(generator: Generator) -> Case:
    """y = exp(x) from an entropy; f has logs, roots and abs of it, and W (log y - x)."""
    d: Data = {"t": generator.uniform(-2, 2), "w": generator.uniform(0.05, 2), "b": np.exp(generator.uniform(-2, 2))}
    d["big"] = _pick(generator, 0.0, weight(generator))

    def reduced(x: Array) -> float:
        return float(np.log1p((x[0] - d["t"]) ** 2) + d["w"] * abs(np.exp(x[0] / 2) - np.sqrt(d["b"])))

    return build(
        LOGS,
        d,
        lambda x: np.exp(x),
        start=None if generator.random() < 0.3 else generator.uniform(-3, 3, 1),
        reduced=reduced,
        rounding=3 * d["big"],
        well_posed=d["big"] <= 1e6,
        honest_words=("kink", "smooth", "differentiab"),
    )


HALF = Model(
    "f is not finite everywhere",
    lambda m, x, y, d: -m.sum(m.log(y - d["p"])) + m.sum(d["k"] * (x - d["p"])),
    lambda m, x, y, d: m.sum((y - x) ** 2),
    box(-4.0, 4.0, 2),
    reals(2),
)


def half_finite(generator: Generator) -> Case:
    """-log(y - p) + k (x - p), NaN for x <= p: from starts where f is finite, the middle of X included or not."""
    d: Data = {"p": generator.uniform(-2, 1, 2), "k": generator.uniform(0.5, 5, 2)}
    solution = d["p"] + 1 / d["k"]

    def reduced(x: Array) -> float:
        return float(-np.sum(np.log(x - d["p"])) + np.sum(d["k"] * (x - d["p"]))) if np.all(x > d["p"]) else np.inf

    start = d["p"] + 10 ** generator.uniform(-6, 0, 2)
    return build(
        HALF, d, lambda x: x, start=start, reduced=reduced, best=reduced(solution), solution=solution, scale=1.0
    )
