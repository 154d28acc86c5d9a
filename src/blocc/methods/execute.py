"""One run of any method of this room: what it needs to iterate, to keep its history and to be judged at the end.

Whatever a method believes, the certificate is computed at its x: the follower's problem is solved again, exactly, and
stationarity is that of the penalty function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.compiled import compile_ahead
from blocc.inner.choice import choose_oracles
from blocc.inner.protocol import InnerSolution
from blocc.lagrangian import weights
from blocc.methods.base import Method
from blocc.methods.certify import close
from blocc.methods.requirements import require
from blocc.methods.size import measure_size
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor, State, Stop, StopReason
from blocc.outer.tolerances import Tolerances
from blocc.problem import BilevelProblem
from blocc.result import HistoryRow, Result

Array = Any
Callback = Callable[[State], Any]
Report = Callable[[int, HistoryRow], None]


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
        self.function = Evaluator(problem.flat, oracles, self.monitor, options.seed)
        self.oracle = oracles[0]
        self.goal = Tolerances(
            tolerance=options.tolerance, finest=max(Tolerances.finest, getattr(self.oracle, "finest", 0.0))
        )
        self.compile_seconds = 0.0
        self.iterations = 0
        self.broke = False  #: the iterates ran away
        self.trouble = ""  #: why the method could not go on
        self.numbers: dict[str, float] = {}
        self._answer: tuple[np.ndarray, InnerSolution] | None = None  #: the last one, with its x

    def run(self, x: np.ndarray) -> Result:
        """From ``x`` to a judged result."""
        first = self.follower(x)
        y = np.asarray(first.y)
        if not np.isfinite(y).all():
            y = np.asarray(self.flat.y_set.interior_flat())
        require(self.flat, self.method, x, y, self.options.seed)
        stop: StopReason | None = None
        end = self.last = (x, y)
        try:
            end = self.method.drive(self, x, y)
        except (Stop, KeyboardInterrupt) as reason:
            stop = reason.reason if isinstance(reason, Stop) else StopReason.INTERRUPTED
            end = self.last
            self.monitor.journal.close()  # what follows is no part of the run that may be continued
        return close(self, *end, stop)

    def continuing(self, journal: Journal) -> MethodRun:
        """The same run with a journal, before it has begun."""
        return MethodRun(self.problem, self.method, self.options, self.monitor.callback, self.monitor.report, journal)

    def candidates(self, x: np.ndarray, y: np.ndarray) -> list[dict[str, float]]:
        """Settings to try: one if every number was given."""
        given = self.method.given
        if set(self.method.names) <= set(given):
            return [dict(given)]
        found: list[dict[str, float]] = []
        for setting in self.method.automatic(measure_size(self.problem, x, y)):
            if setting not in found:
                found.append(setting)
        return found

    def follower(self, x: np.ndarray) -> InnerSolution:
        """The exact answer of the lower level."""
        if self._answer is not None and np.array_equal(self._answer[0], x):
            return self._answer[1]
        arguments = (self.flat.data, jnp.asarray(x), jnp.asarray(1e-10))
        key = ("follower", self.oracle)
        if key not in self.flat.shared:

            def solve(data: Any, point: Array, tolerance: Array) -> InnerSolution:
                flat = self.flat.bind(data)
                return self.oracle.solve(flat, point, weights(flat), self.oracle.cold(flat), tolerance)

            self.flat.shared[key], seconds = compile_ahead(solve, *arguments)
            self.compile_seconds += seconds
        found: InnerSolution = jax.device_get(self.flat.shared[key](*arguments)._replace(warm=()))
        self._answer = np.array(x), found
        return found

    def upper(self, x: np.ndarray, y: np.ndarray) -> float:
        """The upper objective."""
        return self.values(x, y)[0]

    def values(self, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
        """Both objectives."""
        shared, both = self.flat.shared, self.flat.bind
        if "values" not in shared:
            shared["values"] = jax.jit(lambda data, a, b: (both(data).upper(a, b), both(data).lower(a, b)))
        upper, lower = shared["values"](self.flat.data, x, y)
        return float(upper), float(lower)

    def record(self, x: np.ndarray, y: np.ndarray, k: int, step: float) -> None:
        """One row of the history, judged at the exact lower level."""
        answer = self.follower(x)
        exact = np.asarray(answer.y)
        self.monitor.append(
            HistoryRow(
                time=self.monitor.elapsed(),
                gamma=np.nan,
                upper_value=self.upper(x, exact),
                upper_value_penalty=self.upper(x, y),
                lower_value=self.values(x, exact)[1],
                penalty_value=np.nan,
                stationarity=np.nan,
                inner_residual=float(np.max(np.stack(answer.residuals))),
                distance=float(np.linalg.norm(y - exact)),
                step=step,
                evaluations=k,
            ),
            x,
        )
