"""Watching a run: its history, the best point so far, and the reasons to stop early."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from blocc.penalty import Evaluation
from blocc.resume.recording import CheckpointError, Journal, Log

Array = Any


_MOST_ROWS = 20_000


class HistoryRow(NamedTuple):
    """One outer iteration."""

    time: float  #: seconds since the start
    gamma: float
    upper_value: float  #: f(x, yg)
    upper_value_penalty: float  #: f(x, yF)
    lower_value: float  #: g(x, yg)
    penalty_value: float  #: F_gamma(x)
    stationarity: float  #: ||x - P_X(x - grad F)||_inf
    inner_residual: float  #: largest KKT residual of both inner solutions
    distance: float  #: ||yF - yg||
    step: float  #: ||x - previous x||
    evaluations: int  #: evaluations of F_gamma so far


class StopReason(Enum):
    """Why a run was stopped from outside."""

    CALLBACK = "callback"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"
    BUDGET = "budget"  #: enough evaluations for one leg of a run: other ways are more promising


class Stop(Exception):
    """Raised inside the outer loop when a run must end now; the monitor still holds the best point."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True)
class State:
    """What a callback sees after every outer iteration."""

    x: Any
    iteration: int
    row: HistoryRow


def inner_residual(evaluation: Evaluation) -> float:
    """Largest KKT residual of both inner solutions."""
    return float(max(np.max(evaluation.follower.residuals), np.max(evaluation.penalised.residuals)))


@dataclass
class StopRequest:
    """A request to stop, by Ctrl-C or a callback; all legs of a run, and the runs of many starts, share one."""

    reason: StopReason | None = None


@dataclass
class Monitor:
    """Records accepted iterations and decides whether the run may go on."""

    unravel: Callable[[np.ndarray], Any]
    callback: Callable[[State], Any] | None = None
    report: Callable[[int, HistoryRow], None] | None = None  #: live progress, if anyone watches
    time_limit: float | None = None
    started: float = field(default_factory=time.perf_counter)
    rows: list[HistoryRow] = field(default_factory=list)
    best: Evaluation | None = None
    position: np.ndarray | None = None  #: x of the last iteration
    request: StopRequest = field(default_factory=StopRequest)
    iterations: int = 0
    journal: Journal = field(default_factory=Journal)  #: what an earlier sitting of the same run has computed
    budget: float = np.inf  #: evaluations that this leg may make
    spent: int = 0
    closing: bool = False  #: the last evaluations of a run, which nothing stops
    _stride: int = 1

    def __post_init__(self) -> None:
        self.started -= self.journal.earlier
        if self.time_limit is not None:  # the limit is that of this sitting, the clock that of all
            self.time_limit += self.journal.earlier

    def elapsed(self) -> float:
        """Seconds since the start; while an earlier sitting is repeated, those of that sitting."""
        return self.journal.time if self.journal.replaying else time.perf_counter() - self.started

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed and is yet to be heeded."""
        return self.request.reason is StopReason.INTERRUPTED and not self.closing

    def close(self) -> None:
        """What follows makes a result of what was found: no limit holds, and nobody is told."""
        self.closing, self.time_limit, self.callback, self.report = True, None, None, None

    def check_time(self) -> None:
        """Raise :class:`Stop` when the time is over or Ctrl-C was pressed. Called at every evaluation."""
        if self.request.reason is not None and not self.closing:
            raise Stop(self.request.reason)
        if self.time_limit is not None and self.elapsed() > self.time_limit:
            raise Stop(StopReason.TIME_LIMIT)

    def spend(self) -> None:
        """One evaluation more; raises :class:`Stop` where that is too many for this leg."""
        self.check_time()
        self.spent += 1
        if self.spent > self.budget:
            raise Stop(StopReason.BUDGET)

    def consider(self, evaluation: Evaluation) -> None:
        """Keep the usable point with the best upper value at the exact lower-level answer."""
        if not evaluation.usable:
            return

        def merit(candidate: Evaluation) -> tuple[float, float]:
            violation = candidate.violation
            return (violation if violation > 1e-6 else 0.0, candidate.upper_value)

        if self.best is None or merit(evaluation) < merit(self.best):
            self.best = evaluation

    def record(self, evaluation: Evaluation, stationarity: float, evaluations: int) -> None:
        """Append one accepted iteration, report it and ask the callback."""
        x = np.asarray(evaluation.x)
        row = HistoryRow(
            time=self.elapsed(),
            gamma=float(evaluation.gamma),
            upper_value=evaluation.upper_value,
            upper_value_penalty=float(evaluation.upper_penalised),
            lower_value=float(evaluation.lower_follower),
            penalty_value=float(evaluation.value),
            stationarity=stationarity,
            inner_residual=inner_residual(evaluation),
            distance=evaluation.distance,
            step=0.0 if self.position is None else float(np.linalg.norm(x - self.position)),
            evaluations=evaluations,
        )
        self.append(row, x)

    def append(self, row: HistoryRow, x: np.ndarray) -> None:
        """Append a finished row, report it and ask the callback."""
        self.position = x
        if self.iterations % self._stride == 0:
            self.rows.append(row)
        self.iterations += 1
        if len(self.rows) >= _MOST_ROWS:  # a run of a million steps keeps an even sample of itself
            self.rows, self._stride = self.rows[::2], 2 * self._stride
        if self.journal.replaying:  # these were reported in an earlier sitting
            return
        if self.report is not None:
            self.report(self.iterations, row)
        if self.callback is not None and self.callback(State(self.unravel(x), self.iterations, row)):
            self.request.reason = StopReason.CALLBACK
        self.check_time()

    def log(self) -> Log:
        """The history so far, for the journal."""
        return Log(self.rows, len(self.rows), self.iterations, self._stride, self.position)

    def restore(self, log: Log) -> None:
        """Take over the history of an earlier sitting."""
        if any(len(row) != len(HistoryRow._fields) for row in log.rows):
            raise CheckpointError("the checkpoint does not fit this version of blocc: its history has other columns")
        self.rows = [HistoryRow(*row) for row in log.rows[: log.count]]
        self.iterations, self._stride, self.position = log.iterations, log.stride, log.position


@contextmanager
def interruptible(request: StopRequest) -> Iterator[None]:
    """Turn the first Ctrl-C into an orderly stop at the next evaluation; the second one interrupts as usual.

    Inside compiled code and JAX's own callbacks a KeyboardInterrupt can be swallowed, a flag cannot. Only Python's
    default handler is replaced, only in the main thread, and it is put back at the end.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def handler(number: int, frame: Any) -> None:
        if request.reason is StopReason.INTERRUPTED:
            signal.default_int_handler(number, frame)
        request.reason = StopReason.INTERRUPTED

    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
