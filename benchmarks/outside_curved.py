"""Families whose minimum lies on a curved kink of f or of a linear follower, and saddles in units of 1 to 1e10."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from outside_case import Array, Case, Model, Region, Units, box, build, reals
from outside_cores import Data, weight

Generator = np.random.Generator
WAYS = ("abs", "maximum", "minimum", "where", "largest", "relu")


def _steep(m: Any, gap: Any, kind: str) -> Any:
    """|gap| in one of the ways that people write it."""
    if kind == "maximum":
        return m.maximum(gap, -gap)
    if kind == "minimum":
        return -m.minimum(gap, -gap)
    if kind == "where":
        return m.where(gap > 0.0, gap, -gap)
    if kind == "largest":
        return m.max(m.stack([gap, -gap]), axis=0)
    if kind == "relu":
        return m.maximum(gap, 0.0) + m.maximum(-gap, 0.0)
    return m.abs(gap)


def _curve(m: Any, u: Any, d: Data) -> Any:
    """v on each curve, as a function of u."""
    return d["a"] * u**2 + d["b"] * m.sin(d["c"] * u)


@functools.cache
def _valley(k: int, kind: str, through: str) -> Model:
    def upper(m: Any, x: Any, y: Any, d: Data) -> Any:
        u = y[0] if through == "y" else x[0]
        return m.sum(d["w"] * _steep(m, x[1:] - _curve(m, u, d), kind)) + d["q"] * (y[0] - d["t"]) ** 2

    name = f"valley along {k} curved kinks ({kind} of {through})"
    return Model(name, upper, lambda m, x, y, d: (y[0] - x[0]) ** 2, box(-4.0, 4.0, k + 1), reals(1))


def _curved(generator: Generator, k: int) -> Data:
    """Curves inside the box, and where the minimum lies on them."""
    return {
        "a": generator.uniform(0.1, 0.2, k) * generator.choice([-1, 1], k),
        "b": generator.uniform(-0.5, 0.5, k),
        "c": generator.uniform(0.5, 2, k),
        "q": generator.uniform(0.3, 3),
        "t": generator.uniform(-3, 3),
    }


def _start(generator: Generator, d: Data, on: float = 0.5) -> Array | None:
    """A start on the curves, anywhere, or none."""
    luck = generator.random()
    if luck < on:
        u = generator.uniform(-4, 4)
        return np.concatenate([[u], _curve(np, u, d)])
    return None if luck < 0.7 else generator.uniform(-4, 4, d["a"].size + 1)


def curved_kinks(generator: Generator) -> Case:
    """W |v - c(u)| + q (u - t)^2 with y = u: straight steps along the kink rise, however short."""
    k, kind = int(generator.integers(1, 4)), WAYS[generator.integers(len(WAYS))]
    d = _curved(generator, k) | {"w": np.array([weight(generator, 7) for _ in range(k)])}
    return build(
        _valley(k, kind, "xy"[generator.integers(2)]),
        d,
        lambda x: np.array([x[0]]),
        start=_start(generator, d),
        reduced=lambda x: float(np.sum(d["w"] * np.abs(x[1:] - _curve(np, x[0], d))) + d["q"] * (x[0] - d["t"]) ** 2),
        best=0.0,
        solution=np.concatenate([[d["t"]], _curve(np, d["t"], d)]),
        scale=float(d["q"]),
        rounding=float(np.sum(d["w"])),
        well_posed=bool(np.max(d["w"]) <= 1e4),
    )


@functools.cache
def _vertex(k: int) -> Model:
    def rows(m: Any, x: Any, y: Any, d: Data) -> Any:
        gap = x[1:] - _curve(m, x[0], d)
        return m.concatenate([d["s"] * gap - y, -d["s"] * gap - y])

    return Model(
        f"valley along {k} degenerate vertices of a linear follower",
        lambda m, x, y, d: m.sum(d["w"] * y) + d["q"] * (x[0] - d["t"]) ** 2,
        lambda m, x, y, d: m.sum(d["p"] * y),
        box(-4.0, 4.0, k + 1),
        reals(k),
        rows,
    )


def curved_vertices(generator: Generator) -> Case:
    """A linear follower with y >= s |v - c(u)|: its response has a kink where two of its rows are active."""
    k = int(generator.integers(1, 3))
    d = _curved(generator, k) | {"w": np.array([weight(generator, 6) for _ in range(k)])}
    d |= {"s": generator.uniform(0.3, 3, k), "p": generator.uniform(0.5, 2, k)}
    return build(
        _vertex(k),
        d,
        lambda x: d["s"] * np.abs(x[1:] - _curve(np, x[0], d)),
        start=_start(generator, d),
        reduced=lambda x: float(
            np.sum(d["w"] * d["s"] * np.abs(x[1:] - _curve(np, x[0], d))) + d["q"] * (x[0] - d["t"]) ** 2
        ),
        best=0.0,
        solution=np.concatenate([[d["t"]], _curve(np, d["t"], d)]),
        scale=float(d["q"]),
        rounding=float(np.sum(d["w"])),
        well_posed=bool(np.max(d["w"]) <= 1e4),
    )


_BOWL: Callable[..., Any] = lambda m, x, y, d: (y[0] - d["t"]) ** 2 - d["c"] * x[1] ** 2 + x[1] ** 4 + d["o"]  # noqa: E731
_ACROSS: Callable[..., Any] = lambda m, x, y, d: (  # noqa: E731
    d["w"] * (x[0] - y[0]) ** 2 - 0.5 * d["c"] * (x[0] + y[0]) ** 2 + 0.02 * (x[0] + y[0]) ** 4 + d["o"]
)
EVERYWHERE: Region = reals(2)
BOWL = Model("saddle in units of its own", _BOWL, lambda m, x, y, d: (y[0] - x[0]) ** 2, EVERYWHERE, reals(1))
ACROSS = Model(
    "saddle across, in units of its own", _ACROSS, lambda m, x, y, d: (y[0] - x[1]) ** 2, EVERYWHERE, reals(1)
)


def saddle_units(generator: Generator) -> Case:
    """Saddles at zero or far from it, in units of x and y of 1 to 1e10, without bounds that tell them."""
    unit = 10 ** generator.uniform(0, 10)
    units = Units(x_unit=(unit,), y_unit=(unit,))
    d: Data = {"c": generator.uniform(0.5, 2), "o": generator.choice([0.0, 1.0, 100.0])}
    at_zero = generator.random() < 0.6
    if generator.random() < 0.5:
        d["t"] = 0.0 if at_zero else generator.uniform(-3, 3)
        return build(
            BOWL,
            d,
            lambda x: np.array([x[0]]),
            units,
            start=np.array([d["t"], 0.0]) if at_zero or generator.random() < 0.5 else generator.uniform(-2, 2, 2),
            best=float(d["o"] - 0.25 * d["c"] ** 2),
            solution=np.array([d["t"], np.sqrt(0.5 * d["c"])]),
            scan=(np.full(2, -4.0), np.full(2, 4.0)),
            scale=float(0.25 * d["c"] ** 2),
            rounding=float(d["o"]),
            well_posed=unit <= 1e6,
        )
    d |= {"w": weight(generator, 6)}
    total = np.sqrt(d["c"] / 0.04)
    return build(
        ACROSS,
        d,
        lambda x: np.array([x[1]]),
        units,
        start=np.zeros(2) if at_zero else generator.uniform(-2, 2, 2),
        reduced=lambda x: float(_ACROSS(np, x, np.array([x[1]]), d)),
        best=float(d["o"] - 0.5 * d["c"] * total**2 + 0.02 * total**4),
        solution=np.full(2, 0.5 * total),
        scan=(np.full(2, -6.0), np.full(2, 6.0)),
        scale=float(0.02 * total**4),
        rounding=float(d["w"] + d["o"]),
        well_posed=False,
    )
