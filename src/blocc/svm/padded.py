"""The two interior points, compiled once for all problems of similar size.

Samples and features are padded to a few sizes by rows and columns that change nothing, so that folds and subsets of a
data set do not compile again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Bool, Float, NDArray
from blocc._lib.compiled import Program, Store, clock, compile_seconds
from blocc._lib.precision import double_precision
from blocc.inner.mehrotra import IterationState, Piece
from blocc.outer.monitor import Stop, StopReason, StopRequest
from blocc.svm.follower import FollowerData, FollowerPoint, solve_follower
from blocc.svm.leader import LeaderData, LeaderPoint, solve_leader
from blocc.svm.margins import MarginProblem, Margins, Y
from blocc.svm.newton import LIMITS

TOLERANCE = 1e-11
OF_FEATURES = ("y", "coupling_price")  #: the fields of a point with an entry for each feature, not for each sample

_programs = Store()


class Stopped(Stop):
    """A request to stop, or the time limit has passed or would during the next step; ``y`` is where the solve stood."""

    def __init__(self, reason: StopReason, y: Y | None = None) -> None:
        super().__init__(reason)
        self.y = y


class FollowerSolution(NamedTuple):
    """A follower's answer without the padding; see :class:`blocc.svm.follower.FollowerAnswer`."""

    y: Y
    slack: Margins
    price: Margins
    error: float
    iterations: int
    infeasible: bool


class LeaderSolution(NamedTuple):
    """A leader's answer without the padding; see :class:`blocc.svm.leader.LeaderAnswer`."""

    y: Y
    c: Margins
    slack: Margins
    support: Margins
    margin_price: Margins
    c_price: Margins
    support_price: Margins
    coupling_price: Y
    error: float
    iterations: int
    path: Float[NDArray, "steps p"]


