"""One start, judged: descend, judge the end in the user's own units, and go on from there while the judge objects.

A phase is a :class:`~blocc.run.single.Run` in units that suit the point where it begins. What looks stationary in them
need not be, so :mod:`blocc.judge` examines the end, and an objection starts another phase from the best point known:
off a plateau, by Newton steps on the pieces of f(x, y(x)), or by stages of F_gamma. The incumbent, the best exact
value that any phase has seen, is what comes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from blocc._lib.compiled import compile_seconds
from blocc.judge.examine import Judge
from blocc.judge.probe import DISTANCES, Value
from blocc.judge.responses import below_tolerance
from blocc.judge.verdict import Verdict
from blocc.local.balance import Units
from blocc.options import Options
from blocc.outer.monitor import Stop, StopRequest
from blocc.outer.tolerances import Endpoint
from blocc.penalty import follower_alone
from blocc.problem import BilevelProblem
from blocc.reformulate.units import Scaling, first_units, scaling_of
from blocc.result import History, HistoryRow, Result, Status
from blocc.resume.recording import Recording
from blocc.run import conclude, precompile
from blocc.run.finishing import Finishing, Known
from blocc.run.incumbent import SEEN, UNPROVEN, Seen, at, incumbent, shown, standing
from blocc.run.phase import ENDED, OPEN, Phase
from blocc.run.single import Callback, Report, Run, reason_of

R = TypeVar("R", bound=Run)

_MOST_PHASES = 8
_VIOLATED = 1e-3  #: violations of the leader's constraints, relative to their rows, beyond which nothing is close
_FAR = 100.0  #: sizes of the start, beyond which an answer is asked whether it runs off
#: Random members of X that are tried where neither f nor y changes around x, or the leader's constraint fails.
_LEAVES = 12
_BY_VALUE = (Status.STALLED, "Reached by a descent of f(x, y(x)) itself.")


class Driver:
    """One call of the front door for one problem."""

    def __init__(
        self,
        problem: BilevelProblem,
        options: Options,
        callback: Callback | None,
        report: Report | None,
        recording: Recording,
        request: StopRequest,
        known: Known | None = None,
    ) -> None:
        """``request`` is shared by the starts of one call; ``known`` is an answer to begin at."""
        self.problem, self.flat, self.options, self.recording = problem, problem.flat, options, recording
        self.callback, self.report, self.request, self.known = callback, report, request, known
        self.automatic = isinstance(options.gamma, str) and options.outer != "pgd"
        self.clock, self._compiled = time.perf_counter(), compile_seconds()
        self.runs: list[tuple[Run, Scaling | None]] = []
        self.rows: list[HistoryRow] = []  #: of all phases

    def single(self, x: np.ndarray) -> Result:
        """From one start to a judged result."""
        units = None
        if self.automatic:
            precompile.prepare(self.problem, self.options, x)
            units = first_units(self.problem, x)
        phase = self._phase(units, x, finish=True)
        if phase.result.status in OPEN:
            phase = self._onward(self.judged(phase, x), x)
        return self.finished(phase)

    def _onward(self, best: Phase, start: np.ndarray) -> Phase:
        """The best of all phases: while the judge objects, each way on is tried, and all again after a gain."""
        # A point that is better by less than the tolerance is preferred where it is a success itself.
        seen = incumbent(self.problem, self.options, self._seen(), best, strict=True) if self.automatic else None
        if seen is not None:
            best = min(best, self.judged(seen, start), key=self._rank)
        ways = self._ways()
        for _ in range(_MOST_PHASES):
            if self.settled(best):
                break
            try:
                taken = next(((way, found) for way in ways if (found := way(best)) is not None), None)
            except (Stop, KeyboardInterrupt) as stop:
                return self._stopped(best, stop)
            if taken is None:  # descents from here, by all ways there are, came to nothing better
                return replace(best, by_value=True)
            way, phase = taken
            following = self.judged(phase, start)
            if self.request.reason is not None or following.result.status is Status.TIME_LIMIT:
                ended = replace(best.result, status=following.result.status, message=following.result.message)
                return replace(best, result=ended, verdict=None)
            if self._rank(following) <= self._rank(best):
                if self._gained(following, best):
                    ways = self._ways()
                    if way == self.incumbent:  # a descent from there is next: the judge's probes have been seen, too
                        next(ways)
                best = following
        return best

    def incumbent(self, end: Phase, seen: Sequence[Seen] | None = None) -> Phase | None:
        """The best of the points seen (by default: by any run), as a phase that ended there; None if none is better."""
        return incumbent(self.problem, self.options, self._seen() if seen is None else seen, end)

    def _seen(self) -> list[Seen]:
        """The points that were the best so far of any run, the start first."""
        return [Seen(run, scaling, low) for run, scaling in self.runs for low in run.monitor.lows]

    def _gained(self, new: Phase, old: Phase) -> bool:
        assert new.verdict is not None
        assert old.verdict is not None
        return new.verdict.value.upper < old.verdict.value.upper - self.options.tolerance * old.verdict.unit

    # --- ways on ------------------------------------------------------------------------------------------------
    def _ways(self) -> Iterator[Callable[[Phase], Phase | None]]:
        again = self._finished_again, self._followed, self._admissible, self._penalised
        return iter((self.incumbent, self._off_plateau, *again))

    def _off_plateau(self, best: Phase) -> Phase | None:
        """A phase from a point with a better value, where neither f nor the follower's response changes around x."""
        v = best.verdict
        assert v is not None
        if not v.probed.flat:
            return None
        allowed = below_tolerance(self.options.tolerance)
        found = [value for value in self._sampled(best, list(v.probed.flat)) if value.violation <= allowed]
        least = min(found, key=lambda value: value.upper, default=v.value)
        better = least.upper < v.value.upper - self.options.tolerance * v.unit
        return self._phase(best.units, least.x) if better else None

    def _admissible(self, best: Phase) -> Phase | None:
        """A phase from where in X the leader's constraint is violated least, if no descent has met it."""
        v = best.verdict
        assert v is not None
        if v.admissible or not v.lower_optimal:
            return None
        found = self._sampled(best, list(range(self.flat.n_x)))
        least = min(found, key=lambda value: (value.violation, value.upper), default=v.value)
        return self._phase(best.units, least.x, finish=True) if least.violation < v.value.violation else None

    def _sampled(self, best: Phase, along: list[int]) -> list[Value]:
        """Values at random members of X and at points around x, for some of its entries."""
        v = best.verdict
        assert v is not None
        judge, generator = best.judge(self.problem, self.options), np.random.default_rng(self.options.seed)
        here = v.value.x
        size = np.maximum(1.0, np.abs(here))
        members = [self.flat.x_set.sample_flat(generator) for _ in range(_LEAVES)]
        members += [here + size * 2.0**k * generator.uniform(-1.0, 1.0, size.size) for k in range(-3, 4)]
        points = []
        for member in members:  # the coordinates that nothing depends on are moved alone, and with all others
            alone = here.copy()
            alone[along] = member[along]
            points += [alone, member] if len(along) < len(here) else [member]
        return [value for point in points if (value := judge.reduced_objective(judge.project(point))) is not None]

    def _followed(self, best: Phase) -> Phase | None:
        """Newton steps on the pieces of f(x, y(x)) from the best point known, or to the other side of a tie."""
        v = best.verdict
        assert v is not None
        if best.success(self.problem) or not v.lower_optimal or v.reply is None:
            return None
        judge = best.judge(self.problem, self.options)
        if v.challenge.snapped is not None:
            reached = judge.reduced_objective(judge.project(v.challenge.snapped))
        else:
            reached = judge.follow(v.value if v.probed.better is None else v.probed.better)
        return None if reached is None or reached is v.value else self._moved(best, reached)

    def _finished_again(self, best: Phase) -> Phase | None:
        """A finish from the best point known, to which none has led; None if it leads to nothing better."""
        v = best.verdict
        assert v is not None
        if best.success(self.problem) or not (v.lower_optimal and v.admissible) or v.challenge.snapped is not None:
            return None
        begin = v.value if v.probed.better is None else v.probed.better
        phase = self._phase(best.units, begin.x, finish=True, stays=True)
        return phase if phase.result.upper_value < begin.upper or phase.result.status in ENDED else None

    def _penalised(self, best: Phase) -> Phase | None:
        """Stages of F_gamma from the best point known, which a finish alone has not led to."""
        v = best.verdict
        assert v is not None
        if best.success(self.problem) or not best.run.finished or v.challenge.snapped is not None:
            return None
        return self._phase(best.units, (v.value if v.probed.better is None else v.probed.better).x)

    def _moved(self, best: Phase, reached: Value) -> Phase | None:
        """The phase as if it had ended at a point that was reached by other means; None if it gets no better."""
        if not np.any(reached.x != self.problem.x_set.ravel(best.result.x)) and best.by_value:
            return None
        found = best.evaluate(reached.x)
        evaluation = found if found.usable else follower_alone(found)
        if evaluation is None:
            return None
        end = Endpoint(evaluation, 0.0, DISTANCES[-1])
        result = best.run.conclude_at(end, *_BY_VALUE)
        result = result if best.scaling is None else best.scaling.restore(result)
        return Phase(best.run, best.scaling, result, end, by_value=True)

    # --- one phase ----------------------------------------------------------------------------------------------
    def _phase(self, units: Units | None, x: np.ndarray, finish: bool = False, stays: bool | None = None) -> Phase:
        """One run from ``x`` in the given units; with a finish on f(x, y(x)) itself, or by F_gamma alone.

        It ``stays`` in the valley of x, by default where there is no finish.
        """
        run, scaling = self.begin(Run, units)
        run.finishing = Finishing.of(self.problem, scaling, run.evaluator, self.options) if finish else None
        run.known, run.stays = self.known, not finish if stays is None else stays
        result = run.single(x if scaling is None else scaling.inward(x))
        assert run.end is not None
        found = result if scaling is None else scaling.restore(result)
        stationary = run.finished and np.isfinite(run.end.stationarity)
        phase = Phase(run, scaling, found, run.end, by_value=bool(stationary))
        self.rows += phase.result.history.rows()
        return phase

    def begin(self, kind: type[R], units: Units | None) -> tuple[R, Scaling | None]:
        """A run that has not begun, on the clock of the call."""
        scaling = scaling_of(self.problem, units)
        target = self.problem if scaling is None else scaling.problem
        callback = self.callback if scaling is None else scaling.callback(self.callback)
        report = self.report if scaling is None else scaling.report(self.report)
        run = kind(target, self.options, callback, report, self.recording)
        run.monitor.request, run.monitor.started = self.request, self.request.started - self.recording.earlier
        self.runs.append((run, scaling))
        return run, scaling

    def judged(self, phase: Phase, start: np.ndarray, probes: bool = True) -> Phase:
        """The phase with its verdict; as it is where there is nothing to judge."""
        if phase.result.status not in OPEN or not bool(phase.evaluation.usable):
            return phase
        examine = partial(
            phase.judge(self.problem, self.options).examine,
            self.problem.x_set.ravel(phase.result.x),
            self.problem.y_set.ravel(phase.result.y),
            multipliers=conclude.joined_multipliers(phase.result),
            downhill=phase.gradient(),
            start=start,
        )
        # Whose steps were all made, and who claims nothing, needs no witness unless derivatives call x stationary.
        spent = phase.result.status is Status.ITERATION_LIMIT and not self.automatic
        try:
            phase.verdict = examine(probes=probes and not spent)
            if probes and spent and phase.verdict.certified:
                phase.verdict = examine()
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
    def settled(self, phase: Phase) -> bool:
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
        allowance = self.options.tolerance * v.unit if success else 0.0
        return (not v.lower_optimal, not v.admissible, v.value.upper - allowance)

    # --- the end ------------------------------------------------------------------------------------------------
    def finished(self, phase: Phase, others: Sequence[Seen] | None = None) -> Result:
        """The result of the best phase, with the verdict's status and the figures of all phases."""
        result, v = phase.result, phase.verdict
        status, message = (result.status, result.message) if v is None else self._status(phase, v)
        others = self._seen() if others is None else others
        # With a gamma given by hand its minimiser of F_gamma is what was asked for, or the last step of Algorithm 1.
        asked = status in (Status.CONVERGED, Status.PENALTY_OPEN) or self.options.outer == "pgd"
        seen = self.incumbent(phase, others) if self.automatic or not asked else None
        if seen is not None:  # whatever the status, nothing better is thrown away
            met = seen.evaluation.violation <= seen.run.tolerances.leader_tolerance
            if status in (Status.CONVERGED, Status.STALLED) or (status is Status.INFEASIBLE and met):  # said of the end
                status, message = Status.STALLED, SEEN
        proven = v is not None and v.lower_optimal
        if status is Status.STALLED and seen is None and not proven and self.automatic and v is not None:
            exact = standing(self.problem, self.options, phase)
            seen, message = (None, message) if exact is None else (shown(self.problem, phase, exact), result.message)
        value = seen.result.upper_value if seen is not None else v.value.upper if v is not None and proven else np.inf
        if status is Status.STALLED and (start := self._unproven_start(others, value)) is not None:
            return start
        if seen is not None:
            seen = replace(seen, result=replace(seen.result, status=status, message=message))
            return self._with(seen, self._measured(seen, polishing=False))
        if v is None and status in ENDED and bool(phase.evaluation.usable):
            return self._with(phase, self._measured(phase))
        if v is not None:
            judged = conclude.with_verdict(self.problem, result, v, 0.0 if v.slope is not None else DISTANCES[-1])
            result = replace(judged, status=status)
            if result.success and (v.certified or phase.run.finished) and self.automatic:
                result = conclude.without_penalty(result, v, self.options.tolerance, phase.run.finished)
        result = replace(result, message=conclude.with_stop(message, phase.end, self.options))
        return replace(result, history=History(self.rows), counts=self._counts(), seconds=self._seconds())

    def _unproven_start(self, seen: Sequence[Seen], value: float) -> Result | None:
        """The result at the start, if its y is not shown to be the response, and f there seems less than ``value``."""
        start = at(seen[0], Status.STALLED, UNPROVEN) if self.automatic and seen else None
        if start is None or standing(self.problem, self.options, start) is not None:
            return None
        v = self._measured(start)
        return self._with(start, v) if not v.lower_optimal and v.value.upper < value else None

    def _measured(self, phase: Phase, polishing: bool = True) -> Verdict:
        """The verdict on a phase whose end is not probed: figures in the user's units, and no work beyond them."""
        problem, result = self.problem, phase.result
        x, y, prices = problem.x_set.ravel(result.x), problem.y_set.ravel(result.y), conclude.joined_multipliers(result)
        return Judge.of(problem, lambda x: None, self.options.tolerance).measure(x, y, prices, polishing)

    def _with(self, phase: Phase, v: Verdict) -> Result:
        """The result of a phase, with the certificate of a verdict."""
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
            message += f" {v.undecided}" if v.undecided else ""
            if v.probed.flat:
                which = "x" if len(v.probed.flat) == self.flat.n_x else f"entries {list(v.probed.flat)} of x"
                message += f" It is flat here: neither the follower's answer nor f changes with {which} around x."
            return Status.CONVERGED, message
        if v.lower_optimal and v.value.violation > _VIOLATED:
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
