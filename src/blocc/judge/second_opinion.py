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

from blocc.flat_problem import FlatProblem
from blocc.inner.choice import general_oracles
from blocc.lagrangian import weights

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
        within = flat.y_set
        self._value = jax.jit(jax.value_and_grad(lambda x, z: flat.lower(x, z), argnums=1))
        parts = {
            "ineq": lambda x, z: -jnp.concatenate([flat.inequality(x, z), within.inequality_flat(z)]),
            "eq": lambda x, z: jnp.concatenate([flat.equality(x, z), within.equality_flat(z)]),
        }
        at = (jnp.zeros(flat.n_x), jnp.asarray(y))
        self._rows = {
            kind: (jax.jit(rows), jax.jit(jax.jacrev(rows, argnums=1)))
            for kind, rows in parts.items()
            if jax.eval_shape(rows, *at).size
        }
        self._oracles: list[Any] = []

    def answer(self, x: np.ndarray) -> np.ndarray | None:
        """The follower's answer at ``x``, begun at its answer at the result's own x."""
        found = self.best(x, (self.y,)) or self.best(x)
        return None if found is None else found.y

    def best(self, x: np.ndarray, starts: tuple[np.ndarray, ...] | None = None) -> Below | None:
        """The smallest g that was found; None where no feasible point was."""
        small = self.flat.n_y <= SCIPY_LARGEST and self.flat.prox is None
        found, ended = self._by_scipy(x, starts) if small else (None, False)
        if found is not None and ended:
            return found
        other = self._by_oracle(x)  # SLSQP gives up on dependent rows, for instance
        return other if found is None or (other is not None and other.value < found.value) else found

    def _by_scipy(self, x: np.ndarray, starts: tuple[np.ndarray, ...] | None) -> tuple[Below | None, bool]:
        """The best of several runs, and whether any of them came to its own end."""
        at, sizes, scale = jnp.asarray(x), self.sizes, self.scale
        if starts is None:
            generator = np.random.default_rng(0)
            members = (self.flat.y_set.sample_flat(generator) for _ in range(_STARTS))
            starts = (self.flat.y_set.interior_flat(), self.y, *members)
        low, high = self.flat.y_set.bounds_flat()

        def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
            height, slope = self._value(at, jnp.asarray(z * sizes))
            return float(height) / scale, np.asarray(slope) * sizes / scale

        constraints = [
            {
                "type": kind,
                "fun": lambda z, f=rows: np.asarray(f(at, jnp.asarray(z * sizes))),
                "jac": lambda z, f=slopes: np.asarray(f(at, jnp.asarray(z * sizes))) * sizes,
            }
            for kind, (rows, slopes) in self._rows.items()
        ]
        best: Below | None = None
        finished = False
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
            violation = self.violation(x, point)
            height = float(self._value(at, jnp.asarray(point))[0])
            feasible = violation <= 1e-7 * (1.0 + float(np.max(np.abs(point), initial=0.0)))
            if feasible and np.isfinite(height) and (best is None or height < best.value):
                best = Below(point, height, violation, "SciPy's SLSQP")
        return best, finished

    def violation(self, x: np.ndarray, y: np.ndarray) -> float:
        """Largest violation of a constraint of the follower."""
        worst = 0.0
        for kind, (rows, _) in self._rows.items():
            values = np.asarray(rows(jnp.asarray(x), jnp.asarray(y)))
            worst = max(worst, float(np.max(-values if kind == "ineq" else np.abs(values), initial=0.0)))
        return worst

    def _by_oracle(self, x: np.ndarray) -> Below | None:
        flat = self.flat
        if not self._oracles:
            for oracle in general_oracles(flat):
                solve = jax.jit(lambda at, o=oracle: o.solve(flat, at, weights(flat), o.cold(flat), jnp.asarray(1e-10)))
                self._oracles.append((type(oracle).__name__, solve))
        for name, solve in self._oracles:
            found = jax.device_get(solve(jnp.asarray(x))._replace(warm=()))
            size = 1.0 + float(np.max(np.abs(found.y), initial=0.0))
            if max(float(r) for r in found.residuals) <= 1e-6 * size:
                value = float(flat.lower(jnp.asarray(x), jnp.asarray(found.y)))
                return Below(np.asarray(found.y), value, float(found.residuals.feasibility), name)
        return None
