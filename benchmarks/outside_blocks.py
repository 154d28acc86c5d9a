"""Families with parts of very different scales: kinks beside cheap coordinates, units, rows, cliffs, offsets."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from outside_case import Array, Case, Model, Units, box, build, reals
from outside_cores import DISGUISES, NAMED, Data, dimension, hidden

Generator = np.random.Generator


def _pick(generator: Generator, *names: Any) -> Any:
    return names[generator.integers(len(names))]


@functools.cache
def _mask(n: int) -> Model:
    half = n // 2

    def upper(m: Any, x: Any, y: Any, d: Data) -> Any:
        kinked = m.sum(d["w"] * (d["p"] * x[:half] - y[:half]))
        return kinked + m.sum(d["k"] * (y[half:] - d["t"]) ** 2)

    return Model(
        f"expensive kinks beside cheap coordinates, n = {n}",
        upper,
        lambda m, x, y, d: 0.5 * m.sum(d["c"] * (y - x) ** 2),
        box(-4.0, 4.0, n),
        reals(n),
        inequality=lambda m, x, y, d: y[:half] - d["cap"],
    )


def masked_coordinates(generator: Generator) -> Case:
    """W (p x - min(x, cap)) falls to a kink at the cap; the other half of x costs about 1."""
    n = int(_pick(generator, 2, 2, 4, 6, 10, 20, 40, 60))
    half = n // 2
    d: Data = {"w": 10 ** generator.uniform(0, 10, half), "p": generator.uniform(0.1, 0.9, half)}
    d |= {"cap": generator.uniform(-2, 2, half), "c": generator.uniform(0.5, 2, n)}
    d |= {"t": generator.uniform(-2, 2, n - half), "k": 10 ** generator.uniform(-2, 1, n - half)}

    def follower(x: Array) -> Array:
        return np.concatenate([np.minimum(x[:half], d["cap"]), x[half:]])

    def reduced(x: Array) -> float:
        kinked = d["w"] * (d["p"] * x[:half] - np.minimum(x[:half], d["cap"]))
        return float(np.sum(kinked) + np.sum(d["k"] * (x[half:] - d["t"]) ** 2))

    solution = np.concatenate([d["cap"], d["t"]])
    luck = generator.random()
    start = None if luck < 0.3 else generator.uniform(-4, 4, n) if luck < 0.7 else solution.copy()
    if luck >= 0.7:
        start[half:] = generator.uniform(-4, 4, n - half)
    return build(
        _mask(n),
        d,
        follower,
        start=start,
        reduced=reduced,
        best=reduced(solution),
        solution=solution,
        honest_words=NAMED,
        well_posed=float(np.max(d["w"])) <= 1e8,
    )


def kinks_many(generator: Generator) -> Case:
    """Polyhedral cores with 2 to 60 kinks, plain."""
    n = int(_pick(generator, 2, 3, 5, 8, 12, 20, 40, 60))
    return hidden(generator, "kinks", _pick(generator, "track", "active", "equality"), n, ())


@functools.cache
def _clipped(n: int) -> Model:
    return Model(
        f"optimum at kinks of the response, n = {n}",
        lambda m, x, y, d: m.sum(d["k"] * (d["p"] * x - y)) + d["s"] * m.sum((y - d["cap"]) ** 2),
        lambda m, x, y, d: 0.5 * m.sum((y - x) ** 2),
        box(-4.0, 4.0, n),
        reals(n),
        inequality=lambda m, x, y, d: y - d["cap"],
    )


def clipped_many(generator: Generator) -> Case:
    """Every x_i has its optimum where y_i meets its cap; prices of 1e-2 to 1e2 side by side."""
    n = int(_pick(generator, 2, 3, 5, 8, 12, 20, 40, 60))
    d: Data = {
        "k": 10 ** generator.uniform(-2, 2, n),
        "p": generator.uniform(0.1, 0.9, n),
        "s": generator.uniform(0, 1),
    }
    d["cap"] = generator.uniform(-2, 2, n)

    def reduced(x: Array) -> float:
        y = np.minimum(x, d["cap"])
        return float(np.sum(d["k"] * (d["p"] * x - y)) + d["s"] * np.sum((y - d["cap"]) ** 2))

    luck = generator.random()
    start = None if luck < 0.4 else generator.uniform(-4, 4, n) if luck < 0.8 else d["cap"] + 1e-3
    return build(
        _clipped(n),
        d,
        lambda x: np.minimum(x, d["cap"]),
        start=start,
        reduced=reduced,
        best=reduced(d["cap"]),
        solution=d["cap"],
        honest_words=NAMED,
    )


def units_wild(generator: Generator) -> Case:
    """Every coordinate of x in a unit of its own from 1e-6 to 1e6, f and g too."""
    n = dimension(generator, least=2, large=0.0)
    core = _pick(generator, "quad", "valley", "bends", "saddle", "wells")
    units = Units(
        x_unit=tuple((10 ** generator.uniform(-6, 6, n)).tolist()),
        f_unit=10 ** generator.uniform(-6, 6),
        g_unit=10 ** generator.uniform(-6, 6),
    )
    terms = _pick(generator, (), ("square",), ("linear",))
    return hidden(generator, core, "track", n, terms, units, high=5.0)


def offsets_convex(generator: Generator) -> Case:
    """Constants of 1e6 to 1e12 in f and g of well-behaved problems: a refusal is honest where they drown all else."""
    shift = 10 ** generator.uniform(6, 12)
    both = generator.random() < 0.5
    units = Units(g_shift=shift * generator.choice([-1, 1]), f_shift=shift if both else 0.0)
    core = _pick(generator, "quad", "valley", "bends")
    case = hidden(
        generator, core, _pick(generator, "track", "active", "equality"), dimension(generator, large=0.05), (), units
    )
    object.__setattr__(case, "rounding", case.rounding + abs(units.f_shift))
    object.__setattr__(case, "well_posed", shift <= 1e8)
    return case


def already_good(generator: Generator) -> Case:
    """Starts at the best point, or 1e-12 to 1e-3 beside it: nothing worse may come back."""
    core = _pick(generator, "quad", "valley", "bends", "kinks", "wells")
    n = dimension(generator, large=0.1)
    case = hidden(generator, core, _pick(generator, *DISGUISES), n, _pick(generator, (), ("square",), ("linear",)))
    noise = _pick(generator, 0.0, 1e-12, 1e-9, 1e-6, 1e-3) * generator.standard_normal(n)
    object.__setattr__(case, "start", case.model.x_set.project(case.solution + noise))
    return case


def compositions(generator: Generator) -> Case:
    """sqrt, log, exp and abs of the parts of x, plain or behind a square."""
    return hidden(
        generator, "bends", _pick(generator, "track", "curved"), dimension(generator), _pick(generator, (), ("square",))
    )


@functools.cache
def _cliff(n: int) -> Model:
    return Model(
        f"exponential cliff, n = {n}",
        lambda m, x, y, d: m.sum(m.exp(d["c"] * (d["N"] @ y - d["t"])) - d["h"] * d["c"] * (x - d["t"])),
        lambda m, x, y, d: 0.5 * m.sum((d["N"] @ y - x) ** 2) + d["s"] * m.sum((d["N"] @ y - x) ** 4),
        box(-6.0, 6.0, n),
        reals(n),
    )


def cliffs(generator: Generator) -> Case:
    """exp(c z) - h c z with c up to 60 and h up to 1e3: values of 1e100 in X, and starts that are good already."""
    n = int(_pick(generator, 1, 2, 3, 5, 8, 40))
    d: Data = {"c": generator.uniform(3, 60, n), "t": generator.uniform(-2, 2, n), "s": generator.uniform(0, 2)}
    d |= {"h": 10 ** generator.uniform(0, 3, n), "N": np.eye(n) + generator.uniform(-0.3, 0.3, (n, n)) / n}
    back = np.linalg.inv(d["N"])
    solution = d["t"] + np.log(d["h"]) / d["c"]
    luck = generator.random()
    start = (
        None if luck < 0.3 else generator.uniform(-6, 6, n) if luck < 0.5 else solution - generator.uniform(0, 1.5, n)
    )

    def reduced(x: Array) -> float:
        z = x - d["t"]
        return float(np.sum(np.exp(d["c"] * z) - d["h"] * d["c"] * z))

    return build(
        _cliff(n),
        d,
        lambda x: back @ x,
        start=start,
        reduced=reduced,
        best=float(np.sum(d["h"] * (1 - np.log(d["h"])))),
        solution=solution,
        scale=float(10 * np.min(d["h"])),
    )


@functools.cache
def _rows(n: int, rows: int) -> Model:
    return Model(
        f"leader's rows of many scales, n = {n}, {rows} rows",
        lambda m, x, y, d: m.sum(d["k"] * (x - d["centre"]) ** 2) + m.sum((y - x) ** 2),
        lambda m, x, y, d: 0.5 * m.sum((y - x) ** 2),
        box(-20.0, 20.0, n),
        reals(n),
        leader=lambda m, x, y, d: d["units"] * (d["A"] @ (0.5 * x + 0.5 * y) - d["b"]),
    )


def leader_scales(generator: Generator) -> Case:
    """Linear rows of the leader's in units of 1e-6 to 1e6, some active: the answer is built from their multipliers."""
    n = dimension(generator, least=2, large=0.1)
    rows = int(generator.integers(1, min(2 * n, 20) + 1))
    active = int(generator.integers(0, min(n, rows) + 1))
    a = generator.standard_normal((rows, n))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    solution = generator.uniform(-2, 2, n)
    slack = np.where(np.arange(rows) < active, 0.0, generator.uniform(0.1, 2, rows))
    multipliers = np.where(np.arange(rows) < active, generator.uniform(0.2, 2, rows), 0.0)
    k = generator.uniform(0.5, 2, n)
    d: Data = {"A": a, "b": a @ solution + slack, "k": k, "centre": solution + a.T @ multipliers / (2 * k)}
    d["units"] = 10 ** generator.uniform(-6, 6, rows)

    def repair(x: Array) -> Array:
        for _ in range(60):
            over = a @ x - d["b"]
            worst = int(np.argmax(over))
            if over[worst] <= 1e-9:
                break
            x = x - over[worst] * a[worst]
        return x

    def reduced(x: Array) -> float:
        return float(np.sum(k * (x - d["centre"]) ** 2)) if np.max(a @ x - d["b"]) <= 1e-5 else np.inf

    luck = generator.random()
    start = None if luck < 0.3 else generator.uniform(-4, 4, n) if luck < 0.8 else solution
    return build(
        _rows(n, rows),
        d,
        lambda x: x,
        start=start,
        reduced=reduced,
        repair=repair,
        best=reduced(solution) - 2e-5 * float(np.sum(multipliers)),
        solution=solution,
        scan=(-6.0, 6.0),
    )


