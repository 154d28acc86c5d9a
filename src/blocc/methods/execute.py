"""One run of any method of this room: what it asks for while it iterates, and the history it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, NDArray
from blocc._lib.compiled import compile_ahead
from blocc.inner.choice import choose_oracles
from blocc.inner.protocol import InnerSolution
from blocc.lagrangian import weights
from blocc.methods.base import Iterate, Method, measure_size
from blocc.outer.continuation import Goal
from blocc.outer.evaluator import PenaltyFunction
from blocc.outer.monitor import HistoryRow, Monitor, State
from blocc.problem import BilevelProblem
from blocc.resume.recording import Journal

Callback = Callable[[State], Any]
Report = Callable[[int, HistoryRow], None]

#: Of the follower's exact answers.
TOLERANCE = 1e-10


@dataclass(frozen=True)
class MethodOptions:
    """What every method understands."""

    tolerance: float = 1e-3
    max_iterations: int = 20_000
    time_limit: float | None = None
    seed: int = 0


class MethodRun:
    """One run of one method from one start."""

    def __init__(
        self,
        problem: BilevelProblem,
        method: Method,
        options: MethodOptions,
        callback: Callback | None = None,
        report: Report | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.problem, self.flat, self.method, self.options = problem, problem.flat, method, options
        limit = options.time_limit
        self.monitor = Monitor(problem.x_set.unravel, callback, report, limit, journal=journal or Journal())
        oracles = choose_oracles(problem, "auto")
        self.function = PenaltyFunction(problem.flat, oracles, problem.cache, self.monitor, options.seed)
        self.oracle = oracles[0]
        self.goal = Goal(tolerance=options.tolerance, finest=max(Goal.finest, getattr(self.oracle, "finest", 0.0)))
        self.compile_seconds = 0.0
        # What the method tells about itself.
        self.last: Iterate = self.flat.x_set.interior_flat(), self.flat.y_set.interior_flat()
        self.iterations = 0
        self.numbers: dict[str, float] = {}
        self.diverged = False
        self.trouble = ""  #: why the method could not go on
        self._answer: tuple[np.ndarray, InnerSolution] | None = None  #: the last one, with its x

    def continuing(self, journal: Journal) -> MethodRun:
        """The same run with a journal, before it has begun."""
        return MethodRun(self.problem, self.method, self.options, self.monitor.callback, self.monitor.report, journal)

    def candidates(self, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> list[dict[str, float]]:
        """Settings to try, each once: a single one if every number was given."""
        given = self.method.given
        if set(self.method.names) <= set(given):
            return [dict(given)]
        settings = self.method.automatic(measure_size(self.problem, x, y))
        return [setting for i, setting in enumerate(settings) if setting not in settings[:i]]

    def follower(self, x: Float[NDArray, "n_x"]) -> InnerSolution:
        """The exact answer of the lower level."""
        if self._answer is not None and np.array_equal(self._answer[0], x):
            return self._answer[1]
        arguments = (self.flat.data, jnp.asarray(x), jnp.asarray(TOLERANCE))
        key = ("follower", self.oracle)
        if key not in self.flat.shared:

            def solve(data: Any, point: Float[Array, "n_x"], tolerance: Float[Array, ""]) -> InnerSolution:
                flat = self.flat.bind(data)
                return self.oracle.solve(flat, point, weights(flat), self.oracle.cold(flat), tolerance)

            self.flat.shared[key], seconds = compile_ahead(solve, *arguments)
            self.compile_seconds += seconds
        found: InnerSolution = jax.device_get(self.flat.shared[key](*arguments)._replace(warm=()))
        self._answer = np.array(x), found
        return found

    def upper(self, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> float:
        """The upper objective."""
        return self.objectives(x, y)[0]

    def objectives(self, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> tuple[float, float]:
        """Both objectives."""
        shared, bind = self.flat.shared, self.flat.bind
        if "objectives" not in shared:
            shared["objectives"] = jax.jit(lambda data, a, b: (bind(data).upper(a, b), bind(data).lower(a, b)))
        upper, lower = shared["objectives"](self.flat.data, x, y)
        return float(upper), float(lower)

    def record(self, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"], k: int, step: float) -> None:
        """One row of the history, judged at the exact lower level."""
        answer = self.follower(x)
        exact = np.asarray(answer.y)
        upper, lower = self.objectives(x, exact)
        row = HistoryRow(
            time=self.monitor.elapsed(),
            gamma=np.nan,
            upper_value=upper,
            upper_value_penalty=self.upper(x, y),
            lower_value=lower,
            penalty_value=np.nan,
            stationarity=np.nan,
            inner_residual=float(np.max(np.stack(answer.residuals))),
            distance=float(np.linalg.norm(y - exact)),
            step=step,
            evaluations=k,
        )
        self.monitor.append(row, x)
