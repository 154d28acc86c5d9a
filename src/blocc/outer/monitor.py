"""Watching a run: its history, the best point so far, and the reasons to stop early."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from blocc.penalty import Evaluation

Array = Any


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
class Monitor:
    """Records accepted iterations and decides whether the run may go on."""

    unravel: Callable[[np.ndarray], Any]
    callback: Callable[[State], Any] | None = None
    report: Callable[[int, HistoryRow], None] | None = None  #: live progress, if anyone watches
    time_limit: float | None = None
    started: float = field(default_factory=time.perf_counter)
    rows: list[HistoryRow] = field(default_factory=list)
    best: Evaluation | None = None
    _last_x: np.ndarray | None = None

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def check_time(self) -> None:
        """Raise :class:`Stop` when the time is over. Called at every evaluation."""
        if self.time_limit is not None and self.elapsed() > self.time_limit:
            raise Stop(StopReason.TIME_LIMIT)

    def consider(self, evaluation: Evaluation) -> None:
        """Keep the usable point with the best upper value at the exact lower-level answer."""
        if not evaluation.usable:
            return

        def merit(candidate: Evaluation) -> tuple[float, float]:
            violation = float(candidate.leader_violation)
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
            step=0.0 if self._last_x is None else float(np.linalg.norm(x - self._last_x)),
            evaluations=evaluations,
        )
        self._last_x = x
        self.append(row, x)

    def append(self, row: HistoryRow, x: np.ndarray) -> None:
        """Append a finished row, report it and ask the callback."""
        self.rows.append(row)
        if self.report is not None:
            self.report(len(self.rows), row)
        if self.callback is not None and self.callback(State(self.unravel(x), len(self.rows), row)):
            raise Stop(StopReason.CALLBACK)
        self.check_time()
