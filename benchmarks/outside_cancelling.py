"""Families whose f, or whose leader's rows, have terms of 1 to 1e10 times something that vanishes along y(x)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from outside_case import Array, Case, Model, box, build, reals
from outside_cores import DISGUISES, Data, dimension, disguise_data, hidden, unit, weight

Generator = np.random.Generator
SMOOTH = ("quad", "quad", "valley", "wells", "bends")
FOLLOWERS = ("track", "curved", "active", "chain", "equality")


def _one(generator: Generator, names: tuple[str, ...]) -> str:
    return names[generator.integers(len(names))]


def cancel_square(generator: Generator) -> Case:
    """W |r|^2 on a residual that the follower makes zero."""
    return hidden(generator, _one(generator, SMOOTH), "track", dimension(generator), ("square",))


def cancel_linear(generator: Generator) -> Case:
    """W a'r: a slope in y that the response takes back."""
    return hidden(
        generator, _one(generator, SMOOTH), _one(generator, ("track", "curved")), dimension(generator), ("linear",)
    )


def cancel_product(generator: Generator) -> Case:
    """W (a'r)(b'x) and W sin(a'r): the same with curvature in x and y."""
    return hidden(generator, _one(generator, SMOOTH), "track", dimension(generator), ("product", "sine"))


def cancel_equality(generator: Generator) -> Case:
    """The follower's own equality rows, squared and multiplied in f."""
    n = dimension(generator)
    return hidden(generator, _one(generator, SMOOTH), "equality", n, (_one(generator, ("square", "linear")), "square"))


def cancel_active(generator: Generator) -> Case:
    """Rows of the follower that are always active, priced in f."""
    n = dimension(generator, large=0.1)
    return hidden(generator, _one(generator, SMOOTH), "active", n, (_one(generator, ("square", "linear")),))


def cancel_chain(generator: Generator) -> Case:
    """Differences of follower's variables that are always equal."""
    return hidden(
        generator, _one(generator, SMOOTH), "chain", dimension(generator), (_one(generator, ("square", "linear")),)
    )


def cancel_kinks(generator: Generator) -> Case:
    """A polyhedral core behind each of the followers."""
    n = dimension(generator, large=0.1)
    return hidden(generator, "kinks", _one(generator, FOLLOWERS), n, (_one(generator, ("square", "linear")),))


def cancel_all(generator: Generator) -> Case:
    """All vanishing terms at once, each with a weight of its own."""
    n = dimension(generator, large=0.3)
    return hidden(generator, "quad", _one(generator, FOLLOWERS), n, ("square", "linear", "product", "sine"), high=8.0)


@functools.cache
def _leader(n: int, k: int, disguise: str, rows: int) -> Model:
    follower = DISGUISES[disguise]

    def upper(m: Any, x: Any, y: Any, d: Data) -> Any:
        r = follower.residual(m, x, y, d)
        return m.sum(d["k"] * (x + d["w_n"] @ r - d["t"]) ** 2)

    def leader(m: Any, x: Any, y: Any, d: Data) -> Any:
        r = follower.residual(m, x, y, d)
        return d["w_linear"] * (d["w_a"] @ r) + d["w_square"] * m.sum(r**2) + d["limit"] - d["normal"] @ x

    name = f"cancelling leader's rows behind {disguise}, n = {n}, k = {k}, {rows} rows"
    parts = (follower.inequality, follower.equality)
    return Model(name, upper, follower.lower, box(-4.0, 4.0, n), reals(k), *parts, leader=leader)


def cancel_leader(generator: Generator) -> Case:
    """Rows W a'r + limit - normal'x <= 0 whose large terms vanish: what is left decides about feasibility."""
    n, rows = dimension(generator, large=0.1), 1
    disguise = _one(generator, ("track", "curved", "equality", "active"))
    k = 2 if disguise == "equality" else int(generator.integers(1, 4))
    d, matrix, offset, residuals = disguise_data(generator, disguise, n, k)
    rows = int(generator.integers(1, min(n, 3) + 1))
    normal = np.linalg.qr(generator.standard_normal((n, rows)))[0].T
    d |= {"k": np.full(n, generator.uniform(0.5, 2)), "normal": normal, "w_n": np.zeros((n, residuals))}
    t = generator.uniform(-1, 1, n)
    lacks = generator.uniform(-0.5, 1.5, rows)  # by how much the free minimum breaks each row
    d |= {"t": t, "limit": normal @ t + lacks}
    if generator.random() < 0.5:
        d["w_n"] = generator.standard_normal((n, residuals)) / np.sqrt(n)
    linear = generator.random() < 0.6
    w = weight(generator)
    d["w_a"] = np.stack([unit(generator, residuals) for _ in range(rows)])
    d["w_linear"] = w * generator.choice([-1, 1]) if linear else 0.0
    d["w_square"] = 0.0 if linear else w
    short = np.maximum(lacks, 0.0)
    solution = t + normal.T @ short

    def excess(x: Array) -> Array:
        return d["limit"] - normal @ x

    def repair(x: Array) -> Array:
        for _ in range(20):
            x = np.clip(x + normal.T @ np.maximum(excess(x), 0.0), -4, 4)
        return x

    def reduced(x: Array) -> float:
        return float(d["k"][0] * np.sum((x - t) ** 2)) if np.max(excess(x)) <= 1e-5 else np.inf

    if np.max(np.abs(solution)) > 3.9:
        return cancel_leader(generator)
    luck = generator.random()
    start = None if luck < 0.3 else generator.uniform(-4, 4, n) if luck < 0.8 else repair(solution + 1e-3)
    return build(
        _leader(n, k, disguise, rows),
        d,
        lambda x: matrix @ x + offset,
        start=start,
        reduced=reduced,
        repair=repair,
        best=float(d["k"][0] * short @ short),
        solution=solution,
        rounding=w if linear else 0.0,
        well_posed=w <= 1e7,
    )


