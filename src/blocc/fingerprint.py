"""What makes a problem this problem: a few numbers out of its shapes, its sets and its functions.

Functions cannot be compared, their values can: at seeded random points, summed up in four numbers each. Two problems
with the same numbers are the same for every practical purpose; where they differ, the part that differs has a name.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from blocc.precision import double_precision
from blocc.problem import BilevelProblem

#: Values that agree to this relative accuracy are the same: another machine rounds differently.
_RELATIVE = 1e-9
_POINTS = 3
_SEED = 20_240_607


def _summary(vector: np.ndarray) -> np.ndarray:
    """Length, sum, a random combination and the largest entry of a vector."""
    flat = np.asarray(vector, dtype=np.float64).ravel()
    weights = np.random.default_rng(_SEED).standard_normal(flat.size)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.array([flat.size, flat.sum(), flat @ weights, np.max(np.abs(flat), initial=0.0)])


def fingerprint(problem: BilevelProblem) -> dict[str, np.ndarray]:
    """A table of four columns for every part of the problem, by the name of the part."""
    flat, generator = problem.flat, np.random.default_rng(_SEED)
    found: dict[str, list[np.ndarray]] = {}
    with double_precision():
        for name, convex_set in (("x_set", flat.x_set), ("y_set", flat.y_set)):
            points = [scale * generator.standard_normal(convex_set.size) for scale in (1.0, 10.0, -10.0, 1e3, -1e3)]
            found[name] = [_summary(np.asarray(convex_set.project_flat(jnp.asarray(point)))) for point in points]
            found[name].append(_summary(convex_set.interior_flat()))
        for _ in range(_POINTS):
            x, y = (jnp.asarray(part.sample_flat(generator)) for part in (flat.x_set, flat.y_set))
            for name in ("upper", "lower", "inequality", "equality", "upper_inequality"):
                found.setdefault(f"{name}(x, y)", []).append(_summary(np.asarray(getattr(flat, name)(x, y))))
    return {name: np.stack(rows) for name, rows in found.items()}


def differences(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[str]:
    """Names of the parts in which two fingerprints differ."""
    found = [name for name in {**one, **other} if not _same(one.get(name), other.get(name))]
    # Other sets mean other points, at which any function has other values.
    return [name for name in found if name in ("x_set", "y_set")] or found


def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    if one is None or other is None or one.shape != other.shape:
        return False
    largest = np.abs(one[:, 3:])
    allowed = _RELATIVE * (np.abs(one) + np.where(np.isfinite(largest), largest, 0.0))
    with np.errstate(invalid="ignore"):
        close = np.abs(one - other) <= allowed
    return bool((close | (one == other) | (np.isnan(one) & np.isnan(other))).all())
