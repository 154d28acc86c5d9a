"""One descent from one start: the methods in their order, and the result where they end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from blocc._lib.arrays import AnyArray, Float
from blocc._lib.compiled import compile_seconds
from blocc._lib.warning import warn_caller
from blocc.inner.choice import choose_oracles
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.maxmin import MaxMin
from blocc.judge import failures
from blocc.judge.convexity import JensenTest
from blocc.lagrangian import Residuals
from blocc.options import Options
from blocc.outer import continuation, published
from blocc.outer.algorithm_1 import Numbers
from blocc.outer.monitor import State, Stop, StopReason
from blocc.outer.restoration import FEASIBLE, restore
from blocc.outer.tolerances import Endpoint, Tolerances, measure
from blocc.penalty import Evaluation, UpperMultipliers, follower_alone, no_upper_multipliers
from blocc.problem import BilevelProblem
from blocc.result import HistoryRow, Result, Status
from blocc.resume.recorded import make_evaluator, make_monitor
from blocc.resume.recording import Recording
from blocc.run import conclude, inner_pairs
from blocc.run.finishing import Finishing, Known, Reached

Callback = Callable[[State], Any]
Report = Callable[[int, HistoryRow], None]


def _warn_of_long_steps(step: float, smoothness: float) -> None:
    """Say so where eta exceeds 1 / l_F: the theory of Algorithm 1 does not cover such steps."""
    if step * smoothness > 1.0:
        warn_caller(
            f"step={step:g} exceeds 1 / l_F: on the way the gradient of F_gamma changed by up to {smoothness:.3g} for "
            f"each unit of x, so Algorithm 1 is only sure to descend with steps of {1.0 / smoothness:.3g} or less",
            RuntimeWarning,
        )


def reason_of(stop: BaseException) -> StopReason:
    """Why a run was stopped: by a request or a limit, or by Ctrl-C."""
    return stop.reason if isinstance(stop, Stop) else StopReason.INTERRUPTED


class Run:
    """One descent, in the units of the problem it is given."""

    def __init__(
        self,
        problem: BilevelProblem,
        options: Options,
        callback: Callback | None = None,
        report: Report | None = None,
        recording: Recording | None = None,
    ) -> None:
        self.problem, self.options, self.recording = problem, options, recording or Recording()
        self.started, self._compiled = time.perf_counter() - self.recording.earlier, compile_seconds()
        self.monitor = make_monitor(self.recording, problem.x_set.unravel, callback, report, options.time_limit)
        oracles = choose_oracles(problem, options.inner)
        self.evaluator = make_evaluator(self.recording, problem.flat, oracles, self.monitor, options.seed)
        # Where the chosen oracle is the published one, answers are re-solved by an accurate one all the same.
        self.exact = self.evaluator
        if options.outer == "pgd" and not isinstance(oracles[0], InteriorPoint):
            accurate = choose_oracles(problem, "auto")
            self.exact = make_evaluator(self.recording, problem.flat, accurate, self.monitor, options.seed)
        self.tolerances = Tolerances(
            tolerance=options.tolerance,
            max_iterations=options.max_iterations or 500,
            inner_tolerance=options.inner_tolerance,
            finest=max(Tolerances.finest, oracles[0].finest),
        )
        self.convexity = JensenTest(problem.flat, options.seed)
        self.leader: UpperMultipliers | None = None  #: multipliers of the leader's own constraints where the run ended
        self.end: Endpoint | None = None
        self.stays = False  #: it begins at a good point, whose valley a small gamma might leave
        self.finishing: Finishing | None = None  #: descends f(x, y(x)) itself, where it has pieces
        self.known: Known | None = None  #: an earlier answer, from which it goes on before anything else
        self.finished = False  #: the run ended there

    def single(self, x: np.ndarray) -> Result:
        """Solve from one start."""
        leader = no_upper_multipliers(self.problem.flat)
        last: Endpoint | None = None
        try:
            if (proceeded := self._proceeded(leader)) is not None:
                return self.conclude_at(proceeded, *self.status_at(proceeded))
            first, trouble = self._first(x, leader)
            if trouble is not None:
                alone = self._without_penalty(first, leader)
                if alone is None:
                    return self.conclude_at(Endpoint(first, np.inf, 0.0), *trouble)
                return self.conclude_at(alone, *self.status_at(alone))
            last = Endpoint(first, measure(self.evaluator, first), 0.0)
            self.tolerances = replace(self.tolerances, origin=first.upper_value)
            last, self.leader = self._descend(first, leader)
            ending = self.status_at(last)
        except (Stop, KeyboardInterrupt) as stop:
            return self.stopped(reason_of(stop), last, x, leader)
        return self.conclude_at(last, *ending)

    def _descend(self, first: Evaluation, leader: UpperMultipliers) -> tuple[Endpoint, UpperMultipliers]:
        if self.options.outer == "pgd":
            return self.published(first.x[None], leader)[0][0], leader
        if np.isinf(first.gamma):
            end = None if self.finishing is None else self._on_pieces(self.finishing, first, leader, penalty=False)
            if end is not None and end.stationarity == 0.0:
                return end, leader
            self.finished = False
            found = continuation.minimise_exactly(self.evaluator, first, leader, self.tolerances)
            if found is not None:
                return found
            first = continuation.first_gamma(self.evaluator, np.asarray(first.x), leader, self.tolerances)
            if not first.usable:
                return Endpoint(first, np.inf, 0.0), leader
        if not isinstance(self.options.gamma, str):
            return continuation.minimise(self.evaluator, first, leader, self.tolerances, fixed_gamma=True)
        if self.finishing is not None:
            end = self._on_pieces(self.finishing, first, leader, penalty=not self.stays)
            if end is not None:
                return end, leader
        closed = continuation.direct_gamma(self.evaluator, first, leader, self.tolerances) if self.stays else None
        return continuation.minimise(self.evaluator, closed or first, leader, self.tolerances, fixed_gamma=False)

    def _on_pieces(
        self, finishing: Finishing, first: Evaluation, leader: UpperMultipliers, penalty: bool = True
    ) -> Endpoint | None:
        """The end of a descent of f(x, y(x)) itself; None if it has no regular pieces there."""
        finishing.tolerances = self.tolerances
        found = finishing.descend(first, leader, penalty)
        return None if found is None else self._reached(finishing, found, leader)

    def _without_penalty(self, first: Evaluation, leader: UpperMultipliers) -> Endpoint | None:
        """The end of a finish where the follower responds, and L_F has no minimum in y."""
        alone = None if first.usable or self.finishing is None else follower_alone(first)
        if alone is None or self.finishing is None:
            return None
        self.tolerances = replace(self.tolerances, origin=alone.upper_value)
        self.finishing.tolerances = self.tolerances
        found = self.finishing.descend(alone, leader, penalty=False)
        return None if found is None else self._reached(self.finishing, found, leader)

    def _proceeded(self, leader: UpperMultipliers) -> Endpoint | None:
        """Where an earlier answer leads by a descent of f(x, y(x)) itself; None if that is no stationary point."""
        if self.finishing is None or self.known is None:
            return None
        found = self.finishing.proceed(self.known)
        return None if found is None else self._reached(self.finishing, found, leader)

    def _reached(self, finishing: Finishing, found: Reached, leader: UpperMultipliers) -> Endpoint | None:
        """The end of a finish, evaluated; None if its evaluation fails."""
        x, accuracy = finishing.inward(found.end.x), self.tolerances.inner(found.gamma, final=True)
        at: Evaluation | None = self.evaluator(x, found.gamma, leader, accuracy)
        at = at if at is None or at.usable else follower_alone(at)
        self.finished = at is not None
        limited = not found.stationary and self.options.max_iterations is not None
        return None if at is None else Endpoint(at, 0.0 if found.stationary else np.inf, 0.0, limited=limited)

    def _first(self, x: np.ndarray, leader: UpperMultipliers) -> tuple[Evaluation, tuple[Status, str] | None]:
        """A usable evaluation to start from, or the status and message that explain why there is none."""
        first = self.first_evaluation(x, leader)
        if self._steps_anyway() and failures.name_nonfinite(self.problem.flat, x, np.asarray(first.follower.y)) is None:
            return first, None
        if not first.usable and self._has_coupling() and self.evaluator.violation(x).value > FEASIBLE:
            better, violated = restore(self.evaluator, x)
            bends = self.convexity(x, np.asarray(first.follower.y)).failure()
            if np.isfinite(violated) and violated > FEASIBLE and not bends:
                return first, failures.infeasible(violated)
            first = self.first_evaluation(better, leader) if violated <= FEASIBLE else first
        if not first.usable:
            return first, failures.explain_failure(self.evaluator, self.convexity, first)
        return first, None

    def _steps_anyway(self) -> bool:
        """Whether this is Algorithm 1 with T_g and T_F given: it begins at x0 even where the follower has no answer."""
        inner = self.options.inner
        return self.options.outer == "pgd" and isinstance(inner, MaxMin) and inner.iterations is not None

    def first_evaluation(self, x: np.ndarray, leader: UpperMultipliers) -> Evaluation:
        """F_gamma at a start, at the given gamma or at the smallest that serves."""
        if isinstance(self.options.gamma, str):
            if self.evaluator.oracles[0].differentiates:
                exact = self.evaluator(x, np.inf, leader, self.tolerances.inner(np.inf))
                if exact.usable:
                    return exact
            return continuation.first_gamma(self.evaluator, x, leader, self.tolerances)
        gamma = float(self.options.gamma)
        return self.exact(x, gamma, leader, self.tolerances.inner(gamma))

    def _has_coupling(self) -> bool:
        return self.problem.flat.n_inequality + self.problem.flat.n_equality > 0

    def published(
        self, points: Float[AnyArray, "starts n_x"], leader: UpperMultipliers
    ) -> tuple[list[Endpoint], list[int]]:
        """Algorithm 1 from every point, and its evaluations. yF stays as it was left; yg is solved again, exactly."""
        gamma = float(self.options.gamma)
        number: Callable[[Any], Any] = np.asarray
        most = self.options.max_iterations or 10_000
        settings = published.Settings(
            Numbers(number(gamma), number(float(self.options.step)), leader, number(self.tolerances.inner(gamma))),
            number(most),
            number(-1.0 if self.options.stop is None else float(self.options.stop)),
        )
        given = self.options.inner_start
        begin = None if given is None else inner_pairs.flattened(self.problem, given)
        flat, oracle = self.problem.flat, self.evaluator.oracles[0]
        earlier = self.evaluator.evaluations, self.evaluator.inner_iterations, self.evaluator.derivatives

        def count(seen: published.StartState) -> None:
            made = seen.iteration + seen.over, seen.inner_iterations, seen.derivatives
            sums = (before + int(np.sum(now)) for before, now in zip(earlier, made, strict=True))
            self.evaluator.evaluations, self.evaluator.inner_iterations, self.evaluator.derivatives = sums

        states = published.minimise(flat, oracle, self.monitor, points, settings, begin, count)
        _warn_of_long_steps(float(self.options.step), float(np.max(states.smoothness, initial=0.0)))
        steps = [int(count) for count in states.iteration + states.over]  # evaluations: one more than steps
        ends = []
        for index, (broken, size) in enumerate(zip(states.broken, states.stationarity, strict=True)):
            left = jax.tree.map(lambda leaf, i=index: leaf[i], states.last)
            met_boundary = bool(broken) and steps[index] > 0
            reached = self._resolved(left, leader) if met_boundary or not broken else left
            met = bool(states.over[index]) and int(states.iteration[index]) < most
            inner = inner_pairs.pairs_of(left)
            ends.append(Endpoint(reached, float(size), 0.0, met_boundary, stop_met=met, inner=inner))
        return ends, steps

    def _resolved(self, left: Evaluation, leader: UpperMultipliers) -> Evaluation:
        """The evaluation that Algorithm 1 ended with, its follower's answer solved by an accurate oracle."""
        exact = self.exact(left.x, float(left.gamma), leader, self.tolerances.inner(float(left.gamma), final=True))
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

    # --- the end ------------------------------------------------------------------------------------------------
    def status_at(self, end: Endpoint) -> tuple[Status, str]:
        """What the run's own tolerances say about its end."""
        if self.finished:
            return conclude.finished(self.evaluator, self.convexity, end)
        return conclude.judge(self.evaluator, self.convexity, end, self.tolerances, self.options)

    def stopped(
        self,
        reason: StopReason,
        last: Endpoint | None,
        x: np.ndarray,
        leader: UpperMultipliers,
    ) -> Result:
        """The best point so far, with the status that says why there is no more."""
        ending = conclude.stopped(reason, self.monitor)
        self.recording.close()  # the closing evaluation is no part of the run that may be continued
        self.monitor.close()
        best = self.monitor.best
        if self.options.outer == "pgd" and self.monitor.position is not None:
            gamma = float(self.options.gamma)
            best = self.exact(self.monitor.position, gamma, leader, self.tolerances.inner(gamma))
        best = best if (seen := self._seen_by_finish(best)) is None else seen
        if best is None:
            best = last.evaluation if last is not None else self._only_evaluation(x, leader)
        end = Endpoint(best, measure(self.evaluator, best), 0.0)
        return self.conclude_at(end, *ending)

    def _only_evaluation(self, x: np.ndarray, leader: UpperMultipliers) -> Evaluation:
        """F_gamma at a start that nothing came after: once, for which gamma serves best takes too long to find out."""
        gamma = 1.0 if isinstance(self.options.gamma, str) else float(self.options.gamma)
        return self.exact(x, gamma, leader, self.tolerances.inner(gamma))

    def _seen_by_finish(self, best: Evaluation | None) -> Evaluation | None:
        """The best point of a finish that was stopped, evaluated; None if ``best`` is no worse."""
        finishing = self.finishing
        if finishing is None or finishing.best is None or best is None:
            return None
        upper = finishing.best.upper * finishing.upper_unit
        if finishing.best.violation > self.tolerances.leader_tolerance or upper >= best.upper_value:
            return None
        none = no_upper_multipliers(self.problem.flat)
        at = self.exact(finishing.inward(finishing.best.x), float(best.gamma), none, 1e-10)
        return at if at.usable else None

    def conclude_at(self, end: Endpoint, status: Status, message: str) -> Result:
        """The result of a run that ended at ``end``."""
        self.end = end
        return conclude.result(
            self.problem,
            end,
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
            "iterations": self.monitor.iterations,
            "evaluations": self.evaluator.evaluations,
            "inner_iterations": self.evaluator.inner_iterations,
            "derivatives": self.evaluator.derivatives,
            "fallbacks": self.evaluator.fallbacks,
        }

    def seconds(self) -> dict[str, float]:
        """Compiling and running, apart."""
        compiling = compile_seconds() - self._compiled
        return {"compile": compiling, "run": time.perf_counter() - self.started - compiling}
