"""Reduced objectives that are chosen first, and ways to hide them behind terms that vanish along y(x).

A core is a function of z = x - t with a known least value. A disguise is a follower with a known affine response
y = M x + e and a residual r(x, y) that vanishes there. f is then

    core(x + N r - t) + W2 |r|^2 + W1 a'r + WP (a'r)(b'x) + WS sin(a'r),

equal to the core along y(x), whatever the weights: 1 to 1e10, log-uniform.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from outside_case import Array, Case, Model, Units, box, build, reals

Generator = np.random.Generator
Data = dict[str, Any]
SMALL = (1, 2, 3, 5, 8, 12)
LARGE = (40, 60, 150, 300)
NAMED = ("kink", "smooth", "differentiab")


def dimension(generator: Generator, least: int = 1, large: float = 0.15) -> int:
    """Return a dimension: mostly 1 to 12, sometimes 40 to 300."""
    sizes = [size for size in (LARGE if generator.random() < large else SMALL) if size >= least]
    return int(sizes[generator.integers(len(sizes))])


def weight(generator: Generator, high: float = 10.0) -> float:
    """Return a weight of 1 to 1e10, log-uniform."""
    return float(10 ** generator.uniform(0, high))


def unit(generator: Generator, size: int) -> Array:
    """Return a random direction."""
    way = generator.standard_normal(size)
    return way / np.linalg.norm(way)


@dataclass(frozen=True)
class Core:
    """A reduced objective: its formula in z, random data for a size, and (least value, where) of the data."""

    formula: Callable[[Any, Any, Data], Any]
    draw: Callable[[Generator, int], Data]
    least: Callable[[Data, int], tuple[float, Array]]
    kinks: bool = False


def _at_zero(data: Data, size: int) -> tuple[float, Array]:
    return 0.0, np.zeros(size)


def _quad(m: Any, z: Any, d: Data) -> Any:
    return m.sum(d["k"] * z**2) + (d["q"] @ z) ** 2


def _valley(m: Any, z: Any, d: Data) -> Any:
    return m.sum(d["k"][1:] * (z[1:] - z[:-1] ** 2) ** 2) + m.sum(z**2)


def _bends(m: Any, z: Any, d: Data) -> Any:
    parts = m.stack([m.abs(z), m.sqrt(1e-4 + z**2) - 1e-2, m.log1p(z**2), m.exp(z) - 1 - z, m.sqrt(1 + m.abs(z)) - 1])
    return m.sum(d["kind"] * parts)


def _bends_data(generator: Generator, size: int) -> Data:
    kind = np.zeros((5, size))
    kind[generator.integers(5, size=size), np.arange(size)] = generator.uniform(0.3, 2, size)
    return {"kind": kind}


def _kinks(m: Any, z: Any, d: Data) -> Any:
    return m.sum(d["k"] * m.maximum(z, -d["tilt"] * z)) + 0.1 * m.sum(z**2)


def _saddle(m: Any, z: Any, d: Data) -> Any:
    along = d["q"] @ z
    return m.sum(z**2) - 3 * along**2 + along**4


def _wells(m: Any, z: Any, d: Data) -> Any:
    return m.sum(d["k"] * ((z**2 - 1) ** 2 + 0.3 * z))


def _wells_least(d: Data, size: int) -> tuple[float, Array]:
    roots = np.roots([4, 0, -4, 0.3])
    z = float(np.min(roots.real))
    return float(np.sum(d["k"]) * ((z**2 - 1) ** 2 + 0.3 * z)), np.full(size, z)


def _scales(generator: Generator, size: int) -> Data:
    return {"k": generator.uniform(0.3, 3, size), "q": generator.uniform(-1, 1) * unit(generator, size)}


CORES = {
    "quad": Core(_quad, _scales, _at_zero),
    "valley": Core(_valley, lambda g, n: {"k": np.full(n, 10 ** g.uniform(0, 2))}, _at_zero),
    "bends": Core(_bends, _bends_data, _at_zero, kinks=True),
    "kinks": Core(_kinks, lambda g, n: {"k": g.uniform(0.3, 2, n), "tilt": g.uniform(0.3, 2, n)}, _at_zero, kinks=True),
    "saddle": Core(_saddle, lambda g, n: {"q": unit(g, n)}, lambda d, n: (-1.0, d["q"])),
    "wells": Core(_wells, lambda g, n: {"k": g.uniform(0.3, 3, n)}, _wells_least),
}


@dataclass(frozen=True)
class Disguise:
    """A follower with the response y = M x + e: its formulas, its data for (x, M, e), and what vanishes."""

    lower: Callable[[Any, Any, Any, Data], Any]
    residual: Callable[[Any, Any, Any, Data], Any]
    inequality: Callable[[Any, Any, Any, Data], Any] | None = None
    equality: Callable[[Any, Any, Any, Data], Any] | None = None


def _track(m: Any, x: Any, y: Any, d: Data) -> Any:
    return y - d["M"] @ x - d["e"]


def _rows(m: Any, x: Any, y: Any, d: Data) -> Any:
    return d["A"] @ y - d["B"] @ x - d["b"]


DISGUISES = {
    "track": Disguise(lambda m, x, y, d: 0.5 * m.sum(d["c"] * _track(m, x, y, d) ** 2), _track),
    "curved": Disguise(
        lambda m, x, y, d: m.sum(d["c"] * m.sqrt(1 + _track(m, x, y, d) ** 2) + 0.1 * _track(m, x, y, d) ** 2),
        _track,
    ),
    "active": Disguise(
        lambda m, x, y, d: 0.5 * m.sum(d["c"] * (_track(m, x, y, d) - d["s"]) ** 2), _track, inequality=_track
    ),
    "chain": Disguise(lambda m, x, y, d: 0.5 * m.sum(_track(m, x, y, d) ** 2), lambda m, x, y, d: y[1:] - y[:-1]),
    "equality": Disguise(
        lambda m, x, y, d: 0.5 * m.sum(d["c"] * y**2) + y @ (d["D"] @ x), _rows, equality=_rows
    ),
}  # fmt: skip


def disguise_data(generator: Generator, kind: str, n: int, k: int) -> tuple[Data, Array, Array, int]:
    """Return data of a follower of k variables, M and e of its response, and how many residuals it has."""
    matrix, offset = generator.standard_normal((k, n)) / np.sqrt(n), generator.uniform(-1, 1, k)
    d: Data = {"M": matrix, "e": offset, "c": generator.uniform(0.5, 2, k)}
    if kind == "active":
        d["s"] = generator.uniform(0.3, 2, k)
    if kind == "chain":
        matrix, offset = np.tile(matrix[:1], (k, 1)), np.full(k, offset[0])
        return d | {"M": matrix, "e": offset}, matrix, offset, k - 1
    if kind != "equality":
        return d, matrix, offset, k
    rows = max(1, k // 2)
    a, b_x = generator.standard_normal((rows, k)), generator.standard_normal((rows, n)) / np.sqrt(n)
    d_x, b = generator.standard_normal((k, n)) / np.sqrt(n), generator.uniform(-1, 1, rows)
    system = np.block([[np.diag(d["c"]), a.T], [a, np.zeros((rows, rows))]])
    moves = np.linalg.solve(system, np.vstack([-d_x, b_x]))[:k]
    base = np.linalg.solve(system, np.concatenate([np.zeros(k), b]))[:k]
    return {"c": d["c"], "A": a, "B": b_x, "D": d_x, "b": b}, moves, base, rows


@functools.cache
def hidden_model(core: str, disguise: str, n: int, k: int) -> Model:
    """Return the template of a hidden core."""
    shape, follower = CORES[core].formula, DISGUISES[disguise]

    def upper(m: Any, x: Any, y: Any, d: Data) -> Any:
        r = follower.residual(m, x, y, d)
        along = d["w_a"] @ r
        seen = shape(m, x + d["w_n"] @ r - d["t"], d)
        hidden = d["w_linear"] * along + d["w_product"] * along * (d["w_b"] @ x) + d["w_sine"] * m.sin(along)
        return seen + d["w_square"] * m.sum(r**2) + hidden

    name = f"{core} behind {disguise}, n = {n}, k = {k}"
    return Model(name, upper, follower.lower, box(-4.0, 4.0, n), reals(k), follower.inequality, follower.equality)


def start_of(generator: Generator, core: str, d: Data, solution: Array) -> Array | None:
    """Return a start: blocc's own, anywhere, very good already, excellent, or at the saddle."""
    n, luck = solution.size, generator.random()
    if core == "saddle" and luck < 0.6:
        return np.array(d["t"], dtype=float)
    if luck < 0.2:
        return None
    if luck < 0.7:
        return generator.uniform(-4, 4, n)
    return solution + generator.choice([0.0, 1e-9, 1e-6, 1e-3]) * generator.standard_normal(n)


