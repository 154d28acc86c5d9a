"""Simple convex sets that are no boxes: a ball, a simplex, a half space, an affine subspace."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, NDArray
from blocc._lib.checks import as_float_array, as_number
from blocc._lib.rounding import ROUNDED, TINY
from blocc.errors import ProblemError
from blocc.sets import ConvexSet, Vector


class Ball(ConvexSet):
    """The Euclidean ball around ``center`` (an array, which sets the shape) with the given ``radius``."""

    def __init__(self, center: Any, radius: float = 1.0) -> None:
        self.center = as_float_array("center", center)
        if not np.isfinite(self.center).all():
            raise ProblemError("center must be finite")
        self.radius = as_number("radius", radius, positive=True)
        self.template, self.size = np.zeros(self.center.shape), int(self.center.size)

    def __repr__(self) -> str:
        return f"Ball(shape={self.center.shape}, radius={self.radius:g})"

    def project_flat(self, point: Vector) -> Float[Array, " size"]:
        offset = jnp.asarray(point) - self.center.ravel()
        # The inner where keeps the derivative of the norm finite at the centre.
        square = jnp.sum(offset**2)
        norm = jnp.sqrt(jnp.where(square > self.radius**2, square, self.radius**2))
        return offset * (self.radius / norm) + self.center.ravel()

    def interior_flat(self) -> Float[NDArray, " size"]:
        return self.center.ravel().copy()

    def inequality_flat(self, point: Vector) -> Float[Array, " rows"]:
        # Divided by 2r, so that near the boundary the value is a distance.
        gap = jnp.sum((point - self.center.ravel()) ** 2) - self.radius**2
        return jnp.reshape(gap / (2.0 * self.radius), (1,))

    def sample_flat(self, generator: np.random.Generator) -> Float[NDArray, " size"]:
        direction = generator.standard_normal(self.size)
        direction /= max(float(np.linalg.norm(direction)), TINY)
        length = self.radius * generator.uniform() ** (1.0 / max(self.size, 1))
        return self.center.ravel() + length * direction


class Simplex(ConvexSet):
    """All nonnegative vectors of length ``size`` whose entries sum to ``total``."""

    def __init__(self, size: int, total: float = 1.0) -> None:
        if not isinstance(size, (int, np.integer)) or size < 1:
            raise ProblemError(f"size must be a positive integer, got {size!r}")
        self.total = as_number("total", total, positive=True)
        self.template, self.size = np.zeros(int(size)), int(size)

    def __repr__(self) -> str:
        return f"Simplex({self.size}, total={self.total:g})"

    def bounds_flat(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(self.size), np.full(self.size, np.inf)

    def equality_flat(self, point: Vector) -> Float[Array, " rows"]:
        return jnp.reshape(jnp.sum(point) - self.total, (1,))

    def project_flat(self, point: Vector) -> Float[Array, " size"]:
        # Subtract the threshold at which the positive parts sum to the total; sorting finds it exactly.
        # A common shift changes nothing; without it large entries would swallow the total.
        shifted = point - jnp.max(point)
        descending = -jnp.sort(-shifted)
        excess = (jnp.cumsum(descending) - self.total) / jnp.arange(1, self.size + 1)
        active = jnp.maximum(jnp.sum(descending > excess), 1)
        return jnp.maximum(shifted - excess[active - 1], 0.0)

    def interior_flat(self) -> Float[NDArray, " size"]:
        return np.full(self.size, self.total / self.size)

    def sample_flat(self, generator: np.random.Generator) -> Float[NDArray, " size"]:
        return self.total * generator.dirichlet(np.ones(self.size))


class Halfspace(ConvexSet):
    """All arrays with ``<normal, v> <= offset``."""

    def __init__(self, normal: Any, offset: float) -> None:
        self.normal = as_float_array("normal", normal)
        self.offset = as_number("offset", offset)
        if not np.isfinite(self.normal).all():
            raise ProblemError("normal must be finite")
        self._norm = float(np.linalg.norm(self.normal))
        if self._norm == 0.0:
            raise ProblemError("normal must not be the zero vector")
        self.template, self.size = np.zeros(self.normal.shape), int(self.normal.size)

    def __repr__(self) -> str:
        return f"Halfspace(shape={self.normal.shape}, offset={self.offset:g})"

    def inequality_flat(self, point: Vector) -> Float[Array, " rows"]:
        gap = jnp.dot(jnp.asarray(self.normal.ravel() / self._norm), point) - self.offset / self._norm
        return jnp.reshape(gap, (1,))

    def project_flat(self, point: Vector) -> Float[Array, " size"]:
        excess = jnp.maximum(self.inequality_flat(point)[0], 0.0)
        return jnp.asarray(point) - excess * (self.normal.ravel() / self._norm)

    def interior_flat(self) -> Float[NDArray, " size"]:
        unit = self.normal.ravel() / self._norm
        return (min(self.offset / self._norm, 0.0) - 1.0) * unit

    def sample_flat(self, generator: np.random.Generator) -> Float[NDArray, " size"]:
        point = self.interior_flat() + generator.standard_normal(self.size)
        unit = self.normal.ravel() / self._norm
        return point - max(float(unit @ point) - self.offset / self._norm, 0.0) * unit


class AffineSubspace(ConvexSet):
    """All vectors with ``matrix @ v == rhs``. Redundant rows are dropped; contradicting ones are an error."""

    def __init__(self, matrix: Any, rhs: Any) -> None:
        rows = np.atleast_2d(as_float_array("matrix", matrix))
        values = np.atleast_1d(as_float_array("rhs", rhs))
        if rows.ndim != 2 or values.shape != (rows.shape[0],):
            raise ProblemError(
                f"matrix has shape {rows.shape}, so rhs must have shape ({rows.shape[0]},), got {values.shape}"
            )
        if not np.isfinite(rows).all() or not np.isfinite(values).all():
            raise ProblemError("matrix and rhs must be finite")
        # An orthonormal basis of the row space makes the projection one product and drops dependent rows.
        left, singular, right = np.linalg.svd(rows, full_matrices=False)
        keep = singular > ROUNDED * max(float(singular.max(initial=0.0)), TINY)
        self._basis = right[keep]
        self._offset = (left.T[keep] @ values) / singular[keep]
        residual = float(np.abs(rows @ (self._basis.T @ self._offset) - values).max(initial=0.0))
        if residual > 1e-8 * (1.0 + float(np.abs(values).max(initial=0.0))):
            raise ProblemError("matrix and rhs contradict each other: no vector satisfies matrix @ v == rhs")
        self.template, self.size = np.zeros(rows.shape[1]), int(rows.shape[1])

    def __repr__(self) -> str:
        return f"AffineSubspace(size={self.size}, codimension={len(self._offset)})"

    def equality_flat(self, point: Vector) -> Float[Array, " rows"]:
        return jnp.asarray(self._basis @ point - self._offset)

    def project_flat(self, point: Vector) -> Float[Array, " size"]:
        return jnp.asarray(point) - self._basis.T @ self.equality_flat(point)

    def interior_flat(self) -> Float[NDArray, " size"]:
        return self._basis.T @ self._offset

    def sample_flat(self, generator: np.random.Generator) -> Float[NDArray, " size"]:
        point = generator.standard_normal(self.size)
        return point - self._basis.T @ (self._basis @ point - self._offset)
