"""A run in legs: descend, judge the end in the user's own units, and go on from there while the judge objects.

A leg is a :class:`~blocc.run.descents.Run` in units that suit the point where it begins. Units that were good at the
start may be bad at the end, and what looks stationary in them need not be: so the end is judged by
:mod:`blocc.judge`, and an objection starts another leg from the best point known, first with units renewed for the
functions, then for all variables, then in the user's own, and last by a descent of f(x, y(x)) itself.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from blocc.judge.balance import Units
from blocc.judge.derivatives import LARGEST, size_of
from blocc.judge.probe import DISTANCES, Value
from blocc.judge.verdict import Judge, Verdict
from blocc.options import Options
from blocc.outer.monitor import HistoryRow, Stop, StopRequest
from blocc.problem import BilevelProblem
from blocc.result import History, MultiResult, Result, Status
from blocc.resume.recording import Journal
from blocc.run import conclude
from blocc.run.attempts import Attempts
from blocc.run.descents import Callback, Report, Run, reason_of
from blocc.run.phase import ENDED, OPEN, Leg
from blocc.run.units import Scaling, first_units, scaling_of
from blocc.run.value_descent import LARGEST_DIMENSION

_MOST_LEGS = 8
#: Evaluations of one leg of a small problem: beyond it a descent of f(x, y(x)) itself is the better way.
_BUDGET = 1500
_VIOLATED = 1e-3  #: violations of the leader's constraints, relative to their rows, beyond which nothing is close
_FAR = 100.0  #: sizes of the start, beyond which an answer is asked whether it runs off


class Legs:
    """One call of the front door, judged."""

    def __init__(
        self,
        problem: BilevelProblem,
        options: Options,
        callback: Callback | None,
        report: Report | None,
        journal: Journal,
        request: StopRequest,
    ) -> None:
        self.problem, self.flat, self.options, self.journal = problem, problem.flat, options, journal
        self.callback, self.report, self.request = callback, report, request
        self.automatic = isinstance(options.gamma, str) and options.outer != "pgd"
        self.clock = time.perf_counter()
        self.runs: list[Run] = []
        self.rows: list[HistoryRow] = []  #: of all legs
        self.attempts = Attempts(problem, options, self._leg)

    # --- one start ----------------------------------------------------------------------------------------------
    def single(self, x: np.ndarray) -> Result:
        """From one start to a judged result."""
        units = first_units(self.problem, x) if self.automatic else None
        return self._finished(self._onward(self._judged(self._leg(units, x), x), x))

    def _onward(self, best: Leg, start: np.ndarray) -> Leg:
        """Further legs while the judge objects to the best one and something is left to try."""
        plan = self.attempts.plan(best)
        for _ in range(_MOST_LEGS):
            if self._settled(best):
                break
            leg: Leg | None = None
            try:
                while leg is None and plan:
                    leg = self.attempts.attempt(plan.pop(0), best)
            except (Stop, KeyboardInterrupt) as stop:
                return self._stopped(best, stop)
            if leg is None:
                break
            following = self._judged(leg, start)
            if self.request.reason is not None or following.result.status is Status.TIME_LIMIT:
                return replace(best, result=_restated(best.result, following.result), verdict=None)
            if self._rank(following) <= self._rank(best):
                plan = self.attempts.plan(following) if self._gained(following, best) else plan
                best = following
        return best

    def _gained(self, new: Leg, old: Leg) -> bool:
        assert new.verdict is not None
        assert old.verdict is not None
        return new.verdict.value.upper < old.verdict.value.upper - self.options.tolerance * old.verdict.unit

    # --- many starts --------------------------------------------------------------------------------------------
    def many(self, points: np.ndarray) -> MultiResult:
        """From many starts, in one batch as far as it goes, to judged results."""
        if self.flat.n_upper_inequality and self.options.outer != "pgd":
            # Every start has multipliers of its own: one after the other.
            results = tuple(self.single(x) for x in points)
            return MultiResult(results, self._seconds())
        units = first_units(self.problem, points.mean(axis=0)) if self.automatic else None
        run, scaling = self._run(units)
        found = run.many(points if scaling is None else scaling.inward(points))
        places: list[np.ndarray] = []  # ends that were probed, and found to be what they claim
        results = ()
        for result, outcome, start in zip(found.results, run.lanes, points, strict=True):
            leg = Leg(run, scaling, result if scaling is None else scaling.restore(result), outcome)
            results += (self._lane(leg, start, places),)
        return MultiResult(results, self._seconds())

    def _lane(self, leg: Leg, start: np.ndarray, places: list[np.ndarray]) -> Result:
        """The judged result of one start; ends that were probed before are not probed again."""
        x = self.problem.x_set.ravel(leg.result.x)
        size = 1e-4 * (1.0 + float(np.max(np.abs(x), initial=0.0)))
        known = any(np.max(np.abs(x - place), initial=0.0) <= size for place in places)
        judged = self._judged(leg, start, probes=not known)
        if judged.verdict is None:
            return self._shared(self._finished(judged), leg)
        if not (known and judged.success(self.problem)):
            judged = self._onward(judged if not known else self._judged(leg, start), start)
        if judged.verdict is not None and judged.success(self.problem):
            places.append(judged.verdict.value.x)
        return self._shared(self._finished(judged), leg)

    @staticmethod
    def _shared(finished: Result, lane: Leg) -> Result:
        """With the lane's own share of what the batch did together."""
        told = lane.result
        return replace(finished, counts=told.counts, seconds=told.seconds, history=told.history)

    def _leg(self, units: Units | None, x: np.ndarray) -> Leg:
        """One run from ``x`` in the given units."""
        run, scaling = self._run(units)
        result = run.single(x if scaling is None else scaling.inward(x))
        assert run.outcome is not None
        leg = Leg(run, scaling, result if scaling is None else scaling.restore(result), run.outcome)
        self.rows += leg.result.history.rows()
        return leg

    def _run(self, units: Units | None) -> tuple[Run, Scaling | None]:
        """A run that has not begun, on the clock of the first."""
        scaling = scaling_of(self.problem, units)
        target = self.problem if scaling is None else scaling.problem
        callback = self.callback if scaling is None else scaling.callback(self.callback)
        report = self.report if scaling is None else scaling.report(self.report)
        run = Run(target, self.options, callback, report, self.journal)
        run.monitor.request = self.request
        if self.automatic and self.flat.n_x <= LARGEST_DIMENSION and size_of(self.flat) <= LARGEST:
            run.monitor.budget = _BUDGET
        if self.runs:
            run.monitor.started = self.runs[0].monitor.started
        self.runs.append(run)
        return run, scaling

    def _judged(self, leg: Leg, start: np.ndarray, probes: bool = True) -> Leg:
        """The leg with its verdict; as it is where there is nothing to judge."""
        if leg.result.status not in OPEN or not bool(leg.evaluation.usable):
            return leg
        try:
            leg.verdict = leg.judge(self.problem, self.options).examine(
                self.problem.x_set.ravel(leg.result.x),
                self.problem.y_set.ravel(leg.result.y),
                residual=conclude.lower_residual(leg.evaluation),
                downhill=leg.gradient(),
                start=start,
                probes=probes,
            )
            if leg.success(self.problem) and self._runs_off(leg, start):
                leg.verdict = leg.verdict._replace(unbounded=True)
        except (Stop, KeyboardInterrupt) as stop:
            return self._stopped(leg, stop)
        return leg

    def _runs_off(self, leg: Leg, start: np.ndarray) -> bool:
        """Whether an x that has come far from the start gets better ten times as far away, and again.

        Where f falls along a curved or narrow valley, no straight ray stays in it: each point is descended from.
        """
        v = leg.verdict
        assert v is not None
        reach = float(np.max(np.abs(v.value.x - start), initial=0.0))
        size = 1.0 + float(np.max(np.abs(start), initial=0.0))
        if reach < _FAR * size or v.reply is None:
            return False
        if reach > 1e6 * size:
            return True
        last = v.value
        for _ in range(2):
            wanted = start + 10.0 * (last.x - start)
            point = leg.judge(self.problem, self.options).project(wanted)
            if np.max(np.abs(point - wanted)) > 0.1 * np.max(np.abs(wanted - last.x)):
                return False  # X ends before
            following = self._leg(leg.units, point)
            if following.result.status is Status.UNBOUNDED:
                return True
            x = self.problem.x_set.ravel(following.result.x)
            farther = float(np.max(np.abs(x - start))) > 3.0 * float(np.max(np.abs(last.x - start)))
            lower = following.result.upper_value < last.upper - 1e-9 * (1.0 + abs(last.upper))
            if not (farther and lower and bool(following.evaluation.usable)):
                return False
            last = Value(x, self.problem.y_set.ravel(following.result.y), following.result.upper_value, 0.0)
        return True

    def _stopped(self, leg: Leg, stop: BaseException) -> Leg:
        """What was found so far, with the status that says why there is no more."""
        self.journal.close()
        status, message = conclude.STOPPED[reason_of(stop)]
        return replace(leg, result=replace(leg.result, status=status, message=message), verdict=None)

    # --- what next? ---------------------------------------------------------------------------------------------
    def _settled(self, leg: Leg) -> bool:
        """Whether no further leg is called for."""
        if self.options.max_iterations is not None and leg.result.status is Status.ITERATION_LIMIT:
            return True
        if leg.verdict is None or leg.verdict.unbounded or not self.automatic:
            return True
        return leg.success(self.problem) and not leg.verdict.probed.flat

    def _rank(self, leg: Leg) -> tuple[Any, ...]:
        """Feasible at both levels first, then by what the leader gets, and successful ones first where that ties."""
        v = leg.verdict
        if v is None:
            return (True, True, np.inf)
        success = leg.success(self.problem)
        return (not v.below, not v.admissible, v.value.upper - (self.options.tolerance * v.unit if success else 0.0))

    # --- the end ------------------------------------------------------------------------------------------------
    def _finished(self, leg: Leg) -> Result:
        """The result of the best leg, with the verdict's status and the figures of all legs."""
        result, v = leg.result, leg.verdict
        if v is None and leg.result.status in ENDED and bool(leg.evaluation.usable):
            return self._measured(leg)
        if v is not None:
            judged = conclude.with_verdict(self.problem, result, v, 0.0 if v.slope is not None else DISTANCES[-1])
            status, message = self._status(leg, v)
            result = replace(judged, status=status, message=message)
        return replace(result, history=History(self.rows), counts=self._counts(), seconds=self._seconds())

    def _measured(self, leg: Leg) -> Result:
        """The result of a leg that was stopped, with a certificate in the user's units; nothing more is computed."""
        v = Judge.of(self.problem, lambda x: None, self.options.tolerance).examine(
            self.problem.x_set.ravel(leg.result.x),
            self.problem.y_set.ravel(leg.result.y),
            residual=conclude.lower_residual(leg.evaluation),
            downhill=None,
            probes=False,
        )
        result = conclude.with_verdict(self.problem, leg.result, v, leg.result.certificate.radius)
        return replace(result, history=History(self.rows), counts=self._counts(), seconds=self._seconds())

    def _status(self, leg: Leg, v: Verdict) -> tuple[Status, str]:
        if v.unbounded:
            return Status.UNBOUNDED, (
                "The leader's objective keeps falling along a ray: it has no minimum. This is the best point so far."
            )
        if leg.success(self.problem):
            where = "" if v.slope is not None else " as far as probes around it tell (y(x) has no derivative there)"
            message = f"x is a stationary point of f(x, y(x)){where}, and y is the follower's exact answer."
            if v.probed.flat:
                which = "x" if len(v.probed.flat) == self.flat.n_x else f"entries {list(v.probed.flat)} of x"
                message += f" It is flat here: neither the follower's answer nor f changes with {which} around x."
            return Status.CONVERGED, message
        if v.below and v.value.violation > _VIOLATED:
            return Status.INFEASIBLE, (
                "The leader's constraint upper_inequality(x, y) <= 0 is violated, and no x was found where it holds."
            )
        if leg.result.status is Status.CONVERGED:
            why = v.objection() or "the units of x are in doubt"
            return Status.STALLED, f"No descent went on from here, but {why}."
        objection = v.objection()
        return leg.result.status, leg.result.message + (f" Judged in your units: {objection}." if objection else "")

    def _counts(self) -> dict[str, int]:
        counts = [run.counts() for run in self.runs]
        return {**{name: sum(each[name] for each in counts) for name in counts[0]}, "legs": len(self.runs)}

    def _seconds(self) -> dict[str, float]:
        compiling = sum(run.seconds()["compile"] for run in self.runs)
        return {"compile": compiling, "run": time.perf_counter() - self.clock + self.journal.earlier - compiling}


def _restated(best: Result, ended: Result) -> Result:
    """The best result with the status of the leg that was stopped."""
    return replace(best, status=ended.status, message=ended.message)
