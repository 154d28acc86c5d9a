"""A run in phases: descend, judge the end in the user's own units, and go on from there while the judge objects.

A phase is a :class:`~blocc.run.single.Run` in units that suit the point where it begins. Units that were good at the
start may be bad at the end, and what looks stationary in them need not be: so the end is judged by
:mod:`blocc.judge`, and an objection starts another phase from the best point known, first with units renewed for the
functions, then for all variables, then in the user's own, and last by a descent of f(x, y(x)) itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np

from blocc._lib.compiled import compile_seconds
from blocc.inner.choice import choose_oracles
from blocc.judge.probe import DISTANCES, Value
from blocc.judge.verdict import Judge, Verdict
from blocc.local.balance import Units
from blocc.local.derivatives import LARGEST, size_of
from blocc.options import Options
from blocc.outer.monitor import Stop, StopRequest
from blocc.problem import BilevelProblem
from blocc.result import History, HistoryRow, Result, Status
from blocc.resume.recording import Recording
from blocc.run import ahead, conclude
from blocc.run.attempts import DEAR, Attempts
from blocc.run.batch import BatchRun
from blocc.run.finishing import Finishing, Known
from blocc.run.incumbent import SEEN, Seen, incumbent
from blocc.run.phase import ENDED, OPEN, Phase
from blocc.run.places import Descent, End, Places
from blocc.run.single import Callback, Report, Run, reason_of
from blocc.run.units import Scaling, first_units, scaling_of
from blocc.run.value_descent import LARGEST_DIMENSION

R = TypeVar("R", bound=Run)

_MOST_PHASES = 8
#: Starts of a batch that was stopped whose certificates are measured: the best ones, because the time is over.
_MEASURED = 16
#: Evaluations of one phase of a small problem: beyond it a descent of f(x, y(x)) itself is the better way.
_BUDGET = 1500
_TOGETHER = 15  #: variables and rows of a follower up to which starts descend together on a CPU
#: Gain of a last step, in tolerances of what f varies by, that is worth it: an accuracy of the square of the tolerance.
_WORTH = 1e-10
_VIOLATED = 1e-3  #: violations of the leader's constraints, relative to their rows, beyond which nothing is close
_FAR = 100.0  #: sizes of the start, beyond which an answer is asked whether it runs off


class Phases:
    """One call of the front door, judged."""

    def __init__(
        self,
        problem: BilevelProblem,
        options: Options,
        callback: Callback | None,
        report: Report | None,
        recording: Recording,
        request: StopRequest,
        places: Places | None = None,
        known: Known | None = None,
    ) -> None:
        """``request`` and ``places`` are shared by the starts of one call; ``known`` is an answer to begin at."""
        self.known = known
        self.places = Places() if places is None else places
        self.problem, self.flat, self.options, self.recording = problem, problem.flat, options, recording
        self.callback, self.report, self.request = callback, report, request
        self.automatic = isinstance(options.gamma, str) and options.outer != "pgd"
        self.clock, self._compiled = time.perf_counter(), compile_seconds()
        self.runs: list[tuple[Run, Scaling | None]] = []
        self.rows: list[HistoryRow] = []  #: of all phases
        self.attempts = Attempts(problem, options, self._phase)
        self.told: Descent | None = None  #: the start as it was followed, here or elsewhere
        self._early: Result | None = None  #: before anything dear was tried
        self._ends: list[End] = []  #: where the phases have ended
        self._cheap = 0  #: how many of them before that

    # --- one start ----------------------------------------------------------------------------------------------
    def single(self, x: np.ndarray) -> Result:
        """From one start to a judged result, with what is known of other starts."""
        if self.told is None or (result := self.places.settle(self.told)) is None:
            self.told = self._follow(x)
            result = self.places.settle(self.told)
        assert result is not None
        return result

    def _follow(self, x: np.ndarray) -> Descent:
        """One start, until it ends or what is known of other starts makes the rest needless."""
        units = None
        if self.automatic:
            ahead.prepare(self.problem, self.options, x)
            units = first_units(self.problem, x)
        phase = self._phase(units, x, finish=True)
        if phase.result.status not in OPEN:
            return Descent(self._finished(phase))
        seen = self._incumbent(phase)
        first = self._ended(phase, np.inf if seen is None else seen.result.upper_value)
        if self.places.known(first):
            return Descent(first.found, (first,))
        last = self._onward(self._examined(phase, x), x)
        unfinished = last is None or (self._early is not None and self.places.hopeless(self._early))
        final, flat = (None, ()) if unfinished or last is None else (self._finished(last), last.flat)
        return Descent(first.found, tuple(self._ends), self._early, self._cheap, final, flat)

    def _ended(self, phase: Phase, best: float) -> End:
        """Note where a phase has ended, and what the best one before it was worth."""
        found = replace(phase.result, history=History(self.rows), counts=self._counts(), seconds=self._seconds())
        self._ends.append(End(found, best))
        return self._ends[-1]

    def _examined(self, phase: Phase, start: np.ndarray) -> Phase:
        """The last phase that ended, judged."""
        judged = self._judged(phase, start)
        self._ends[-1] = replace(self._ends[-1], flat=judged.flat)
        return judged

    def _onward(self, best: Phase, start: np.ndarray) -> Phase | None:
        """Further phases while the judge objects to the best one and something is left to try; the best of all.

        None where one of them ends in a known place.
        """
        seen = self._incumbent(best)
        if seen is not None:
            judged = self._judged(seen, start)
            best = judged if self._rank(judged) < self._rank(best) else best
        best = self._snapped(best, start)
        plan = self.attempts.plan(best)
        for _ in range(_MOST_PHASES):
            if self._settled(best):
                break
            phase: Phase | None = None
            try:
                while phase is None and plan:
                    kind = plan.pop(0)
                    if kind in DEAR and self._early is None:
                        self._early, self._cheap = self._finished(best), len(self._ends)
                        if self.places.hopeless(self._early):
                            return best
                    phase = self.attempts.attempt(kind, best)
            except (Stop, KeyboardInterrupt) as stop:
                return self._stopped(best, stop)
            if phase is None:
                break
            assert best.verdict is not None
            if self.places.known(self._ended(phase, best.verdict.value.upper)):
                return None
            following = self._examined(phase, start)
            if self.request.reason is not None or following.result.status is Status.TIME_LIMIT:
                ended = replace(best.result, status=following.result.status, message=following.result.message)
                return replace(best, result=ended, verdict=None)
            if self._rank(following) <= self._rank(best):
                plan = self.attempts.plan(following) if self._gained(following, best) else plan
                best = following
            else:
                self._ends[-1] = replace(self._ends[-1], onward=False)
        return best

    def _incumbent(self, end: Phase, seen: Sequence[Seen] | None = None) -> Phase | None:
        """The best of the points seen (by default: by any run), as a phase that ended there; None if none is better."""
        if not self.automatic:
            return None
        if seen is None:
            seen = [Seen(run, scaling, low) for run, scaling in self.runs for low in run.monitor.lows]
        return incumbent(self.problem, self.options, seen, end)

    def _snapped(self, best: Phase, start: np.ndarray) -> Phase:
        """A success within the tolerance of kinks or bounds, moved onto them where f is lower there."""
        v = best.verdict
        if v is None or v.slope is None or not best.success(self.problem) or not self.automatic:
            return best
        near = [way for way in v.slope.ways if 0.0 < way.length <= self.options.tolerance]
        if not any(way.slope * way.length > _WORTH * v.unit for way in near):
            return best
        try:
            moved = self.attempts.attempt("follow", replace(best, by_value=False), polish=True)
        except (Stop, KeyboardInterrupt) as stop:
            return self._stopped(best, stop)
        judged = best if moved is None else self._judged(moved, start)
        return judged if self._rank(judged) < self._rank(best) and judged.success(self.problem) else best

    def _gained(self, new: Phase, old: Phase) -> bool:
        assert new.verdict is not None
        assert old.verdict is not None
        return new.verdict.value.upper < old.verdict.value.upper - self.options.tolerance * old.verdict.unit

    # --- many starts --------------------------------------------------------------------------------------------
    @property
    def batches(self) -> bool:
        """Whether many starts can descend in one compiled loop."""
        if self.options.outer == "pgd":
            return True
        # Otherwise every start has multipliers of its own, or a follower so large that it fills the machine.
        large = self.automatic and choose_oracles(self.problem, self.options.inner)[0].differentiates
        # In one loop all starts wait for the one with most inner steps, and XLA factors their matrices one by one: on a
        # CPU an evaluation of 27 variables and 12 rows took up to 14 times as long as the same one start after another.
        size = self.flat.n_y + sum(self.flat.follower_rows)
        waits = self.automatic and jax.default_backend() == "cpu" and size > _TOGETHER
        return not (self.flat.n_upper_inequality or large or waits)

    def many(self, points: np.ndarray) -> tuple[list[Result], list[int]]:
        """From many starts in one batch; the results, and which of them another descent may improve."""
        units = first_units(self.problem, points.mean(axis=0)) if self.automatic else None
        run, scaling = self._run(BatchRun, units)
        found = run.many(points if scaling is None else scaling.inward(points))
        results: list[Result] = []
        unsettled: list[int] = []
        judged_phases: dict[int, Phase] = {}
        leading = np.argsort([result.upper_value for result in found])[:_MEASURED]
        for index, (result, end, start) in enumerate(zip(found, run.ends, points, strict=True)):
            seen = [Seen(run, scaling, low) for low in run.lows[index]]
            if run.same[index] < index:  # ended where that one did, which is judged for both
                judged = results[run.same[index]]
                if self.options.outer == "pgd":  # the verdict alone is shared
                    told = result if scaling is None else scaling.restore(result)
                    own = replace(told.certificate, exact=judged.certificate.exact)  # residuals are those of its own x
                    results.append(replace(told, status=judged.status, message=judged.message, certificate=own))
                    continue
                results.append(replace(judged, counts={**result.counts, "merged": 1}, seconds=result.seconds))
                lost = self._incumbent(judged_phases[run.same[index]], seen) is not None
                unsettled += [index] if lost or run.same[index] in unsettled else []
                continue
            phase = Phase(run, scaling, result if scaling is None else scaling.restore(result), end)
            if result.status in ENDED and index not in leading:
                results.append(phase.result)
                continue
            phase = judged_phases[index] = self._judged(phase, start)
            told, lost = phase.result, self._incumbent(phase, seen) is not None
            judged = self._finished(phase, seen)
            if judged.status not in ENDED and (lost or not (phase.verdict is not None and self._settled(phase))):
                unsettled.append(index)
            results.append(replace(judged, counts=told.counts, seconds=told.seconds, history=told.history))
        return results, unsettled

    def _phase(self, units: Units | None, x: np.ndarray, finish: bool = False) -> Phase:
        """One run from ``x`` in the given units; with a finish on f(x, y(x)) itself, or by F_gamma alone."""
        run, scaling = self._run(Run, units)
        run.finishing = Finishing.of(self.problem, scaling, run.evaluator, self.options) if finish else None
        run.known = self.known
        result = run.single(x if scaling is None else scaling.inward(x))
        assert run.end is not None
        found = result if scaling is None else scaling.restore(result)
        stationary = run.finished and np.isfinite(run.end.stationarity)
        phase = Phase(run, scaling, found, run.end, by_value=bool(stationary))
        self.rows += phase.result.history.rows()
        return phase

    def _run(self, kind: type[R], units: Units | None) -> tuple[R, Scaling | None]:
        """A run that has not begun, on the clock of the call."""
        scaling = scaling_of(self.problem, units)
        target = self.problem if scaling is None else scaling.problem
        callback = self.callback if scaling is None else scaling.callback(self.callback)
        report = self.report if scaling is None else scaling.report(self.report)
        run = kind(target, self.options, callback, report, self.recording)
        run.monitor.request, run.monitor.started = self.request, self.request.started - self.recording.earlier
        small = self.flat.n_x <= LARGEST_DIMENSION and size_of(self.flat) <= LARGEST
        if self.automatic and small and kind is Run:  # the starts of a batch share one monitor
            run.monitor.budget = _BUDGET
        self.runs.append((run, scaling))
        return run, scaling

    def _judged(self, phase: Phase, start: np.ndarray, probes: bool = True) -> Phase:
        """The phase with its verdict; as it is where there is nothing to judge."""
        if phase.result.status not in OPEN or not bool(phase.evaluation.usable):
            return phase
        try:
            phase.verdict = phase.judge(self.problem, self.options).examine(
                self.problem.x_set.ravel(phase.result.x),
                self.problem.y_set.ravel(phase.result.y),
                multipliers=conclude.joined_multipliers(phase.result),
                downhill=phase.gradient(),
                start=start,
                probes=probes,
            )
            if phase.success(self.problem) and self._runs_off(phase, start):
                phase.verdict = phase.verdict._replace(unbounded=True)
        except (Stop, KeyboardInterrupt) as stop:
            return self._stopped(phase, stop)
        return phase

    def _runs_off(self, phase: Phase, start: np.ndarray) -> bool:
        """Whether an x that has come far from the start gets better ten times as far away, and again.

        Where f falls along a curved or narrow valley, no straight ray stays in it: each point is descended from.
        """
        v = phase.verdict
        assert v is not None
        reach = float(np.max(np.abs(v.value.x - start), initial=0.0))
        size = 1.0 + float(np.max(np.abs(start), initial=0.0))
        if reach < _FAR * size or v.reply is None or np.isfinite(self.flat.x_set.bounds_flat()).all():
            return False
        last = v.value
        for _ in range(2):
            wanted = start + 10.0 * (last.x - start)
            point = phase.judge(self.problem, self.options).project(wanted)
            if np.max(np.abs(point - wanted)) > 0.1 * np.max(np.abs(wanted - last.x)):
                return False  # X ends before
            following = self._phase(phase.units, point)
            if following.result.status is Status.UNBOUNDED:
                return True
            x = self.problem.x_set.ravel(following.result.x)
            farther = float(np.max(np.abs(x - start))) > 3.0 * float(np.max(np.abs(last.x - start)))
            lower = following.result.upper_value < last.upper - 1e-9 * (1.0 + abs(last.upper))
            if not (farther and lower and bool(following.evaluation.usable)):
                return False
            last = Value(x, self.problem.y_set.ravel(following.result.y), following.result.upper_value, 0.0)
        return True

    def _stopped(self, phase: Phase, stop: BaseException) -> Phase:
        """What was found so far, with the status that says why there is no more."""
        self.recording.close()
        status, message = conclude.stopped(reason_of(stop), phase.run.monitor)
        return replace(phase, result=replace(phase.result, status=status, message=message), verdict=None)

    # --- what next? ---------------------------------------------------------------------------------------------
    def _settled(self, phase: Phase) -> bool:
        """Whether no further phase is called for."""
        if self.options.max_iterations is not None and phase.result.status is Status.ITERATION_LIMIT:
            return True
        v = phase.verdict
        if v is None or v.unbounded or not self.automatic or v.challenge.final:
            return True
        return phase.success(self.problem) and not v.probed.flat

    def _rank(self, phase: Phase) -> tuple[Any, ...]:
        """Feasible at both levels first, then by what the leader gets, and successful ones first where that ties."""
        v = phase.verdict
        if v is None:
            return (True, True, np.inf)
        success = phase.success(self.problem)
        return (not v.below, not v.admissible, v.value.upper - (self.options.tolerance * v.unit if success else 0.0))

    # --- the end ------------------------------------------------------------------------------------------------
    def _finished(self, phase: Phase, others: Sequence[Seen] | None = None) -> Result:
        """The result of the best phase, with the verdict's status and the figures of all phases."""
        result, v = phase.result, phase.verdict
        status, message = (result.status, result.message) if v is None else self._status(phase, v)
        if (seen := self._incumbent(phase, others)) is not None:  # whatever the status, nothing better is thrown away
            met = seen.evaluation.violation <= seen.run.tolerances.leader_tolerance
            if status in (Status.CONVERGED, Status.STALLED) or (status is Status.INFEASIBLE and met):  # said of the end
                status, message = Status.STALLED, SEEN
            return self._measured(replace(seen, result=replace(seen.result, status=status, message=message)))
        if v is None and status in ENDED and bool(phase.evaluation.usable):
            return self._measured(phase)
        if v is not None:
            judged = conclude.with_verdict(self.problem, result, v, 0.0 if v.slope is not None else DISTANCES[-1])
            result = replace(judged, status=status)
            if result.success and (v.certified or phase.run.finished) and self.automatic:
                result = conclude.without_penalty(result, v, self.options.tolerance, phase.run.finished)
        result = replace(result, message=conclude.with_stop(message, phase.end, self.options))
        return replace(result, history=History(self.rows), counts=self._counts(), seconds=self._seconds())

    def _measured(self, phase: Phase) -> Result:
        """The result of a phase that was stopped, with a certificate in the user's units; nothing more is computed."""
        v = Judge.of(self.problem, lambda x: None, self.options.tolerance).examine(
            self.problem.x_set.ravel(phase.result.x),
            self.problem.y_set.ravel(phase.result.y),
            multipliers=conclude.joined_multipliers(phase.result),
            probes=False,
        )
        result = conclude.with_verdict(self.problem, phase.result, v, phase.result.certificate.radius)
        return replace(result, history=History(self.rows), counts=self._counts(), seconds=self._seconds())

    def _status(self, phase: Phase, v: Verdict) -> tuple[Status, str]:
        if v.unbounded:
            return Status.UNBOUNDED, (
                "The leader's objective keeps falling along a ray: it has no minimum. This is the best point so far."
            )
        if phase.success(self.problem):
            where = "" if v.slope is not None else " as far as probes around it tell (y(x) has no derivative there)"
            message = f"x is a stationary point of f(x, y(x)){where}, and y is the follower's exact answer."
            message += f" {v.challenge.remark}" if v.challenge.remark else ""
            if v.jump is not None:
                values = f"f is {v.value.upper:.8g} here and {v.jump:.8g} just beyond"
                message += f" The response jumps within the tolerance of x: {values}."
            if v.probed.flat:
                which = "x" if len(v.probed.flat) == self.flat.n_x else f"entries {list(v.probed.flat)} of x"
                message += f" It is flat here: neither the follower's answer nor f changes with {which} around x."
            return Status.CONVERGED, message
        if v.below and v.value.violation > _VIOLATED:
            return Status.INFEASIBLE, (
                "The leader's constraint upper_inequality(x, y) <= 0 is violated, and no x was found where it holds."
            )
        objection = v.objection()
        if phase.result.status is Status.CONVERGED:
            return Status.STALLED, f"No descent went on from here, but {objection or 'the units of x are in doubt'}."
        return phase.result.status, phase.result.message + (f" Judged in your units: {objection}." if objection else "")

    def _counts(self) -> dict[str, int]:
        counts = [run.counts() for run, _ in self.runs]
        return {**{name: sum(each[name] for each in counts) for name in counts[0]}, "phases": len(self.runs)}

    def _seconds(self) -> dict[str, float]:
        compiling = compile_seconds() - self._compiled
        return {"compile": compiling, "run": time.perf_counter() - self.clock + self.recording.earlier - compiling}
