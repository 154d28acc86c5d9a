"""From a leader's problem over a market to a decision: descents by :mod:`blocc.cvxpy`, then exact values around.

A descent leads to where a decision should be. What counts is its value with the market cleared anew, by a solver that
has no part in the descent. Where offers tie, a market may answer in several ways; exact values at points
around tell which side of the tie is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import TINY
from blocc.cvxpy import BilevelProblem
from blocc.kit.records import Step
from blocc.outer.monitor import State, Stop, StopReason, interruptible
from blocc.power.case import PowerCase
from blocc.power.power_options import PowerOptions
from blocc.result import Result, Status
from blocc.resume.recording import CheckpointError

Vector = Float[NDArray, " n"]
#: Steps to points around, relative to the range of a decision, smallest first.
STEPS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1)
_EVALUATIONS, _EACH = 120, 20  #: of one descent, and for every decision


class Start(NamedTuple):
    """One descent and where it ended."""

    objective: float
    evaluations: int
    seconds: float
    status: str


@dataclass
class Found:
    """What a search has found."""

    x: Vector
    value: float  #: exact, minimised
    gain_left: float = np.nan  #: what points around the answer still gain; NaN: not measured
    starts: list[Start] = field(default_factory=list)
    history: list[Step] = field(default_factory=list)
    evaluations: int = 0  #: of the penalty function
    cleared: int = 0  #: markets cleared for exact values
    stopped: StopReason | None = None
    remark: str = ""  #: about a checkpoint that is not as it should be


class _Descended(NamedTuple):
    """Where one descent ended."""

    x: Vector
    beside: list[Vector]  #: points to look at as well
    evaluations: int
    status: Status


class Question(NamedTuple):
    """A leader's problem with what is needed to search for its answer."""

    problem: BilevelProblem
    low: Vector
    high: Vector
    exact: Callable[[Vector], float]  #: the leader's value, minimised; infinite where there is none
    project: Callable[[Vector], Vector]
    #: Further points to look at where a descent ended: beside a tie that the market breaks in another way.
    beside: Callable[[Vector, Result], list[Vector]]
    share: cp.Parameter  #: of the problem: where each decision lies between its limits, from 0 to 1
    agrees: Callable[[Vector], bool]  #: whether the other solver comes to the same value
    #: Decisions far from one that may be better, by what the market looks like there: where offers jump, descents see
    #: only the valley that they began in.
    further: Callable[[Vector], list[Vector]] | None = None


def shares(low: Vector, high: Vector) -> tuple[cp.Parameter, cp.Expression]:
    """A parameter between 0 and 1 for each decision, and the decisions as expressions of it.

    Descents measure slopes by the size of x, so all decisions have one size.
    """
    share = cp.Parameter(len(low), name="share", bounds=[np.zeros(len(low)), np.ones(len(low))])
    return share, low + cp.multiply(high - low, share)


