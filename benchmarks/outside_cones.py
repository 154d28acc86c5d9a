"""Families where many kinks meet at one point and second order decides on the cone where pieces meet: copositivity."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from outside_case import Array, Case, Model, box, build
from outside_cores import Data, weight

Generator = np.random.Generator
SIZES = (3, 5, 8, 12, 20, 30)
HORN = np.array([[1, -1, 1, 1, -1], [-1, 1, -1, 1, 1], [1, -1, 1, -1, 1], [1, 1, -1, 1, -1], [-1, 1, 1, -1, 1]], float)


def planted(generator: Generator, n: int, excess: float) -> tuple[Array, Array]:
    """Return a form whose least value on the unit vectors >= 0 is ``-excess``, and where that is.

    Off a few rows every entry is nonnegative, so nothing but those rows together makes it negative.
    """
    form = np.triu(np.abs(generator.standard_normal((n, n))), 1)
    form = 0.5 * (form + form.T) + np.eye(n)
    rows = generator.permutation(n)[: generator.integers(2, min(n, 6) + 1)]
    way = np.zeros(n)
    way[rows] = generator.uniform(0.3, 1.0, len(rows))
    way /= np.linalg.norm(way)
    form[np.ix_(rows, rows)] = np.eye(len(rows)) - (1.0 + excess) * np.outer(way[rows], way[rows])
    return form, way


@functools.cache
def _absolutes(n: int) -> Model:
    def upper(m: Any, x: Any, y: Any, d: Data) -> Any:
        z = 2.0 * y - d["A"] @ x
        return d["w"] * (z @ d["Q"] @ z + m.sum(x**2) ** 2)

    return Model(
        f"{n} kinks at one point", upper, lambda m, x, y, d: m.sum((y - d["A"] @ x) ** 2), box(-4.0, 4.0, n),
        box(0.0, np.inf, n),
    )  # fmt: skip


def meeting_kinks(generator: Generator) -> Case:
    """f = |z|' Q |z| + |z|^4 with z = A x, A orthogonal: a form on 2^n cones at once, mostly from where they meet."""
    n = int(SIZES[generator.integers(len(SIZES))])
    excess = generator.uniform(0.02, 0.3) * (1.0 if generator.random() < 0.7 else -1.0)
    form, way = planted(generator, n, excess)
    sign = np.where(generator.random(n) < 0.5, 1.0, -1.0)
    matrix = np.diag(sign) if generator.random() < 0.5 else np.linalg.qr(generator.standard_normal((n, n)))[0]
    w = weight(generator, 4.0)
    d: Data = {"Q": form, "A": matrix, "w": w}

    def reduced(x: Array) -> float:
        z = np.abs(matrix @ x)
        return float(w * (z @ form @ z + (z @ z) ** 2))

    start = np.zeros(n) if generator.random() < 0.7 else generator.uniform(-1.0, 1.0, n)
    return build(
        _absolutes(n),
        d,
        lambda x: np.maximum(matrix @ x, 0.0),
        start=start,
        reduced=reduced,
        best=-w * max(excess, 0.0) ** 2 / 4.0,
        solution=matrix.T @ (sign * way) * np.sqrt(max(excess, 0.0) / 2.0),
        scale=w * excess**2 / 4.0,
    )


@functools.cache
def _horned() -> Model:
    return Model(
        "horn",
        lambda m, x, y, d: y @ d["M"] @ y + d["p"] * m.sum((y - d["A"] @ x) ** 2) + d["q"] * m.sum(y**4),
        lambda m, x, y, d: m.sum((y - d["A"] @ x) ** 2),
        box(-10.0, 10.0, 5),
        box(0.0, np.inf, 5),
    )


def horned(generator: Generator) -> Case:
    """A. Horn's form, copositive and no sum of a nonnegative and a convex one, scaled and a little too small."""
    scale = generator.uniform(0.5, 2.0, 5)
    excess = 10 ** generator.uniform(-2.0, -0.3)
    form = scale[:, None] * (HORN - excess * np.eye(5)) * scale
    matrix = np.linalg.qr(generator.standard_normal((5, 5)))[0] if generator.random() < 0.5 else np.eye(5)
    d: Data = {"M": form, "A": matrix, "p": generator.uniform(2.0, 8.0), "q": generator.uniform(0.01, 0.1)}

    def reduced(x: Array) -> float:
        z = matrix @ x
        y = np.maximum(z, 0.0)
        return float(y @ form @ y + d["p"] * np.sum((y - z) ** 2) + d["q"] * np.sum(y**4))

    start = np.zeros(5) if generator.random() < 0.7 else generator.uniform(-1.0, 1.0, 5)
    # Along each edge of the orthant and its neighbour f falls; which of the wells is lowest is left to the scan.
    return build(_horned(), d, lambda x: np.maximum(matrix @ x, 0.0), start=start, reduced=reduced, scan=(-6.0, 6.0))
