"""Families whose f(x, y(x)) has saddles: along a random vector, across all axes, through y(x), at bounds, on rows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from outside_case import Array, Case, Model, box, build, reals
from outside_cores import Data, hidden, unit, weight

Generator = np.random.Generator
SIZES = (2, 3, 5, 10, 20, 40, 60)


def _size(generator: Generator) -> int:
    return int(SIZES[generator.integers(len(SIZES))])


def saddle_direction(generator: Generator) -> Case:
    """|z|^2 - 3 (q'z)^2 + (q'z)^4 along a random q, mostly from the saddle itself."""
    return hidden(generator, "saddle", "track", _size(generator), ())


def saddle_cancelling(generator: Generator) -> Case:
    """The same behind vanishing terms of 1 to 1e10."""
    kind = ("track", "curved", "active", "equality")[generator.integers(4)]
    terms = (("square",), ("linear",), ("square", "product"))[generator.integers(3)]
    return hidden(generator, "saddle", kind, _size(generator), terms)


PLANE = Model(
    "saddle in the plane",
    lambda m, x, y, d: (
        d["w"] * (x[0] - y[0]) ** 2
        - 0.5 * d["c"] * (x[0] + y[0]) ** 2
        + 0.02 * (x[0] + y[0]) ** 4
        + d["v"] * (x[1] - y[0]) ** 2
    ),
    lambda m, x, y, d: (y[0] - x[1]) ** 2,
    box(-10.0, 10.0, 2),
    reals(1),
)  # fmt: skip


def saddle_plane(generator: Generator) -> Case:
    """w (x0 - y)^2 - c/2 (x0 + y)^2 + 0.02 (x0 + y)^4 with y = x1: negative curvature across both axes."""
    d: Data = {"w": weight(generator, 8), "c": generator.uniform(0.3, 1), "v": generator.choice([0.0, 1.0])}
    total = np.sqrt(d["c"] / 0.04)
    luck = generator.random()
    slide = generator.uniform(0.2, 3)
    start = None if luck < 0.4 else np.array([slide, -slide]) if luck < 0.7 else generator.uniform(-5, 5, 2)
    return build(
        PLANE,
        d,
        lambda x: np.array([x[1]]),
        start=start,
        reduced=lambda x: float(
            d["w"] * (x[0] - x[1]) ** 2 - 0.5 * d["c"] * (x[0] + x[1]) ** 2 + 0.02 * (x[0] + x[1]) ** 4
        ),
        best=float(-0.5 * d["c"] * total**2 + 0.02 * total**4),
        solution=np.full(2, 0.5 * total),
        scale=float(0.02 * total**4),
    )


@functools.cache
def _orthogonal(n: int) -> Model:
    return Model(
        f"saddle across all axes, n = {n}",
        lambda m, x, y, d: (
            m.sum(d["k"] * (x - d["t"]) ** 2) - d["c"] * (d["q"] @ (y - d["t"])) ** 2 + (d["q"] @ (x - d["t"])) ** 4
        ),
        lambda m, x, y, d: m.sum((y - x) ** 2),
        box(-4.0, 4.0, n),
        reals(n),
    )


def saddle_across(generator: Generator) -> Case:
    """Negative curvature along q = (+-1, ..., +-1)/sqrt(n) alone: every axis, and every pair of axes, curves up."""
    n = int((6, 10, 20, 40, 60)[generator.integers(5)])
    q = generator.choice([-1.0, 1.0], n) / np.sqrt(n)
    k = generator.uniform(0.8, 1.2)
    d: Data = {"k": np.full(n, k), "q": q, "c": k + generator.uniform(0.3, 0.9), "t": generator.uniform(-2, 2, n)}
    length = np.sqrt(0.5 * (d["c"] - k))
    return build(
        _orthogonal(n),
        d,
        lambda x: x,
        start=d["t"] if generator.random() < 0.7 else generator.uniform(-4, 4, n),
        reduced=lambda x: float(
            k * np.sum((x - d["t"]) ** 2) - d["c"] * (q @ (x - d["t"])) ** 2 + (q @ (x - d["t"])) ** 4
        ),
        best=float(-(0.25) * (d["c"] - k) ** 2),
        solution=d["t"] + length * q,
    )


@functools.cache
def _response(n: int) -> Model:
    return Model(
        f"saddle through the response, n = {n}",
        lambda m, x, y, d: m.sum(d["k"] * (x - d["t"]) ** 2) - d["c"] * y[0] + 0.5 * d["p"] * y[0] ** 2,
        lambda m, x, y, d: (y[0] - (d["q"] @ (x - d["t"])) ** 2) ** 2 + 0.5 * (y[1] - x[0]) ** 2,
        box(-4.0, 4.0, n),
        reals(2),
    )


def saddle_response(generator: Generator) -> Case:
    """f is convex in (x, y); the follower's y = (q'z)^2 makes the saddle."""
    n = _size(generator)
    d: Data = {"q": unit(generator, n), "t": generator.uniform(-2, 2, n), "p": generator.uniform(1, 3)}
    k = generator.uniform(0.5, 1.5)
    d |= {"k": np.full(n, k), "c": k + generator.uniform(0.5, 2)}
    square = (d["c"] - k) / d["p"]  # of q'z at the minimum

    def reduced(x: Array) -> float:
        z = x - d["t"]
        y = (d["q"] @ z) ** 2
        return float(k * np.sum(z**2) - d["c"] * y + 0.5 * d["p"] * y**2)

    return build(
        _response(n),
        d,
        lambda x: np.array([(d["q"] @ (x - d["t"])) ** 2, x[0]]),
        start=d["t"] if generator.random() < 0.6 else generator.uniform(-4, 4, n),
        reduced=reduced,
        best=float(-0.5 * (d["c"] - k) ** 2 / d["p"]),
        solution=d["t"] + np.sqrt(square) * d["q"],
    )


@functools.cache
def _bounded(n: int) -> Model:
    def upper(m: Any, x: Any, y: Any, d: Data) -> Any:
        z = y - d["t"]
        along = d["q"] @ z
        return m.sum(d["k"] * z**2) - d["c"] * along**2 + along**4 + d["slope"] @ x

    return Model(
        f"saddle at bounds, n = {n}", upper, lambda m, x, y, d: m.sum((y - x) ** 2), box(-1.0, 4.0, n), reals(n)
    )


def saddle_bounds(generator: Generator) -> Case:
    """Half of x rests at a bound with a multiplier; the saddle is in the other half."""
    n = int((4, 6, 10, 20, 40)[generator.integers(5)])
    half, k = n // 2, generator.uniform(0.8, 1.2)
    q, slope, t = np.zeros(n), np.zeros(n), generator.uniform(0.5, 1.5, n)
    q[half:] = unit(generator, n - half)
    slope[:half], t[:half] = 10 ** generator.uniform(0, 2, half), -1.0
    d: Data = {"k": np.full(n, k), "q": q, "c": k + generator.uniform(0.3, 0.9), "t": t, "slope": slope}

    def reduced(x: Array) -> float:
        along = q @ (x - t)
        return float(k * np.sum((x - t) ** 2) - d["c"] * along**2 + along**4 + slope @ x)

    return build(
        _bounded(n),
        d,
        lambda x: x,
        start=t if generator.random() < 0.7 else generator.uniform(-1, 4, n),
        reduced=reduced,
        best=float(-0.25 * (d["c"] - k) ** 2 + slope @ t),
        solution=t + np.sqrt(0.5 * (d["c"] - k)) * q,
    )


@functools.cache
def _sphere(n: int) -> Model:
    return Model(
        f"eigenvectors, n = {n}",
        lambda m, x, y, d: y @ (d["H"] @ y),
        lambda m, x, y, d: m.sum((y - x) ** 2),
        box(-4.0, 4.0, n),
        reals(n),
        leader=lambda m, x, y, d: 1.0 - m.sum(x * y),
    )


def saddle_sphere(generator: Generator) -> Case:
    """Least y'Hy outside of the unit ball: every eigenvector is stationary, only the least one is a minimum."""
    n = int((2, 3, 5, 8, 12)[generator.integers(5)])
    basis = np.linalg.qr(generator.standard_normal((n, n)))[0]
    values = np.sort(np.concatenate([[1.0], 1 + np.cumsum(generator.uniform(0.3, 1, n - 1))]))
    hessian = basis @ np.diag(values) @ basis.T
    other = basis[:, int(generator.integers(1, n))]
    start = other if generator.random() < 0.6 else generator.uniform(-2, 2, n)

    def repair(x: Array) -> Array:
        length = np.linalg.norm(x)
        return x / length if 1e-9 < length < 1 else x if length >= 1 else basis[:, 0]

    return build(
        _sphere(n),
        {"H": hessian},
        lambda x: x,
        start=start,
        reduced=lambda x: float(x @ hessian @ x) if x @ x >= 1 - 1e-5 else np.inf,
        repair=repair,
        best=1.0 - 1e-5,
        solution=basis[:, 0],
        scale=1.0,
    )
