"""Is the lower level convex in y? Jensen's inequality on random pairs of points, from function values alone.

``c((a + b) / 2) <= (c(a) + c(b)) / 2`` must hold for a convex c. One violated pair is a proof of the contrary; pairs
that all pass are evidence, not proof. It costs a few function values, at any size, and is part of every solve.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc.problem import FlatProblem
from blocc.sets import PyTree

Array = Any

_PAIRS = 48
_ALLOWED = 1e-7  #: excess relative to the values, below which it is rounding


class Jensen(NamedTuple):
    """Largest relative excess over Jensen's inequality; positive beyond rounding means: not convex (or not affine)."""

    lower: float  #: of g, over pairs that satisfy the constraints
    inequality: float  #: of gc, over pairs in Y
    equality: float  #: of h, in either direction: h must be affine
    penalised: float  #: of f + gamma g, over pairs that satisfy the constraints

    def penalised_bends(self) -> bool:
        """Whether f + gamma g is not convex in y on the follower's set: gamma is too small."""
        return self.penalised > _ALLOWED

    def failure(self) -> str | None:
        """Which function fails, in words; None if all pass."""
        if self.lower > _ALLOWED:
            return "lower(x, y) is not convex in y on the follower's set"
        if self.inequality > _ALLOWED:
            return "inequality(x, y) is not convex in y"
        if self.equality > _ALLOWED:
            return "equality(x, y) is not affine in y"
        return None


def _excesses(problem: FlatProblem, data: PyTree, x: Array, gamma: Array, a: Array, b: Array) -> tuple[Array, ...]:
    """Excesses of g, gc, h and f + gamma g for one pair of points of Y; whether both satisfy the constraints."""
    flat = problem.bind(data)
    middle = 0.5 * (a + b)

    def excess(function: Any) -> Array:
        first, second = function(x, a), function(x, b)
        return (function(x, middle) - 0.5 * (first + second)) / (1.0 + jnp.abs(first) + jnp.abs(second))

    size = 1e-9 * (1.0 + jnp.max(jnp.abs(a)) + jnp.max(jnp.abs(b)))
    feasible = jnp.asarray(True)
    for point in (a, b):
        feasible &= jnp.max(flat.inequality(x, point), initial=0.0) <= size
        feasible &= jnp.max(jnp.abs(flat.equality(x, point)), initial=0.0) <= size
    inequality = jnp.max(excess(flat.inequality), initial=-jnp.inf)
    equality = jnp.max(jnp.abs(excess(flat.equality)), initial=0.0)
    penalised = excess(lambda x, y: flat.upper(x, y) + gamma * flat.lower(x, y))
    return excess(flat.lower), inequality, equality, penalised, feasible


def jensen(flat: FlatProblem, x: np.ndarray, y: np.ndarray, gamma: float = 1.0, seed: int = 0) -> Jensen:
    """Test g, gc, h and f + gamma g on pairs of points of Y around ``y``, near and far."""
    shared = flat.shared
    if "jensen" not in shared:
        shared["jensen"] = jax.jit(jax.vmap(partial(_excesses, flat), in_axes=(None, None, None, 0, 0)))
        shared["project y"] = jax.jit(jax.vmap(flat.y_set.project_flat))
    generator = np.random.default_rng(seed)
    size = 1.0 + float(np.max(np.abs(y), initial=0.0))
    spread = size * 10.0 ** generator.uniform(-2.0, 0.5, size=(2 * _PAIRS, 1))
    offsets = spread * generator.standard_normal((2 * _PAIRS, y.size))
    # Every other pair goes from y itself towards a random member of Y, which stays feasible more often.
    offsets[0 : 2 * _PAIRS : 4] = 0.0
    members = np.stack([flat.y_set.sample_flat(generator) for _ in range(_PAIRS // 2)])
    offsets[1 : 2 * _PAIRS : 4] = generator.uniform(size=(_PAIRS // 2, 1)) * (members - y)
    points = shared["project y"](jnp.asarray(y + _tangent(flat, x, y, offsets)))
    number = jnp.asarray(gamma, jnp.float64)
    found = jax.device_get(shared["jensen"](flat.data, jnp.asarray(x), number, points[0::2], points[1::2]))
    lower, inequality, equality, penalised, feasible = found

    def worst(values: np.ndarray, mask: np.ndarray) -> float:
        usable = values[mask & np.isfinite(values)]
        return float(usable.max()) if usable.size else 0.0

    everywhere = np.ones(_PAIRS, dtype=bool)
    return Jensen(
        worst(lower, feasible), worst(inequality, everywhere), worst(equality, everywhere), worst(penalised, feasible)
    )


def _tangent(flat: FlatProblem, x: np.ndarray, y: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Half of the offsets projected on the directions that keep the equalities, where that matrix is small."""
    if flat.n_equality == 0 or flat.n_y * flat.n_equality > 1_000_000:
        return offsets
    if "equality jacobian" not in flat.shared:
        jacobian = jax.jacrev(lambda z, at, data: flat.bind(data).equality(at, z))
        flat.shared["equality jacobian"] = jax.jit(jacobian)
    rows = np.asarray(flat.shared["equality jacobian"](jnp.asarray(y), jnp.asarray(x), flat.data))
    if not np.isfinite(rows).all():
        return offsets
    half = len(offsets) // 2
    kept = offsets[:half] - (np.linalg.pinv(rows) @ (rows @ offsets[:half].T)).T
    return np.concatenate([kept, offsets[half:]])
