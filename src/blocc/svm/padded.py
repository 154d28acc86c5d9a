"""The two interior points, compiled once for all problems of similar size.

Samples and features are padded to a few sizes by rows and columns that change nothing, so that folds and subsets of a
data set do not compile again.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.svm.follower import FollowerData, solve_follower
from blocc.svm.leader import LeaderData, solve_leader
from blocc.svm.margins import MarginProblem

TOLERANCE = 1e-11

_cache: dict[tuple[Any, ...], Any] = {}
_lock = threading.Lock()


def padded(size: int, least: int = 64) -> int:
    """The next of the sizes in use: ``least``, its doubles up to 256, then four to each doubling."""
    if size <= 256:
        return max(least, 1 << (max(size, 1) - 1).bit_length())
    step = 1 << ((size - 1).bit_length() - 3)
    return -(-size // step) * step


class Answer:
    """What an interior point found, without the padding."""

    def __init__(self, point: Any, sizes: tuple[int, int], error: float, iterations: int, path: Any = None) -> None:
        n, p = sizes
        fields = {name: np.asarray(value) for name, value in zip(point._fields, point, strict=True)}
        long = {name: value[:p] if name in ("y", "coupling_price") else value[:n] for name, value in fields.items()}
        self.values: dict[str, np.ndarray] = long
        self.error = error
        self.iterations = iterations
        self.path: np.ndarray | None = None if path is None else np.asarray(path)[: iterations + 1, :p]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values[name]


class Solvers:
    """One problem's interior points, its arrays padded and on the device once."""

    def __init__(self, problem: MarginProblem) -> None:
        self.problem = problem
        self.sizes = problem.rows.shape
        n, p = padded(self.sizes[0]), padded(self.sizes[1], 16)
        m = padded(len(problem.validation))
        self.padded = n, p, m
        self.compile_seconds = 0.0
        self.solves = 0
        with double_precision():
            self.rows = jnp.asarray(self._matrix(problem.rows, n, p))
            self.validation = jnp.asarray(self._matrix(problem.validation, m, p))
            self.weight = jnp.asarray(self._vector(np.ones(len(problem.validation)), m, 0.0))

    def follower(self, c: np.ndarray, *, gamma: float | None = None, tolerance: float = TOLERANCE) -> Answer:
        """The follower's answer to ``c``; with ``gamma`` the penalised one (its prices divided by gamma)."""
        n, p, _ = self.padded
        # Divided by gamma, so that a large one does not spoil the scale.
        loss = 0.0 if gamma is None else 1.0 / gamma
        with double_precision():
            data = FollowerData(
                self.rows,
                jnp.asarray(self._vector(1.0 - c, n, -1.0)),
                self.validation,
                loss * self.weight,
                jnp.asarray(self._vector(self.problem.ridge, p, 1.0)),
            )
            found = self._call("follower", solve_follower, data, jnp.asarray(tolerance))
            answer = Answer(found.point, self.sizes, float(found.error), int(found.iterations))
        answer.values["infeasible"] = np.asarray(found.infeasible)
        return answer

    def leader(
        self,
        *,
        held: np.ndarray | None = None,
        ridge: float = 0.0,
        charge: np.ndarray | None = None,
        c_weight: float | None = None,
        y: np.ndarray | None = None,
        support: np.ndarray | None = None,
        tolerance: float = TOLERANCE,
    ) -> Answer:
        """The best y and c: with ``held`` samples the follower's answer, without them only a bound (see leader.py)."""
        problem = self.problem
        n, p, _ = self.padded
        count, width = self.sizes
        coupled = held is not None
        with double_precision():
            data = LeaderData(
                self.rows,
                jnp.asarray(self._vector(np.ones(count), n, -1.0)),
                self.validation,
                self.weight,
                jnp.asarray(self._vector(ridge * problem.ridge, p, 1.0)),
                jnp.asarray(problem.c_weight if c_weight is None else c_weight),
                jnp.asarray(self._vector(np.zeros(count) if charge is None else charge, n, 0.0)),
                jnp.asarray(self._vector(np.zeros(count) if held is None else held, n, 0.0) > 0.5),
                jnp.asarray(self._vector(problem.ridge, p, 1.0)),
            )
            first = jnp.asarray(self._vector(np.zeros(width) if y is None else y, p, 0.0))
            multipliers = jnp.asarray(self._vector(np.zeros(count) if support is None else support, n, 0.0))
            name = "branch" if coupled else "relaxation"
            function = partial(solve_leader, coupled=coupled)
            found = self._call(name, function, data, first, multipliers, jnp.asarray(tolerance))
            return Answer(found.point, self.sizes, float(found.error), int(found.iterations), found.path)

    def _call(self, name: str, function: Any, *arguments: Any) -> Any:
        key = (name, jax.default_backend(), *self.padded)
        with _lock:
            if key not in _cache:
                begun = time.perf_counter()
                _cache[key] = compile_ahead(function, *arguments)[0]
                self.compile_seconds += time.perf_counter() - begun
        self.solves += 1
        return _cache[key](*arguments)

    @staticmethod
    def _matrix(values: np.ndarray, n: int, p: int) -> np.ndarray:
        return np.pad(values, ((0, n - values.shape[0]), (0, p - values.shape[1])))

    @staticmethod
    def _vector(values: np.ndarray, size: int, fill: float) -> np.ndarray:
        return np.concatenate([np.asarray(values, dtype=np.float64), np.full(size - len(values), fill)])
