"""Families with smooth functions: stiff, wide, far-started, degenerate, and with several minima."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from outside_case import Case, Model, Units, box, build, reals

Generator = np.random.Generator


def either(generator: Generator, chance: float, value: Any) -> Any:
    """Return a value with a chance, else None: a start given by the user, or blocc's own."""
    return value if generator.random() < chance else None


def track_upper(m: Any, x: Any, y: Any, d: Any) -> Any:
    """Distances of x and y to targets."""
    return (x - d["a"]) ** 2 + d["w"] * (y - d["b"]) ** 2


def track_lower(m: Any, x: Any, y: Any, d: Any) -> Any:
    """The follower wants y = c x + e."""
    return (y - d["c"] * x - d["e"]) ** 2


def track_data(generator: Generator) -> dict[str, Any]:
    """Return targets and slopes of size 1."""
    return {
        "a": generator.uniform(-2, 2),
        "b": generator.uniform(-2, 2),
        "w": generator.uniform(0.2, 2),
        "c": generator.uniform(0.3, 1.5) * generator.choice([-1, 1]),
        "e": generator.uniform(-1, 1),
    }


@functools.cache
def _stiff_exp(low: float, high: float) -> Model:
    return Model(
        "stiff exp",
        lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * y**2 + m.exp(d["k"] * x),
        lambda m, x, y, d: (y - d["c"] * x) ** 2,
        box(low, high),
        reals(),
    )


def stiff_exp(generator: Generator) -> Case:
    """exp(k x) on a box that reaches to where it is astronomic."""
    low, high = [(0.0, 40.0), (-5.0, 30.0), (-60.0, 60.0)][generator.integers(3)]
    d = {"a": generator.uniform(0.2, 3), "w": generator.uniform(0.2, 2), "k": generator.uniform(0.4, 1.0)}
    d["c"] = generator.uniform(0.3, 1.5)
    start = either(generator, 0.5, generator.uniform(low, high))
    return build(_stiff_exp(low, high), d, lambda x: d["c"] * x, start=start, scan=(max(low, -6.0), 6.0))


@functools.cache
def _stiff_power(power: int, low: float, high: float) -> Model:
    return Model(
        f"stiff power {power}",
        lambda m, x, y, d: (x - d["a"]) ** power / power + d["w"] * y**2,
        lambda m, x, y, d: (y - d["c"] * x) ** 2,
        box(low, high),
        reals(),
    )


def stiff_power(generator: Generator) -> Case:
    """(x - a)^4, 6 or 8 on wide boxes."""
    power, low, high = [(4, -10.0, 200.0), (6, -30.0, 30.0), (8, -3.0, 50.0)][generator.integers(3)]
    d = {"a": generator.uniform(0.5, 2.5), "w": generator.uniform(0.3, 2), "c": generator.uniform(0.3, 1.5)}
    start = either(generator, 0.5, generator.uniform(low, high))
    return build(_stiff_power(power, low, high), d, lambda x: d["c"] * x, start=start, scan=(-3.0, 6.0))


STIFF_FOLLOWER = Model(
    "stiff follower",
    track_upper,
    lambda m, x, y, d: m.exp(d["k"] * y) - x * y,
    box(0.05, 50.0),
    reals(),
)


def stiff_follower(generator: Generator) -> Case:
    """The follower minimises exp(k y) - x y: y = log(x / k) / k."""
    d = {"a": generator.uniform(0.5, 4), "b": generator.uniform(-1, 2), "w": generator.uniform(0.2, 2)}
    d["k"] = generator.uniform(0.5, 3)
    start = either(generator, 0.5, generator.uniform(0.05, 50))
    return build(STIFF_FOLLOWER, d, lambda x: np.log(x / d["k"]) / d["k"], start=start, scan=(0.05, 8.0))


@functools.cache
def _wide(size: float) -> Model:
    return Model("wide box", track_upper, track_lower, box(-size, 3 * size), reals())


def wide_box(generator: Generator) -> Case:
    """A parabola of width 1 in a box of 1e3 to 1e6, from anywhere in it."""
    size = [1e3, 1e5, 1e6][generator.integers(3)]
    d = track_data(generator)
    start = either(generator, 0.6, generator.uniform(-size, 3 * size))
    return build(_wide(size), d, lambda x: d["c"] * x + d["e"], start=start, scan=(-8.0, 8.0))


FAR = Model(
    "far start",
    lambda m, x, y, d: m.sqrt(1 + (x - d["a"]) ** 2) + d["w"] * m.sqrt(1 + (y - d["b"]) ** 2),
    track_lower,
    reals(),
    reals(),
)


def far_start(generator: Generator) -> Case:
    """An objective that grows like |x|, from 1e1 to 1e6 away."""
    d = track_data(generator)
    start = 10 ** generator.uniform(1, 6) * generator.choice([-1, 1])
    return build(FAR, d, lambda x: d["c"] * x + d["e"], start=start, scan=(-12.0, 12.0))


SADDLE = Model(
    "saddle start",
    lambda m, x, y, d: (x**2 - d["a"] ** 2) ** 2 + d["w"] * y**2,
    lambda m, x, y, d: (y - d["c"] * x) ** 2,
    box(-4.0, 4.0),
    reals(),
)


def saddle_start(generator: Generator) -> Case:
    """A double well, started on its hill: f'(0) = 0, and 0 is a maximum."""
    d = {"a": generator.uniform(0.8, 2), "w": generator.uniform(0.05, 0.5), "c": generator.uniform(0.3, 1)}
    return build(SADDLE, d, lambda x: d["c"] * x, start=either(generator, 0.5, 0.0))


