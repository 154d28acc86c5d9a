"""A run in legs: descend, judge the end in the user's own units, and go on from there while the judge objects.

A leg is a :class:`~blocc.run.Run` in units that suit the point where it begins. Units that were good at the start may
be bad at the end, and what looks stationary in them need not be: so the end is judged by :mod:`blocc.judge`, and an
objection starts another leg from the best point known, first with units renewed for the functions, then for all
variables, then in the user's own, and last by a descent of f(x, y(x)) itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from blocc import conclude
from blocc.balance import Units
from blocc.derivatives import local
from blocc.journal import Journal
from blocc.judge.probe import DISTANCES, Value
from blocc.judge.verdict import Judge, Verdict, below_tolerance
from blocc.options import Options
from blocc.outer.monitor import Stop, StopRequest
from blocc.outer.stage import Outcome
from blocc.penalty import Evaluation, Leader, no_leader
from blocc.problem import BilevelProblem
from blocc.result import History, MultiResult, Result, Status
from blocc.run import Callback, Report, Run, reason_of
from blocc.scaling import Scaling, first_units, ones, renewed, scaling_of, units_of
from blocc.value_descent import LARGEST_DIMENSION, descend_value, refine

#: Statuses of a leg whose end is worth judging; every other one has a reason that no further leg removes.
_OPEN = (Status.CONVERGED, Status.STALLED, Status.ITERATION_LIMIT, Status.PENALTY_OPEN, Status.INFEASIBLE)
#: Statuses of a leg that was ended from outside.
_ENDED = (Status.TIME_LIMIT, Status.STOPPED, Status.INTERRUPTED)
_MOST_LEGS = 8
_HOPELESS = 1e7  #: a gamma at which the penalty should be closed
_CLOSE = 4.0  #: units within this factor of one are left alone in a later leg
_VIOLATED = 1e-3  #: violations of the leader's constraints, relative to their rows, beyond which nothing is close
_NEARLY = 0.05  #: stationarity from which a few steps on the derivative of f(x, y(x)) are worth a try
_BY_VALUE = (Status.STALLED, "Reached by a descent of f(x, y(x)) itself.")
#: Random members of X, and points around x, that are tried where neither f nor y changes around x.
_LEAVES = 12
#: Units of the functions that differ by more than this factor from those at the end of a leg are stale.
_STALE = 16.0


@dataclass
class Leg:
    """One leg: its run, the units it was made in, its result in the user's, and the verdict on that."""

    run: Run
    scaling: Scaling | None
    result: Result
    outcome: Outcome
    verdict: Verdict | None = None
    by_value: bool = False  #: the end was reached, or confirmed, by a descent of f(x, y(x)) itself

    def evaluate(self, x: np.ndarray) -> Evaluation:
        """F_gamma and both answers at a flat x of the user's, at the gamma where the leg ended."""
        run = self.run
        inner = run.goal.inner(self.gamma, final=True)
        return run.exact(x if self.scaling is None else self.scaling.inward(x), self.gamma, self.leader, inner)

    @property
    def units(self) -> Units | None:
        """None for the user's own."""
        return None if self.scaling is None else self.scaling.units

    @property
    def evaluation(self) -> Evaluation:
        """Where the leg ended, in its own units."""
        return self.outcome.evaluation

    @property
    def gamma(self) -> float:
        """The last one, in the units of the leg."""
        return float(self.evaluation.gamma)

    @property
    def leader(self) -> Leader:
        """Multipliers of the leader's constraints at the end."""
        if self.run.leader is not None:
            return self.run.leader
        found: Leader = jax.device_get(no_leader(self.run.problem.flat))
        return found

    def gradient(self) -> np.ndarray:
        """Of F_gamma at the end, in the user's units."""
        slope = np.asarray(self.evaluation.gradient)
        return slope if self.scaling is None else slope / (self.scaling.units.x * float(self.scaling.units.upper))

    def answer(self, x: np.ndarray) -> np.ndarray | None:
        """The follower's answer at a flat x, in the user's units."""
        found = self.evaluate(x)
        if not found.usable:
            return None
        return np.asarray(found.answer) * (1.0 if self.scaling is None else self.scaling.units.y)


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

    # --- one start ----------------------------------------------------------------------------------------------
    def single(self, x: np.ndarray) -> Result:
        """From one start to a judged result."""
        units = first_units(self.problem, x) if self.automatic else None
        return self._finished(self._onward(self._judged(self._leg(units, x), x), x))

    def _onward(self, best: Leg, start: np.ndarray) -> Leg:
        """Further legs while the judge objects to the best one and something is left to try."""
        plan = self._plan(best)
        for _ in range(_MOST_LEGS):
            if self._settled(best):
                break
            leg: Leg | None = None
            while leg is None and plan:
                leg = self._attempt(plan.pop(0), best)
            if leg is None:
                break
            following = self._judged(leg, start)
            if self.request.reason is not None or following.result.status is Status.TIME_LIMIT:
                return replace(best, result=_restated(best.result, following.result), verdict=None)
            if self._rank(following) <= self._rank(best):
                plan = self._plan(following) if self._gained(following, best) else plan
                best = following
        return best

    def _plan(self, leg: Leg) -> list[str]:
        """What to try in turn; a penalty that no gamma closes leaves only the descent of f(x, y(x)) itself."""
        if leg.verdict is not None and not leg.run.goal.exact(leg.evaluation) and leg.gamma >= _HOPELESS:
            return ["leave", "refine", "value", "fitting", "own"]
        return ["leave", "refine", "fitting", "own", "value"]

    def _gained(self, new: Leg, old: Leg) -> bool:
        assert new.verdict is not None
        assert old.verdict is not None
        return new.verdict.value.upper < old.verdict.value.upper - self.options.tolerance * old.verdict.scale

    def _attempt(self, kind: str, best: Leg) -> Leg | None:
        """Another leg from the best point known; None where this kind does not apply."""
        v = best.verdict
        assert v is not None
        at = v.value if v.probed.better is None else v.probed.better
        if kind == "leave":
            beyond = self._beyond_plateau(best) if v.probed.flat else None
            return None if beyond is None else self._leg(best.units, beyond)
        if kind == "refine":
            return self._refined(best)
        if kind == "value":
            return self._by_value(best, at) if self.flat.n_x <= LARGEST_DIMENSION else None
        if v.probed.flat and v.holds:
            return None  # nothing to gain from other units
        if best.scaling is None:
            return self._leg(None, at.x) if kind == "own" and v.probed.better is not None else None
        used = best.scaling.units
        units = ones(self.flat)
        if kind == "fitting":
            units = units_of(self.flat, at.x, at.y, _CLOSE) or units
        same = all(np.array_equal(one, other) for one, other in zip(units, used, strict=True))
        return None if same and v.probed.better is None else self._leg(units, at.x)

    def _beyond_plateau(self, leg: Leg) -> np.ndarray | None:
        """A point with a better value, where neither f nor the follower's answer changes around the end."""
        v = leg.verdict
        assert v is not None
        judge, generator = self._judge(leg), np.random.default_rng(self.options.seed)
        size = np.maximum(1.0, np.abs(v.value.x))
        points = [self.flat.x_set.sample_flat(generator) for _ in range(_LEAVES)]
        points += [v.value.x + size * 2.0**k * generator.uniform(-1.0, 1.0, size.size) for k in range(-3, 4)]
        found = [value for point in points if (value := judge.ask(judge.project(point))) is not None]
        found = [value for value in found if value.violation <= below_tolerance(self.options.tolerance)]
        least = min(found, key=lambda value: value.upper, default=v.value)
        return least.x if least.upper < v.value.upper - self.options.tolerance * v.scale else None

    def _by_value(self, best: Leg, at: Value) -> Leg | None:
        """A descent of f(x, y(x)) itself from the best point known."""
        v = best.verdict
        assert v is not None
        if v.reply is None:
            return None
        judge, allowed = self._judge(best), below_tolerance(self.options.tolerance)
        bounds = self.flat.x_set.bounds_flat() if self.flat.x_set.is_box else None
        noise = max(1e-12 * v.scale, 1e-15 * abs(v.value.upper))
        try:
            reached = descend_value(
                judge.ask, judge.project, bounds, at, v.reply.sizes.x, allowed, noise, self.options.seed
            )
            return self._moved(best, reached)
        except (Stop, KeyboardInterrupt) as stop:
            return self._stopped(best, stop)

    def _refined(self, best: Leg) -> Leg | None:
        """A few steps on the derivative of f(x, y(x)), where x is close to stationary for it."""
        v = best.verdict
        assert v is not None
        if v.slope is None or v.reply is None or v.slope.stationarity > _NEARLY or not v.below:
            return None
        judge = self._judge(best)

        def rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
            found = local(self.flat, x, v.value.y)
            n_x = self.flat.n_x
            return (
                found.x_inequality,
                found.x_inequality_jacobian[:, :n_x],
                found.x_equality,
                found.x_equality_jacobian[:, :n_x],
            )

        def constraint(value: Value) -> np.ndarray:
            return judge.values(value.x, value.y)[1]

        try:
            reached = refine(
                judge.gradient, rows, constraint, self.flat.x_set.bounds_flat(), v.value, v.reply.sizes.x, v.scale
            )
            return self._moved(best, reached)
        except (Stop, KeyboardInterrupt) as stop:
            return self._stopped(best, stop)

    def _moved(self, best: Leg, reached: Value) -> Leg | None:
        """The leg as if it had ended at a point that was reached by other means; None where it gets no better."""
        if not np.any(reached.x != self.problem.x_set.ravel(best.result.x)) and best.by_value:
            return None
        evaluation = best.evaluate(reached.x)
        if not evaluation.usable:
            return None
        run = best.run
        outcome = Outcome(evaluation, 0.0, DISTANCES[-1])
        result = run.conclude_at(outcome, *_BY_VALUE)
        result = result if best.scaling is None else best.scaling.restore(result)
        return Leg(run, best.scaling, result, outcome, by_value=True)

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
            return replace(self._finished(judged), counts=leg.result.counts, seconds=leg.result.seconds)
        if not (known and self._success(judged)):
            judged = self._onward(judged if not known else self._judged(leg, start), start)
        if judged.verdict is not None and self._success(judged):
            places.append(judged.verdict.value.x)
        finished = self._finished(judged)
        return replace(finished, counts=leg.result.counts, seconds=leg.result.seconds)

    def _leg(self, units: Units | None, x: np.ndarray) -> Leg:
        """One run from ``x`` in the given units."""
        run, scaling = self._run(units)
        result = run.single(x if scaling is None else scaling.inward(x))
        assert run.outcome is not None
        return Leg(run, scaling, result if scaling is None else scaling.restore(result), run.outcome)

    def _run(self, units: Units | None) -> tuple[Run, Scaling | None]:
        """A run that has not begun, on the clock of the first."""
        scaling = scaling_of(self.problem, units)
        target = self.problem if scaling is None else scaling.problem
        callback = self.callback if scaling is None else scaling.callback(self.callback)
        report = self.report if scaling is None else scaling.report(self.report)
        run = Run(target, self.options, callback, report, self.journal)
        run.monitor.request = self.request
        if self.runs:
            run.monitor.started = self.runs[0].monitor.started
        self.runs.append(run)
        return run, scaling

    def _judged(self, leg: Leg, start: np.ndarray, probes: bool = True) -> Leg:
        """The leg with its verdict; as it is where there is nothing to judge."""
        if leg.result.status not in _OPEN or not bool(leg.evaluation.usable):
            return leg
        try:
            leg.verdict = self._judge(leg).examine(
                self.problem.x_set.ravel(leg.result.x),
                self.problem.y_set.ravel(leg.result.y),
                residual=conclude.lower_residual(leg.evaluation),
                downhill=leg.gradient(),
                start=start,
                probes=probes,
            )
        except (Stop, KeyboardInterrupt) as stop:
            return self._stopped(leg, stop)
        return leg

    def _judge(self, leg: Leg) -> Judge:
        return Judge.of(self.problem, leg.answer, self.options.tolerance, self.options.seed)

    def _stopped(self, leg: Leg, stop: BaseException) -> Leg:
        """What was found so far, with the status that says why there is no more."""
        self.journal.close()
        status, message = conclude.STOPPED[reason_of(stop)]
        return replace(leg, result=replace(leg.result, status=status, message=message), verdict=None)

    # --- what next? ---------------------------------------------------------------------------------------------
    def _success(self, leg: Leg) -> bool:
        """Whether the answer may be called one."""
        v = leg.verdict
        if v is None or not v.holds:
            return False
        if v.first_order:
            return True
        return leg.by_value or (leg.result.status is Status.CONVERGED and not self._stale(leg))

    def _stale(self, leg: Leg) -> bool:
        """Whether the units of the leg no longer fit where it ended."""
        if leg.scaling is None or leg.verdict is None:
            return False
        fresh = renewed(self.flat, leg.verdict.value.x, leg.verdict.value.y, leg.scaling.units)
        now = 1.0 if fresh is None else float(fresh.upper)
        return not 1.0 / _STALE <= float(leg.scaling.units.upper) / now <= _STALE

    def _settled(self, leg: Leg) -> bool:
        """Whether no further leg is called for."""
        if self.options.max_iterations is not None and leg.result.status is Status.ITERATION_LIMIT:
            return True
        if leg.verdict is None or leg.verdict.unbounded or not self.automatic:
            return True
        return self._success(leg) and not leg.verdict.probed.flat

    def _rank(self, leg: Leg) -> tuple[Any, ...]:
        """Feasible at both levels first, then by what the leader gets, and successful ones first where that ties."""
        v = leg.verdict
        if v is None:
            return (True, True, np.inf)
        success = self._success(leg)
        return (not v.below, not v.admissible, v.value.upper - (self.options.tolerance * v.scale if success else 0.0))

    # --- the end ------------------------------------------------------------------------------------------------
    def _finished(self, leg: Leg) -> Result:
        """The result of the best leg, with the verdict's status and the figures of all legs."""
        result, v = leg.result, leg.verdict
        if v is None and leg.result.status in _ENDED and bool(leg.evaluation.usable):
            return self._measured(leg)
        if v is not None:
            judged = conclude.with_verdict(self.problem, result, v, 0.0 if v.slope is not None else DISTANCES[-1])
            status, message = self._status(leg, v)
            result = replace(judged, status=status, message=message)
        return replace(result, history=self._history(leg), counts=self._counts(), seconds=self._seconds())

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
        return replace(result, history=self._history(leg), counts=self._counts(), seconds=self._seconds())

    def _status(self, leg: Leg, v: Verdict) -> tuple[Status, str]:
        if v.unbounded:
            return Status.UNBOUNDED, (
                "The leader's objective keeps falling along a ray: it has no minimum. This is the best point so far."
            )
        if self._success(leg):
            where = "" if v.slope is not None else " as far as probes around it tell (y(x) has no derivative there)"
            message = f"x is a stationary point of f(x, y(x)){where}, and y is the follower's exact answer."
            if v.probed.flat:
                message += " It is flat here: neither the follower's answer nor f changes around x."
            return Status.CONVERGED, message
        if leg.result.status is Status.CONVERGED:
            return (
                Status.STALLED,
                f"No descent went on from here, but {v.objection() or 'the units of x are in doubt'}.",
            )
        objection = v.objection()
        return leg.result.status, leg.result.message + (f" Judged in your units: {objection}." if objection else "")

    def _history(self, leg: Leg) -> History:
        return leg.result.history

    def _counts(self) -> dict[str, int]:
        counts = [run.counts() for run in self.runs]
        return {**{name: sum(each[name] for each in counts) for name in counts[0]}, "legs": len(self.runs)}

    def _seconds(self) -> dict[str, float]:
        compiling = sum(run.seconds()["compile"] for run in self.runs)
        return {"compile": compiling, "run": time.perf_counter() - self.clock + self.journal.earlier - compiling}


def _restated(best: Result, ended: Result) -> Result:
    """The best result with the status of the leg that was stopped."""
    return replace(best, status=ended.status, message=ended.message)
