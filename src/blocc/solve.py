"""The front door: chooses the methods, runs them, and judges what came out.

:func:`solve` runs one start, :func:`solve_many` many at once. Both return certified results; a failure is a status and
a sentence, never an answer that looks like success.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import jax
import numpy as np

from blocc import conclude
from blocc.errors import OptionError
from blocc.inner.auto import choose_oracles
from blocc.outer import batch, continuation, pgd
from blocc.outer.continuation import Goal
from blocc.outer.function import PenaltyFunction
from blocc.outer.lbfgsb import Outcome, measure
from blocc.outer.monitor import HistoryRow, Monitor, State, Stop, StopReason
from blocc.outer.restore import FEASIBLE, restore
from blocc.penalty import Evaluation, Leader, no_leader
from blocc.precision import double_precision
from blocc.problem import BilevelProblem
from blocc.result import MultiResult, Result, Status
from blocc.sets import PyTree

Callback = Callable[[State], Any]
Report = Callable[[int, HistoryRow], None]


@dataclass(frozen=True)
class Options:
    """Everything that can be set by hand; every default is automatic.

    gamma: "auto" (continuation until the penalty hides nothing) or a number, kept fixed as in the paper.
    inner: "auto", "interior-point", "maxmin", "single-loop", "pdhg", or an oracle object.
    outer: "auto" (quasi-Newton, spectral and kink methods as needed) or "pgd" (Algorithm 1 as published).
    step: length eta of a step of "pgd".
    tolerance: of the penalty gap, of ||yF - yg|| and of the stationarity of x, relative to the problem's size.
    inner_tolerance: of the inner solutions; None ties it to gamma and the tolerance.
    max_iterations: outer iterations (of each stage for "auto").
    time_limit: seconds, compilation included; the best point so far is returned.
    seed: for everything random.
    """

    gamma: float | str = "auto"
    inner: Any = "auto"
    outer: str = "auto"
    step: float = 0.01
    tolerance: float = 1e-5
    inner_tolerance: float | None = None
    max_iterations: int | None = None
    time_limit: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.gamma, str) and self.gamma != "auto":
            raise OptionError(f"gamma must be 'auto' or a positive number, got {self.gamma!r}")
        if not isinstance(self.gamma, str):
            _positive("gamma", self.gamma)
        if self.outer not in ("auto", "pgd"):
            raise OptionError(f"outer must be 'auto' or 'pgd', got {self.outer!r}")
        if self.outer == "pgd" and isinstance(self.gamma, str):
            raise OptionError("outer='pgd' needs a fixed gamma: give a number, for instance gamma=5.0")
        for name in ("step", "tolerance"):
            _positive(name, getattr(self, name))
        for name in ("inner_tolerance", "max_iterations", "time_limit"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name))

    def described(self) -> dict[str, Any]:
        """The options as plain values, for a saved result."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        if not isinstance(self.inner, str):
            plain["inner"] = repr(self.inner)
        return plain


#: Named settings. "paper": Algorithms 1 and 2 with the fixed steps of the toy experiment.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"outer": "pgd", "inner": "maxmin", "gamma": 5.0, "step": 0.01, "max_iterations": 20_000},
}


def _positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise OptionError(f"{name} must be a positive number, got {value!r}")
    if not value > 0 or not np.isfinite(value):
        raise OptionError(f"{name} must be positive and finite, got {value!r}")