STEEP = Model(
    "a feasible start of an ill-scaled linear follower",
    lambda m, x, y, d: (x[0] - d["t"]) ** 2 + d["u"] * y[1],
    lambda m, x, y, d: d["cost"] @ y,
    box(0.0, 1.0, 1),
    box(0.0, np.inf, 2),
    inequality=lambda m, x, y, d: m.stack([x[0] - y[0] - y[1], y[0] - d["cap"]]),
)


def linear_scales(generator: Generator) -> Case:
    """min c'y with y0 + y1 >= x and y0 <= cap, costs of 1e-4 to 1e6 and x up to 1e6: feasible for every x."""
    size = 10 ** generator.uniform(0, 6)
    cost = 10 ** np.array([generator.uniform(-4, 2), 0.0])
    cost[1] = cost[0] * 10 ** generator.uniform(0.1, 6)
    cap = size * _pick(generator, 1.0, generator.uniform(0.3, 1.0))
    t, price = size * generator.uniform(0.1, 0.95), generator.uniform(0, 2)
    units = Units(
        x_unit=(size,), y_unit=(size,), row_units=(size, size), g_unit=size, f_unit=_pick(generator, 1.0, size)
    )
    d: Data = {"t": t / size, "u": price, "cost": cost, "cap": cap / size}

    def follower(x: Array) -> Array:
        return np.array([min(x[0], d["cap"]), max(x[0] - d["cap"], 0.0)])

    def reduced(x: Array) -> float:
        return float((x[0] - d["t"]) ** 2 + price * max(x[0] - d["cap"], 0.0))

    best = min(np.linspace(0, 1, 200001), key=lambda x: reduced(np.array([x])))
    solution = np.array([best])
    start = None if generator.random() < 0.4 else generator.uniform(0, 1, 1)
    return build(STEEP, d, follower, units, start=start, reduced=reduced, best=reduced(solution), solution=solution)


