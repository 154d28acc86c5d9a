"""One run: descend the penalty function, judge the end by CVXPY itself, go on while the judge objects."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from blocc._lib.precision import double_precision
from blocc._lib.threads import single_blas_thread
from blocc.cvxpy.around import FEW_DIRECTIONS, FURTHER, LARGE, MOST_DIRECTIONS, around, sizes_of
from blocc.cvxpy.conclude import assemble
from blocc.cvxpy.descents import Descents
from blocc.cvxpy.evaluator import Units
from blocc.cvxpy.expressions import shown
from blocc.cvxpy.incumbent import ADMISSIBLE, BLUNT, ROUNDED, Judged, best_of
from blocc.cvxpy.judge import Exact, Judge, is_exact
from blocc.cvxpy.model import Vector
from blocc.cvxpy.recorded import ConicMonitor, RecordedConicEvaluator
from blocc.cvxpy.run_options import RunOptions
from blocc.errors import OptionError
from blocc.judge.probe import DISTANCES, Probed, Probing, Value
from blocc.outer.monitor import Stop, StopReason, StopRequest, interruptible
from blocc.outer.restoration import FEASIBLE, restore
from blocc.outer.tolerances import Endpoint, Tolerances, measure, runs_away
from blocc.penalty import Evaluation, UpperMultipliers
from blocc.result import Result, Status
from blocc.resume.recording import Recording
from blocc.run.conclude import stopped
from blocc.run.progress import closing_report, make_report
from blocc.run.single import reason_of

if TYPE_CHECKING:
    from blocc.cvxpy.problem import BilevelProblem

#: Rounds of descending and judging.
_ROUNDS = 4
#: Directions, at most, in which the objectives' units are measured.
_UNIT_DIRECTIONS = 4


class ConicRun:
    """One solve of one problem."""

    def __init__(
        self,
        problem: BilevelProblem,
        options: RunOptions,
        request: StopRequest | None = None,
        recording: Recording | None = None,
    ) -> None:
        self.problem, self.model, self.options = problem, problem.model, options
        self.request, self.recording = request or StopRequest(), recording or Recording()
        for index, one in enumerate(self.model.followers):
            if options.solver == "highs" and not (one.program.cones.is_linear and not one.program.quadratic.rows.size):
                raise OptionError(f"solver: 'highs' solves linear followers, and follower {index} is not linear")
        self.judge = Judge(self.model)
        report = make_report(options.progress)
        self._report = report
        self.monitor = ConicMonitor(
            self.recording,
            self.model.x_set.unravel,
            options.callback,
            report,
            options.time_limit,
            started=self.request.started,
            request=self.request,
        )
        self.units, self.first, self.varied = Units(), 0.0, 1.0
        self.evaluator = RecordedConicEvaluator(
            self.recording, self.model, self.monitor, options.solver, self.units, options.seed
        )
        self.descents = Descents(self.evaluator, options)
        self.incumbent: Judged | None = None
        self._considered: Evaluation | None = None  #: the last evaluation that the incumbent was compared with
        self.began = perf_counter()

    # --- the way ------------------------------------------------------------------------------------------------
    def solve(self, x: Vector) -> Result:
        """From one start in X to a judged result."""
        with (
            double_precision(),
            single_blas_thread(self.model.n_y),
            interruptible(self.request),
            closing_report(self._report),
        ):
            try:
                x, trouble = self._begin(x)
                if trouble is not None:
                    return self.without_answer(x, *trouble)
                return self._descend_and_judge(x)
            except (Stop, KeyboardInterrupt) as stop:
                return self._stopped(x, reason_of(stop))

    def _begin(self, x: Vector) -> tuple[Vector, tuple[Status, str] | None]:
        """A point where all followers have answers, units, or why there is none."""
        exact = self.judge.at(x)
        if exact is None:
            answers = self.evaluator.below(x, 1e-9)
            if any(one.outcome.value == "unbounded" for one in answers):
                return x, (Status.UNBOUNDED, "The follower's objective falls without limit at the start.")
            x, violated = restore(self.evaluator, x)
            exact = self.judge.at(x) if violated <= FEASIBLE else None
            if exact is None and violated <= FEASIBLE:
                return x, (Status.STALLED, "No solver finds the follower's answer, though its constraints can be met.")
            if exact is None:
                return x, (
                    Status.INFEASIBLE,
                    "No x was found at which the follower has an answer: its constraints are violated by "
                    f"{violated:.3g} at least.",
                )
        if np.isnan(exact.upper):
            return x, (Status.STALLED, "The leader's objective is not a number (NaN) at the start.")
        self.set_units(x, exact)
        self._best_so_far(self._judged(x, passing=True))
        return x, None

    def set_units(self, x: Vector, exact: Exact) -> None:
        """Measure both objectives by their size at the start, and gains by what f varies by over the size of x."""
        size = lambda number, usual: abs(number) if abs(number) > 1e-6 * usual else usual  # noqa: E731
        self.units = Units(size(exact.upper, 1.0), size(sum(exact.lower), sum(exact.units)))
        self.first = exact.upper
        generator, length = np.random.default_rng(self.options.seed), 1.0 + float(np.max(np.abs(x), initial=0.0))
        most = _UNIT_DIRECTIONS if self.model.n_y <= LARGE else 1
        few = np.eye(len(x)) if len(x) <= most else generator.standard_normal((most, len(x))) / np.sqrt(len(x))
        # Two lengths: f may have the same value on the other side of a valley.
        points = [self.evaluator.project(x + share * length * one) for one in few for share in (1.0, -1.0, 0.5, -0.5)]
        values = [one.upper for one in map(self.judge.at, points) if one is not None]
        varied = max((abs(one - exact.upper) for one in values if np.isfinite(one)), default=0.0)
        least = ROUNDED * abs(exact.upper)
        self.varied = min(varied, self.units.upper) if varied > least else self.units.upper
        self.descents.set_units(self.units, self.varied / self.units.upper)
        lower_sign = self.problem.lower_signs[0] if len(set(self.problem.lower_signs)) == 1 else 1.0
        self.monitor.factors = (self.problem.sign * self.units.upper, lower_sign * self.units.lower)

    @property
    def leader(self) -> UpperMultipliers:
        """Multipliers of the leader's constraints: none, they have a price here."""
        return self.descents.leader

    @property
    def tolerances(self) -> Tolerances:
        """What counts as done."""
        return self.descents.tolerances

    def _descend_and_judge(self, x: Vector) -> Result:
        for turn in range(_ROUNDS):
            end, trouble = self.descents.descend(x, again=turn > 0)
            if trouble is not None:
                return self._failed(*trouble)
            own = self._judged(np.asarray(end.evaluation.x))
            here = self._best_so_far(own)
            if own is None or here is None:
                return self._failed(Status.STALLED, "CVXPY finds no answer at the end of the descent.")
            if runs_away(self.evaluator, end.evaluation) and here is own:
                message = "The leader's objective falls without limit: x leaves the start a millionfold."
                return self._conclude(here, Status.UNBOUNDED, message, end)
            final = turn == _ROUNDS - 1
            share = (1.0 if turn else 0.1) * self.options.tolerance  # once more for a tenth
            allowed = share * self._scale(here.here)
            if here is not own and here.gains(own) > allowed:  # answers may jump there: the other side counts as well
                beside = self._probe(own, None, share).better
                here = here if beside is None else self._best_so_far(self._judged(beside.x)) or here
            if here is not own and here.gains(own) > allowed and not final and not np.array_equal(x, here.x):
                x = here.x  # the descent has left it behind: another one from there
                continue
            last = end if here is own else self._end_at(here.x)
            probed = self._probe(here, np.asarray(last.evaluation.gradient), share)
            if probed.better is None:
                status = self._status(end, here)
                return self._conclude(here, *status, last, probed)
            x = probed.better.x
            if final:
                return self._left_behind(here, x, probed)
            self._best_so_far(self._judged(x))  # a descent from there may end a little worse
        raise AssertionError

    def _left_behind(self, here: Judged, x: Vector, probed: Probed) -> Result:
        """The result where points beside the end of the last descent are better still: the best of them."""
        found = best_of(here, self._judged(x))
        if not found.is_admissible:  # what is better there is f, and not the violation
            end = self._end_at(found.x)
            return self._conclude(found, Status.INFEASIBLE, self._violated(found.here), end, probed)
        message = f"A point near x is better by {probed.gain:.3g}, and descending did not get there."
        if found is not here:
            message = f"A point beside the end of the last descent is better by {probed.gain:.3g}: this one."
        return self._conclude(found, Status.STALLED, message, self._end_at(found.x), probed)

    def _best_so_far(self, *found: Judged | None) -> Judged | None:
        """The best of these points and of all that the run has seen, which it remains."""
        lowest = self.monitor.lowest
        if lowest is not None and lowest is not self._considered:
            self._considered = lowest
            found = (*found, self._judged(np.asarray(lowest.x), passing=True))
        known = [one for one in (*found, self.incumbent) if one is not None]
        self.incumbent = best_of(*known) if known else None
        return self.incumbent

    def _end_at(self, x: Vector) -> Endpoint:
        """A point that no descent ended at, as an end: f(x, y(x)) and its derivative, if there is one."""
        e = self.evaluator(x, np.inf, self.leader, self.tolerances.finest)
        slope = measure(self.evaluator, e) if e.usable else np.inf
        return Endpoint(e, slope, 0.0)

    def _scale(self, here: Exact) -> float:
        """What f varies by around the start, and has varied by since: a constant added to f changes nothing."""
        return self.varied + abs(here.upper - self.first)

    # --- the judgement ------------------------------------------------------------------------------------------
    def _judged(self, x: Vector, *, passing: bool = False) -> Judged | None:
        """The answer that counts at x, and the spread between the leader's best and worst among the follower's best.

        :param passing: a point on the way, where other answers of a large follower would cost more than they tell
        """
        here = self.judge.at(x)
        if here is None:
            return None
        if here.sharp and self.judge.is_unique():
            return Judged(x, here, 0.0)
        if passing and self.model.n_y > LARGE:
            return Judged(x, here, None)
        noise = max(10.0 * self.options.tolerance, BLUNT) * self._scale(here)
        inside = self.judge.at(x, inside=True) if self.judge.any_linear else here
        differs = 0.0 if inside is None else abs(inside.upper - here.upper)
        best = self.judge.among_best(x, here)
        if best is None:
            return Judged(x, here, differs if differs > noise else None)
        value, unsure, answer = best
        noise = max(noise, unsure, 2.0 * abs(answer.upper - value))  # more than the slack that answers are found with
        worst = self.judge.among_best(x, here, worst=True)
        spread = None if worst is None else max(worst[0] - value - worst[1] - unsure, 0.0)
        if max(differs, here.upper - value) > noise:  # the solver's own answers are among them
            spread = max(spread or 0.0, differs, here.upper - value)
        if here.violation > ADMISSIBLE >= answer.violation:
            spread = np.inf
        if here.upper - value > noise or spread == np.inf:
            chosen = answer._replace(lower=here.lower)
            self.judge.restore(x, chosen)
            if is_exact(self.judge.residuals(chosen)):
                return Judged(x, chosen, spread)
        return Judged(x, here, spread)

    def _seen(self, x: Vector, optimistic: bool) -> tuple[Value, float] | None:
        """What the leader gets at x, and what that may be off by."""
        here = self.judge.at(x)
        if here is None:
            return None
        if optimistic and (best := self.judge.among_best(x, here)) is not None:
            here = best[2]
        return Value(x, np.zeros(0), here.upper, here.violation), self._noise(here)

    def _noise(self, here: Exact) -> float:
        """What a value may be off by: rounding, or what the follower's answer leaves."""
        blunt = 0.0 if here.sharp else 0.1 * self.options.tolerance * self._scale(here)
        return ROUNDED * abs(here.upper) + blunt

    def _probe(self, at: Judged, gradient: Vector | None, share: float) -> Probed:
        """The judge's probes around a point; a value counts as high as it may be."""
        optimistic = at.spread is not None and at.spread > 1e-4 * self._scale(at.here)

        def look(point: Vector) -> Value | None:
            self.monitor.check_time()
            found = self._seen(point, optimistic)
            return None if found is None else found[0]._replace(upper=found[0].upper + found[1])

        here = self._seen(at.x, optimistic)
        assert here is not None
        most = MOST_DIRECTIONS if self.model.n_y <= LARGE else FEW_DIRECTIONS
        distances = FURTHER if self.model.has_exponentials else DISTANCES[:2]  # closer, derivatives have spoken
        worth = float(self.model.soft.price.value) * here[0].violation  # what x gains by violating a constraint itself
        plan = Probing(sizes_of(at.x), here[1] + worth, share, here[0].violation, distances=distances)
        kinked = self.model.plain is not None and self.model.plain.is_kinked
        return around(
            look, self.evaluator.project, here[0], plan, self.options.seed, most, gradient, self._slope, kinked
        )

    def _slope(self, x: Vector) -> Vector | None:
        """The derivative of f(x, y(x)), in the units of the run."""
        self.monitor.check_time()
        point = self.evaluator.point(x)
        return None if point is None else point.gradient

    def _status(self, end: Endpoint, at: Judged) -> tuple[Status, str]:
        """What holds at the best point seen, and, for a gamma that was given, at the end of its descent."""
        here, spread = at.here, at.spread
        if not at.is_admissible:
            return Status.INFEASIBLE, self._violated(here)
        if self.options.gamma != "auto" and not self.tolerances.exact(end.evaluation):
            hidden = abs(end.evaluation.gap) * self.units.upper
            message = f"x is stationary for F_gamma at the gamma given, but the penalty hides {hidden:.3g}."
            if at.x is not end.evaluation.x and not np.array_equal(at.x, end.evaluation.x):
                message = (
                    f"At the gamma given the penalty hides {hidden:.3g}; x is a better point that the run has seen."
                )
            return Status.PENALTY_OPEN, message
        self.judge.restore(at.x, here)
        if not is_exact(left := list(self.judge.residuals(here))):
            worst = max(max(one.told) for one in left)
            return Status.STALLED, f"y is not the follower's answer: its residuals are up to {worst:.1e}."
        message = "No point around x is better, and y is the follower's answer."
        if spread is not None and spread > 1e-3 * self._scale(here):
            what = "prices or answers" if self.judge.has_prices else "answers"
            worse = f"the leader's value is {spread:.3g} worse, or more"
            worse = worse if np.isfinite(spread) else "the leader's constraints do not hold"
            message += f" The follower has other {what} as good, at which {worse}."
        return Status.CONVERGED, message

    def _violated(self, here: Exact) -> str:
        """Which of the leader's constraints is violated most, and that no less was found."""
        worst = shown(self.judge.leader_rules[here.worst])
        return (
            f"The leader's constraint {worst} is violated by {here.violation:.3g}, the least violation that was found."
        )

    # --- results ------------------------------------------------------------------------------------------------
    def _stopped(self, x: Vector, reason: StopReason) -> Result:
        self.monitor.close()
        self.request.reason = None
        best = self.monitor.best
        lowest = None if best is None else self._judged(np.asarray(best.x))
        found = self._best_so_far(lowest)
        status, message = stopped(reason, self.monitor)
        if found is None:
            return assemble(self, x, None, None, None, None, status, message)
        if not found.is_admissible:
            message += " " + self._violated(found.here)
        end = None if best is None or found is not lowest else Endpoint(best, np.inf, 0.0)
        return self._conclude(found, status, message, end)

    def without_answer(self, x: Vector, status: Status, message: str) -> Result:
        """The result of a start that was never followed."""
        return assemble(self, x, None, None, None, None, status, message)

    def _failed(self, status: Status, message: str) -> Result:
        """No descent: what is known is the best point seen."""
        self.monitor.close()
        found = self._best_so_far()
        assert found is not None  # the start is one
        return self._conclude(found, status, message)

    def _conclude(
        self, at: Judged, status: Status, message: str, end: Endpoint | None = None, probed: Probed | None = None
    ) -> Result:
        self.judge.restore(at.x, at.here)
        return assemble(self, at.x, end, at.here, at.spread, probed, status, message)
