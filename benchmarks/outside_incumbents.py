"""Families in which y is hard to find exactly, or f to descend: what comes back must be no worse than the start.

Followers that are stiff, have dependent rows or are nearly flat, though their response is t(x) = B x + c by
construction; units of y that differ by many decades; penalty weights given by hand where f has kinks; tolls on markets
of linear followers, whose best value comes from enumerating all choices.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
from scipy.optimize import linprog

from outside_case import Array, Case, Model, Units, box, build, reals, simplex
from outside_cores import Data

Generator = np.random.Generator


def _affine(generator: Generator, n: int, m: int) -> Data:
    """t(x) = B x + c, and a goal of the leader's for it that some x meets nearly."""
    B, c = generator.uniform(-1, 1, (m, n)), generator.uniform(-1, 1, m)
    return {"B": B, "c": c, "p": B @ generator.uniform(-1, 1, n) + c + 0.2 * generator.standard_normal(m)}


def _upper(m: Any, x: Any, y: Any, d: Data) -> Any:
    return m.sum((y - d["p"]) ** 2) + 0.1 * m.sum(x**2)


def _case(generator: Generator, model: Model, d: Data, **rest: Any) -> Case:
    """With the minimiser of f(x, t(x)), which is a quadratic; the start is anywhere, or right there."""
    n = d["B"].shape[1]
    solution = np.linalg.solve(d["B"].T @ d["B"] + 0.1 * np.eye(n), d["B"].T @ (d["p"] - d["c"]))

    def reduced(x: Array) -> float:
        return float(np.sum((d["B"] @ x + d["c"] - d["p"]) ** 2) + 0.1 * np.sum(x**2))

    luck = generator.random()
    start = solution if luck < 0.2 else solution + 10 ** generator.uniform(-6, 0) * generator.uniform(-1, 1, n)
    return build(
        model,
        d,
        lambda x: d["B"] @ np.atleast_1d(x) + d["c"],
        start=start,
        scan=(-6.0, 6.0),
        reduced=reduced,
        best=reduced(solution),
        solution=solution,
        scale=1.0,
        **rest,
    )


@functools.cache
def _stiff(n: int, m: int, rows: int) -> Model:
    def lower(_: Any, x: Any, y: Any, d: Data) -> Any:
        off = y - d["B"] @ x - d["c"]
        return 0.5 * off @ (d["H"] @ off)

    return Model(
        f"stiff, {m} variables, {rows} rows",
        _upper,
        lower,
        reals(n),
        reals(m),
        equality=(lambda _, x, y, d: d["A"] @ y - d["AB"] @ x - d["Ac"]) if rows else None,
    )


def _weights(generator: Generator, size: int, decades: float) -> Array:
    return np.asarray(10 ** generator.uniform(-0.5 * decades, 0.5 * decades, size))


def stiff_rows(generator: Generator) -> Case:
    """Curvatures over up to sixteen decades in directions of their own."""
    n, m = int(generator.integers(1, 4)), int(generator.integers(2, 6))
    d, Q = _affine(generator, n, m), np.linalg.qr(generator.standard_normal((m, m)))[0]
    d["H"] = Q * _weights(generator, m, generator.uniform(4, 16)) @ Q.T
    return _case(generator, _stiff(n, m, 0), d, well_posed=False)


def dependent_rows(generator: Generator) -> Case:
    """Equalities that t(x) meets, some of them sums of others, with weights; y is the response whatever they are."""
    n, m = int(generator.integers(1, 4)), int(generator.integers(3, 6))
    rank, extra = int(generator.integers(1, m)), int(generator.integers(1, 3))
    d = _affine(generator, n, m)
    A = generator.uniform(-1, 1, (rank, m))
    A = np.concatenate([A, generator.uniform(-1, 1, (extra, rank)) @ A])
    A *= _weights(generator, len(A), generator.uniform(0, 8))[:, None]
    d |= {"H": np.eye(m), "A": A, "AB": A @ d["B"], "Ac": A @ d["c"]}
    return _case(generator, _stiff(n, m, len(A)), d, well_posed=False)


def nearly_flat(generator: Generator) -> Case:
    """g curves in one direction, and hardly in all others."""
    n, m = int(generator.integers(1, 4)), int(generator.integers(2, 5))
    d = _affine(generator, n, m)
    a = generator.standard_normal(m)
    d["H"] = np.outer(a, a) + 10 ** generator.uniform(-12, -4) * np.eye(m)
    return _case(generator, _stiff(n, m, 0), d, well_posed=False)


def repeated_weights(generator: Generator) -> Case:
    """One equality stated several times with weights of 1e3, a mild follower."""
    n, m = int(generator.integers(1, 4)), int(generator.integers(3, 6))
    d = _affine(generator, n, m)
    A = np.tile(generator.uniform(-1, 1, (1, m)), (int(generator.integers(2, 4)), 1))
    A *= 1e3 * generator.uniform(0.5, 2, len(A))[:, None]
    d |= {"H": np.eye(m), "A": A, "AB": A @ d["B"], "Ac": A @ d["c"]}
    return _case(generator, _stiff(n, m, len(A)), d)


@functools.cache
def _plain(n: int, m: int) -> Model:
    return Model(
        "units of y", _upper, lambda k, x, y, d: k.sum(d["w"] * (y - d["B"] @ x - d["c"]) ** 2), reals(n), reals(m)
    )


