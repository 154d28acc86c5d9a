"""Watching a run: its history, the best point so far, and the reasons to stop early."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ParamSpec, TypeVar

import numpy as np

from blocc._lib.compiled import clock, counted_compile_seconds
from blocc._lib.rounding import KEPT
from blocc._lib.signals import Listener, listening
from blocc.penalty import Evaluation
from blocc.result import HistoryRow

T = TypeVar("T")
P = ParamSpec("P")

#: By how much a time limit may be passed, beyond a compilation under way: seconds, and a share of it. The documentation
#: promises that.
GRACE = 1.0, 0.1
#: Rows of history that are kept; of a longer run an even sample is.
_MOST_ROWS = 20_000
#: The same of points each of which was the best so far.
_MOST_LOWS = 32


class StopReason(Enum):
    """Why a run was stopped from outside."""

    CALLBACK = "callback"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"
    BUDGET = "budget"  #: enough evaluations for one phase of a run: other ways are more promising


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
class StopRequest(Listener):
    """A request to stop, by a signal or a callback, and since when there is something to stop.

    All phases of a run, and the runs of many starts, share one. Loops look at it between compiled calls.
    """

    reason: StopReason | None = None
    started: float = field(default_factory=clock)
    compiled: float = field(default_factory=counted_compile_seconds)  #: seconds of compilation before that
    limit: float | None = None  #: seconds from ``started`` on, after which nothing new is begun

    def elapsed(self) -> float:
        """Seconds since the start."""
        return clock() - self.started

    def left(self) -> float | None:
        """Seconds that are left: 0 where the work is to end now, None where there is no limit."""
        late = None if self.limit is None else max(0.0, self.limit - self.elapsed())
        return late if self.reason is None else 0.0

    def why(self) -> StopReason | None:
        """Why the work is to end now, if it is."""
        late = self.limit is not None and self.elapsed() >= self.limit
        return self.reason or (StopReason.TIME_LIMIT if late else None)

    def check(self) -> None:
        """Raise :class:`Stop` where the work is to end now."""
        if (reason := self.why()) is not None:
            raise Stop(reason)

    def hear(self, number: signal.Signals) -> None:
        """Stop at the next look."""
        super().hear(number)
        self.reason = StopReason.INTERRUPTED


@dataclass
class Monitor:
    """Records accepted iterations and decides whether the run may go on."""

    unravel: Callable[[np.ndarray], Any]
    callback: Callable[[State], Any] | None = None
    report: Callable[[int, HistoryRow], None] | None = None  #: live progress, if anyone watches
    time_limit: float | None = None
    started: float = field(default_factory=clock)
    rows: list[HistoryRow] = field(default_factory=list)
    lows: list[Evaluation] = field(default_factory=list)  #: the first usable point, and each that seemed better
    position: np.ndarray | None = None  #: x of the last iteration
    request: StopRequest = field(default_factory=StopRequest)
    iterations: int = 0
    budget: float = np.inf  #: evaluations that this phase may make
    spent: int = 0
    closing: bool = False  #: the last evaluations of a run, which nothing stops
    stride: int = 1  #: every so many iterations are kept in ``rows``

    @property
    def best(self) -> Evaluation | None:
        """The best point so far by what its evaluation says, which need not be exact."""
        return self.lows[-1] if self.lows else None

    def elapsed(self) -> float:
        """Seconds since the start."""
        return clock() - self.started

    def compiling(self) -> float:
        """Those of them that were compilation."""
        return counted_compile_seconds() - self.request.compiled

    def close(self) -> None:
        """What follows makes a result of what was found: no limit holds, and nothing is reported."""
        self.closing, self.time_limit, self.callback, self.report = True, None, None, None

    def why_over(self) -> StopReason | None:
        """Why the run is to end now, if it is."""
        if self.request.reason is not None and not self.closing:
            return self.request.reason
        return StopReason.TIME_LIMIT if self.time_limit is not None and self.elapsed() > self.time_limit else None

    def is_over(self) -> bool:
        """Whether the run is to end now: for work that can be cut short."""
        return self.why_over() is not None

    def check_time(self) -> None:
        """Raise :class:`Stop` when the time is over or a stop was requested. Called at every evaluation."""
        if (reason := self.why_over()) is not None:
            raise Stop(reason)

    def spend(self) -> None:
        """One evaluation more; raises :class:`Stop` where that is too many for this phase."""
        self.check_time()
        self.spent += 1
        if self.spent > self.budget:
            raise Stop(StopReason.BUDGET)

    def consider(self, evaluation: Evaluation) -> None:
        """Keep the usable point with the best upper value at the lower-level answer, and those that it replaces.

        An answer that is a little off may feign any value of f: which point is best is known when they are judged.
        """
        if not evaluation.usable:
            return

        def merit(candidate: Evaluation) -> tuple[float, float]:
            violation = candidate.violation
            return (violation if violation > KEPT else 0.0, candidate.upper_value)

        if self.best is None or merit(evaluation) < merit(self.best):
            self.lows.append(evaluation)
        if len(self.lows) > _MOST_LOWS:
            self.lows = self.lows[::2]  # an odd number: the first and the last stay

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
        if self.iterations % self.stride == 0:
            self.rows.append(row)
        self.iterations += 1
        if len(self.rows) >= _MOST_ROWS:
            self.rows, self.stride = self.rows[::2], 2 * self.stride
        self.announce(row, x)

    def announce(self, row: HistoryRow, x: np.ndarray) -> None:
        """Report an iteration, ask the callback and look at the clock."""
        if self.report is not None:
            self.report(self.iterations, row)
        if self.callback is not None and self.callback(State(self.unravel(x), self.iterations, row)):
            self.request.reason = self.request.reason or StopReason.CALLBACK
        self.check_time()

    def begin(self, name: str, state: T) -> T:
        """The state from which a compiled loop begins: the one it is given, unless the run is being continued."""
        return state

    def keep(self, name: str, state: Any) -> None:
        """Called by compiled loops whenever they look up; a run that can be continued keeps their state."""


def interruptible(request: StopRequest) -> AbstractContextManager[None]:
    """Turn the first Ctrl-C or SIGTERM in a block into an orderly stop at the next look at ``request``.

    The second one interrupts as usual. Blocks within this one are told as well, those that begin later at once.
    """
    return listening(request)


def stoppable(front_door: Callable[P, T]) -> Callable[P, T]:
    """A function that a first signal stops nowhere but where its loops look: what they found comes back as a result."""

    @functools.wraps(front_door)
    def run(*given: P.args, **named: P.kwargs) -> T:
        with interruptible(StopRequest()):
            return front_door(*given, **named)

    return run
