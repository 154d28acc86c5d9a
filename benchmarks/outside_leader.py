"""Families with constraints of the leader: active where y(x) is smooth, or at its kinks, in bad units, impossible."""

from __future__ import annotations

import functools

import numpy as np

from outside_case import Array, Case, Model, Units, box, build, reals
from outside_smooth import either, track_data, track_lower, track_upper

Generator = np.random.Generator


SMOOTH = Model(
    "leader's constraint",
    track_upper,
    track_lower,
    box(-5.0, 5.0),
    reals(),
    leader=lambda m, x, y, d: d["p"] * x + d["q"] * y - d["k"],
)


def leader_smooth(generator: Generator) -> Case:
    """p x + q y <= k at y = c x + e, mostly active, in units of 1e-4 to 1e4, from starts on both sides."""
    d = track_data(generator) | {"p": generator.uniform(-1, 1), "q": generator.uniform(-1, 1)}
    slope = d["p"] + d["q"] * d["c"]
    if abs(slope) < 0.2:
        d["p"] += np.copysign(0.4, slope)
    free = (d["a"] + d["w"] * d["c"] * (d["b"] - d["e"])) / (1 + d["w"] * d["c"] ** 2)
    d["k"] = d["p"] * free + d["q"] * (d["c"] * free + d["e"]) - generator.uniform(-0.2, 0.8)
    start = either(generator, 0.5, generator.uniform(-5, 5))
    units = Units(leader_unit=10 ** generator.uniform(-4, 4))
    return build(SMOOTH, d, lambda x: d["c"] * x + d["e"], units, start=start)


SMOOTH_2 = Model(
    "leader's constraint in two dimensions",
    lambda m, x, y, d: m.sum((x - d["a"]) ** 2) + d["w"] * m.sum((y - d["b"]) ** 2),
    lambda m, x, y, d: m.sum((y - d["map"] @ x) ** 2),
    box(-20.0, 20.0, 2),
    reals(2),
    leader=lambda m, x, y, d: d["p"] @ x + d["q"] @ y - d["k"],
)


def leader_smooth_2d(generator: Generator) -> Case:
    """A half-plane in the plane with y = M x: the projection of the free minimum in its own metric."""
    d = {"a": generator.uniform(-1, 1, 2), "b": generator.uniform(-1, 1, 2), "w": generator.uniform(0.2, 2)}
    d |= {"map": np.eye(2) + generator.uniform(-0.4, 0.4, (2, 2)), "p": generator.uniform(-1, 1, 2)}
    d["q"] = generator.uniform(-1, 1, 2)
    metric = np.eye(2) + d["w"] * d["map"].T @ d["map"]
    free = np.linalg.solve(metric, d["a"] + d["w"] * d["map"].T @ d["b"])
    normal = d["p"] + d["map"].T @ d["q"]
    if np.linalg.norm(normal) < 0.3:
        d["p"], normal = d["p"] + np.array([1.0, 0.0]), normal + np.array([1.0, 0.0])
    over = generator.uniform(-0.2, 1)
    d["k"] = normal @ free - over
    step = np.linalg.solve(metric, normal)
    x = free - step * max(over, 0.0) / (normal @ step)
    y = d["map"] @ x
    best = float(np.sum((x - d["a"]) ** 2) + d["w"] * np.sum((y - d["b"]) ** 2))
    start = either(generator, 0.5, generator.uniform(-3, 3, 2))
    return build(SMOOTH_2, d, lambda x: d["map"] @ x, start=start, best=best, scan=(-6.0, 6.0))


@functools.cache
def _kink(kind: str) -> Model:
    row, leader = {
        "cap": (lambda m, x, y, d: y - d["k"], lambda m, x, y, d: x + d["v"] * y - (1 + d["v"]) * d["k"]),
        "floor": (lambda m, x, y, d: d["k"] - y, lambda m, x, y, d: (1 + d["v"]) * d["k"] - x - d["v"] * y),
    }[kind]
    return Model(
        f"leader's constraint at a kink, {kind}",
        track_upper,
        lambda m, x, y, d: (y - x) ** 2,
        box(-4.0, 4.0),
        reals(),
        inequality=row,
        leader=leader,
    )


def leader_kink(generator: Generator) -> Case:
    """y = min(x, k), and x + v y <= (1 + v) k: the constraint of the leader ends exactly at the kink of y."""
    kind = ["cap", "floor"][generator.integers(2)]
    side = 1.0 if kind == "cap" else -1.0
    d = {"k": generator.uniform(-1, 1), "v": generator.uniform(0.3, 2), "w": generator.uniform(0.2, 2)}
    d["a"] = d["k"] + side * generator.uniform(0.3, 2)
    d["b"] = d["k"] + side * generator.uniform(-0.5, 2)
    clip = min if kind == "cap" else max
    start = either(generator, 0.6, generator.uniform(-4, 4))
    return build(_kink(kind), d, lambda x: clip(x, d["k"]), start=start)