def _options(preset: str, given: dict[str, Any]) -> Options:
    if preset not in PRESETS:
        raise OptionError(f"preset must be one of {', '.join(map(repr, PRESETS))}, got {preset!r}")
    known = {f.name for f in fields(Options)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise OptionError(f"unknown option {unknown[0]!r}; the options are {', '.join(sorted(known))}")
    return Options(**{**PRESETS[preset], **given})


def solve(
    problem: BilevelProblem,
    x0: PyTree | None = None,
    *,
    preset: str = "default",
    callback: Callback | None = None,
    progress: bool | Report = False,
    **options: Any,
) -> Result:
    """Solve a bilevel problem from ``x0`` (or from the middle of X) and return a certified :class:`Result`.

    ``options`` are the fields of :class:`Options`. ``callback(state)`` is called after every outer iteration and stops
    the run by returning True. ``progress=True`` shows a live line on standard error. Ctrl-C, a callback or the time
    limit end the run with the best point so far.
    """
    settings = _options(preset, options)
    _check_problem(problem)
    run = _Run(problem, settings, callback, _reporter(progress))
    with double_precision():
        return run.single(_start(problem, x0))


def solve_many(
    problem: BilevelProblem,
    x0s: Sequence[PyTree] | np.ndarray | None = None,
    *,
    starts: int | None = None,
    preset: str = "default",
    callback: Callback | None = None,
    progress: bool | Report = False,
    **options: Any,
) -> MultiResult:
    """Solve from many starts at once: those in ``x0s``, or ``starts`` random points of X drawn with ``seed``.

    All starts run in one compiled, batched loop; a start that the batch leaves short of the tolerance is finished on
    its own. Returns every result and the best.
    """
    settings = _options(preset, options)
    _check_problem(problem)
    if (x0s is None) == (starts is None):
        raise OptionError(
            "give either x0s (a sequence of starts) or starts=N (random starts), not both and not neither"
        )
    if starts is not None:
        if not isinstance(starts, (int, np.integer)) or starts < 1:
            raise OptionError(f"starts must be a positive integer, got {starts!r}")
        generator = np.random.default_rng(settings.seed)
        points = np.stack([problem.x_set.sample_flat(generator) for _ in range(starts)])
    else:
        assert x0s is not None
        if len(x0s) == 0:
            raise OptionError("x0s is empty: give at least one start")
        points = np.stack([_start(problem, x0, name=f"x0s[{index}]") for index, x0 in enumerate(x0s)])
    run = _Run(problem, settings, callback, _reporter(progress))
    with double_precision():
        return run.many(points)


def _check_problem(problem: Any) -> None:
    if not isinstance(problem, BilevelProblem):
        raise OptionError(f"problem must be a BilevelProblem, got {type(problem).__name__}")


def _start(problem: BilevelProblem, x0: PyTree | None, name: str = "x0") -> np.ndarray:
    """Flatten a start and make sure that it lies in X."""
    if x0 is None:
        return problem.x_set.interior_flat()
    flat = problem.x_set.ravel(x0, name)
    if not np.isfinite(flat).all():
        raise OptionError(f"{name} must be finite")
    if not problem.x_set.contains(x0, 1e-7):
        away = problem.x_set.distance(x0)
        raise OptionError(
            f"{name} lies outside x_set, {away:.3g} away from it; the nearest member is problem.x_set.project({name})"
        )
    return np.asarray(problem.x_set.ravel(problem.x_set.project(x0)))


def _reporter(progress: bool | Report) -> Report | None:
    if callable(progress):
        return progress
    if progress:
        from blocc.report.progress import ProgressLine

        return ProgressLine()
    return None


class _Run:
    """One call of the front door."""

    def __init__(
        self, problem: BilevelProblem, options: Options, callback: Callback | None, report: Report | None
    ) -> None:
        self.problem, self.options = problem, options
        self.started = time.perf_counter()
        self.monitor = Monitor(problem.x_set.unravel, callback, report, options.time_limit)
        self.function = PenaltyFunction(
            problem.flat, choose_oracles(problem, options.inner), problem.cache, self.monitor
        )
        self.goal = Goal(
            tolerance=options.tolerance,
            max_iterations=options.max_iterations or 500,
            inner_tolerance=options.inner_tolerance,
        )
        self.extra_compile = 0.0

    # --- one start ----------------------------------------------------------------------------------------------
    def single(self, x: np.ndarray) -> Result:
        leader = jax.device_get(no_leader(self.problem.flat))
        last: Outcome | None = None
        try:
            first, trouble = self._first(x, leader)
            if trouble is not None:
                return self._conclude(Outcome(first, np.inf, 0.0), *trouble)
            last = Outcome(first, measure(self.function, first), 0.0)
            last = self._descend(first, leader)
        except Stop as stop:
            return self._stopped(stop.reason, last, x, leader)
        except KeyboardInterrupt:
            return self._stopped(StopReason.INTERRUPTED, last, x, leader)
        return self._conclude(last, *self._judge(last))

    def _descend(self, first: Evaluation, leader: Leader) -> Outcome:
        if self.options.outer == "pgd":
            state = self._published(first.x[None], leader)
            return self._outcome_of(state.x[0], bool(state.broken[0]), leader)
        if not isinstance(self.options.gamma, str):
            return continuation.minimise(self.function, first, leader, self.goal, fixed_gamma=True)[0]
        outcome, _ = continuation.minimise(self.function, first, leader, self.goal, fixed_gamma=False)
        # Two tracks: continuation may end in a better valley than the start's own, or in a worse one.
        direct = continuation.direct_gamma(self.function, first, leader, self.goal)
        if direct is None:
            return outcome
        rows, self.monitor.rows = self.monitor.rows, []
        other, _ = continuation.minimise(self.function, direct, leader, self.goal, fixed_gamma=False)
        if self._rank(outcome) <= self._rank(other):
            self.monitor.rows = rows
            return outcome
        return other

    def _rank(self, outcome: Outcome) -> tuple[bool, float]:
        """Successful first, then by what the leader gets (up to the tolerance, so that ties keep the first)."""
        e, goal = outcome.evaluation, self.goal
        good = bool(e.usable) and goal.stationary(outcome) and goal.exact(e) and goal.admissible(e)
        return not good, round(e.upper_value / (goal.tolerance * goal.scale(e)))

    def _first(self, x: np.ndarray, leader: Leader) -> tuple[Evaluation, tuple[Status, str] | None]:
        """A usable evaluation to start from, or the status and message that explain why there is none."""
        first = self._try(x, leader)
        if not first.usable and self._has_coupling() and self.function.violation(x).value > FEASIBLE:
            better, violated = restore(self.function, x)
            if violated > FEASIBLE:
                return first, conclude.infeasible(violated)
            first = self._try(better, leader)
        if not first.usable:
            return first, conclude.explain_failure(self.problem.flat, self.function, first)
        return first, None

    def _try(self, x: np.ndarray, leader: Leader) -> Evaluation:
        if isinstance(self.options.gamma, str):
            return continuation.first_gamma(self.function, x, leader, self.goal)
        gamma = float(self.options.gamma)
        return self.function(x, gamma, leader, self.goal.inner(gamma))

    def _has_coupling(self) -> bool:
        return self.problem.flat.n_inequality + self.problem.flat.n_equality > 0

    def _published(self, points: np.ndarray, leader: Leader) -> pgd.PgdState:
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
        self.function.evaluations += int(np.sum(states.iteration))
        return states

    def _outcome_of(self, x: np.ndarray, broken: bool, leader: Leader) -> Outcome:
        gamma = float(self.options.gamma)
        found = self.function(np.asarray(x), gamma, leader, self.goal.inner(gamma))
        size = np.inf if broken or not found.usable else measure(self.function, found)
        return Outcome(found, size, 0.0)

    # --- many starts --------------------------------------------------------------------------------------------
    def many(self, points: np.ndarray) -> MultiResult:
        leader = jax.device_get(no_leader(self.problem.flat))
        flat = self.problem.flat
        if flat.n_upper_inequality and self.options.outer != "pgd":
            # Every start has multipliers of its own; they take the single road one after the other.
            results = tuple(self._again().single(x) for x in points)
            return MultiResult(results, self._seconds())
        try:
            outcomes = self._batch(points, leader)
        except (Stop, KeyboardInterrupt) as stop:
            reason = stop.reason if isinstance(stop, Stop) else StopReason.INTERRUPTED
            return MultiResult((self._stopped(reason, None, points[0], leader),), self._seconds())
        run_seconds = self._seconds()
        results = tuple(self._finish(outcome, x, leader) for outcome, x in zip(outcomes, points, strict=True))
        share = {"compile": run_seconds["compile"], "run": run_seconds["run"] / len(points)}
        results = tuple(r if r.seconds else replace(r, seconds=share) for r in results)
        return MultiResult(results, self._seconds())

    def _batch(self, points: np.ndarray, leader: Leader) -> list[Outcome]:
        if self.options.outer == "pgd":
            state = self._published(points, leader)
            return [self._outcome_of(x, bool(b), leader) for x, b in zip(state.x, state.broken, strict=True)]
        fixed = None if isinstance(self.options.gamma, str) else float(self.options.gamma)
        first = 1.0
        if fixed is None:
            candidates = [self._try(x, leader) for x in points[:: max(1, len(points) // 3)][:3]]
            first = max([float(e.gamma) for e in candidates if e.usable], default=1.0)
        outcomes, evaluations, seconds = batch.minimise(
            self.problem.flat,
            self.function.oracles[0],
            self.problem.cache,
            self.monitor,
            points,
            self.goal,
            gamma=fixed,
            first_gamma=first,
        )
        self.extra_compile += seconds
        self.function.evaluations += int(evaluations.sum())
        return outcomes

    def _finish(self, outcome: Outcome, x: np.ndarray, leader: Leader) -> Result:
        """Turn one lane of the batch into a result; what the batch left undone is finished alone."""
        evaluation = outcome.evaluation
        settled = bool(evaluation.usable) and self.goal.stationary(outcome)
        if self.options.outer == "pgd" or (
            settled and (self.goal.exact(evaluation) or not isinstance(self.options.gamma, str))
        ):
            return replace(self._conclude(outcome, *self._judge(outcome)), seconds={})
        if not evaluation.usable:
            return self._again().single(x)
        try:
            last, _ = continuation.minimise(
                self.function, evaluation, leader, self.goal, fixed_gamma=not isinstance(self.options.gamma, str)
            )
        except (Stop, KeyboardInterrupt) as stop:
            reason = stop.reason if isinstance(stop, Stop) else StopReason.INTERRUPTED
            return self._stopped(reason, outcome, x, leader)
        return replace(self._conclude(last, *self._judge(last)), seconds={})

    def _again(self) -> _Run:
        """A fresh run of the same settings, on the same compiled functions and the same clock."""
        other = _Run(self.problem, self.options, self.monitor.callback, self.monitor.report)
        other.monitor.started = self.monitor.started
        return other

    # --- the end ------------------------------------------------------------------------------------------------
    def _judge(self, outcome: Outcome) -> tuple[Status, str]:
        return conclude.judge(
            self.problem.flat, self.function, outcome, self.goal, self.options.gamma, self.options.outer
        )

    def _stopped(self, reason: StopReason, last: Outcome | None, x: np.ndarray, leader: Leader) -> Result:
        """The best point so far, with the status that says why there is no more."""
        self.monitor.time_limit = None  # the closing evaluation must not be stopped again
        best = self.monitor.best
        if best is None:
            best = last.evaluation if last is not None else self._try(x, leader)
        outcome = Outcome(best, measure(self.function, best), 0.0)
        return self._conclude(outcome, *conclude.STOPPED[reason])

    def _conclude(self, outcome: Outcome, status: Status, message: str) -> Result:
        return conclude.result(
            self.problem,
            outcome,
            status,
            message,
            self.monitor.rows,
            self._counts(),
            self._seconds(),
            self._described(),
        )

    def _described(self) -> dict[str, Any]:
        return {**self.options.described(), "goal": asdict(self.goal)}

    def _counts(self) -> dict[str, int]:
        return {
            "evaluations": self.function.evaluations,
            "inner_iterations": self.function.inner_iterations,
            "fallbacks": self.function.fallbacks,
        }

    def _seconds(self) -> dict[str, float]:
        compiling = self.function.compile_seconds + self.extra_compile
        return {"compile": compiling, "run": time.perf_counter() - self.started - compiling}
