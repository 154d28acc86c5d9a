"""One run: the methods in their order, from a start to a judged result. :mod:`blocc.solve` is its front door."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from blocc.inner.choice import choose_oracles
from blocc.inner.interior_point import InteriorPoint
from blocc.lagrangian import Residuals
from blocc.options import Options
from blocc.outer import algorithm_1 as pgd
from blocc.outer import continuation
from blocc.outer import many_starts as batch
from blocc.outer.continuation import Goal
from blocc.outer.evaluator import PenaltyFunction
from blocc.outer.monitor import HistoryRow, Monitor, State, Stop, StopReason
from blocc.outer.nonsmooth.restoration import FEASIBLE, restore
from blocc.outer.stage import Outcome, measure
from blocc.penalty import Evaluation, Leader, no_leader
from blocc.problem import BilevelProblem
from blocc.result import MultiResult, Result, Status
from blocc.resume.recording import Journal
from blocc.run import conclude

Callback = Callable[[State], Any]
Report = Callable[[int, HistoryRow], None]


def reason_of(stop: BaseException) -> StopReason:
    """Why a run was stopped: by a request or a limit, or by Ctrl-C."""
    return stop.reason if isinstance(stop, Stop) else StopReason.INTERRUPTED


class Run:
    """One call of the front door."""

    def __init__(
        self,
        problem: BilevelProblem,
        options: Options,
        callback: Callback | None,
        report: Report | None,
        journal: Journal | None = None,
    ) -> None:
        self.problem, self.options, self.journal = problem, options, journal or Journal()
        self.started = time.perf_counter() - self.journal.earlier
        self.monitor = Monitor(problem.x_set.unravel, callback, report, options.time_limit, journal=self.journal)
        oracles = choose_oracles(problem, options.inner)
        self.function = PenaltyFunction(problem.flat, oracles, problem.cache, self.monitor, options.seed)
        # Where the chosen oracle is the published one, answers are re-solved by an accurate one all the same.
        self.exact = self.function
        if options.outer == "pgd" and not isinstance(self.function.oracles[0], InteriorPoint):
            accurate = choose_oracles(problem, "auto")
            self.exact = PenaltyFunction(problem.flat, accurate, problem.cache, self.monitor, options.seed)
        self.goal = Goal(
            tolerance=options.tolerance,
            max_iterations=options.max_iterations or 500,
            inner_tolerance=options.inner_tolerance,
            finest=max(Goal.finest, getattr(oracles[0], "finest", 0.0)),
        )
        self.extra_compile = 0.0
        self._minimal: dict[Any, bool] = {}
        self.leader: Leader | None = None  #: multipliers of the leader's own constraints where the run ended
        self.outcome: Outcome | None = None  #: where the run ended
        self.exhausted = False  #: it made as many evaluations as it may
        self.lanes: list[Outcome] = []  #: where each of many starts ended

    # --- one start ----------------------------------------------------------------------------------------------
    def single(self, x: np.ndarray) -> Result:
        """Solve from one start."""
        leader = jax.device_get(no_leader(self.problem.flat))
        last: Outcome | None = None
        try:
            first, trouble = self._first(x, leader)
            if trouble is not None:
                return self.conclude_at(Outcome(first, np.inf, 0.0), *trouble)
            last = Outcome(first, measure(self.function, first), 0.0)
            self.goal = replace(self.goal, origin=first.upper_value)
            last, self.leader = self._descend(first, leader)
        except (Stop, KeyboardInterrupt) as stop:
            if reason_of(stop) is StopReason.BUDGET and self.monitor.best is not None:
                return self._exhausted()
            return self.stopped(reason_of(stop), last, x, leader)
        finally:
            self.monitor.budget = np.inf  # what follows is the judge's
        return self.conclude_at(last, *self._judge(last))

    def _exhausted(self) -> Result:
        """The best point so far of a leg that has made as many evaluations as it may."""
        best = self.monitor.best
        assert best is not None
        self.exhausted = True
        outcome = Outcome(best, measure(self.function, best), 0.0, limited=True)
        return self.conclude_at(outcome, Status.STALLED, f"{self.monitor.spent} evaluations brought no answer.")

    def _descend(self, first: Evaluation, leader: Leader) -> tuple[Outcome, Leader]:
        if self.options.outer == "pgd":
            return self._published(first.x[None], leader)[0], leader
        if not isinstance(self.options.gamma, str):
            return continuation.minimise(self.function, first, leader, self.goal, fixed_gamma=True)
        outcome, reached = continuation.minimise(self.function, first, leader, self.goal, fixed_gamma=False)
        # Two tracks: continuation may end in a better valley than the start's own, or in a worse one.
        direct = continuation.direct_gamma(self.function, first, leader, self.goal)
        if direct is None:
            return outcome, reached
        rows, self.monitor.rows = self.monitor.rows, []
        other, leader = continuation.minimise(self.function, direct, leader, self.goal, fixed_gamma=False)
        if self._rank(outcome) <= self._rank(other):
            self.monitor.rows = rows
            return outcome, reached
        return other, leader

    def _rank(self, outcome: Outcome) -> tuple[bool, int, bool]:
        """Admissible first, then by what the leader gets; finished ones first where that ties.

        What is not finished yet can be: a better value at the follower's exact answer is worth more.
        """
        e, goal = outcome.evaluation, self.goal
        good = bool(e.usable) and goal.stationary(outcome) and goal.exact(e)
        value = round((e.upper_value - goal.origin) / (100.0 * goal.tolerance * goal.scale(e)))
        return not (bool(e.usable) and goal.admissible(e)), value, not good

    def _first(self, x: np.ndarray, leader: Leader) -> tuple[Evaluation, tuple[Status, str] | None]:
        """A usable evaluation to start from, or the status and message that explain why there is none."""
        first = self._try(x, leader)
        if not first.usable and self._has_coupling() and self.function.violation(x).value > FEASIBLE:
            better, violated = restore(self.function, x)
            bends = self.function.convexity(x, np.asarray(first.follower.y)).failure()
            if np.isfinite(violated) and violated > FEASIBLE and not bends:
                return first, conclude.infeasible(violated)
            first = self._try(better, leader) if violated <= FEASIBLE else first
        if not first.usable:
            return first, conclude.explain_failure(self.problem.flat, self.function, first)
        return first, None

    def _try(self, x: np.ndarray, leader: Leader) -> Evaluation:
        if isinstance(self.options.gamma, str):
            return continuation.first_gamma(self.function, x, leader, self.goal)
        gamma = float(self.options.gamma)
        return self.exact(x, gamma, leader, self.goal.inner(gamma))

    def _has_coupling(self) -> bool:
        return self.problem.flat.n_inequality + self.problem.flat.n_equality > 0

    def _published(self, points: np.ndarray, leader: Leader) -> list[Outcome]:
        """Algorithm 1 from every point. yF stays as the run left it; yg is solved again, exactly."""
        gamma = float(self.options.gamma)
        states, seconds = pgd.minimise(
            self.problem.flat,
            self.function.oracles[0],
            self.problem.cache,
            self.monitor,
            points,
            gamma=gamma,
            step_size=self.options.step,
            leader=leader,
            tolerance=self.options.tolerance,
            inner_tolerance=self.goal.inner(gamma),
            max_iterations=self.options.max_iterations or 10_000,
        )
        self.extra_compile += seconds
        self._steps = np.asarray(states.iteration).tolist()
        self.function.evaluations += sum(self._steps)
        outcomes = []
        for index, (broken, size) in enumerate(zip(states.broken, states.stationarity, strict=True)):
            left = jax.tree.map(lambda leaf, i=index: leaf[i], states.last)
            walled = bool(broken) and int(states.iteration[index]) > 0
            end = self._resolved(left, leader) if walled or not broken else left
            outcomes.append(Outcome(end, float(size), 0.0, walled))
        return outcomes

    def _resolved(self, left: Evaluation, leader: Leader) -> Evaluation:
        """The evaluation that Algorithm 1 ended with, its follower's answer solved by an accurate oracle."""
        exact = self.exact(left.x, float(left.gamma), leader, self.goal.inner(float(left.gamma), final=True))
        unknown = Residuals(*(np.asarray(np.inf) for _ in Residuals._fields))  # yF is no candidate for the answer
        return exact._replace(
            value=left.value,
            gradient=left.gradient,
            penalised=left.penalised,
            upper_penalised=left.upper_penalised,
            lower_penalised=left.lower_penalised,
            cross=unknown,
            excess=np.asarray(np.inf),
        )

    # --- many starts --------------------------------------------------------------------------------------------
    def many(self, points: np.ndarray) -> MultiResult:
        """Solve from every row of ``points``, in one batch as far as it goes."""
        leader = jax.device_get(no_leader(self.problem.flat))
        try:
            outcomes, evaluations, stopped = self._batch(points, leader)
        except (Stop, KeyboardInterrupt) as stop:  # before the first round was over
            reason = reason_of(stop)
            results = tuple(self._lane(self.stopped(reason, None, x, leader, best_of_all=False)) for x in points)
            return MultiResult(results, self.seconds())
        if stopped is not None:
            self.journal.close()
        finish = self._finish if stopped is None else partial(self._finish_stopped, stopped)
        seconds = {name: value / len(points) for name, value in self.seconds().items()}
        results = tuple(self._lane(finish(outcome, x, leader)) for outcome, x in zip(outcomes, points, strict=True))
        # What the batch did together is shared out; starts that were finished alone have figures of their own.
        results = tuple(
            r if r.seconds else replace(r, seconds=seconds, counts={**r.counts, "evaluations": int(n)})
            for r, n in zip(results, evaluations, strict=True)
        )
        return MultiResult(results, self.seconds())

    def _lane(self, result: Result) -> Result:
        """Remember where the start of this result ended."""
        assert self.outcome is not None
        self.lanes.append(self.outcome)
        return result

    def _alone(self, x: np.ndarray) -> Result:
        """A start that the batch could not begin."""
        other = self._again()
        result = other.single(x)
        self.outcome = other.outcome
        return result

    def _batch(self, points: np.ndarray, leader: Leader) -> tuple[list[Outcome], Sequence[int], StopReason | None]:
        if self.options.outer == "pgd":
            outcomes = self._published(points, leader)
            return outcomes, self._steps, None
        fixed = None if isinstance(self.options.gamma, str) else float(self.options.gamma)
        first = 1.0
        if fixed is None:
            candidates = [self._try(x, leader) for x in points[:: max(1, len(points) // 3)][:3]]
            usable = [e for e in candidates if e.usable]
            first = max([float(e.gamma) for e in usable], default=1.0)
            self.goal = replace(self.goal, origin=float(np.median([e.upper_value for e in usable])) if usable else 0.0)
        found = batch.minimise(
            self.problem.flat,
            self.function.oracles[0],
            self.problem.cache,
            self.monitor,
            points,
            self.goal,
            gamma=fixed,
            first_gamma=first,
        )
        self.extra_compile += found.compile_seconds
        self.function.evaluations += int(found.evaluations.sum())
        return found.outcomes, found.evaluations.tolist(), found.stopped

    def _finish_stopped(self, reason: StopReason, outcome: Outcome, x: np.ndarray, leader: Leader) -> Result:
        """A lane of a batch that was stopped: finished ones are judged, the others say why they are not."""
        done = bool(outcome.evaluation.usable) and self.goal.stationary(outcome) and self.goal.exact(outcome.evaluation)
        status, message = self._judge(outcome) if done else conclude.STOPPED[reason]
        return replace(self.conclude_at(outcome, status, message), seconds={})

    def _finish(self, outcome: Outcome, x: np.ndarray, leader: Leader) -> Result:
        """Turn one lane of the batch into a result; what the batch left undone is finished alone."""
        evaluation = outcome.evaluation
        settled = bool(evaluation.usable) and self.goal.stationary(outcome)
        fixed = not isinstance(self.options.gamma, str)
        if self.options.outer == "pgd":
            return replace(self.conclude_at(outcome, *self._judge(outcome)), seconds={})
        if not evaluation.usable:
            return self._alone(x)
        try:
            if settled and (fixed or self.goal.exact(evaluation)):
                lower = self._escape(outcome, leader)
                if lower is None:
                    return replace(self.conclude_at(outcome, *self._judge(outcome)), seconds={})
                evaluation = lower
            last, _ = continuation.minimise(self.function, evaluation, leader, self.goal, fixed_gamma=fixed)
        except (Stop, KeyboardInterrupt) as stop:
            self.journal.close()
            return self._finish_stopped(reason_of(stop), outcome, x, leader)
        return replace(self.conclude_at(last, *self._judge(last)), seconds={})

    def _escape(self, outcome: Outcome, leader: Leader) -> Evaluation | None:
        """A lower point next to the end of a lane; starts that ended in the same place are probed once."""
        e = outcome.evaluation
        size = 1e-4 * (1.0 + float(np.max(np.abs(e.x), initial=0.0)))
        key = (np.round(e.x / size).tobytes(), float(e.gamma))
        if key in self._minimal:
            return None
        lower = continuation.leave(self.function, outcome, leader, self.goal)
        if lower is None:
            self._minimal[key] = True
        return lower

    def _again(self) -> Run:
        """A fresh run of the same settings, on the same compiled functions and the same clock."""
        other = Run(self.problem, self.options, self.monitor.callback, self.monitor.report, self.journal)
        other.monitor.started, other.monitor.request = self.monitor.started, self.monitor.request
        return other

    # --- the end ------------------------------------------------------------------------------------------------
    def _judge(self, outcome: Outcome) -> tuple[Status, str]:
        return conclude.judge(
            self.problem.flat, self.function, outcome, self.goal, self.options.gamma, self.options.outer
        )

    def stopped(
        self, reason: StopReason, last: Outcome | None, x: np.ndarray, leader: Leader, best_of_all: bool = True
    ) -> Result:
        """The best point so far, with the status that says why there is no more."""
        self.journal.close()  # the closing evaluation is no part of the run that may be continued
        self.monitor.close()
        best = self.monitor.best if best_of_all else None
        if self.options.outer == "pgd" and self.monitor.position is not None and best_of_all:
            gamma = float(self.options.gamma)
            best = self.exact(self.monitor.position, gamma, leader, self.goal.inner(gamma))
        if best is None:
            best = last.evaluation if last is not None else self._try(x, leader)
        outcome = Outcome(best, measure(self.function, best), 0.0)
        return self.conclude_at(outcome, *conclude.STOPPED[reason])

    def conclude_at(self, outcome: Outcome, status: Status, message: str) -> Result:
        """The result of a run that ended at ``outcome``."""
        self.outcome = outcome
        return conclude.result(
            self.problem,
            outcome,
            status,
            message,
            self.monitor.rows,
            self.counts(),
            self.seconds(),
            self.options.described(),
        )

    def counts(self) -> dict[str, int]:
        """What was evaluated."""
        return {
            "evaluations": self.function.evaluations,
            "inner_iterations": self.function.inner_iterations,
            "fallbacks": self.function.fallbacks,
        }

    def seconds(self) -> dict[str, float]:
        """Compiling and running, apart."""
        compiling = self.function.compile_seconds + self.extra_compile
        compiling += self.exact.compile_seconds if self.exact is not self.function else 0.0
        return {"compile": compiling, "run": time.perf_counter() - self.started - compiling}
