"""What makes a problem this problem: values of its sets and functions, and the programs of its functions.

Values are taken at seeded random points and summed up in four numbers each. They can be compared across machines and
versions, and they miss what makes a difference elsewhere. Programs, as JAX traces them, miss nothing, and can only be
compared where the same versions traced them. Where two problems differ, the part that differs has a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from blocc._lib.precision import double_precision
from blocc._lib.tracing import tracer
from blocc.problem import FUNCTIONS, BilevelProblem

#: Values that agree to this relative accuracy are the same: another machine rounds differently.
_RELATIVE = 1e-9
_POINTS = 3
_SEED = 20_240_607
#: The entry of a program that says by what it was traced.
_TRACER = "tracer"


def _summary(vector: np.ndarray) -> np.ndarray:
    """Length, sum, a random combination and the largest entry of a vector."""
    flat = np.asarray(vector, dtype=np.float64).ravel()
    weights = np.random.default_rng(_SEED).standard_normal(flat.size)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.array([flat.size, flat.sum(), flat @ weights, np.max(np.abs(flat), initial=0.0)])


class Fingerprint(NamedTuple):
    """By what a problem is recognised."""

    values: dict[str, np.ndarray]  #: a table of four columns for every part of the problem, by the name of the part
    program: dict[str, str]  #: a digest for every function and for the data, by name; and what traced them

    def differences(self, other: Fingerprint) -> list[str]:
        """Names of the parts in which two problems differ."""
        return _other_values(self.values, other.values) or _other_programs(self.program, other.program)


def fingerprint(problem: BilevelProblem) -> Fingerprint:
    """The fingerprint of a problem as it is now."""
    problem.renew()
    names = {name: f"{name}(x, y)" for name in FUNCTIONS}
    program = {names.get(name, name): digest for name, digest in problem.digests().items()}
    return Fingerprint(_values(problem), {_TRACER: tracer(), **program})


def fingerprint_of_arrays(arrays: Mapping[str, np.ndarray]) -> Fingerprint:
    """The fingerprint of a problem that is known by its figures alone."""
    return Fingerprint({name: _summary(array)[None] for name, array in arrays.items()}, {})


def _values(problem: BilevelProblem) -> dict[str, np.ndarray]:
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


def _other_programs(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Names of the parts whose programs differ; none where other versions traced them, or they were not traced."""
    if one.get(_TRACER) != other.get(_TRACER) or _TRACER not in one:
        return []
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def _other_values(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[str]:
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
