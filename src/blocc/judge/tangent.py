"""Ways down along a kink of f(x, y(x)), or along the boundary of the follower's feasibility.

At a steep kink nearly every direction goes up, and random probes miss the few that do not: those along the kink. They
are found from derivatives at points around x. What the smallest convex combination of the gradients there leaves,
after multipliers of the boundary have taken what they can, points along it, and its opposite downhill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from blocc._lib.rounding import TINY
from blocc.local.fit import nonnegative_fit

#: Where derivatives are taken, in sizes of x: so close that a curved kink looks straight, so far that sides are told.
RADII = (1e-5, 1e-7)
#: How far a way along a curved boundary is turned inwards.
TILTS = (0.0, 1e-1, 1e-2, 1e-3, 1e-4)
#: Points around x at most.
_MOST = 40


class Surroundings(NamedTuple):
    """Derivatives around a point, in the sizes of x: rows."""

    gradients: np.ndarray  #: of f(x, y(x))
    normals: np.ndarray  #: outward: of X, of the leader's constraints, of the follower's feasibility


def tangent_directions(around: Surroundings) -> Iterator[np.ndarray]:
    """Unit directions, in the sizes of x, that go down on every side that was seen, or along the boundary, tilted."""
    gradients, normals = around
    if not len(gradients):
        return
    size = float(np.max(np.linalg.norm(gradients, axis=1)))
    if not (np.isfinite(size) and size > 0.0):
        return
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = normals[lengths[:, 0] > 0.0] / lengths[lengths[:, 0] > 0.0]
    # Weights of the gradients add up to one: a heavy last row.
    heavy = 1e3
    columns = np.vstack([gradients / size, normals]).T
    last = np.concatenate([np.ones(len(gradients)), np.zeros(len(normals))])
    target = np.concatenate([np.zeros(columns.shape[0]), [heavy]])
    weights = nonnegative_fit(np.vstack([columns, heavy * last]), target)
    left = columns @ weights
    length = float(np.linalg.norm(left))
    if length <= 1e-12:
        return
    inward = -normals.sum(axis=0)
    inward = inward / max(float(np.linalg.norm(inward)), TINY)
    for tilt in TILTS if len(normals) else TILTS[:1]:
        yield -left / length + tilt * inward


def look_around(
    gradient: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray] | None],
    outward: Callable[[np.ndarray], np.ndarray | None],
    project: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    sizes: np.ndarray,
    radius: float,
    generator: np.random.Generator,
) -> Surroundings:
    """Derivatives at points around x: ``gradient(point)`` gives that of f and those of the constraints that hold it.

    Where there is none, ``outward(point)`` is asked for the normal of the follower's feasibility.
    """
    count = min(2 * x.size + 4, _MOST)
    gradients, normals = [], []
    for _ in range(count):
        wanted = x + radius * sizes * generator.uniform(-1.0, 1.0, x.size)
        point = project(wanted)
        cut = (wanted - point) / sizes
        if np.max(np.abs(cut)) > 1e-3 * radius:
            normals.append(cut)
        found = gradient(point)
        if found is not None:
            gradients.append(found[0] * sizes)
            normals += [row * sizes for row in found[1]]
        elif (normal := outward(point)) is not None:
            normals.append(normal * sizes)
    shape = (-1, x.size)
    return Surroundings(np.reshape(gradients, shape), np.reshape(normals, shape))
