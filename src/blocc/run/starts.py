"""Many starts of one problem, and who computes them: here one by one, or elsewhere.

A start knows nothing of the others, so it makes no difference who computes it.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import jax
import numpy as np

from blocc._lib.arrays import Float, NDArray, PyTree
from blocc._lib.compiled import clock
from blocc._lib.precision import double_precision
from blocc._lib.threads import single_blas_thread
from blocc._lib.version import __version__
from blocc.executors.work import Call, Executor, ExecutorError, Outcome, arriving, explain, worker_name
from blocc.inner.choice import reformulated_for
from blocc.lagrangian import Multipliers
from blocc.options import Options
from blocc.outer.monitor import Stop, StopReason, StopRequest
from blocc.problem import BilevelProblem
from blocc.result import Certificate, History, Result, Status
from blocc.resume.recording import Recording
from blocc.run import conclude
from blocc.run.batch import published_together
from blocc.run.driver import Driver
from blocc.run.single import Callback, Report
from blocc.run.variants import solve_single

_STOPPED = {
    StopReason.TIME_LIMIT: Status.TIME_LIMIT,
    StopReason.CALLBACK: Status.STOPPED,
    StopReason.INTERRUPTED: Status.INTERRUPTED,
}


class Starts:
    """Starts of one call, and their settings."""

    def __init__(
        self,
        problem: BilevelProblem,
        options: Options,
        request: StopRequest,
        recording: Recording | None = None,
        callback: Callback | None = None,
        report: Report | None = None,
    ) -> None:
        self.problem, self.options, self.request = problem, options, request
        self.recording = Recording() if recording is None else recording
        self.callback, self.report = callback, report

    def together(self, points: Float[NDArray, "starts n_x"]) -> list[Result | None]:
        """Starts of Algorithm 1 in one compiled loop; every other start is left open."""
        try:
            if self.options.outer == "pgd":
                return [*published_together(self._driver(self.problem), points)]
        except Stop as stop:
            self.request.reason = stop.reason
        except KeyboardInterrupt:
            self.request.reason = StopReason.INTERRUPTED
        return [None] * len(points)

    def here(self, points: Float[NDArray, "starts n_x"], results: list[Result | None]) -> None:
        """Fill the gaps in ``results``, one start after the other."""
        for index, (x, result) in enumerate(zip(points, results, strict=True)):
            if result is None:
                results[index] = self._computed(index, x)

    def elsewhere(
        self,
        executor: Executor,
        points: Float[NDArray, "starts n_x"],
        results: list[Result | None],
        given: BilevelProblem,
    ) -> None:
        """The same with starts that an executor has followed; ``given`` is the problem as the user wrote it."""
        open_ones = [index for index, result in enumerate(results) if result is None]
        outcomes: dict[int, Outcome] = {}
        waiting = iter(open_ones)
        due = next(waiting, None)
        try:
            with arriving(executor, _Work(self, given, points), open_ones) as followed:
                for outcome in followed:
                    outcomes[outcome.index] = outcome
                    while due is not None and due in outcomes:
                        results[due] = self._arrived(due, points[due], outcomes)
                        due = next(waiting, None)
        except KeyboardInterrupt:
            self.request.reason = StopReason.INTERRUPTED
        except ExecutorError:
            if not outcomes:
                raise
        for index in [] if due is None else [due, *waiting]:
            results[index] = self._arrived(index, points[index], outcomes)

    def left(self) -> float | None:
        """Seconds that are left, at least 0; None where there is no limit."""
        if self.request.reason is not None:
            return 0.0
        if self.options.time_limit is None:
            return None
        return max(0.0, self.options.time_limit - (clock() - self.request.started))

    def follow(self, x: Float[NDArray, "n_x"]) -> Result:
        """One start, from here to its end."""
        return solve_single(self.problem, self.options, self._driver, x)

    def _driver(self, target: BilevelProblem) -> Driver:
        return Driver(target, self.options, self.callback, self.report, self.recording, self.request)

    def _arrived(self, index: int, x: Float[NDArray, "n_x"], outcomes: dict[int, Outcome]) -> Result:
        """What came of a start elsewhere; it is computed here if nothing did."""
        outcome = outcomes.get(index)
        if outcome is None:
            return self._computed(index, x)
        if outcome.error is not None:
            return self._without_answer(x, Status.STALLED, outcome.error.partition("\n")[0])
        return outcome.value

    def _computed(self, index: int, x: Float[NDArray, "n_x"]) -> Result:
        """The result of one start; of one that was never begun, because the call was stopped, nothing but that."""
        if index > 0 and self.left() == 0.0:
            status = _STOPPED[self.request.reason or StopReason.TIME_LIMIT]
            return self._without_answer(x, status, "The call was stopped before this start was begun.")
        return self.follow(x)

    def _without_answer(self, x: Float[NDArray, "n_x"], status: Status, message: str) -> Result:
        problem, flat = self.problem, self.problem.flat
        y: PyTree = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan), problem.y_set.template)
        nothing = (np.full(size, np.nan) for size in (flat.n_inequality, flat.n_equality))
        prices = map(problem.unravel_multipliers, ("inequality", "equality"), nothing)
        return Result(
            x=jax.tree.map(np.asarray, problem.x_set.unravel(x)),
            y=y,
            y_penalty=y,
            multipliers=Multipliers(*prices),
            upper_value=np.nan,
            lower_value=np.nan,
            upper_value_penalty=np.nan,
            gamma=np.nan,
            status=status,
            message=message,
            certificate=Certificate(np.inf, np.inf, np.inf, np.inf, np.inf, np.inf),
            history=History([]),
            counts={"evaluations": 0, "inner_iterations": 0, "fallbacks": 0},
            seconds={"compile": 0.0, "run": 0.0},
            name=problem.name,
            settings=self.options.described(),
            versions=conclude.versions(),
        )


# --- elsewhere -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Sent:
    """What is the same for all starts of one call. Executors send functions that no module holds by value."""

    token: str  #: of the call
    version: str
    kind: type[BilevelProblem]
    parts: dict[str, Any]
    options: Options
    digests: dict[str, str]


#: On a worker: the problem and the options of the last call.
_received: dict[str, tuple[BilevelProblem, Options]] = {}


class _Work:
    """Starts as work for an executor."""

    name = "start"

    def __init__(self, starts: Starts, given: BilevelProblem, points: Float[NDArray, "starts n_x"]) -> None:
        self._starts, self._points = starts, points
        parts = {field.name: getattr(given, field.name) for field in fields(given) if field.init}
        self._files = _files(parts)
        self._sent = _Sent(uuid.uuid4().hex, __version__, type(given), parts, starts.options, given.digests())

    def check(self) -> Call:
        """Workers must be able to run the files that the functions come from."""
        return _prepare, self._files

    def call(self, index: int) -> Call | None:
        """One start, unless the time is over."""
        left = self._starts.left()
        if left == 0.0:
            return None
        return _follow, self._sent, index, self._points[index], left


def _files(parts: dict[str, Any]) -> tuple[str, ...]:
    """Files of modules that workers do not find by their names: those that problems were loaded from."""
    modules = (sys.modules.get(getattr(part, "__module__", None) or "") for part in parts.values())
    files: dict[str, None] = {}
    for module in modules:
        top = "" if module is None else module.__name__.partition(".")[0]
        if module is None or top in ("__main__", *sys.builtin_module_names) or PathFinder.find_spec(top) is not None:
            continue
        if getattr(module, "__file__", None) is None:
            raise ExecutorError(f"the problem's functions are in the module {top!r}, which workers cannot import")
        files[str(Path(str(module.__file__)).resolve())] = None
    return tuple(files)


def _prepare(files: Sequence[str]) -> None:
    """On a worker: run the files that functions come from, so that their modules are found."""
    from blocc.problems.loading import run_file  # that room stands on this one

    for file in files:
        run_file(Path(file))


def _problem_of(sent: _Sent) -> tuple[BilevelProblem, Options]:
    """On a worker: the problem, built once for each call."""
    if sent.token not in _received:
        if sent.version != __version__:
            raise ExecutorError(f"the starts are of blocc {sent.version}, but {worker_name()} has blocc {__version__}")
        problem = sent.kind(**sent.parts)
        if different := [name for name, digest in problem.digests().items() if digest != sent.digests.get(name)]:
            raise ExecutorError(
                f"{' and '.join(different)} of the problem computes something else on {worker_name()}: has it another "
                "JAX, or is a module changed?"
            )
        _received.clear()
        _received[sent.token] = reformulated_for(problem, sent.options.inner), sent.options
    return _received[sent.token]


def _follow(sent: _Sent, index: int, x: Float[NDArray, "n_x"], left: float | None) -> Outcome:
    """One start, on a worker: its result, or why there is none."""
    begun = time.perf_counter()
    request = StopRequest()
    problem, options = _problem_of(sent)
    value: Any = None
    failure: str | None = None
    try:
        with double_precision(), single_blas_thread(problem.flat.n_y):
            value = Starts(problem, replace(options, time_limit=left), request).follow(x)
    except Exception as error:
        failure = explain(error)
    return Outcome(index, value, failure, time.perf_counter() - begun, worker_name())