PINNED = Model(
    "root at a bound",
    lambda m, x, y, d: (
        m.sum(d["p"] * m.sqrt(y + d["eps"])) + m.sum((x - d["t"]) ** 2) + d["w"] * m.sum(y * (1 + x[0] ** 2))
    ),
    lambda m, x, y, d: m.sum((y - d["M"] @ x + d["e"]) ** 2),
    box(-4.0, 4.0, 2),
    box(0.0, np.inf, 2),
)


def root_at_bound(generator: Generator) -> Case:
    """p sqrt(y + eps) and W y with y pinned at its bound of 0 for all x: slopes of 1e6 that mean nothing."""
    d: Data = {"p": 10 ** generator.uniform(-2, 3, 2), "eps": 10 ** generator.uniform(-14, -4)}
    d |= {"t": generator.uniform(-2, 2, 2), "w": weight(generator), "M": generator.uniform(-0.5, 0.5, (2, 2))}
    d["e"] = generator.uniform(4.5, 8, 2)
    value = float(np.sum(d["p"] * np.sqrt(d["eps"])))
    start = None if generator.random() < 0.4 else generator.uniform(-4, 4, 2)
    return build(
        PINNED,
        d,
        lambda x: np.zeros(2),
        start=start,
        reduced=lambda x: value + float(np.sum((x - d["t"]) ** 2)),
        best=value,
        solution=d["t"],
        rounding=value,
    )


SLOPED = Model(
    "a priced bound",
    lambda m, x, y, d: d["w"] * m.sum(y) + m.sum(d["k"] * (x - d["t"] + d["n"] * (y[0] - y[1])) ** 2),
    lambda m, x, y, d: m.sum(y * (1.5 + m.sin(x[0]))) + 0.5 * m.sum(y**2),
    box(-4.0, 4.0, 3),
    box(0.0, 5.0, 2),
)


def priced_bound(generator: Generator) -> Case:
    """W times variables that rest at a bound with a multiplier that x moves."""
    d: Data = {"k": generator.uniform(0.5, 2, 3), "t": generator.uniform(-2, 2, 3), "w": -weight(generator)}
    d["n"] = generator.uniform(-1, 1)
    start = None if generator.random() < 0.4 else generator.uniform(-4, 4, 3)
    return build(
        SLOPED,
        d,
        lambda x: np.zeros(2),
        start=start,
        reduced=lambda x: float(np.sum(d["k"] * (x - d["t"]) ** 2)),
        best=0.0,
        solution=d["t"],
        rounding=1e-9 * abs(d["w"]),
        well_posed=abs(d["w"]) <= 1e6,
    )


IMPOSSIBLE = Model(
    "a leader's row that cannot be met",
    lambda m, x, y, d: m.sum((x - d["t"]) ** 2) + m.sum(y),
    lambda m, x, y, d: m.sum((y - d["M"] @ x) ** 2),
    box(-4.0, 4.0, 2),
    reals(2),
    leader=lambda m, x, y, d: d["w"] * (d["a"] @ (y - d["M"] @ x)) + d["miss"] + m.sum((x - d["t"]) ** 2),
)


def impossible_leader(generator: Generator) -> Case:
    """G >= miss > 0 wherever y is the response, behind a term of 1 to 1e8: a refusal must name it."""
    d: Data = {"t": generator.uniform(-2, 2, 2), "M": generator.uniform(-1, 1, (2, 2)), "a": unit(generator, 2)}
    d |= {"w": weight(generator, 8) * _one(generator, (0.0, 1.0)), "miss": 10 ** generator.uniform(-2, 2)}
    return build(
        IMPOSSIBLE,
        d,
        lambda x: d["M"] @ x,
        start=None if generator.random() < 0.5 else generator.uniform(-4, 4, 2),
        reduced=lambda x: np.inf,
        rounding=8 * d["w"],
        honest_words=("violat", "cannot be met", "upper_inequality", "leader's constraint"),
    )
