"""Descent at kinks and along boundaries: gradient sampling, and the stationarity measure that goes with it.

Where the lower level switches its active constraints, or has several multipliers, F_gamma may have a kink, and at a
kink that is a minimiser no single gradient vanishes. What vanishes is the shortest convex combination of the
gradients nearby (Burke, Lewis, Overton 2005). Where the lower level becomes infeasible there is a boundary: its
normal, known from the elastic problem, may be added with any nonnegative weight, like the normal of an active bound.
If the shortest combination is not zero, its negative is a descent direction that respects boundaries and bounds; if
it is, x is stationary within the sampling radius.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from blocc._lib.arrays import AnyArray
from blocc.outer.evaluator import Evaluator
from blocc.outer.tolerances import Endpoint, Stage
from blocc.penalty import Evaluation

#: Gradient sampling needs about two gradients for each variable: beyond this it no longer pays.
LARGEST_DIMENSION = 60

#: Radius, relative to the size of x, at which sampling ends.
SMALLEST_RADIUS = 1e-7

#: The same at a boundary towards which the value falls steeply.
_STEEP = 1e-11

#: Radius, relative to the size of x, within which stationarity counts: x is then known to so many digits.
_SETTLED = 1e-4

#: Of a unit of a normal, against the length of the longest gradient.
_PRICE = 1e-8


def shortest_combination(gradients: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """The shortest vector ``G' a + N' b`` with a in the unit simplex and b >= 0.

    The nonnegative least-squares problem ``|G' u + N' v|^2 + (sum u - 1)^2`` has the same solution up to scale. A price
    on v keeps it from huge weights: two normals that are opposite up to rounding would make any vector of their sum.
    """
    scale = float(np.max(np.linalg.norm(gradients, axis=1)))
    if scale == 0.0:
        return gradients[0]
    columns = np.concatenate([gradients / scale, normals]).T
    row = np.concatenate([np.ones(len(gradients)), np.zeros(len(normals))])
    price = _PRICE * np.eye(len(row))[len(gradients) :]
    target = np.zeros(len(columns) + 1 + len(normals))
    target[len(columns)] = 1.0
    try:
        weights, _ = scipy.optimize.nnls(np.vstack([columns, row, price]), target, maxiter=20 * len(row) + 100)
    except RuntimeError:  # too many steps: one gradient alone claims least
        return gradients[0]
    total = float(weights[: len(gradients)].sum())
    if total <= 0.0:
        return gradients[0]
    return scale * (columns @ weights) / total


class Neighbourhood(NamedTuple):
    """What random points around one x showed."""

    gradients: list[np.ndarray]  #: that at x first
    boundaries: list[np.ndarray]  #: normals
    edges: np.ndarray  #: normals of X
    usable: list[Evaluation]

    def shortest(self) -> np.ndarray:
        """The shortest combination of all gradients and normals."""
        boundaries = np.reshape(self.boundaries, (-1, self.edges.shape[1]))
        return shortest_combination(np.asarray(self.gradients), np.concatenate([self.edges, boundaries]))


def neighbourhood(
    evaluator: Evaluator,
    center: Evaluation,
    stage: Stage,
    radius: float,
    samples: int,
    generator: np.random.Generator,
) -> Neighbourhood:
    """Look at ``samples`` random points of X within ``radius`` of the center."""
    # Normals found by probing are as good as rounding lets them be at that distance.
    edge = max(radius, SMALLEST_RADIUS * (1.0 + float(np.max(np.abs(center.x), initial=0.0))))
    found = Neighbourhood([np.asarray(center.gradient)], [], set_normals(evaluator, center.x, edge), [])
    for _ in range(samples):
        point = evaluator.project(center.x + radius * generator.uniform(-1.0, 1.0, center.x.size))
        evaluation = evaluator(point, float(center.gamma), stage.leader, stage.inner_tolerance)
        if evaluation.usable:
            found.gradients.append(np.asarray(evaluation.gradient))
            found.usable.append(evaluation)
        elif (boundary := evaluator.boundary(point)) is not None:
            found.boundaries.append(boundary.normal)
    return found


def minimise(
    evaluator: Evaluator, first: Evaluation, stage: Stage, smallest_radius: float = SMALLEST_RADIUS
) -> Endpoint:
    """Descend by gradient sampling, with a shrinking radius, until stationary within ``smallest_radius``."""
    generator = np.random.default_rng(evaluator.seed)
    best, met_boundary = first, False
    size = 1.0 + float(np.max(np.abs(first.x), initial=0.0))
    radius, final = 1e-2 * size, smallest_radius * size
    samples = 2 * best.x.size + 2
    last = Endpoint(best, np.inf, 0.0)
    settled: Endpoint | None = None  # stationary within a radius that is small, if not the smallest
    for _ in range(stage.max_iterations):
        center = best
        around = neighbourhood(evaluator, center, stage, radius, samples, generator)
        met_boundary = met_boundary or bool(around.boundaries)
        for found in around.usable:
            if float(found.value) < float(best.value) - 1e-3 * radius * stage.tolerance:
                best = found
        direction = around.shortest()
        length = float(np.max(np.abs(direction)))
        if around.boundaries and length <= stage.tolerance and radius <= final:
            # The boundary is somewhere within the radius: a steep value may fall by more than the tolerance on the way.
            unreached = radius * float(np.max(np.abs(center.gradient)))
            if unreached > stage.tolerance:
                length, final = unreached, _STEEP * size
                direction = np.zeros_like(direction)  # only a smaller radius helps
        last = Endpoint(best, length, radius, met_boundary)
        if length <= stage.tolerance:
            near = (
                radius <= (1e-2 if around.boundaries else 1.0) * _SETTLED * size
            )  # a boundary may be as far away as that
            settled = last._replace(evaluation=center) if near else None
            if radius <= final:
                break
            radius = max(0.1 * radius, final)
            continue
        moved = _search(evaluator, best, direction, around.boundaries, stage, radius) if direction.any() else None
        if moved is not None:
            best = moved
            last = Endpoint(best, length, radius, met_boundary)
            evaluator.monitor.record(best, length, evaluator.evaluations)
        elif best is center:
            if radius <= final:
                break
            radius = max(0.2 * radius, final)
    # In the smallest radius gradients may differ by rounding alone. What held within a larger one still holds, as long
    # as x did not leave it.
    if (
        last.stationarity > stage.tolerance
        and settled is not None
        and float(np.max(np.abs(best.x - settled.evaluation.x))) <= settled.radius
    ):
        last = settled
    return last._replace(evaluation=best, met_boundary=met_boundary)


def set_normals(evaluator: Evaluator, x: AnyArray, radius: float) -> np.ndarray:
    """Unit normals of X within ``radius`` of x: of the bounds, or where X is no box, found by probing.

    For a general X they are the directions of ``z - P_X(z)`` for points z at that distance from x that lie outside.
    """
    convex_set = evaluator.flat.x_set
    if convex_set.is_box:
        low, high = convex_set.bounds_flat()
        identity = np.eye(x.size)
        return np.concatenate([-identity[x - low <= radius], identity[high - x <= radius]])
    normals = []
    for direction in np.concatenate([np.eye(x.size), -np.eye(x.size), np.ones((1, x.size)), -np.ones((1, x.size))]):
        outside = x + radius * direction
        normal = outside - evaluator.project(outside)
        if np.linalg.norm(normal) > 1e-6 * radius:
            normals.append(normal / np.linalg.norm(normal))
    return np.asarray(normals).reshape(-1, x.size)


def _search(
    evaluator: Evaluator,
    best: Evaluation,
    direction: np.ndarray,
    boundaries: list[np.ndarray],
    stage: Stage,
    radius: float,
) -> Evaluation | None:
    """Backtrack along the projected path against ``direction``; None when nothing better is found.

    Exactly along a boundary the follower has no room to spare: a path that leans away from it is tried as well.
    """
    step = 10.0 * radius / max(float(np.max(np.abs(direction))), 1e-300)
    paths = [direction]
    if boundaries:
        outward = np.mean(boundaries, axis=0)
        paths.append(direction + 0.1 * float(np.linalg.norm(direction)) * outward)
    for _ in range(20):
        for path in paths:
            point = evaluator.project(best.x - step * path)
            change = point - best.x
            found = evaluator(point, float(best.gamma), stage.leader, stage.inner_tolerance)
            if found.usable and float(found.value) < float(best.value) - 1e-4 * float(change @ change) / step:
                return found
        step *= 0.4
    return None
