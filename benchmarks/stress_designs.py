"""Quadratic bilevel problems with an answer chosen first and numbers fitted to it.

The leader's value is ``phi(x) = f(x, y(x))`` with a piecewise affine y(x). A weight on ``|x - x*|^2`` beyond the bound
computed here makes ``(x - x*)' grad phi(x) > 0`` for all other x: x* is then the only stationary point, and the global
minimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from stress_templates import Case, Data, empty, quadratic

Generator = np.random.Generator


#: Numbers of x, y, inequalities and equalities. Few shapes, so that little is compiled.
PLAIN = [(1, 1, 2, 0), (2, 2, 4, 0), (4, 3, 6, 0), (5, 8, 8, 0)]
WITH_EQUALITIES = [(1, 2, 2, 1), (6, 7, 5, 3)]
FREE = [(1, 1, 0, 0), (8, 4, 0, 0)]
SIZES = [(1, 1), (2, 3), (5, 8)]


class Redraw(Exception):
    """The random numbers came out nearly dependent: draw others."""


def pick(generator: Generator, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """One of the shapes."""
    return shapes[int(generator.integers(len(shapes)))]


def jacobians(d: Data, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Derivatives of y and of the multipliers in x while exactly ``rows`` are active; None where they are dependent."""
    ny = len(d["C"])
    active = np.concatenate([d["A"][rows], d["E"]])
    moves = np.concatenate([d["B"][rows], d["F"]])
    if len(active) > ny or (len(active) and np.linalg.svd(active, compute_uv=False)[-1] < 1e-8):
        return None
    matrix = np.block([[d["H"], active.T], [active, np.zeros((len(active), len(active)))]])
    if np.linalg.cond(matrix) > 1e10:
        return None
    solved = np.linalg.solve(matrix, -np.concatenate([d["C"], moves]))
    return solved[:ny], solved[ny : ny + len(rows)]


def lipschitz(d: Data) -> float:
    """The largest slope of y(x) over all its pieces."""
    m, ny = d["A"].shape
    slope = 0.0
    for count in range(min(m, ny - len(d["E"])) + 1):
        for rows in combinations(range(m), count):
            found = jacobians(d, np.array(rows, dtype=int))
            if found is not None:
                slope = max(slope, float(np.linalg.norm(found[0], 2)))
    if slope > 30.0:
        raise Redraw
    return slope


def random_hessian(generator: Generator, size: int) -> np.ndarray:
    """A positive definite matrix with eigenvalues between 0.5 and 3."""
    basis, _ = np.linalg.qr(generator.standard_normal((size, size)))
    return (basis * generator.uniform(0.5, 3.0, size)) @ basis.T


@dataclass(frozen=True)
class Design:
    """Numbers of a quadratic problem, the answer they were fitted to, and which rows are active there."""

    data: Data
    x: np.ndarray
    y: np.ndarray
    active: np.ndarray
    prices: np.ndarray  #: of the active rows


def follower(generator: Generator, nx: int, ny: int, m: int, p: int, *, projection: bool = False) -> Design:
    """A strongly convex lower level with strict complementarity at a random (x, y)."""
    d = empty(nx, ny, m, p)
    x, y = generator.uniform(-2.0, 2.0, nx), generator.standard_normal(ny)
    d["H"] = np.eye(ny) if projection else random_hessian(generator, ny)
    d["C"] = 0.7 * generator.standard_normal((ny, nx))
    for matrix, moves in (("A", "B"), ("E", "F")):
        d[matrix] = generator.standard_normal(d[matrix].shape)
        d[moves] = 0.5 * generator.standard_normal(d[moves].shape)
    count = int(generator.integers(0 if ny == p else 1, min(m, ny - p) + 1)) if m and ny > p else 0
    active = np.sort(generator.permutation(m)[:count])
    prices, slack = generator.uniform(0.3, 2.0, count), generator.uniform(0.3, 2.0, m)
    slack[active] = 0.0
    return fit(replace_rows(Design(d, x, y, active, prices), slack, generator))


def replace_rows(design: Design, slack: np.ndarray, generator: Generator) -> Design:
    """The same design with right-hand sides that leave ``slack`` at the answer."""
    d = dict(design.data)
    d["b"] = d["A"] @ design.y + d["B"] @ design.x + slack
    d["e"] = d["E"] @ design.y + d["F"] @ design.x
    d["nu"] = generator.standard_normal(len(d["E"]))
    return replace(design, data=d)


def fit(design: Design) -> Design:
    """The same design with a linear cost that makes y the follower's answer at x."""
    d = dict(design.data)
    pull = d["A"][design.active].T @ design.prices + d["E"].T @ d.pop("nu", np.zeros(len(d["E"])))
    d["c"] = -(d["H"] @ design.y + d["C"] @ design.x + pull)
    return replace(design, data=d)


