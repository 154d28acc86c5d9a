"""One run: descend the penalty function, judge the end by CVXPY itself, go on while the judge objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from blocc._lib.precision import double_precision
from blocc._lib.threads import single_blas_thread
from blocc.cvxpy.conclude import assemble
from blocc.cvxpy.evaluator import Units
from blocc.cvxpy.judge import Around, Exact, Judge, is_exact, probe
from blocc.cvxpy.model import Vector
from blocc.cvxpy.recorded import ConicMonitor, RecordedConicEvaluator
from blocc.cvxpy.solvers import SolverName
from blocc.errors import OptionError
from blocc.inner.protocol import InnerCode
from blocc.outer import continuation
from blocc.outer.descent import follow_gradients
from blocc.outer.monitor import State, Stop, StopReason, StopRequest, interruptible
from blocc.outer.nonsmooth.restoration import FEASIBLE, restore
from blocc.outer.tolerances import Endpoint, Stage, Tolerances, runs_away
from blocc.penalty import Evaluation, Leader
from blocc.result import HistoryRow, Result, Status
from blocc.resume.recording import Recording
from blocc.run.conclude import stopped
from blocc.run.progress import closing_report, make_report
from blocc.run.single import reason_of

if TYPE_CHECKING:
    from blocc.cvxpy.problem import BilevelProblem

#: Rounds of descending and judging.
_ROUNDS = 4
#: Rounds in which the leader's constraints are tightened.
_TIGHTENED = 8
_FINEST = 1e-11
#: How slack a constraint of the leader's that was tightened may end.
_SLACK = 1e-4
#: Tolerance of the descent of F_gamma before the last digits are left to f(x, y(x)).
_LOOSE = 2e-2
#: Steps for these.
_LAST_STEPS = 60


@dataclass(frozen=True)
class RunOptions:
    """What can be set by hand."""

    tolerance: float = 1e-5
    gamma: float | Literal["auto"] = "auto"
    solver: SolverName = "auto"  #: of the followers' own problems
    max_iterations: int = 200  #: of each stage
    time_limit: float | None = None  #: seconds
    seed: int = 0
    callback: Callable[[State], Any] | None = None  #: called after every iteration; True stops the run
    progress: bool | Callable[[int, HistoryRow], None] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tolerance, (int, float)) or not 1e-10 <= self.tolerance < 0.1:
            raise OptionError(f"tolerance must be a number between 1e-10 and 0.1, got {self.tolerance!r}")
        if self.gamma != "auto" and not (isinstance(self.gamma, (int, float)) and self.gamma > 0.0):
            raise OptionError(f"gamma must be 'auto' or a positive number, got {self.gamma!r}")
        if self.solver not in ("auto", "clarabel", "highs"):
            raise OptionError(f"solver must be 'auto', 'clarabel' or 'highs', got {self.solver!r}")
        if self.time_limit is not None and not self.time_limit > 0.0:
            raise OptionError(f"time_limit must be a positive number of seconds, got {self.time_limit!r}")

    def described(self) -> dict[str, Any]:
        """The settings as plain values, for checkpoints and results."""
        names = ("tolerance", "gamma", "solver", "max_iterations", "time_limit", "seed")
        return {"front": "cvxpy", **{name: getattr(self, name) for name in names}}


def make_run_options(given: dict[str, Any]) -> RunOptions:
    """Options out of what was given by name."""
    known = [one.name for one in fields(RunOptions)]
    if unknown := [name for name in given if name not in known]:
        raise OptionError(f"{unknown[0]} is no option of a problem in CVXPY; those are {', '.join(known)}")
    return RunOptions(**given)


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
        self.leader = Leader(np.zeros(0), np.asarray(10.0))
        self.units = Units()
        self.evaluator = RecordedConicEvaluator(
            self.recording, self.model, self.monitor, options.solver, self.units, options.seed
        )
        self.tolerances = Tolerances(tolerance=options.tolerance, max_iterations=options.max_iterations, finest=_FINEST)
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
        self.set_units(exact)
        return x, None

    def set_units(self, exact: Exact) -> None:
        """Measure both objectives by their size at the start."""
        size = lambda number: abs(number) if abs(number) > 1e-6 else 1.0  # noqa: E731
        self.units = Units(size(exact.upper), size(sum(exact.lower)))
        self.evaluator.units = self.units
        lower_sign = self.problem.lower_signs[0] if len(set(self.problem.lower_signs)) == 1 else 1.0
        self.monitor.factors = (self.problem.sign * self.units.upper, lower_sign * self.units.lower)
        self._set_price(10.0)

    def _set_price(self, price: float) -> None:
        self._price = price
        self.model.soft.price.value = price * self.units.upper
        self.model.refresh()

    def _descend_and_judge(self, x: Vector) -> Result:
        last: Endpoint | None = None
        for turn in range(_ROUNDS):
            last, trouble = self._admissible_descent(x, turn > 0)
            if trouble is not None:
                return self._failed(np.asarray(last.evaluation.x), *trouble)
            x = np.asarray(last.evaluation.x)
            here, spread = self._exact(x)
            if here is None:
                return self._conclude(last, None, None, None, Status.STALLED, "CVXPY finds no answer at x.")
            if runs_away(self.evaluator, last.evaluation):
                message = "The leader's objective falls without limit: x leaves the start a millionfold."
                return self._conclude(last, here, spread, None, Status.UNBOUNDED, message)
            around = self._probe(x, here, spread, -np.asarray(last.evaluation.gradient))
            allowed = 0.1 * self.options.tolerance * self._scale(here)
            if around.best is None or around.improvement <= allowed or turn == _ROUNDS - 1:
                return self._conclude(last, here, spread, around, *self._status(last, here, spread, around, allowed))
            x = around.best
        raise AssertionError

    def _scale(self, here: Exact) -> float:
        return max(abs(here.upper), self.units.upper)

    def _admissible_descent(self, x: Vector, tight: bool) -> tuple[Endpoint, tuple[Status, str] | None]:
        """Descend, and tighten the leader's constraints until they hold at the follower's answer."""
        end, trouble = self._descend(x, tight)
        for _ in range(_TIGHTENED if self.model.soft.constraints else 0):
            if trouble is not None:
                break
            at, soft = np.asarray(end.evaluation.x), self.model.soft
            answers = self.evaluator.below(at, _FINEST)
            self.model.upper(at, [one.z for one in answers], [one.prices for one in answers])
            sides = [np.asarray(side.value) for side in soft.sides]
            violated = end.evaluation.violation > self.tolerances.leader_allowance(end.evaluation)
            # A side that was tightened must not be slack by more than that leaves to gain.
            slack = max(
                (
                    float(-np.max(v[s.value > 0.0], initial=-np.inf))
                    for v, s in zip(sides, soft.shifts, strict=True)
                    if np.any(s.value > 0.0)
                ),
                default=0.0,
            )
            if not violated and slack <= _SLACK * (1.0 + max(float(np.max(np.abs(v), initial=0.0)) for v in sides)):
                break
            for value, shift in zip(sides, soft.shifts, strict=True):
                aim = 0.3 * _SLACK * (1.0 + np.abs(value))  # inside by as much as solvers may be off
                shift.value = np.where(shift.value + value > 0.0, shift.value + value + aim, 0.0)
            self._set_price(3.0 * self._price if violated else self._price)
            end, trouble = self._descend(at, True)
        return end, trouble

    def _descend(self, x: Vector, tight: bool) -> tuple[Endpoint, tuple[Status, str] | None]:
        evaluator, tolerances = self.evaluator, self.tolerances
        if self.options.gamma != "auto":
            first = evaluator(x, float(self.options.gamma), self.leader, tolerances.inner(float(self.options.gamma)))
        else:
            first = continuation.first_gamma(evaluator, x, self.leader, tolerances)
        if not first.usable:
            return Endpoint(first, np.inf, 0.0), self._why(first)
        self.tolerances = tolerances = replace(tolerances, origin=first.upper_value)
        if self.options.gamma != "auto":
            end, _ = continuation.minimise(evaluator, first, self.leader, tolerances, fixed_gamma=True)
            return end, None
        if not tight and not self.model.soft.constraints:
            loose = replace(tolerances, tolerance=max(_LOOSE, tolerances.tolerance))
            end, _ = continuation.minimise_from_both(evaluator, first, self.leader, loose)
        else:
            end, _ = continuation.minimise_from_both(evaluator, first, self.leader, tolerances)
        return self._polished(end) or end, None

    def _polished(self, end: Endpoint) -> Endpoint | None:
        """The last digits by f(x, y(x)) itself; None where that has no derivative, or leads nowhere better."""
        if end.evaluation.optimistic or self.model.soft.constraints or runs_away(self.evaluator, end.evaluation):
            return None
        exact = self.evaluator(end.evaluation.x, np.inf, self.leader, _FINEST)
        if not exact.usable:
            return None
        slope = self.tolerances.slope(exact, self.tolerances.tolerance)
        found = follow_gradients(self.evaluator, exact, Stage(self.leader, _FINEST, slope, _LAST_STEPS, 0.1))
        return found if float(found.evaluation.value) <= float(exact.value) else None

    def _why(self, failed: Evaluation) -> tuple[Status, str]:
        code = int(failed.penalised.code)
        if code == InnerCode.UNBOUNDED:
            return Status.UNBOUNDED, (
                "The penalised problem falls without limit however large gamma is: the leader's objective does, over "
                "the follower's best answers."
            )
        if code == InnerCode.INFEASIBLE:
            return Status.INFEASIBLE, "The penalised problem has no feasible point."
        return Status.STALLED, "The cone solver finds no answer to the penalised problem."

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
        chosen = answer._replace(lower=here.lower) if here.upper - value > noise or here.violation > 1e-6 else here
        return chosen, spread

    def _value(self, x: Vector, optimistic: bool) -> float:
        here = self.judge.at(x)
        if here is None:
            return np.inf
        if optimistic and (best := self.judge.among_best(x, here)) is not None:
            return best[1].upper
        return np.inf if here.violation > 1e-6 else here.upper

    def _probe(self, x: Vector, here: Exact, spread: float | None, downhill: Vector) -> Around:
        optimistic = spread is not None and spread > 1e-4 * self._scale(here)

        def value_at(point: Vector) -> float:
            self.monitor.check_time()
            return self._value(point, optimistic)

        value = self._value(x, optimistic) if optimistic else here.upper
        return probe(value_at, self.evaluator.project, x, value, self.options.seed, downhill=downhill)

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
            message += (
                f" The follower has other {what} as good, at which the leader's value is up to {spread:.3g} worse."
            )
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
