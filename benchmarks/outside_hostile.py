"""Families that attack what a judge measures by: features far narrower or wider than their sets, jumps of any height
beside small slopes, roots of squares, flat followers, and every function and variable in units of its own.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from outside_case import Array, Case, Model, Units, box, build, reals
from outside_cores import Data, hidden, unit, weight

Generator = np.random.Generator
FEW = (1, 2, 3, 5, 8)
MANY = (*FEW, 20, 60)


def _size(generator: Generator, sizes: tuple[int, ...] = MANY) -> int:
    return int(sizes[generator.integers(len(sizes))])


def _spread(generator: Generator, power: float = 6.0) -> float:
    return float(10 ** generator.uniform(-power, power))


@functools.cache
def _wells(n: int, wide: bool) -> Model:
    def upper(m: Any, x: Any, y: Any, d: Data) -> Any:
        z = (y - d["t"]) / d["w"]
        along = d["q"] @ z
        return m.sum((z - along * d["q"]) ** 2) - along**2 + along**4

    x_set = reals(n) if wide else box(-4.0, 4.0, n)
    return Model(f"wells in units, n = {n}", upper, lambda m, x, y, d: m.sum((y - x) ** 2), x_set, reals(n))


def _in_units(generator: Generator, wide: bool) -> Case:
    n = _size(generator)
    w = 10 ** (generator.uniform(0, 8) if wide else generator.uniform(-6, 0))
    t = np.zeros(n) if generator.random() < 0.5 else generator.uniform(-2, 2, n) * (w if wide else 1.0)
    d: Data = {"w": w, "q": unit(generator, n), "t": t}

    def reduced(x: Array) -> float:
        z = (x - t) / w
        along = d["q"] @ z
        return float(np.sum((z - along * d["q"]) ** 2) - along**2 + along**4)

    start = t if generator.random() < 0.5 else t + w * generator.uniform(-2, 2, n)
    ends = (-4 * w, 4 * w) if wide else (-4.0, 4.0)
    return build(
        _wells(n, wide),
        d,
        lambda x: x,
        start=start,
        scan=ends,
        reduced=reduced,
        best=-0.25,
        solution=t + w * np.sqrt(0.5) * d["q"],
        scale=0.25,
    )


def narrow_wells(generator: Generator) -> Case:
    """A saddle with wells of 1e-6 to 1 in a box of 8, mostly from the saddle itself."""
    return _in_units(generator, wide=False)


def wide_wells(generator: Generator) -> Case:
    """The same of 1 to 1e8, without any bounds."""
    return _in_units(generator, wide=True)


@functools.cache
def _switches(n: int, k: int) -> Model:
    return Model(
        f"{k} switches, n = {n}",
        lambda m, x, y, d: m.sum((x - d["p"]) ** 2) - d["h"] @ y,
        lambda m, x, y, d: y @ (d["u"] * (d["A"] @ x - d["b"])),
        box(-8.0, 8.0, n),
        box(0.0, 1.0, k),
    )


def tie_surfaces(generator: Generator) -> Case:
    """A linear follower switches y_j off where a_j x > b_j: x must move along the surfaces on which f jumps."""
    n = _size(generator, (2, 3, 5, 10))
    k = int(generator.integers(1, n))
    rows = np.linalg.qr(generator.standard_normal((n, k)))[0].T
    d: Data = {"A": rows, "b": generator.uniform(-1, 1, k), "p": generator.uniform(-2, 2, n)}
    d |= {"h": 10 ** generator.uniform(0, 5, k), "u": np.array([_spread(generator, 2) for _ in range(k)])}
    over = np.maximum(rows @ d["p"] - d["b"], 0.0)
    held = over**2 < d["h"]
    solution = d["p"] - rows.T @ (over * held)
    answer = lambda x: (rows @ x <= d["b"] + 1e-12).astype(float)  # noqa: E731
    luck = generator.random()
    start = None if luck < 0.3 else d["p"] if luck < 0.5 else generator.uniform(-3, 3, n)
    if luck > 0.8:  # on all surfaces
        start = start - rows.T @ (rows @ start - d["b"])
    return build(
        _switches(n, k),
        d,
        answer,
        start=start,
        reduced=lambda x: float(np.sum((x - d["p"]) ** 2) - d["h"] @ (rows @ x <= d["b"] + 1e-6)),
        best=float(np.sum(over[held] ** 2) - np.sum(d["h"][held | (over == 0.0)])),
        solution=solution,
        scale=1.0,
    )


@functools.cache
def _signs(n: int) -> Model:
    return Model(
        f"signs, n = {n}",
        lambda m, x, y, d: m.sum(d["k"] * (x - d["p"]) ** 2 + d["h"] * y),
        lambda m, x, y, d: m.sum(d["u"] * x * y),
        box(-4.0, 4.0, n),
        box(-1.0, 1.0, n),
    )


def signs(generator: Generator) -> Case:
    """y = -sign(x): every coordinate jumps at 0, by anything from nothing to all."""
    n = _size(generator, FEW)
    d: Data = {"p": generator.uniform(-2, 2, n), "k": generator.uniform(0.5, 2, n)}
    d |= {"h": 10 ** generator.uniform(-2, 4, n), "u": np.array([_spread(generator, 2) for _ in range(n)])}
    stay = (d["p"] >= 0.0) | (d["k"] * d["p"] ** 2 > 2.0 * d["h"])
    solution = np.where(stay, d["p"], 0.0)
    y_of = lambda x: np.where(x >= -1e-7, -1.0, 1.0)  # noqa: E731
    value = lambda x: float(np.sum(d["k"] * (x - d["p"]) ** 2 + d["h"] * y_of(x)))  # noqa: E731
    start = generator.uniform(-3, 3, n) * (generator.random(n) < 0.7)
    return build(
        _signs(n), d, y_of, start=start, reduced=value, best=value(solution), solution=solution, scale=1.0
    )  # fmt: skip


@functools.cache
def _faces(n: int, m_y: int) -> Model:
    return Model(
        f"flat follower, n = {n}, m = {m_y}",
        lambda m, x, y, d: d["k"] * m.sum((y - d["s"]) ** 2) + m.sum((x - d["t"]) ** 2),
        lambda m, x, y, d: (d["w"] @ y - d["b"] @ x) ** 2,
        box(-6.0, 6.0, n),
        reals(m_y),
    )


def flat_sums(generator: Generator) -> Case:
    """The follower cares for one combination of y alone; the leader for all of it."""
    n, m_y = _size(generator, (1, 2, 3, 5)), int(generator.integers(2, 7))
    d: Data = {"k": _spread(generator, 2), "s": generator.uniform(-1, 1, m_y), "t": generator.uniform(-2, 2, n)}
    d |= {"w": generator.standard_normal(m_y), "b": unit(generator, n)}
    stiff = d["k"] / (d["w"] @ d["w"])
    gap = d["b"] @ d["t"] - d["w"] @ d["s"]
    solution = d["t"] - d["b"] * stiff * gap / (1.0 + stiff)
    return build(
        _faces(n, m_y),
        d,
        lambda x: d["s"] + d["w"] * (d["b"] @ np.atleast_1d(x) - d["w"] @ d["s"]) / (d["w"] @ d["w"]),
        start=generator.uniform(-3, 3, n),
        reduced=lambda x: float(stiff * (d["b"] @ x - d["w"] @ d["s"]) ** 2 + np.sum((x - d["t"]) ** 2)),
        best=float(stiff * gap**2 / (1.0 + stiff)),
        solution=solution,
        scale=max(1.0, float(stiff)),
    )


def _root(m: Any, z: Any, kind: str) -> Any:
    """|z| as a root, in one of the ways that people write it."""
    if kind == "power":
        return (z**2) ** 0.5
    if kind == "product":
        return m.sqrt(z * z)
    if kind == "square":
        return m.sqrt(m.square(2.0 * z) / 4.0)
    return m.sqrt(z**2)


ROOTS = ("root", "power", "product", "square")


@functools.cache
def _rooted(n: int, kind: str) -> Model:
    return Model(
        f"roots of squares ({kind}), n = {n}",
        lambda m, x, y, d: m.sum(d["w"] * _root(m, y - d["t"], kind)) + m.sum(d["k"] * (x - d["p"]) ** 2),
        lambda m, x, y, d: m.sum((y - x) ** 2),
        box(-4.0, 4.0, n),
        reals(n),
    )


def rooted(generator: Generator) -> Case:
    """sum w sqrt((y - t)^2) + k (x - p)^2: soft thresholds, each kink written as a root."""
    n, kind = _size(generator, FEW), ROOTS[generator.integers(len(ROOTS))]
    d: Data = {"t": generator.uniform(-2, 2, n), "p": generator.uniform(-2, 2, n)}
    d |= {"w": 10 ** generator.uniform(-1, 3, n), "k": generator.uniform(0.5, 2, n)}
    gap = d["p"] - d["t"]
    solution = d["t"] + np.sign(gap) * np.maximum(np.abs(gap) - d["w"] / (2 * d["k"]), 0.0)
    value = lambda x: float(np.sum(d["w"] * np.abs(x - d["t"]) + d["k"] * (x - d["p"]) ** 2))  # noqa: E731
    start = d["t"] if generator.random() < 0.3 else generator.uniform(-4, 4, n)
    return build(
        _rooted(n, kind),
        d,
        lambda x: x,
        start=start,
        reduced=value,
        best=value(solution),
        solution=solution,
        scale=float(np.max(d["w"])),
    )


@functools.cache
def _walls(n: int, k: int) -> Model:
    return Model(
        f"stiff rows, n = {n}, k = {k}",
        lambda m, x, y, d: m.sum((y - d["p"]) ** 2) + d["w"] * m.sum((x - y) ** 2),
        lambda m, x, y, d: m.sum((y - x) ** 2),
        box(-6.0, 6.0, n),
        reals(n),
        leader=lambda m, x, y, d: d["u"] * (d["A"] @ x - d["b"]) + d["v"] * (d["A"] @ (y - x)),
    )


def stiff_rows(generator: Generator) -> Case:
    """The nearest point of orthogonal half spaces, each row of G in units of 1e-6 to 1e6 and with terms that cancel."""
    n = _size(generator, (2, 3, 5, 10, 20))
    k = int(generator.integers(1, min(n, 6)))
    rows = np.linalg.qr(generator.standard_normal((n, k)))[0].T
    d: Data = {"A": rows, "b": generator.uniform(-1, 1, k), "p": generator.uniform(-2, 2, n), "w": weight(generator, 6)}
    d |= {
        "u": np.array([_spread(generator) for _ in range(k)]),
        "v": weight(generator, 4) * generator.choice([0.0, 1.0]),
    }
    over = np.maximum(rows @ d["p"] - d["b"], 0.0)

    def reduced(x: Array) -> float:
        return float(np.sum((x - d["p"]) ** 2)) if np.all(rows @ x - d["b"] <= 2e-5) else np.inf

    return build(
        _walls(n, k),
        d,
        lambda x: x,
        start=None if generator.random() < 0.3 else generator.uniform(-3, 3, n),
        reduced=reduced,
        repair=lambda x: x - rows.T @ np.maximum(rows @ x - d["b"], 0.0),
        best=float(np.sum(over**2)),
        solution=d["p"] - rows.T @ over,
        scale=1.0,
    )


def _storm(n: int, generator: Generator) -> Units:
    return Units(
        x_unit=tuple(_spread(generator) for _ in range(n)),
        y_unit=(_spread(generator),),
        f_unit=_spread(generator),
        g_unit=_spread(generator),
    )


def storm_of_units(generator: Generator) -> Case:
    """A bowl with every x, y, f and g in a unit of 1e-6 to 1e6 of its own."""
    n = _size(generator, (1, 2, 3, 5, 12))
    return hidden(generator, "quad", ("track", "active")[generator.integers(2)], n, (), _storm(n, generator))


def storm_of_saddles(generator: Generator) -> Case:
    """A saddle in such units."""
    n = _size(generator, (2, 3, 5, 12))
    return hidden(generator, "saddle", "track", n, (), _storm(n, generator))


@functools.cache
def _banana() -> Model:
    return Model(
        "banana through the response",
        lambda m, x, y, d: d["w"] * (y[0] - x[1]) ** 2 + d["q"] * (x[0] - d["t"]) ** 2,
        lambda m, x, y, d: (y[0] - d["c"] * x[0] ** 2) ** 2,
        box(-4.0, 4.0, 2),
        reals(1),
    )


def bananas(generator: Generator) -> Case:
    """w (x1 - c x0^2)^2 + q (x0 - t)^2, w of 1 to 1e10, from anywhere on the curve."""
    d: Data = {"w": weight(generator), "q": generator.uniform(0.3, 3), "t": generator.uniform(-2, 2)}
    d["c"] = generator.uniform(0.1, 0.9) * generator.choice([-1, 1])
    u = generator.choice([0.0, float(generator.uniform(-2, 2))])
    return build(
        _banana(),
        d,
        lambda x: np.array([d["c"] * x[0] ** 2]),
        start=np.array([u, d["c"] * u**2]) if generator.random() < 0.6 else generator.uniform(-2, 2, 2),
        reduced=lambda x: float(d["w"] * (d["c"] * x[0] ** 2 - x[1]) ** 2 + d["q"] * (x[0] - d["t"]) ** 2),
        best=0.0,
        solution=np.array([d["t"], d["c"] * d["t"] ** 2]),
        scale=float(d["q"]),
    )
