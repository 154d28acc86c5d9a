"""Curvature of the lower level in y: the numbers behind "convex" and "strongly convex"."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, NDArray
from blocc._lib.rounding import EXACT
from blocc.flat_problem import FlatProblem

_DENSE = 300
#: Steps of Lanczos' method. What it finds is a curvature that g has: a negative one is proof, at any number of steps.
_STEPS = 20
_ALLOWED = 1e-7  #: share of the largest curvature below which a negative one is rounding


def curvature_of(function: Callable[[Array], Array]) -> Callable[[np.ndarray], tuple[float, float]]:
    """A function that returns the smallest and largest eigenvalue of the Hessian of ``function`` at a point.

    Exact for up to 300 variables; beyond that by Lanczos iterations on Hessian-vector products. NaN where
    the Hessian is NaN.
    """
    hessian = jax.jit(jax.hessian(function))
    product = jax.jit(lambda at, vector: jax.jvp(jax.grad(function), (at,), (vector,))[1])

    def dense(point: np.ndarray) -> tuple[float, float]:
        matrix = np.asarray(hessian(jnp.asarray(point)))
        if not np.isfinite(matrix).all():
            return float("nan"), float("nan")
        values = np.linalg.eigvalsh(0.5 * (matrix + matrix.T))
        return float(values[0]), float(values[-1])

    def matrix_free(point: np.ndarray) -> tuple[float, float]:
        # Importing this takes a fifth of a second, which most runs need not spend.
        from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh

        at = jnp.asarray(point)
        operator = LinearOperator(
            (point.size, point.size), matvec=lambda v: np.asarray(product(at, jnp.asarray(v.ravel()))), dtype=np.float64
        )
        start = np.random.default_rng(0).standard_normal(point.size)
        ends = []
        for which in ("SA", "LA"):
            try:
                found = eigsh(operator, k=1, which=which, return_eigenvectors=False, tol=1e-3, maxiter=100, v0=start)
                ends.append(float(found[0]))
            except ArpackNoConvergence as error:
                ends.append(float(error.eigenvalues[0]) if len(error.eigenvalues) else float("nan"))
            except ArpackError:  # the operator is zero on the starting vector: there is no curvature to find
                ends.append(0.0)
        return ends[0], ends[1]

    return lambda point: dense(point) if point.size <= _DENSE else matrix_free(point)


def feasible_samples(flat: FlatProblem, x: np.ndarray, y: np.ndarray, count: int, seed: int) -> list[np.ndarray]:
    """Points of Y(x) around and on the way to ``y``: y itself, and random members of Y that satisfy the constraints."""
    generator = np.random.default_rng(seed)
    size = 1.0 + float(np.max(np.abs(y), initial=0.0))
    points = [np.asarray(y)]
    at = jnp.asarray(x)
    tangent = _tangent(flat, at, y)
    for _ in range(20 * count):
        if len(points) > count:
            break
        target = (
            flat.y_set.sample_flat(generator) if generator.uniform() < 0.5 else y + size * generator.normal(size=y.size)
        )
        mixed = y + generator.uniform() * tangent(target - y)
        candidate = flat.y_set.project_flat(jnp.asarray(mixed))
        violated = jnp.max(flat.inequality(at, candidate), initial=0.0) > EXACT * size
        if flat.n_equality:
            violated |= jnp.max(jnp.abs(flat.equality(at, candidate))) > EXACT * size
        if not violated:
            points.append(np.asarray(candidate))
    return points


def _tangent(flat: FlatProblem, x: Array, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Projection of a direction on those that keep the equalities (for up to 2,000 variables; beyond, no change)."""
    if flat.n_equality == 0 or flat.n_y > 2000:
        return lambda direction: direction
    rows = np.asarray(jax.jacrev(lambda z: flat.equality(x, z))(jnp.asarray(y)))
    inverse = np.linalg.pinv(rows)
    return lambda direction: direction - inverse @ (rows @ direction)


def bends_down(flat: FlatProblem, x: Float[NDArray, "n_x"], points: list[Float[NDArray, "n_y"]]) -> bool:
    """Whether second derivatives of g in y show, at one of the points, that it is not convex.

    For followers too large for their Hessian, such as networks, whose values along random directions look convex. Where
    equalities leave y less than all directions, nothing is said.
    """
    if flat.follower_rows[1]:
        return False
    product = flat.program(_product)
    for y in points:
        basis: list[np.ndarray] = [np.random.default_rng(0).standard_normal(flat.n_y)]
        images: list[np.ndarray] = []
        while len(images) < min(_STEPS, flat.n_y):
            basis[-1] = basis[-1] / np.linalg.norm(basis[-1])
            images.append(np.asarray(product(x, y, basis[-1])))
            rest = images[-1]
            for _ in range(2):  # rounding of the first time is left to the second
                rest = rest - np.stack(basis).T @ (np.stack(basis) @ rest)
            if not np.linalg.norm(rest) > _ALLOWED * np.linalg.norm(images[-1]):
                break
            basis.append(rest)
        small = np.stack(basis[: len(images)]) @ np.stack(images).T
        curvatures = np.linalg.eigvalsh(0.5 * (small + small.T)) if np.isfinite(small).all() else np.zeros(1)
        if curvatures[0] < -_ALLOWED * np.abs(curvatures).max():
            return True
    return False


def _product(
    flat: FlatProblem, x: Float[Array, "n_x"], y: Float[Array, "n_y"], along: Float[Array, "n_y"]
) -> Float[Array, "n_y"]:
    return jax.jvp(lambda b: jax.grad(flat.lower, argnums=1)(x, b), (y,), (along,))[1]