def hidden(
    generator: Generator,
    core: str,
    disguise: str,
    n: int,
    terms: tuple[str, ...],
    units: Units | None = None,
    high: float = 10.0,
) -> Case:
    """Return a core behind a follower and vanishing terms (of square, linear, product, sine), each with a weight."""
    k = int(min(n, 40)) if n > 12 else int(generator.integers(1, 4))
    k = max(k, 2) if disguise in ("chain", "equality") else k
    d, matrix, offset, residuals = disguise_data(generator, disguise, n, k)
    shape = CORES[core]
    d |= shape.draw(generator, n) | {"t": generator.uniform(-2, 2, n)}
    weights = {
        term: weight(generator, high) if term in terms else 0.0 for term in ("square", "linear", "product", "sine")
    }
    d |= {
        f"w_{term}": value * generator.choice([-1, 1]) if term != "square" else value for term, value in weights.items()
    }
    d |= {"w_a": unit(generator, residuals), "w_b": unit(generator, n)}
    d["w_n"] = generator.standard_normal((n, residuals)) / np.sqrt(n) * generator.choice([0.0, 0.3, 1.0])
    best, z = shape.least(d, n)
    solution = d["t"] + z
    odd = weights["linear"] + weights["product"] + weights["sine"]
    size = 1 + float(np.max(np.abs(offset))) + 4 * float(np.max(np.sum(np.abs(matrix), axis=1)))
    return build(
        hidden_model(core, disguise, n, k),
        d,
        lambda x: matrix @ x + offset,
        units,
        start=start_of(generator, core, d, solution),
        reduced=lambda x: shape.formula(np, x - d["t"], d),
        best=best,
        solution=solution,
        rounding=odd * size,
        well_posed=odd <= 1e7 and weights["square"] <= 1e8,
        honest_words=NAMED if shape.kinks else (),
    )  # fmt: skip
