"""One run of any method of this room: what it asks for while it iterates, and the history it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, NDArray
from blocc._lib.compiled import compile_seconds
from blocc.errors import OptionError
from blocc.flat_problem import FlatProblem
from blocc.inner.choice import DENSE_FIRST, choose_oracles
from blocc.inner.protocol import InnerOracle, InnerSolution
from blocc.lagrangian import weights
from blocc.methods.base import Iterate, Method
from blocc.outer.monitor import State
from blocc.outer.tolerances import Tolerances
from blocc.problem import BilevelProblem
from blocc.result import HistoryRow
from blocc.resume.recorded import make_evaluator, make_monitor
from blocc.resume.recording import Recording

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
    judge_every: int | None = None  #: iterations between two rows of the history; None: by what a row costs

    def __post_init__(self) -> None:
        every = self.judge_every
        if every is not None and (isinstance(every, bool) or not isinstance(every, (int, np.integer)) or every < 1):
            raise OptionError(f"judge_every must be a positive whole number of iterations, got {every!r}")


def _follower(
    flat: FlatProblem, oracle: InnerOracle, x: Float[Array, "n_x"], tolerance: Float[Array, ""]
) -> InnerSolution:
    return oracle.solve(flat, x, weights(flat), oracle.cold(flat), tolerance)


def _objectives(flat: FlatProblem, x: Float[Array, "n_x"], y: Float[Array, "n_y"]) -> tuple[Array, Array]:
    return flat.upper(x, y), flat.lower(x, y)


class MethodRun:
    """One run of one method from one start."""

    def __init__(
        self,
        problem: BilevelProblem,
        method: Method,
        options: MethodOptions,
        callback: Callback | None = None,
        report: Report | None = None,
        recording: Recording | None = None,
    ) -> None:
        self.problem, self.flat, self.method, self.options = problem, problem.flat, method, options
        self.recording = recording or Recording()
        self.monitor = make_monitor(self.recording, problem.x_set.unravel, callback, report, options.time_limit)
        oracles = choose_oracles(problem, "auto")
        self.evaluator = make_evaluator(self.recording, problem.flat, oracles, self.monitor, options.seed)
        self.oracle = oracles[0]
        finest = max(Tolerances.finest, self.oracle.finest)
        self.tolerances = Tolerances(tolerance=options.tolerance, finest=finest)
        self._began, self._compiled = time.perf_counter(), compile_seconds()
        self.cost = 0  #: derivatives that the last row of the history took
        # What the method tells about itself.
        self.last: Iterate = self.flat.x_set.interior_flat(), self.flat.y_set.interior_flat()
        self.state: Any = None  #: all that it carries
        self.known: tuple[int, Any] | None = None  #: what it found out about its state, and after which iteration
        self.iterations = 0
        self.calls = 0  #: how often the method has differentiated the lower level
        self._asked: np.ndarray | None = None  #: where it did so last
        self.numbers: dict[str, float] = {}
        self.diverged = False
        self.trouble = ""  #: why the method could not go on
        self._answer: tuple[np.ndarray, InnerSolution] | None = None  #: the last one, with its x

    def continuing(self, recording: Recording) -> MethodRun:
        """The same run with a recording, before it has begun."""
        return MethodRun(self.problem, self.method, self.options, self.monitor.callback, self.monitor.report, recording)

    @property
    def described(self) -> dict[str, Any]:
        """How the result came about, as plain values."""
        return {
            "method": self.method.name,
            "numbers": dict(self.numbers),
            "counts": dict(self.method.counts),
            **vars(self.options),
            **self.method.described,
        }

    @property
    def compile_seconds(self) -> float:
        """Spent on compilation since the run was made."""
        return compile_seconds() - self._compiled

    @property
    def seconds(self) -> dict[str, float]:
        """What the run has taken so far."""
        compiling = self.compile_seconds
        return {
            "compile": compiling,
            "run": time.perf_counter() - self._began + self.recording.earlier - compiling,
        }

    def candidates(self, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> list[dict[str, float]]:
        """Settings to try, each once: a single one if every number was given."""
        given = self.method.given
        if set(self.method.names) <= set(given):
            return [dict(given)]
        settings = self.method.settings(self, x, y)
        return [setting for i, setting in enumerate(settings) if setting not in settings[:i]]

    def ask(self, x: Float[NDArray, "n_x"]) -> InnerSolution:
        """The exact answer of the lower level, for a method that moves by it: every inner iteration is a call."""
        found = self.follower(x)
        if self._asked is None or not np.array_equal(self._asked, x):
            self.calls += int(found.iterations)
        self._asked = np.array(x)
        return found

    def follower(self, x: Float[NDArray, "n_x"]) -> InnerSolution:
        """The exact answer of the lower level, for whoever looks on."""
        if self._answer is not None and np.array_equal(self._answer[0], x):
            return self._answer[1]
        solved = self.flat.program(_follower, self.oracle)(jnp.asarray(x), jnp.asarray(TOLERANCE))
        found: InnerSolution = solved._replace(warm=())
        self._answer = np.array(x), found
        return found

    def upper(self, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> float:
        """The upper objective."""
        return self.objectives(x, y)[0]

    def objectives(self, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> tuple[float, float]:
        """Both objectives."""
        upper, lower = self.flat.program(_objectives)(jnp.asarray(x), jnp.asarray(y))
        return float(upper), float(lower)

    def is_due(self, x: Float[NDArray, "n_x"]) -> bool:
        """Whether a row of the history is due at ``x``.

        By default always, where the exact answer is known or the follower is small. Beyond that, once the method has
        differentiated the lower level as often as the last row has: judging then doubles the work of a run at most.
        """
        if self.options.judge_every is not None:
            return self.iterations % self.options.judge_every == 0
        if self._answer is not None and np.array_equal(self._answer[0], x):
            return True
        size = self.flat.n_y + sum(self.flat.follower_rows)
        before = self.monitor.rows[-1].evaluations if self.monitor.rows else 0
        return size <= DENSE_FIRST or not self.monitor.rows or self.calls - before >= self.cost

    def record_last(self) -> None:
        """The row at the end, if it is not the last one."""
        x, y = self.last
        if self.monitor.position is None or not np.array_equal(self.monitor.position, x):
            self.monitor.append(self.method.row(self, x, y, float(np.nan)), x)

    def record(self, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"], step: float) -> None:
        """One row of the history, if it is due."""
        if self.is_due(x):
            self.monitor.append(self.method.row(self, x, y, step), x)

    def judged(self, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"], step: float) -> HistoryRow:
        """A row at the exact lower level."""
        answer = self.follower(x)
        self.cost = int(answer.derivatives)
        exact = np.asarray(answer.y)
        upper, lower = self.objectives(x, exact)
        return HistoryRow(
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
            evaluations=self.calls,
        )