def radius(design: Design, kink: int = -1) -> float:
    """Distance from x within which the active rows stay the same, but for the row ``kink``, which switches on at x."""
    d, active = design.data, design.active
    slack = d["b"] - d["A"] @ design.y - d["B"] @ design.x
    others = np.setdiff1d(np.arange(len(slack)), [*active, kink])
    limits = [np.inf]
    for rows in [active] if kink < 0 else [active, np.append(active, kink)]:
        found = jacobians(d, rows)
        if found is None:
            raise Redraw
        slope, moves = found
        speed = np.linalg.norm(d["A"] @ slope + d["B"], axis=1)
        limits += [*(slack[others] / np.maximum(speed[others], 1e-12))]
        changes = np.linalg.norm(moves, axis=1)[: len(active)]  # the price of the row that switches is zero at x
        limits += [*(design.prices / np.maximum(changes, 1e-12))]
    return float(min(limits))


def leader(design: Design, generator: Generator, *, away: float = 1.0, kink: int = -1) -> Design:
    """The same design with an upper objective whose only stationary point is x, y's target at a distance from y.

    ``kink`` is a row that switches on exactly at x, where the leader's value then has a convex kink.
    """
    d = dict(design.data)
    found = jacobians(d, design.active)
    if found is None:
        raise Redraw
    slope = found[0]
    room = radius(design, kink)
    offset = generator.standard_normal(len(design.y))
    offset *= min(away, room) / max(float(np.linalg.norm(offset)), 1e-12)
    if kink >= 0:
        other = jacobians(d, np.sort(np.append(design.active, kink)))
        if other is None:
            raise Redraw
        normal = d["A"][kink] @ slope + d["B"][kink]
        offset *= -np.sign(normal @ (slope - other[0]).T @ offset)  # a convex kink, not a concave one
        share = generator.uniform(0.2, 0.8)
        slope = share * slope + (1.0 - share) * other[0]
    largest = lipschitz(d)
    weight = 1.2 * (largest**2 + 2.0 * largest * float(np.linalg.norm(offset)) / room) + 0.2
    d |= {"f0": np.array(1.0), "xs": design.x, "t": design.y - offset, "q": -slope.T @ offset}
    d |= {"W": np.full(len(design.x), weight), "V": np.ones(len(design.y))}
    return replace(design, data=d)


def case(family: str, design: Design, generator: Generator, *, start: np.ndarray | None = None) -> Case:
    """The problem of a finished design, started at a random point."""
    d, (nx, ny, m, p) = design.data, shape_of(design.data)
    away = design.y - d["t"]
    at = design.x + generator.standard_normal(nx) if start is None else start
    value = float(d["f0"] + 0.5 * np.sum(d["V"] * away**2))
    problem = quadratic(nx, ny, m, p).with_data(d)
    return Case(family, problem, at, value, float(d["f0"]), design.x, design.y)


def shape_of(d: Data) -> tuple[int, int, int, int]:
    """Numbers of x, y, inequalities and equalities."""
    ny, nx = d["C"].shape
    return nx, ny, len(d["A"]), len(d["E"])


def rescale(made: Case, generator: Generator, decades: float = 3.0) -> Case:
    """The same problem in other units for every variable, constraint and objective: up to 10^-6 .. 10^6 apart."""
    d = dict(made.problem.data)
    nx, ny, m, p = shape_of(d)

    def powers(size: int) -> np.ndarray:
        return 10.0 ** generator.uniform(-decades, decades, size)

    ux, uy, ur, ue = powers(nx), powers(ny), powers(m), powers(p)
    (uf,), (ug,) = powers(1), powers(1)
    d |= {"f0": uf * d["f0"], "xs": d["xs"] / ux, "W": uf * d["W"] * ux**2, "q": uf * d["q"] * ux}
    d |= {"t": d["t"] / uy, "V": uf * d["V"] * uy**2}
    d |= {"H": ug * uy[:, None] * d["H"] * uy, "c": ug * uy * d["c"], "C": ug * uy[:, None] * d["C"] * ux}
    d |= {"A": ur[:, None] * d["A"] * uy, "B": ur[:, None] * d["B"] * ux, "b": ur * d["b"]}
    d |= {"E": ue[:, None] * d["E"] * uy, "F": ue[:, None] * d["F"] * ux, "e": ue * d["e"]}
    return replace(
        made,
        problem=made.problem.with_data(d),
        start=made.start / ux,
        value=uf * made.value,
        unit=uf * made.unit,
        x=made.x / ux,
        y=made.y / uy,
        x_unit=1.0 / ux,
        y_unit=1.0 / uy,
    )
