"""Many starts of a problem in CVXPY: here one after the other, or on an executor, each with the same result.

What travels is what the user wrote. CVXPY knows its objects by numbers, so a worker counts on from the sender's.
"""

from __future__ import annotations

import time
import uuid
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from cvxpy.lin_ops import lin_utils

from blocc._lib.arrays import Float, NDArray
from blocc._lib.version import __version__
from blocc.cvxpy.recorded import model_fingerprint
from blocc.cvxpy.run import ConicRun
from blocc.cvxpy.run_options import RunOptions, make_run_options
from blocc.errors import OptionError
from blocc.executors.choice import choose_executor
from blocc.executors.work import Call, ExecutorError, Outcome, arriving, explain, worker_name
from blocc.multi_result import MultiResult
from blocc.outer.monitor import StopReason, StopRequest, interruptible
from blocc.result import Result, Status
from blocc.resume.file import open_recording
from blocc.resume.recording import Recording
from blocc.run.progress import Files, with_remark
from blocc.solve_many import starting_points

if TYPE_CHECKING:
    from blocc.cvxpy.problem import BilevelProblem

Points = Float[NDArray, "starts n_x"]


def solve_many(
    problem: BilevelProblem, x0s: Any, starts: int | None, executor: Any, files: Files, given: dict[str, Any]
) -> MultiResult:
    """See :meth:`BilevelProblem.solve_many`."""
    request = StopRequest()  # what the user waits for begins here
    options = make_run_options(given)
    request.limit = options.time_limit
    problem.renew()
    computing = None if executor is None or executor == "serial" else choose_executor(executor)
    if computing is not None and options.callback is not None:
        raise OptionError("callback needs starts that run in this process: leave out executor")
    if computing is not None and files.wanted:
        raise OptionError("checkpoint and resume need starts that run in this process: leave out executor")
    if x0s is not None and starts is None:
        if not hasattr(x0s, "__len__") or isinstance(x0s, (str, dict)) or len(x0s) == 0:
            raise OptionError("x0s must be a sequence of starts, at least one")
        points = np.stack([problem.start(x0, f"x0s[{index}]") for index, x0 in enumerate(x0s)])
    else:
        points = starting_points(problem, x0s, starts, options.seed)
    recording = Recording()
    if files.wanted:
        recording = open_recording(model_fingerprint(problem.model), options.described(), points, *files)
    begun, work = time.perf_counter(), _Work(problem, options, request, points, recording)
    with interruptible(request), closing(recording):
        if computing is None:
            results = [work.here(index) for index in range(len(points))]
        else:
            outcomes: dict[int, Outcome] = {}
            try:
                with arriving(computing, work, range(len(points))) as found_elsewhere:
                    for one in found_elsewhere:
                        outcomes[one.index] = one
            except KeyboardInterrupt:
                request.reason = StopReason.INTERRUPTED
            results = [work.told(index, outcomes.get(index)) for index in range(len(points))]
        found = MultiResult(tuple(results), {"compile": 0.0, "run": time.perf_counter() - begun}, problem.sign)
        _leave(problem, found)
    return found


def _leave(problem: BilevelProblem, found: MultiResult) -> None:
    """Give the user's objects the values of the best result; minimised or maximised, the first of the best."""
    best = found.best
    x = problem.x_set.ravel(best.x)
    judge = ConicRun(problem, RunOptions(progress=False)).judge
    exact = judge.at(x)
    if exact is None:
        return
    among = judge.among_best(x, exact)
    judge.restore(x, exact if among is None or among[2].upper > exact.upper else among[2])


@dataclass(frozen=True)
class _Sent:
    """What is the same for all starts of one call."""

    token: str
    version: str
    parts: tuple[Any, ...]  #: of the problem, as the user wrote them
    counter: int  #: of CVXPY's objects
    options: RunOptions


class _Work:
    """Starts as work for an executor."""

    name = "start"

    def __init__(
        self,
        problem: BilevelProblem,
        options: RunOptions,
        request: StopRequest,
        points: Points,
        recording: Recording,
    ) -> None:
        self.problem, self.options, self.request, self.points = problem, options, request, points
        self.recording = recording  #: of the starts in this process
        parts = (problem.objective, problem.followers, problem.x, problem.constraints, problem.name)
        silent = replace(options, progress=False, callback=None)
        self._sent = _Sent(uuid.uuid4().hex, __version__, parts, int(lin_utils.get_id()), silent)

    def here(self, index: int) -> Result:
        """One start in this process."""
        left = self.request.left()
        if index > 0 and left == 0.0:
            return self._never_begun(index)
        request = self.request if index == 0 else StopRequest()
        options = replace(self.options, time_limit=None if left is None else max(left, 1e-9))
        result = with_remark(
            ConicRun(self.problem, options, request, self.recording).solve(self.points[index]), self.recording
        )
        if result.status is Status.INTERRUPTED:
            self.request.reason = StopReason.INTERRUPTED
        return result

    def told(self, index: int, outcome: Outcome | None) -> Result:
        """One start that an executor computed, if it did."""
        if outcome is None:
            return self._never_begun(index)
        if outcome.error is not None:
            return self._without_answer(index, Status.STALLED, outcome.error.partition("\n")[0])
        found: Result = outcome.value
        return found

    def _never_begun(self, index: int) -> Result:
        status = Status.INTERRUPTED if self.request.reason is StopReason.INTERRUPTED else Status.TIME_LIMIT
        return self._without_answer(index, status, "The call was stopped before this start was begun.")

    def _without_answer(self, index: int, status: Status, message: str) -> Result:
        return ConicRun(self.problem, replace(self.options, progress=False)).without_answer(
            self.points[index], status, message
        )

    # --- what an executor asks for ----------------------------------------------------------------------------------
    def check(self) -> Call:
        """Workers must have the same version."""
        return _same_version, __version__

    def call(self, index: int) -> Call | None:
        """One start, unless the time is over."""
        left = self.request.left()
        if left == 0.0:
            return None
        return _follow, self._sent, index, self.points[index], left


def _same_version(version: str) -> None:
    if version != __version__:
        raise ExecutorError(f"the starts are of blocc {version}, but {worker_name()} has blocc {__version__}")


#: On a worker: the problem of the last call.
_received: dict[str, BilevelProblem] = {}


def _follow(sent: _Sent, index: int, x: Float[NDArray, " n_x"], left: float | None) -> Outcome:
    """One start, on a worker."""
    from blocc.cvxpy.problem import BilevelProblem

    begun, value, failure = time.perf_counter(), None, None
    try:
        if sent.token not in _received:
            _same_version(sent.version)
            count_on(sent.counter)
            objective, followers, parameters, constraints, name = sent.parts
            _received.clear()
            _received[sent.token] = BilevelProblem(objective, followers, parameters, constraints, name=name)
        options = replace(sent.options, time_limit=left)
        value = ConicRun(_received[sent.token], options).solve(x)
    except Exception as error:
        failure = explain(error)
    return Outcome(index, value, failure, time.perf_counter() - begun, worker_name())


def count_on(counter: int) -> None:
    """Make CVXPY number its new objects from here on, so that none has the number of one that was sent."""
    while int(lin_utils.get_id()) < counter:
        pass
