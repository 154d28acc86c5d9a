"""The nearest member of K, and how it moves with the point: what the derivative of an answer is made of.

Of exponential and power cones only the smooth part of the boundary is known: ``p + t grad phi(p) = point`` with
``phi(p) = 0``, by Newton's method from a member that is close.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Bool, Float, NDArray
from blocc._lib.rounding import ASKED
from blocc.cvxpy.cone_program import ConeSizes
from blocc.cvxpy.solvers import outside, triangle_matrix

Vector = Float[NDArray, " n"]
Matrix = Float[NDArray, "n n"]
#: From a point of a boundary to phi, its gradient and its second derivative.
Boundary = Callable[[Vector], tuple[float, Vector, Matrix]]
_STEPS = 12
#: ``log(z / y)`` beyond which y drowns in what z is off by; y / z below which solvers' members are of no use.
_DROWNED, _CLOSE = float(np.log(1e13)), 1e-6


class Projection(NamedTuple):
    """The nearest member, and its derivative in the point."""

    point: Vector
    slope: sp.csr_array


def project(
    point: Vector, cones: ConeSizes, near: Vector, free: Bool[NDArray, " rows"] | None = None
) -> Projection | None:
    """The nearest member of K; ``near`` is a member close to it. None at edges that have no derivative.

    :param free: linear rows that stay as they are, the others become zero; None: those that are positive
    """
    linear = slice(cones.zero, cones.zero + cones.nonnegative)
    free = point[linear] > 0.0 if free is None else free
    found = [np.zeros(cones.zero), np.where(free, point[linear], 0.0)]
    diagonal = np.concatenate([np.zeros(cones.zero), free.astype(np.float64)])
    blocks: list[sp.sparray] = [sp.diags_array(diagonal)]
    at = linear.stop
    for one, size in _curved(cones):
        part = one(point[at : at + size], near[at : at + size])
        if part is None:
            return None
        found.append(part[0])
        blocks.append(sp.csr_array(part[1]))
        at += size
    return Projection(np.concatenate(found), sp.block_diag(blocks, format="csr"))


Part = Callable[[Vector, Vector], tuple[Vector, Matrix] | None]


def _curved(cones: ConeSizes) -> list[tuple[Part, int]]:
    found: list[tuple[Part, int]] = [(_second_order, size) for size in cones.second_order]
    found += [(_semidefinite, order * (order + 1) // 2) for order in cones.semidefinite]
    found += [(_exponential_part, 3)] * cones.exponential
    return found + [(_smooth(_power(one), ConeSizes(0, 0, power=(one,))), 3) for one in cones.power]


def _second_order(point: Vector, near: Vector) -> tuple[Vector, Matrix]:
    n, first, rest = len(point), float(point[0]), point[1:]
    length = float(np.linalg.norm(rest))
    if length <= first:
        return point, np.eye(n)
    if length <= -first:
        return np.zeros(n), np.zeros((n, n))
    share, unit = first / length, rest / length
    slope = np.empty((n, n))
    slope[0, 0], slope[0, 1:], slope[1:, 0] = 1.0, unit, unit
    slope[1:, 1:] = (1.0 + share) * np.eye(n - 1) - share * np.outer(unit, unit)
    return 0.5 * (1.0 + share) * np.append(length, rest), 0.5 * slope


def _semidefinite(point: Vector, near: Vector) -> tuple[Vector, Matrix]:
    order = int(np.sqrt(2 * len(point)))
    values, vectors = np.linalg.eigh(triangle_matrix(point, order))
    columns, rows = np.tril_indices(order)
    positive = np.maximum(values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = (positive[rows] - positive[columns]) / (values[rows] - values[columns])
    same = np.abs(values[rows] - values[columns]) <= 1e-14 * (1.0 + np.abs(values).max())
    shares = np.where(same, (values[rows] > 0.0).astype(np.float64), shares)
    # Triangles of (u v' + v u') / sqrt(2) for all pairs of eigenvectors: an orthonormal basis.
    first, second = vectors[:, rows], vectors[:, columns]
    basis = first[rows] * second[columns] + second[rows] * first[columns]
    stretch = np.where(rows == columns, 1.0, np.sqrt(2.0))
    basis = stretch[:, None] * basis * np.where(rows == columns, 0.5, np.sqrt(0.5))[None]
    slope = (basis * shares) @ basis.T
    matrix = (vectors * positive) @ vectors.T
    return stretch * matrix[rows, columns], slope


def _smooth(boundary: Boundary, cone: ConeSizes) -> Part:
    """Projections on a cone of three dimensions whose boundary is smooth where it matters."""

    def part(point: Vector, near: Vector) -> tuple[Vector, Matrix] | None:
        if outside(point, cone) <= 0.0:
            return point, np.eye(3)
        if outside(-point, cone, dual=True) <= 0.0:
            return np.zeros(3), np.zeros((3, 3))
        return _on_boundary(point, near, boundary)

    return part


def _exponential_part(point: Vector, near: Vector) -> tuple[Vector, Matrix] | None:
    """Close to ``y = 0`` a member tells nothing about ``r = x / y``, but the multiplier does; ``y = z exp(-r)``."""
    first, second, _ = near - point
    if first < 0.0 and near[1] < _CLOSE * near[2]:
        ratio = 1.0 - second / first
        if ratio > _DROWNED:  # on the face of all (x, 0, z) with x <= 0 <= z
            free = np.array([point[0] < 0.0, False, True])
            return np.where(free, point, 0.0), np.diag(free.astype(np.float64))
        if ratio > 0.0:
            share = float(np.exp(-ratio))
            near = near[2] * np.array([share * ratio, share, 1.0])
    return _smooth(_exponential, ConeSizes(0, 0, exponential=1))(point, near)


def _on_boundary(point: Vector, near: Vector, boundary: Boundary) -> tuple[Vector, Matrix] | None:
    at = near.copy()
    with np.errstate(all="ignore"):
        _, normal, _ = boundary(at)
        force = float((point - at) @ normal / (normal @ normal))
        for _ in range(_STEPS):
            value, normal, bend = boundary(at)
            left = np.append(at + force * normal - point, value)
            system = np.block([[np.eye(3) + force * bend, normal[:, None]], [normal[None], np.zeros((1, 1))]])
            if not (np.isfinite(system).all() and np.isfinite(left).all()):
                return None
            try:
                inverse = np.linalg.inv(system)
            except np.linalg.LinAlgError:
                return None
            step = inverse @ left
            at, force = at - step[:3], force - float(step[3])
            if np.max(np.abs(step)) <= 1e-15 * (1.0 + np.max(np.abs(at)) + abs(force)):
                break
        else:
            if not np.max(np.abs(step)) <= ASKED * (1.0 + np.max(np.abs(at)) + abs(force)):
                return None
    return (at, inverse[:3, :3]) if force > 0.0 else None


def _exponential(at: Vector) -> tuple[float, Vector, Matrix]:
    """Of ``y exp(x / y) - z``."""
    x, y, z = at
    ratio, power = x / y, np.exp(x / y)
    bend = np.zeros((3, 3))
    bend[:2, :2] = power / y * np.array([[1.0, -ratio], [-ratio, ratio**2]])
    return float(y * power - z), np.array([power, power * (1.0 - ratio), -1.0]), bend


def _power(exponent: float) -> Boundary:
    """Of ``|z| - x^a y^(1 - a)``."""

    def boundary(at: Vector) -> tuple[float, Vector, Matrix]:
        x, y, z = at
        other = 1.0 - exponent
        product = x**exponent * y**other
        bend = np.zeros((3, 3))
        cross = -exponent * other * product
        bend[:2, :2] = cross * np.array([[-1.0 / x**2, 1.0 / (x * y)], [1.0 / (x * y), -1.0 / y**2]])
        normal = np.array([-exponent * product / x, -other * product / y, np.sign(z)])
        return float(abs(z) - product), normal, bend

    return boundary