SADDLE_2 = Model(
    "saddle start in two dimensions",
    lambda m, x, y, d: (x[0] - d["a"]) ** 2 + 0.25 * x[1] ** 4 - d["k"] * x[1] ** 2 + d["w"] * m.sum(y**2),
    lambda m, x, y, d: m.sum((y - d["c"] * x) ** 2),
    box(-3.0, 3.0, 2),
    reals(2),
)


def saddle_2d(generator: Generator) -> Case:
    """f falls along x1 on both sides of the start, where its slope is 0; x0 is smooth and convex."""
    d = {"a": generator.uniform(-1, 1), "k": generator.uniform(0.5, 1.5), "w": generator.uniform(0.05, 0.3)}
    d["c"] = generator.uniform(0.3, 1)
    start = either(generator, 0.5, np.array([generator.uniform(-2, 2), 0.0]))
    return build(SADDLE_2, d, lambda x: d["c"] * x, start=start)


@functools.cache
def _degenerate(power: int) -> Model:
    return Model(
        f"degenerate minimum of order {power}",
        lambda m, x, y, d: (x - d["a"]) ** power + d["w"] * (y - d["b"]) ** power,
        track_lower,
        box(-5.0, 5.0),
        reals(),
    )


def degenerate(generator: Generator) -> Case:
    """Minima of 4th and 6th order; y meets its target where x does."""
    d = track_data(generator)
    d["b"] = d["c"] * d["a"] + d["e"]
    start = either(generator, 0.5, generator.uniform(-5, 5))
    return build(_degenerate([4, 6][generator.integers(2)]), d, lambda x: d["c"] * x + d["e"], start=start)


SEVERAL = Model(
    "several minima",
    lambda m, x, y, d: m.sin(d["k"] * x) + d["w"] * (y - d["b"]) ** 2,
    lambda m, x, y, d: (y - x - d["e"] * m.cos(x)) ** 2,
    box(-6.0, 6.0),
    reals(),
)


def several_minima(generator: Generator) -> Case:
    """A sine over a parabola: any of its minima will do, a point that is none will not."""
    d = {"k": generator.uniform(1.5, 4), "w": generator.uniform(0.02, 0.2), "b": generator.uniform(-3, 3)}
    d["e"] = generator.uniform(0, 0.8)
    start = either(generator, 0.7, generator.uniform(-6, 6))
    return build(SEVERAL, d, lambda x: x + d["e"] * np.cos(x), start=start)


@functools.cache
def _separable(size: int) -> Model:
    return Model(
        f"separable {size}",
        lambda m, x, y, d: m.sum((x - d["a"]) ** 2 + d["w"] * (y - d["b"]) ** 2),
        lambda m, x, y, d: m.sum(d["v"] * (y - d["c"] * x) ** 2),
        box(-3.0, 3.0, size),
        reals(size),
        inequality=lambda m, x, y, d: y - d["cap"],
    )


def separable(generator: Generator) -> Case:
    """3 to 10 independent capped followers with weights from 1e-2 to 1e2: the best value is a sum of known minima."""
    size = [3, 6, 10][generator.integers(3)]
    d = {name: generator.uniform(-2, 2, size) for name in ("a", "b")}
    d |= {"w": generator.uniform(0.2, 2, size), "v": 10 ** generator.uniform(-2, 2, size)}
    d |= {"c": generator.uniform(0.3, 1.5, size), "cap": generator.uniform(-0.5, 2.0, size)}
    free = (d["a"] + d["w"] * d["c"] * d["b"]) / (1 + d["w"] * d["c"] ** 2)  # minimum where the cap does not bind
    candidates = np.clip(np.stack([free, d["a"], d["cap"] / d["c"], 0 * free - 3, 0 * free + 3]), -3, 3)
    values = (candidates - d["a"]) ** 2 + d["w"] * (np.minimum(d["c"] * candidates, d["cap"]) - d["b"]) ** 2
    start = either(generator, 0.5, generator.uniform(-3, 3, size))
    best = float(values.min(axis=0).sum())
    return build(_separable(size), d, lambda x: np.minimum(d["c"] * x, d["cap"]), start=start, best=best)


ILL_CONDITIONED = Model(
    "ill-conditioned follower",
    lambda m, x, y, d: m.sum((x - d["a"]) ** 2) + d["w"] * m.sum((y - d["b"]) ** 2),
    lambda m, x, y, d: m.sum(d["v"] * (d["turn"] @ (y - d["map"] @ x)) ** 2),
    box(-3.0, 3.0, 2),
    reals(2),
)


def ill_conditioned(generator: Generator) -> Case:
    """A quadratic follower with a turned Hessian of condition 1e2 to 1e6."""
    angle = generator.uniform(0, np.pi)
    d = {"a": generator.uniform(-1, 1, 2), "b": generator.uniform(-1, 1, 2), "w": generator.uniform(0.2, 2)}
    d["v"] = np.array([1.0, 10 ** generator.uniform(-6, -2)])
    d["turn"] = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    d["map"] = np.eye(2) + generator.uniform(-0.4, 0.4, (2, 2))
    return build(ILL_CONDITIONED, d, lambda x: d["map"] @ x, start=either(generator, 0.5, generator.uniform(-3, 3, 2)))


GAMMA = Model("gamma by hand", track_upper, track_lower, box(-4.0, 4.0), reals())


def hand_gamma(generator: Generator) -> Case:
    """A fixed gamma that leaves the penalty open: no success unless the answer is the bilevel one all the same."""
    d = track_data(generator)
    d["w"] = 10 ** generator.uniform(0, 2)
    options = {"gamma": float(generator.choice([1.0, 10.0, 100.0]))}
    units = Units(g_unit=10 ** generator.uniform(-2, 0))
    return build(GAMMA, d, lambda x: d["c"] * x + d["e"], units, options=options, well_posed=False)
