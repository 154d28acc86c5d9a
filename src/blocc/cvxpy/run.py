"""One run: descend the penalty function, judge the end by CVXPY itself, go on while the judge objects."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from blocc._lib.precision import double_precision
from blocc._lib.threads import single_blas_thread
from blocc.cvxpy.around import FEW_DIRECTIONS, LARGE, MOST_DIRECTIONS, Around, Seen, probe
from blocc.cvxpy.conclude import assemble
from blocc.cvxpy.descents import Descents
from blocc.cvxpy.evaluator import Units
from blocc.cvxpy.judge import Exact, Judge, is_exact
from blocc.cvxpy.model import Vector
from blocc.cvxpy.recorded import ConicMonitor, RecordedConicEvaluator
from blocc.cvxpy.run_options import RunOptions
from blocc.errors import OptionError
from blocc.outer.monitor import Stop, StopReason, StopRequest, interruptible
from blocc.outer.nonsmooth.restoration import FEASIBLE, restore
from blocc.outer.tolerances import Endpoint, Tolerances, runs_away
from blocc.penalty import Leader
from blocc.result import Result, Status
from blocc.resume.recording import Recording
from blocc.run.conclude import stopped
from blocc.run.progress import closing_report, make_report
from blocc.run.single import reason_of

if TYPE_CHECKING:
    from blocc.cvxpy.problem import BilevelProblem

#: Rounds of descending and judging.
_ROUNDS = 4


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
        self.units = Units()
        self.evaluator = RecordedConicEvaluator(
            self.recording, self.model, self.monitor, options.solver, self.units, options.seed
        )
        self.descents = Descents(self.evaluator, options, self.judge)
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
                    return self._failed(x, *trouble)
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
            if exact is None:
                return x, (
                    Status.INFEASIBLE,
                    "No x was found at which the follower has an answer: its constraints are violated by "
                    f"{violated:.3g} at least.",
                )
        if np.isnan(exact.upper):
            return x, (Status.STALLED, "The leader's objective is not a number (NaN) at the start.")
        self.set_units(exact)
        return x, None

    def set_units(self, exact: Exact) -> None:
        """Measure both objectives by their size at the start."""
        size = lambda number: abs(number) if abs(number) > 1e-6 else 1.0  # noqa: E731
        self.units = Units(size(exact.upper), size(sum(exact.lower)))
        self.descents.set_units(self.units)
        lower_sign = self.problem.lower_signs[0] if len(set(self.problem.lower_signs)) == 1 else 1.0
        self.monitor.factors = (self.problem.sign * self.units.upper, lower_sign * self.units.lower)

    @property
    def leader(self) -> Leader:
        """Multipliers of the leader's constraints: none, they have a price here."""
        return self.descents.leader

    @property
    def tolerances(self) -> Tolerances:
        """What counts as done."""
        return self.descents.tolerances

    def _descend_and_judge(self, x: Vector) -> Result:
        last: Endpoint | None = None
        for turn in range(_ROUNDS):
            last, trouble = self.descents.descend(x, again=turn > 0)
            if trouble is not None:
                return self._failed(np.asarray(last.evaluation.x), *trouble)
            x = np.asarray(last.evaluation.x)
            here, spread = self._exact(x)
            if here is None:
                return self._conclude(last, None, None, None, Status.STALLED, "CVXPY finds no answer at x.")
            if runs_away(self.evaluator, last.evaluation):
                message = "The leader's objective falls without limit: x leaves the start a millionfold."
                return self._conclude(last, here, spread, None, Status.UNBOUNDED, message)
            final = turn == _ROUNDS - 1
            allowed = (1.0 if turn else 0.1) * self.options.tolerance * self._scale(here)  # once more for a tenth
            enough = np.inf if final else 10.0 * allowed
            around = self._probe(x, here, spread, -np.asarray(last.evaluation.gradient), enough)
            if around.best is None or around.improvement <= allowed or final:
                return self._conclude(last, here, spread, around, *self._status(last, here, spread, around, allowed))
            x = around.best
        raise AssertionError

    def _scale(self, here: Exact) -> float:
        return max(abs(here.upper), self.units.upper)

    # --- the judgement ------------------------------------------------------------------------------------------
    def _exact(self, x: Vector) -> tuple[Exact | None, float | None]:
        """The answer that counts at x, and the spread between the leader's best and worst among the follower's best."""
        here = self.judge.at(x)
        if here is None:
            return None, None
        best = self.judge.among_best(x, here)
        if best is None:
            return here, None
        value, answer = best
        noise = max(10.0 * self.options.tolerance, 1e-4) * self._scale(here)
        worst = self.judge.among_best(x, here, worst=True)
        spread = None if worst is None else max(worst[0] - value, 0.0)
        if here.upper - value > noise:  # the solver's own answer is one of them
            spread = max(spread or 0.0, here.upper - value)
        if here.violation > 1e-6 >= answer.violation:
            spread = np.inf
        chosen = answer._replace(lower=here.lower) if here.upper - value > noise or here.violation > 1e-6 else here
        return chosen, spread

    def _seen(self, x: Vector, optimistic: bool) -> Seen:
        here = self.judge.at(x)
        if here is None:
            return Seen(np.inf, 0.0)
        if optimistic and (best := self.judge.among_best(x, here)) is not None:
            return Seen(best[1].upper, best[1].violation)
        return Seen(here.upper, here.violation)

    def _probe(self, x: Vector, here: Exact, spread: float | None, downhill: Vector, enough: float) -> Around:
        optimistic = spread is not None and spread > 1e-4 * self._scale(here)

        def look(point: Vector) -> Seen:
            self.monitor.check_time()
            return self._seen(point, optimistic)

        seen = self._seen(x, optimistic) if optimistic else Seen(here.upper, here.violation)
        most = MOST_DIRECTIONS if self.model.n_y <= LARGE else FEW_DIRECTIONS
        return probe(look, self.evaluator.project, x, seen, self.options.seed, most, downhill, enough)

    def _status(
        self, end: Endpoint, here: Exact, spread: float | None, around: Around, allowed: float
    ) -> tuple[Status, str]:
        tolerances, e = self.tolerances, end.evaluation
        if here.violation > 1e-6 * max(1.0, float(np.max(np.abs(e.x), initial=0.0))):
            return Status.INFEASIBLE, f"The leader's constraints are violated by {here.violation:.3g}."
        if self.options.gamma != "auto" and not tolerances.exact(e):
            return Status.PENALTY_OPEN, (
                f"x is stationary for F_gamma at the gamma given, but the penalty hides {e.gap * self.units.upper:.3g}."
            )
        if around.improvement > allowed:
            return (
                Status.STALLED,
                f"A point near x is better by {around.improvement:.3g}, and descending did not get there.",
            )
        self.judge.restore(np.asarray(e.x), here)
        if not is_exact(left := list(self.judge.residuals(here)), here):
            return Status.STALLED, f"y is not the follower's answer: its residuals are up to {np.max(left):.1e}."
        message = "No point around x is better, and y is the follower's answer."
        if spread is not None and spread > 1e-3 * self._scale(here):
            what = "prices or answers" if self.judge.has_prices else "answers"
            worse = f"the leader's value is {spread:.3g} worse, or more"
            worse = worse if np.isfinite(spread) else "the leader's constraints do not hold"
            message += f" The follower has other {what} as good, at which {worse}."
        return Status.CONVERGED, message

    # --- results ------------------------------------------------------------------------------------------------
    def _stopped(self, x: Vector, reason: StopReason) -> Result:
        self.monitor.close()
        self.request.reason = None
        best = self.monitor.best
        end = None if best is None else Endpoint(best, np.inf, 0.0)
        at = x if best is None else np.asarray(best.x)
        return self._conclude(end, self.judge.at(at), None, None, *stopped(reason, self.monitor), at=at)

    def without_answer(self, x: Vector, status: Status, message: str) -> Result:
        """The result of a start that was never followed."""
        return assemble(self, x, None, None, None, None, status, message)

    def _failed(self, x: Vector, status: Status, message: str) -> Result:
        self.monitor.close()
        return self._conclude(None, self.judge.at(x), None, None, status, message, at=x)

    def _conclude(
        self,
        end: Endpoint | None,
        here: Exact | None,
        spread: float | None,
        around: Around | None,
        status: Status,
        message: str,
        at: Vector | None = None,
    ) -> Result:
        x = at if at is not None or end is None else np.asarray(end.evaluation.x)
        assert x is not None
        if here is not None:
            self.judge.restore(x, here)
        return assemble(self, x, end, here, spread, around, status, message)