KINK_2 = Model(
    "leader's constraint at a kink in two dimensions",
    lambda m, x, y, d: m.sum((x - d["a"]) ** 2) + d["w"] * (y[0] - d["b"]) ** 2,
    lambda m, x, y, d: (y[0] - x[0]) ** 2 + (y[1] - x[1]) ** 2,
    box(-3.0, 3.0, 2),
    reals(2),
    inequality=lambda m, x, y, d: y[0] - d["k"],
    leader=lambda m, x, y, d: m.stack([x[0] + y[0] - 2 * d["k"], x[1] - d["l"]]),
)


def leader_kink_2d(generator: Generator) -> Case:
    """Two constraints of the leader, one active at a kink of y0(x0), one a plain bound on x1 (perhaps)."""
    d = {"k": generator.uniform(-1, 1), "l": generator.uniform(-1, 1), "w": generator.uniform(0.2, 1)}
    d["a"] = np.array([d["k"] + generator.uniform(0.3, 1.5), generator.uniform(-1.5, 1.5)])
    d["b"] = d["k"] + generator.uniform(0.0, 1.0)  # beyond the kink: f falls with x0 up to x0 = k
    best = (d["k"] - d["a"][0]) ** 2 + max(d["a"][1] - d["l"], 0.0) ** 2 + d["w"] * (d["k"] - d["b"]) ** 2
    start = either(generator, 0.6, generator.uniform(-3, 3, 2))
    follower = lambda x: np.array([min(x[0], d["k"]), x[1]])  # noqa: E731
    return build(KINK_2, d, follower, start=start, best=float(best))


STEEP = Model(
    "leader's constraint with a large multiplier",
    lambda m, x, y, d: -d["k"] * y + x**2,
    lambda m, x, y, d: (y - x) ** 2,
    box(-4.0, 4.0),
    reals(),
    leader=lambda m, x, y, d: m.stack([y - d["p"], d["q"] - x - y]),
)


def leader_steep(generator: Generator) -> Case:
    """f falls at 1e1 to 1e4 up to y = p, so that the constraint has a price of that size."""
    d = {"k": 10 ** generator.uniform(1, 4), "p": generator.uniform(-1, 2), "q": -5.0}
    return build(STEEP, d, lambda x: x, start=either(generator, 0.6, generator.uniform(-4, 4)))


CURVED = Model(
    "leader's curved constraint",
    lambda m, x, y, d: d["n"] @ x + 0.1 * m.sum((y - d["b"]) ** 2),
    lambda m, x, y, d: m.sum((y - x) ** 2),
    box(-3.0, 3.0, 2),
    reals(2),
    leader=lambda m, x, y, d: m.sum(y**2) - d["r"] ** 2,
)


def leader_curved(generator: Generator) -> Case:
    """A linear pull against norm(y)^2 <= r^2 with y = x; the start is often outside."""
    angle, radius = generator.uniform(0, 2 * np.pi), generator.uniform(0.5, 2)
    pull = generator.uniform(0.5, 3) * np.array([np.cos(angle), np.sin(angle)])
    d = {"n": pull, "b": generator.uniform(-1, 1, 2), "r": radius}
    angles = np.linspace(0, 2 * np.pi, 20001)  # f is convex and its slope points outward: the best x is on the circle
    circle = radius * np.stack([np.cos(angles), np.sin(angles)])
    values = pull @ circle + 0.1 * np.sum((circle - d["b"][:, None]) ** 2, axis=0)
    start: Array | None = either(generator, 0.6, generator.uniform(-3, 3, 2))
    free = d["b"] - 5 * pull
    inside = np.linalg.norm(free) < radius
    best = pull @ free + 0.1 * np.sum((free - d["b"]) ** 2) if inside else values.min()
    return build(CURVED, d, lambda x: x, start=start, best=float(best))


IMPOSSIBLE = Model(
    "impossible for the leader",
    track_upper,
    track_lower,
    box(-2.0, 2.0),
    box(-3.0, 3.0),
    leader=lambda m, x, y, d: d["k"] - x**2 - y**2,
)


def leader_impossible(generator: Generator) -> Case:
    """G asks for more than X and Y can give: only a refusal is right."""
    d = track_data(generator) | {"k": generator.uniform(13.5, 20)}
    follower = lambda x: min(max(d["c"] * x + d["e"], -3.0), 3.0)  # noqa: E731
    return build(IMPOSSIBLE, d, follower, well_posed=False)