class Search:
    """One search."""

    def __init__(self, question: Question, options: PowerOptions, case: PowerCase, settings: dict[str, Any]) -> None:
        self.question, self.options, self.starts = question, options, options.starts_for(case.n_buses)
        self.recording = options.recording(case, settings)
        self.request = options.request
        self.found = Found(question.low, np.inf)
        self._known: dict[bytes, float] = {}

    def run(self, candidates: Sequence[Vector]) -> Found:
        """From exact values at candidates to a settled decision."""
        with interruptible(self.request), closing(self.recording):
            try:
                ranked = self._ranked(candidates)
                for start in ranked[: self.starts]:
                    self._descend(start)
                self._settle()
                if self._scan():
                    self._settle()
                self._keep_apart()
            except (Stop, KeyboardInterrupt) as stop:
                self.found.stopped = stop.reason if isinstance(stop, Stop) else StopReason.INTERRUPTED
                self._keep_known(self.question.project(np.asarray(candidates[0], dtype=np.float64)))
        self.found.remark = self.recording.remark()
        return self.found

    # --- exact values ---------------------------------------------------------------------------------------------
    def value(self, x: Vector) -> float:
        """The leader's value with the market cleared anew; the best is kept."""
        self.request.check()
        key = x.tobytes()
        if key not in self._known:
            recalled = self.recording.recall("value", x)
            if recalled is None:
                self._known[key] = self.question.exact(x)
                self.recording.note("value", x, np.array([self._known[key]]))
            else:
                self._known[key] = float(recalled[0])
            self.found.cleared += 1
        value = self._known[key]
        if value < self.found.value:
            self.found.x, self.found.value = x.copy(), value
            self._note(np.inf, value)
        return value

    def _ranked(self, candidates: Sequence[Vector]) -> list[Vector]:
        """The best candidates first, none close to a better one."""
        points = [self.question.project(np.asarray(one, dtype=np.float64)) for one in candidates]
        order = np.argsort([self.value(one) for one in points], kind="stable")
        size = TINY + np.linalg.norm(self.question.high - self.question.low)
        kept: list[Vector] = []
        for k in order:
            if all(np.linalg.norm(points[k] - other) > 0.02 * size for other in kept):
                kept.append(points[k])
        return kept

    # --- descents -------------------------------------------------------------------------------------------------
    def _descend(self, start: Vector) -> None:
        began = self.request.elapsed()
        self.value(start)
        ended = self._kept_descent(start)
        value = min(self.value(one) for one in [start, ended.x, *ended.beside])
        self.found.evaluations += ended.evaluations
        self.found.starts.append(Start(value, ended.evaluations, self.request.elapsed() - began, ended.status.value))

    def _kept_descent(self, start: Vector) -> _Descended:
        """A descent out of the recording, or a new one, which is written down."""
        n, statuses = len(start), list(Status)
        if (known := self.recording.recall("descent", start)) is not None:
            if len(known) < n + 2 or (len(known) - 2) % n or not 0 <= known[1] < len(statuses):
                raise CheckpointError("the checkpoint does not fit this version of blocc: a descent has another form")
            points = known[2:].reshape(-1, n)
            return _Descended(points[0], list(points[1:]), int(known[0]), statuses[int(known[1])])
        found = self._descended(start)
        if found.status in (Status.TIME_LIMIT, Status.INTERRUPTED):
            raise Stop(StopReason.TIME_LIMIT if found.status is Status.TIME_LIMIT else StopReason.INTERRUPTED)
        counts = np.array([found.evaluations, statuses.index(found.status)], dtype=np.float64)
        self.recording.note("descent", start, np.concatenate([counts, found.x, *found.beside]))
        return found

    def _descended(self, start: Vector) -> _Descended:
        question, options = self.question, self.options
        self.request.check()
        left = self.request.left()
        question.share.value = self._share(start)  # as a value it is projected: a budget is met to a solver's accuracy
        result = question.problem.solve(
            None,
            tolerance=options.tolerance,
            max_iterations=options.max_iterations,
            time_limit=None if left is None else max(left, 1e-9),
            seed=options.seed,
            progress=False,
            callback=self._enough,
        )
        share = np.asarray(result.x[question.share.name()], dtype=np.float64)
        x = question.project(question.low + share * (question.high - question.low))
        return _Descended(x, self._both_sides(x, result), result.counts["evaluations"], result.status)

    def _both_sides(self, x: Vector, result: Result) -> list[Vector]:
        """Points beside x, where a market that jumps at x has its other answers."""
        found = [self._beside(x, sign * step * np.ones(len(x))) for step in STEPS[:3] for sign in (1.0, -1.0)]
        return found + [self.question.project(one) for one in self.question.beside(x, result)]

    def _share(self, x: Vector) -> Vector:
        low, high = self.question.low, self.question.high
        return np.clip((x - low) / np.maximum(high - low, TINY), 0.0, 1.0)

    def _enough(self, state: State) -> bool:
        """Whether a descent has had its share: where offers tie, it would probe the tie for ever."""
        self._note(state.row.gamma, self.question.problem.sign * state.row.penalty_value)
        most = _EVALUATIONS + _EACH * len(self.question.low)
        return state.row.evaluations >= most

    def _note(self, gamma: float, value: float) -> None:
        step = Step(self.request.elapsed(), len(self.found.starts), gamma, value)
        self.found.history.append(step)
        if self.options.report is not None:
            self.options.report(step)

    # --- points around --------------------------------------------------------------------------------------------
    def _settle(self, rounds: int = 60) -> None:
        """Move to better points around until there is none."""
        allowed = self.options.tolerance * (1.0 + abs(self.found.value))
        for _ in range(rounds):
            before, here = self.found.value, self.found.x
            for step in STEPS:
                for direction in self._directions(len(here)):
                    self.value(self._beside(here, step * direction))
            self.found.gain_left = before - self.found.value
            if self.found.gain_left <= 0.01 * allowed:
                return
            allowed = self.options.tolerance * (1.0 + abs(self.found.value))

    def _scan(self, rounds: int = 6) -> bool:
        """Look at decisions far away until none is better; whether one was."""
        question, began = self.question, self.found.value
        for _ in range(rounds if question.further is not None else 0):
            before = self.found.value
            assert question.further is not None
            for point in question.further(self.found.x):
                self.value(question.project(point))
            if before - self.found.value <= 0.01 * self.options.tolerance * (1.0 + abs(before)):
                break
        return self.found.value < began

    def _keep_apart(self) -> None:
        """Step away from a tie that two solvers break in two ways, as little as will do."""
        found, question = self.found, self.question
        if not np.isfinite(found.value) or question.agrees(found.x):
            return
        best, here = found.value, found.x
        for step in STEPS:
            points = [self._beside(here, step * direction) for direction in self._directions(len(here))]
            for value, _, point in sorted((self.value(one), k, one) for k, one in enumerate(points)):
                if np.isfinite(value) and question.agrees(point):
                    found.x, found.value, found.gain_left = point, value, value - best
                    return

    def _keep_known(self, first: Vector) -> None:
        """After a stop: the best decision of those known, the first candidate among them, that two solvers agree on."""
        self._known.setdefault(first.tobytes(), self.question.exact(first))
        ranked = sorted(self._known.items(), key=lambda one: one[1])
        points = [(np.frombuffer(key), value) for key, value in ranked if np.isfinite(value)]
        for point, value in points:
            if self.question.agrees(point):
                self.found.x, self.found.value = point.copy(), value
                return
        if points:
            self.found.x, self.found.value = points[0][0].copy(), points[0][1]

    def _beside(self, x: Vector, move: Vector) -> Vector:
        question = self.question
        return question.project(x + move * (question.high - question.low))

    def _directions(self, n: int) -> list[Vector]:
        each = [sign * one for one in np.eye(n) for sign in (1.0, -1.0)]
        return each if n == 1 else [*each, np.ones(n), -np.ones(n)]