BIG = Model(
    "a row with a huge coefficient",
    lambda m, x, y, d: -d["u"] * y[0] + (x[0] - d["t"]) ** 2,
    lambda m, x, y, d: -y[0] - d["v"] * y[1],
    box(0.0, 2.0, 1),
    box(0.0, 50.0, 2),
    inequality=lambda m, x, y, d: m.stack(
        [d["big"] * y[1] + y[0] - d["big"] * x[0] - 1.0, y[0] - d["cap"] * (3 - y[1])]
    ),
)


def big_coefficients(generator: Generator) -> Case:
    """big y1 + y0 <= big x + 1 with big up to 1e10: closed form by the vertices; refusals are honest above 1e6."""
    big = 10 ** generator.uniform(2, 10)
    d: Data = {"big": big, "u": generator.uniform(0.1, 1), "t": generator.uniform(0.2, 1.8)}
    d |= {"v": generator.uniform(4, 40), "cap": generator.uniform(2, 10)}

    def follower(x: Array) -> Array:
        points = [np.zeros(2)]
        for high in (0.0, float(x[0]), float(x[0] + 1 / big)):
            points.append(np.array([min(d["cap"] * (3 - high), max(0.0, big * (x[0] - high) + 1)), high]))
        # the vertex where both rows bind
        both = (big * x[0] + 1 - 3 * d["cap"]) / (big - d["cap"])
        if both >= 0:
            points.append(np.array([d["cap"] * (3 - both), both]))
        return max(points, key=lambda y: float(y[0] + d["v"] * y[1]))

    def reduced(x: Array) -> float:
        return float(-d["u"] * follower(x)[0] + (x[0] - d["t"]) ** 2)

    grid = [np.array([x]) for x in np.linspace(0, 2, 4001)]
    solution = min(grid, key=reduced)
    return build(
        BIG,
        d,
        follower,
        start=None if generator.random() < 0.5 else generator.uniform(0, 2, 1),
        reduced=reduced,
        solution=solution,
        rounding=big,
        well_posed=big <= 1e6,
    )
