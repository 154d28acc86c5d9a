"""F_gamma as the outer methods see it: a compiled function that keeps warm starts and never crashes.

A point where the lower level has no solution comes back with ``usable`` false. Before that, a failed evaluation is
repeated from a cold start, and then by the next oracle in line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc.compilation import compile_ahead
from blocc.inner.elastic import Violation, violation
from blocc.inner.protocol import InnerCode, InnerOracle
from blocc.outer.monitor import Monitor
from blocc.penalty import Evaluation, Leader, cold_pair, evaluate
from blocc.problem import FlatProblem
from blocc.sets import ConvexSet

Array = Any


def projector(convex_set: ConvexSet) -> Any:
    """Projection on a set as a NumPy function."""
    if convex_set.is_box:
        low, high = convex_set.bounds_flat()
        return lambda point: np.clip(point, low, high)
    project = jax.jit(convex_set.project_flat)
    return lambda point: np.asarray(project(jnp.asarray(point)))


def stationarity(project: Any, x: np.ndarray, gradient: np.ndarray) -> float:
    """``||x - P_X(x - gradient)||_inf``: zero exactly where no feasible direction descends."""
    return float(np.max(np.abs(x - project(x - gradient)), initial=0.0))


class PenaltyFunction:
    """Evaluates F_gamma at one x with the first oracle that manages to."""

    def __init__(
        self, flat: FlatProblem, oracles: Sequence[InnerOracle], cache: dict[Any, Any], monitor: Monitor
    ) -> None:
        self.flat, self.oracles, self.monitor = flat, tuple(oracles), monitor
        self.project = projector(flat.x_set)
        self.evaluations = 0
        self.inner_iterations = 0
        self.fallbacks = 0
        self.met_concavity = False  #: an oracle met negative curvature of the follower's own problem
        self.compile_seconds = 0.0
        self._cache = cache
        self._warm: dict[InnerOracle, Any] = {}
        self._cold: dict[InnerOracle, Any] = {}

    def _compiled(self, oracle: InnerOracle, *arguments: Any) -> Any:
        key = ("evaluate", oracle)
        if key not in self._cache:

            def function(x: Array, gamma: Array, leader: Leader, warm: Any, tolerance: Array) -> Evaluation:
                return evaluate(self.flat, oracle, x, gamma, leader, warm, tolerance)

            self._cache[key], seconds = compile_ahead(function, *arguments)
            self.compile_seconds += seconds
        return self._cache[key]

    def _evaluate(
        self, oracle: InnerOracle, x: np.ndarray, gamma: float, leader: Leader, tolerance: float, warm: Any
    ) -> Evaluation:
        finest = getattr(oracle, "finest", 0.0)
        numbers = (jnp.asarray(gamma, jnp.float64), jax.tree.map(jnp.asarray, leader), warm)
        arguments = (jnp.asarray(x), *numbers, jnp.asarray(max(tolerance, finest), jnp.float64))
        found = self._compiled(oracle, *arguments)(*arguments)
        keep = found.warm
        found = jax.device_get(found._replace(warm=()))
        self.inner_iterations += int(found.follower.iterations) + int(found.penalised.iterations)
        return found._replace(warm=keep)

    def violation(self, x: np.ndarray) -> Violation:
        """The smallest violation of the coupled constraints that the follower can reach at ``x``, and its gradient."""
        oracle = self.oracles[0]
        arguments = (jnp.asarray(x), jnp.asarray(1e-9, jnp.float64))
        key = ("violation", oracle)
        if key not in self._cache:

            def function(point: Array, tolerance: Array) -> Violation:
                return violation(self.flat, oracle, point, tolerance)

            self._cache[key], seconds = compile_ahead(function, *arguments)
            self.compile_seconds += seconds
        return jax.device_get(self._cache[key](*arguments))

    def wall_normal(self, x: np.ndarray) -> np.ndarray | None:
        """Unit normal of the wall at an infeasible ``x``: the direction in which the follower's violation grows."""
        if self.flat.n_inequality + self.flat.n_equality == 0:
            return None
        found = self.violation(x)
        length = float(np.linalg.norm(found.gradient))
        if not found.solved or found.value <= 0.0 or length < 1e-12:
            return None
        return np.asarray(found.gradient) / length

    def leader_constraint(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The leader's own constraint G(x, y), flat."""
        return np.asarray(self.flat.upper_inequality(jnp.asarray(x), jnp.asarray(y)))

    def __call__(self, x: np.ndarray, gamma: float, leader: Leader, tolerance: float) -> Evaluation:
        """Evaluate at ``x``; the warm starts come from the last usable evaluation."""
        self.monitor.check_time()
        self.evaluations += 1
        found: Evaluation | None = None
        for position, oracle in enumerate(self.oracles):
            if oracle not in self._cold:
                self._cold[oracle] = cold_pair(self.flat, oracle)
            cold = self._cold[oracle]
            warm = self._warm.get(oracle)
            candidate = self._evaluate(oracle, x, gamma, leader, tolerance, cold if warm is None else warm)
            if not candidate.usable and warm is not None:
                candidate = self._evaluate(oracle, x, gamma, leader, tolerance, cold)
            if candidate.usable:
                self._warm[oracle] = candidate.warm
                self.fallbacks += position > 0
                self.met_concavity |= bool(candidate.follower.concave)
                self.monitor.consider(candidate)
                return candidate
            found = found or candidate
            codes = {int(candidate.follower.code), int(candidate.penalised.code)}
            if codes & {InnerCode.INFEASIBLE, InnerCode.UNBOUNDED, InnerCode.NOT_FINITE}:
                return candidate  # a proven failure: no other oracle will do better
        assert found is not None
        return found
