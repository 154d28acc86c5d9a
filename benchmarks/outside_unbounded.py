"""Families without an answer, with one at infinity only, or with one that is far away."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from outside_case import Case, Model, Units, box, build, reals
from outside_smooth import either

Generator = np.random.Generator

FALLS: dict[str, Any] = {
    "linear": lambda m, y: -y,
    "log": lambda m, y: -m.log1p(y),
    "sqrt": lambda m, y: -m.sqrt(1.0 + y),
    "log log": lambda m, y: -m.log1p(m.log1p(y)),
    "slow and bent": lambda m, y: m.exp(-y) - m.log1p(0.1 * y),
}
SETTLES: dict[str, Any] = {  # all of them fall to 0
    "exp": lambda m, y: m.exp(-y),
    "inverse": lambda m, y: 1.0 / (1.0 + y),
    "gauss": lambda m, y: m.exp(-0.5 * y**2),
}


@functools.cache
def _falls(kind: str) -> Model:
    return Model(
        f"falls for ever: {kind}",
        lambda m, x, y, d: d["k"] * FALLS[kind](m, y) + d["w"] * m.exp(-x),
        lambda m, x, y, d: (y - d["c"] * x) ** 2,
        box(0.0, np.inf),
        reals() if kind == "linear" else box(0.0, np.inf),
    )


def falls(generator: Generator) -> Case:
    """f falls for ever along y = c x: there is no answer, and no success."""
    kind = list(FALLS)[generator.integers(len(FALLS))]
    d = {"k": 10 ** generator.uniform(-2, 2), "w": generator.uniform(0, 1), "c": generator.uniform(0.3, 2)}
    start = either(generator, 0.7, generator.uniform(0, 20))
    return build(_falls(kind), d, lambda x: d["c"] * x, start=start, scan=(0.0, 100.0), well_posed=False, falls=True)


FALLS_2 = Model(
    "falls along one direction",
    lambda m, x, y, d: m.sum((y - d["b"]) ** 2) - d["k"] * m.log1p((d["n"] @ x) ** 2),
    lambda m, x, y, d: (y[0] - d["t"] @ x) ** 2 + (y[1] - y[0]) ** 2,
    reals(2),
    reals(2),
)


def falls_2d(generator: Generator) -> Case:
    """f is a bowl across one direction of the plane and falls like a logarithm along it."""
    angle = generator.uniform(0, 2 * np.pi)
    n, t = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    d = {"n": n, "t": t, "b": generator.uniform(-1, 1, 2), "k": generator.uniform(0.1, 2)}
    start = generator.uniform(-2, 2, 2)
    return build(FALLS_2, d, lambda x: np.full(2, t @ x), start=start, scan=(-9.0, 9.0), well_posed=False, falls=True)


@functools.cache
def _settles(kind: str) -> Model:
    return Model(
        f"settles: {kind}",
        lambda m, x, y, d: SETTLES[kind](m, y),
        lambda m, x, y, d: (y - d["c"] * x) ** 2,
        box(0.0, np.inf),
        box(0.0, np.inf) if kind == "inverse" else reals(),
    )


def settles(generator: Generator) -> Case:
    """f falls to 0 at infinity. No x is best: a refusal is honest, and so is a point within 1e-4 of the infimum."""
    kind = list(SETTLES)[generator.integers(len(SETTLES))]
    d = {"c": generator.uniform(0.3, 2)}
    start = either(generator, 0.7, generator.uniform(0.1, 5))
    rest: dict[str, Any] = {"scan": (0.0, 200.0), "well_posed": False, "best": 0.0, "scale": 1.0}
    return build(_settles(kind), d, lambda x: d["c"] * x, start=start, **rest)


FAR_MINIMUM = Model(
    "far minimum",
    lambda m, x, y, d: -m.log1p(d["k"] * y) + x,
    lambda m, x, y, d: (y - d["c"] * x) ** 2,
    box(0.0, np.inf),
    box(0.0, np.inf),
)


def far_minimum(generator: Generator) -> Case:
    """-log1p(k c x) + x, k from 1e1 to 1e4, x in units of 1 / k: it falls for long, but has a minimum."""
    k = 10 ** generator.uniform(1, 4)
    d = {"k": k, "c": generator.uniform(0.5, 2)}
    start = either(generator, 0.7, generator.uniform(0, 5) / k)
    return build(FAR_MINIMUM, d, lambda x: d["c"] * x, Units(x_unit=(k,), y_unit=(k,)), start=start, scan=(0.0, 8.0))


@functools.cache
def _bottomless(kind: str) -> Model:
    lower = {
        "linear": lambda m, x, y, d: -d["k"] * y,
        "exp": lambda m, x, y, d: m.exp(-d["k"] * y),
        "log": lambda m, x, y, d: -m.log1p(y) + 0 * x,
        "bilinear": lambda m, x, y, d: -(1 + x) * y,
    }[kind]
    return Model(
        f"bottomless follower: {kind}",
        lambda m, x, y, d: (x - d["a"]) ** 2 + 0.1 * m.exp(-y),
        lower,
        box(0.0, 3.0),
        box(0.0, np.inf),
    )


def bottomless(generator: Generator) -> Case:
    """The follower's objective falls for ever (or has an infimum only): it has no answer at any x."""
    kind = ["linear", "exp", "log", "bilinear"][generator.integers(4)]
    d = {"a": generator.uniform(0.5, 2.5), "k": 10 ** generator.uniform(-2, 2)}
    return build(_bottomless(kind), d, lambda x: None, well_posed=False)


BOTTOMLESS_PART = Model(
    "bottomless on one side",
    lambda m, x, y, d: (x - d["a"]) ** 2 + d["w"] * y,
    lambda m, x, y, d: (x - d["k"]) * y + 0.5 * m.maximum(x - d["k"], 0.0) * y**2,
    box(-2.0, 3.0),
    box(0.0, np.inf),
)


def bottomless_part(generator: Generator) -> Case:
    """Below x = k the follower falls for ever; from k on y = 0 (any y >= 0 at k, where 0 suits the leader)."""
    d = {"a": generator.uniform(-1.5, 2.5), "w": generator.uniform(0.2, 1), "k": generator.uniform(-0.5, 0.5)}
    start = either(generator, 0.7, generator.uniform(-2, 3))
    well_posed = d["a"] > d["k"] + 0.1 and start is not None and start > d["k"] + 0.05
    follower = lambda x: 0.0 if x >= d["k"] else None  # noqa: E731
    return build(BOTTOMLESS_PART, d, follower, start=start, well_posed=well_posed)
