"""The follower's answer by a solver of another family than the one that produced a result.

Small lower levels go to SciPy's SLSQP, from several starts where it matters; larger ones to the oracles of
:mod:`blocc.inner`, from a cold start and without the penalty.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from blocc._lib.rounding import KEPT, PLACED
from blocc.flat_problem import FlatProblem
from blocc.inner.choice import general_oracles
from blocc.lagrangian import weights
from blocc.local.derivatives import LARGEST, Local, local, size_of

#: Up to this many of the follower's variables SciPy solves the lower level.
SCIPY_LARGEST = 50
_STARTS = 4


class Below(NamedTuple):
    """A solution of the lower level."""

    y: np.ndarray
    value: float  #: g
    violation: float  #: largest violation of a constraint
    solver: str


class SecondOpinion:
    """Solves the lower level at any x, in variables and an objective of the given sizes."""

    def __init__(self, flat: FlatProblem, y: np.ndarray, sizes: np.ndarray, scale: float) -> None:
        self.flat, self.y, self.sizes, self.scale = flat, y, sizes, max(scale, 1e-30)
        self._oracles: list[Any] = []

    def answer(self, x: np.ndarray) -> np.ndarray | None:
        """The follower's answer at ``x``, begun at its answer at the result's own x."""
        found = self.best(x, (self.y,)) or self.best(x)
        return None if found is None else found.y

    def best(self, x: np.ndarray, starts: tuple[np.ndarray, ...] | None = None) -> Below | None:
        """The smallest g that was found; None where no feasible point was."""
        found, ended = self._by_scipy(x, self._starts() if starts is None else starts) if self.small else (None, False)
        if found is not None and ended:
            return found
        other = self._by_oracle(x)  # SLSQP gives up on dependent rows, for instance
        return other if found is None or (other is not None and other.value < found.value) else found

    @property
    def small(self) -> bool:
        """Whether SciPy solves the lower level."""
        return self.flat.n_y <= SCIPY_LARGEST and self.flat.prox is None and size_of(self.flat) <= LARGEST

    def _starts(self) -> tuple[np.ndarray, ...]:
        generator = np.random.default_rng(0)
        members = (self.flat.y_set.sample_flat(generator) for _ in range(_STARTS))
        return (self.flat.y_set.interior_flat(), self.y, *members)

    def _by_scipy(self, x: np.ndarray, starts: tuple[np.ndarray, ...]) -> tuple[Below | None, bool]:
        """The best of several runs, and whether any of them came to its own end."""
        flat, sizes, n_x = self.flat, self.sizes, self.flat.n_x
        low, high = flat.y_set.bounds_flat()
        latest: tuple[bytes, Local] | None = None

        def at(z: np.ndarray) -> Local:
            nonlocal latest
            if latest is None or latest[0] != z.tobytes():
                latest = z.tobytes(), local(flat, x, z * sizes)
            return latest[1]

        def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
            return float(at(z).lower) / self.scale, at(z).lower_gradient[n_x:] * sizes / self.scale

        constraints: list[dict[str, Any]] = []
        n_inequality, n_equality = flat.follower_rows
        if n_inequality:
            slopes = lambda z: -at(z).inequality_jacobian[:, n_x:] * sizes  # noqa: E731
            constraints.append({"type": "ineq", "fun": lambda z: -at(z).inequality, "jac": slopes})
        if n_equality:
            tangents = lambda z: at(z).equality_jacobian[:, n_x:] * sizes  # noqa: E731
            constraints.append({"type": "eq", "fun": lambda z: at(z).equality, "jac": tangents})
        best: Below | None = None
        least, finished = np.inf, False
        for start in starts:
            ended = scipy.optimize.minimize(
                objective,
                np.clip(start, low, high) / sizes,
                jac=True,
                method="SLSQP",
                bounds=list(zip(low / sizes, high / sizes, strict=True)),
                constraints=constraints,
                options={"ftol": 1e-15, "maxiter": 500},
            )
            finished = finished or bool(ended.success)
            point = np.clip(ended.x * sizes, low, high)
            if not np.isfinite(point).all():
                continue
            found = local(flat, x, point)
            violation = _violation(found)
            feasible = violation <= PLACED * (1.0 + float(np.max(np.abs(point), initial=0.0)))
            height = float(found.lower)
            if feasible and np.isfinite(height) and height < least:
                best, least = Below(point, height, violation, "SciPy's SLSQP"), height
        return best, finished

    def _by_oracle(self, x: np.ndarray) -> Below | None:
        flat = self.flat
        if not self._oracles:
            for oracle in general_oracles(flat):
                solve = jax.jit(lambda at, o=oracle: o.solve(flat, at, weights(flat), o.cold(flat), jnp.asarray(1e-10)))
                self._oracles.append((type(oracle).__name__, solve))
        for name, solve in self._oracles:
            found = jax.device_get(solve(jnp.asarray(x))._replace(warm=()))
            size = 1.0 + float(np.max(np.abs(found.y), initial=0.0))
            if max(float(r) for r in found.residuals) <= KEPT * size:
                value = float(flat.lower(jnp.asarray(x), jnp.asarray(found.y)))
                return Below(np.asarray(found.y), value, float(found.residuals.feasibility), name)
        return None


def _violation(found: Local) -> float:
    """Largest violation of a constraint of the follower."""
    return max(float(np.max(found.inequality, initial=0.0)), float(np.max(np.abs(found.equality), initial=0.0)))