def units_of_y(generator: Generator) -> Case:
    """Variables of the follower's in units of 1e-7 beside such of 1e4."""
    n, m = int(generator.integers(1, 4)), int(generator.integers(2, 6))
    d = _affine(generator, n, m) | {"w": generator.uniform(0.5, 2, m)}
    units = 10 ** generator.uniform(-7, 4, m)
    units[:2] = 1e-7, 1e4
    return _case(generator, _plain(n, m), d, units=Units(y_unit=tuple(generator.permutation(units))))


@functools.cache
def _entropy(n: int, m: int) -> Model:
    return Model(
        f"entropy on a simplex of {m}",
        lambda k, x, y, d: k.sum((y - d["goal"]) ** 2) + 0.01 * k.sum(x**2),
        lambda k, x, y, d: (d["C"] @ x) @ y + d["w"] * k.sum(y * k.log(y)),
        box(-3.0, 3.0, n),
        simplex(m),
    )


def entropy_simplex(generator: Generator) -> Case:
    """y = softmax(-C x / w): shares, some of them tiny."""
    n, m = int(generator.integers(1, 4)), int(generator.integers(2, 7))
    d: Data = {"C": generator.standard_normal((m, n)), "w": 10 ** generator.uniform(-1, 0.5)}
    share = generator.random(m)
    d["goal"] = share / share.sum()

    def follower(x: Array) -> Array:
        power = -(d["C"] @ np.atleast_1d(x)) / d["w"]
        weight = np.exp(power - power.max())
        return weight / weight.sum()

    return build(_entropy(n, m), d, follower, start=generator.uniform(-3, 3, n))


@functools.cache
def _bent(n: int) -> Model:
    return Model(
        f"kinks in f, n = {n}",
        lambda m, x, y, d: m.sum(d["k"] * m.abs(x - d["p"])) + m.sum((y - d["q"]) ** 2),
        lambda m, x, y, d: 0.5 * m.sum((y - x) ** 2),
        box(-4.0, 4.0, n),
        reals(n),
    )


def kinks_by_hand(generator: Generator) -> Case:
    """gamma given by hand where f has a kink, mostly from near the minimiser."""
    n = int(generator.integers(1, 5))
    d: Data = {name: generator.uniform(-2, 2, n) for name in "pq"} | {"k": generator.uniform(0.5, 4, n)}
    solution = np.where(2 * np.abs(d["q"] - d["p"]) <= d["k"], d["p"], d["q"] - 0.5 * d["k"] * np.sign(d["q"] - d["p"]))
    reduced = lambda x: float(np.sum(d["k"] * np.abs(x - d["p"]) + (x - d["q"]) ** 2))  # noqa: E731
    luck = generator.random()
    start = solution + (0.0 if luck < 0.4 else generator.uniform(-1, 1, n) * 10 ** generator.uniform(-4, 0))
    return build(
        _bent(n),
        d,
        lambda x: x,
        start=start,
        reduced=reduced,
        best=reduced(solution),
        solution=solution,
        scale=1.0,
        options={"gamma": float(10 ** generator.uniform(0, 4))},
        well_posed=False,
    )


@functools.cache
def _markets(markets: int, routes: int, tolls: int) -> Model:
    shape = (markets, routes)

    def lower(m: Any, x: Any, y: Any, d: Data) -> Any:
        return m.sum((d["cost"] + d["uses"] @ x) * y.reshape(shape))

    return Model(
        f"{markets} markets, {tolls} tolls",
        lambda m, x, y, d: -m.sum((d["uses"] @ x) * y.reshape(shape) * d["size"][:, None]),
        lower,
        box(0.0, 6.0, tolls),
        box(0.0, 1.0, markets * routes),
        equality=lambda m, x, y, d: m.sum(y.reshape(shape), axis=1) - 1.0,
    )


def markets(generator: Generator) -> Case:
    """Every market takes its cheapest route, some tolled, one free; the best tolls leave markets indifferent."""
    count, tolls = int(generator.integers(2, 5)), int(generator.integers(1, 3))
    routes = tolls + 1
    uses = np.concatenate([np.eye(tolls), np.zeros((1, tolls))])
    cost = generator.uniform(0, 2, (count, routes))
    cost[:, -1] = generator.uniform(2, 5, count)
    d: Data = {"cost": cost, "uses": np.tile(uses, (count, 1, 1)), "size": generator.uniform(0.5, 2, count)}

    def chosen(x: Array) -> Array:
        """Of the cheapest routes the one that pays the leader most."""
        paid = cost + d["uses"] @ x
        return np.array([max(np.flatnonzero(row <= row.min() + 1e-7), key=lambda r: uses[r] @ x) for row in paid])

    def reduced(x: Array) -> float:
        return -float(np.sum(d["size"] * (uses[chosen(x)] @ x)))

    def follower(x: Any) -> Array:
        return np.asarray(np.eye(routes)[chosen(np.atleast_1d(x))].ravel())

    best, solution = 0.0, np.zeros(tolls)
    for picks in itertools.product(range(routes), repeat=count):
        rows = [uses[pick] - uses[other] for pick in picks for other in range(routes)]
        room = [cost[k, other] - cost[k, pick] for k, pick in enumerate(picks) for other in range(routes)]
        revenue = d["size"] @ uses[list(picks)]
        found = linprog(-revenue, A_ub=np.array(rows), b_ub=room, bounds=[(0.0, 6.0)] * tolls)
        if found.status == 0 and found.fun < best:
            best, solution = float(found.fun), found.x
    return build(
        _markets(count, routes, tolls),
        d,
        follower,
        start=generator.uniform(0, 6, tolls),
        reduced=reduced,
        best=best,
        solution=solution,
        scale=1.0,
    )