def padded(size: int, least: int = 64) -> int:
    """The next of the sizes in use: ``least``, its doubles up to 256, then four to each doubling."""
    if size <= 256:
        return max(least, 1 << (max(size, 1) - 1).bit_length())
    step = 1 << ((size - 1).bit_length() - 3)
    return -(-size // step) * step


class Solvers:
    """One problem's interior points, its arrays padded and on the device once.

    Solves look at ``request`` about four times a second, and raise :class:`Stopped` rather than pass its time limit.
    """

    def __init__(self, problem: MarginProblem, request: StopRequest | None = None) -> None:
        self.problem, self.request = problem, request or StopRequest()
        self._paces: dict[str, float] = {}  #: seconds of a Newton step
        self._compiling = 0.0  #: seconds of the last compilation, on the request's clock
        self.sizes = problem.rows.shape
        n, p = padded(self.sizes[0]), padded(self.sizes[1], 16)
        m = padded(len(problem.validation))
        self.padded = n, p, m
        self.compile_seconds = 0.0
        self.solves = 0
        with double_precision():
            self.rows = self._matrix(problem.rows, n, p)
            self.validation = self._matrix(problem.validation, m, p)
            self.weight = self._vector(problem.weights.validation, m)

    def follower(self, c: Margins, *, gamma: float | None = None, tolerance: float = TOLERANCE) -> FollowerSolution:
        """The follower's answer to ``c``; with ``gamma`` the penalised one (its prices divided by gamma)."""
        n, p, _ = self.padded
        # Divided by gamma, so that a large one does not spoil the scale.
        loss = 0.0 if gamma is None else 1.0 / gamma
        with double_precision():
            data = FollowerData(
                self.rows,
                self._vector(1.0 - c, n, -1.0),
                self.validation,
                loss * self.weight,
                self._vector(self.problem.ridge, p, 1.0),
            )
            found = self._call("follower", solve_follower, self._blank(FollowerPoint, 0), data, jnp.asarray(tolerance))
            ending = float(found.error), int(found.iterations), bool(found.infeasible)
            return FollowerSolution._make([*self._unpadded(found.point), *ending])

    def leader(
        self,
        *,
        held: Bool[NDArray, "n"] | None = None,
        ridge: float = 0.0,
        charge: Margins | None = None,
        c_weight: float | Margins = 0.0,
        y: Y | None = None,
        support: Margins | None = None,
        tolerance: float = TOLERANCE,
    ) -> LeaderSolution:
        """The best y and c: with ``held`` samples the follower's answer, without them only a bound (see leader.py)."""
        problem = self.problem
        n, p, _ = self.padded
        coupled = held is not None
        with double_precision():
            data = LeaderData(
                self.rows,
                self._vector(np.ones(self.sizes[0]), n, -1.0),
                self.validation,
                self.weight,
                self._vector(ridge * problem.ridge, p, 1.0),
                self._vector(np.broadcast_to(c_weight, self.sizes[:1]), n),
                self._vector(charge, n),
                self._vector(held, n) > 0.5,
                self._vector(problem.ridge, p, 1.0),
            )
            start = self._vector(y, p), self._vector(support, n)
            function = partial(solve_leader, coupled=coupled)
            name, first = "branch" if coupled else "relaxation", self._blank(LeaderPoint, p)
            found = self._call(name, function, first, data, *start, jnp.asarray(tolerance))
            steps = int(found.iterations)
            path = np.asarray(found.path)[: steps + 1, : self.sizes[1]]
            return LeaderSolution._make([*self._unpadded(found.point), float(found.error), steps, path])

    def _call(self, name: str, function: Callable[..., Any], state: IterationState, *arguments: Any) -> Any:
        """Solve, in pieces of a quarter of a second."""
        program = _programs.get((name, jax.default_backend(), *self.padded), lambda: Program(function))
        self.solves += 1
        found, done, most = None, 0, LIMITS.max_iterations
        while True:
            pace = self._paces.get(name, 0.0)
            compiled, now, left = program.is_compiled, clock(), self.request.left()
            if left is not None and (left == 0.0 or left < (pace if compiled else self._compiling)):
                # What is left may be enough for another solver, but must not be begun.
                reason = self.request.reason = self.request.why() or StopReason.TIME_LIMIT
                y = None if found is None else np.asarray(found.point.y)[: self.sizes[1]]
                raise Stopped(reason, y if y is None or np.isfinite(y).all() else None)
            steps = max(1, int(0.25 / pace)) if pace else 1
            until = min(done + steps, most)
            began, before = time.perf_counter(), compile_seconds()
            piece = Piece(state, jnp.asarray(found is not None), jnp.asarray(until))
            found = jax.block_until_ready(program(*arguments, piece))
            compiling = compile_seconds() - before
            self._compiling = self._compiling if compiled else clock() - now
            self.compile_seconds += compiling
            state, before_it, done = found.state, done, int(found.iterations)
            if done > before_it:
                self._paces[name] = (time.perf_counter() - began - compiling) / (done - before_it)
            if done < until or until == most:
                return found

    def _blank(self, kind: type[FollowerPoint | LeaderPoint], width: int) -> IterationState:
        """A state of the right shapes, for the first piece."""
        n, p, _ = self.padded
        point = kind._make(jnp.zeros(p if name in OF_FEATURES else n) for name in kind._fields)
        number, count = jnp.zeros(()), jnp.zeros((), dtype=jnp.int64)
        record = jnp.zeros((LIMITS.max_iterations + 1, width))
        return IterationState(point, point, number, count, count, number, record)

    def _unpadded(self, point: FollowerPoint | LeaderPoint) -> list[Any]:
        n, p = self.sizes
        return [np.asarray(value)[: p if name in OF_FEATURES else n] for name, value in point._asdict().items()]

    @staticmethod
    def _matrix(values: Float[NDArray, "_ _"], n: int, p: int) -> Float[Array, "_ _"]:
        return jnp.asarray(np.pad(values, ((0, n - values.shape[0]), (0, p - values.shape[1]))))

    @staticmethod
    def _vector(values: NDArray | None, size: int, fill: float = 0.0) -> Float[Array, "_"]:
        given = np.zeros(0) if values is None else np.asarray(values, dtype=np.float64)
        return jnp.asarray(np.concatenate([given, np.full(size - len(given), fill)]))
