"""From a start to an end: the penalty function loosely, then f(x, y(x)) itself; all of the former where that fails.

Small gammas lead to a good valley, and derivatives of f(x, y(x)) to its bottom. Where y(x) jumps or bends, the latter
end short of it, and the penalty function is followed to large gammas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from blocc.cvxpy.descent import Descent
from blocc.cvxpy.evaluator import ConicEvaluator, Units
from blocc.cvxpy.judge import Judge
from blocc.cvxpy.model import Vector
from blocc.cvxpy.run_options import RunOptions
from blocc.inner.protocol import InnerCode
from blocc.outer import continuation
from blocc.outer.monitor import Stop, StopReason
from blocc.outer.tolerances import Endpoint, Tolerances, runs_away
from blocc.penalty import Evaluation, Leader
from blocc.result import Status

_FINEST = 1e-11
#: Rounds in which the leader's constraints are tightened; and how slack one that was may end, relative to its size.
_TIGHTENED, _SLACK = 8, 1e-4
#: Tolerance of the descent of F_gamma before the last digits are left to f(x, y(x)).
_LOOSE = 2e-2
#: Evaluations of a descent of F_gamma at most, and for every variable.
_VALLEY, _VALLEY_EACH = 20, 5
#: Steps for these; and by how much worse, relative to the size of f, they may end.
_LAST_STEPS, _WORSE = 60, 1e-3
#: Violation of the leader's constraints at the follower's answer, relative to their size, that is corrected; how often.
_VIOLATED, _CORRECTIONS = 1e-8, 3

#: Of a violation of the leader's constraints, in the unit of her objective, at first.
_PRICE = 10.0

Trouble = tuple[Status, str] | None


class Descents:
    """The descents of one run."""

    def __init__(self, evaluator: ConicEvaluator, options: RunOptions, judge: Judge) -> None:
        self.evaluator, self.model, self.options, self.judge = evaluator, evaluator.model, options, judge
        self.leader = Leader(np.zeros(0), np.asarray(10.0))
        self.tolerances = Tolerances(tolerance=options.tolerance, max_iterations=options.max_iterations, finest=_FINEST)
        self._price, self._varied = _PRICE, 1.0

    def set_units(self, units: Units, varied: float) -> None:
        """Measure both objectives by their sizes; ``varied``: what f varies by, as a share of its size."""
        self.evaluator.units, self._varied = units, varied
        self._set_price(_PRICE)

    def _set_price(self, price: float) -> None:
        """Of a violation of the leader's constraints."""
        self._price = price
        self.model.soft.price.value = price * self.evaluator.units.upper
        self.model.refresh()

    def descend(self, x: Vector, *, again: bool) -> tuple[Endpoint, Trouble]:
        """From x, or from a point beside an earlier end."""
        self._set_price(_PRICE)  # what an earlier descent raised it to may be more than solvers can cope with
        if self.options.gamma != "auto":
            return self._admissible(x, float(self.options.gamma))
        ends = [self._settled(x)]
        if not again:
            first = continuation.first_gamma(self.evaluator, x, self.leader, self.tolerances)
            if first.usable:
                self.tolerances = replace(self.tolerances, origin=first.upper_value)
                loose = replace(self.tolerances, tolerance=max(_LOOSE, self.tolerances.tolerance))
                end = self._loosely(first, loose)
                if runs_away(self.evaluator, end.evaluation):
                    return end, None
                ends.append(self._settled(np.asarray(end.evaluation.x)))
            elif ends[0] is None:
                return Endpoint(first, np.inf, 0.0), _why(first)
        best = min((one for one in ends if one is not None), key=lambda one: float(one.evaluation.value), default=None)
        return (best, None) if best is not None else self._admissible(x, None)

    def _loosely(self, first: Evaluation, loose: Tolerances) -> Endpoint:
        """F_gamma for small gammas."""
        descend = lambda: continuation.minimise(self.evaluator, first, self.leader, loose, fixed_gamma=False)  # noqa: E731
        return self._within_limits(1, first, descend)

    def _within_limits(
        self, tracks: int, first: Evaluation, descend: Callable[[], tuple[Endpoint, Leader]]
    ) -> Endpoint:
        """A descent of F_gamma; among kinks, where that would take thousands of evaluations, the best of some."""
        monitor = self.evaluator.monitor
        monitor.budget = monitor.spent + tracks * (_VALLEY + _VALLEY_EACH * self.model.n_x)
        try:
            return descend()[0]
        except Stop as stop:
            if stop.reason is not StopReason.BUDGET:
                raise
            return Endpoint(monitor.best or first, np.inf, 0.0)
        finally:
            monitor.budget = np.inf

    # --- f(x, y(x)) itself ----------------------------------------------------------------------------------------
    def _settled(self, x: Vector) -> Endpoint | None:
        """Where f(x, y(x)) leads to, if the leader's constraints hold there."""
        self._untighten()
        end = self._followed(x)
        for _ in range(_CORRECTIONS if self.model.soft.constraints else 0):
            if end is None or self.judge.at(np.asarray(end.evaluation.x)) is None:
                return None
            sides = [np.asarray(side.value) for side in self.model.soft.sides]
            worst = max(float(np.max(value, initial=0.0)) for value in sides)
            if worst <= _VIOLATED:
                break
            if worst > self.tolerances.leader_tolerance:  # worth its price
                self._set_price(10.0 * self._price)
            else:  # what two solvers differ by
                for value, shift in zip(sides, self.model.soft.shifts, strict=True):
                    shift.value = shift.value + 2.0 * np.maximum(value, 0.0)
                self.model.refresh()
            end = self._followed(np.asarray(end.evaluation.x))
        return end if end is not None and self.tolerances.admissible(end.evaluation) else None

    def _followed(self, x: Vector) -> Endpoint | None:
        """The same without regard to constraints."""
        first = self.evaluator(x, np.inf, self.leader, _FINEST)
        if not first.usable:
            return None
        wanted = 0.1 * self._varied * self.tolerances.tolerance
        return Descent(self.evaluator, self.leader, wanted).run(first, _LAST_STEPS)

    def stationary(self, end: Endpoint) -> bool:
        """Whether a descent of f(x, y(x)), or of F_gamma, came to its end."""
        if np.isinf(float(end.evaluation.gamma)):
            return np.isfinite(end.stationarity)
        return self.tolerances.stationary(end)

    def _untighten(self) -> None:
        if any(np.any(shift.value) for shift in self.model.soft.shifts):
            for shift in self.model.soft.shifts:
                shift.value = np.zeros(shift.shape)
            self.model.refresh()

    # --- the penalty function ---------------------------------------------------------------------------------------
    def _admissible(self, x: Vector, gamma: float | None, begun: Evaluation | None = None) -> tuple[Endpoint, Trouble]:
        """Descend F_gamma, and tighten the leader's constraints until they hold at the follower's answer."""
        self._untighten()
        end, trouble = self._penalised(x, gamma, begun)
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
            later, trouble = self._penalised(at, gamma)
            if trouble is not None:  # at such prices solvers err; what was reached before tells what is violated
                return end, None
            end = later
        return end, trouble

    def _penalised(self, x: Vector, gamma: float | None, begun: Evaluation | None = None) -> tuple[Endpoint, Trouble]:
        evaluator, tolerances = self.evaluator, self.tolerances
        if gamma is not None:
            first = evaluator(x, gamma, self.leader, tolerances.inner(gamma))
        else:
            first = continuation.first_gamma(evaluator, x, self.leader, tolerances)
        if not first.usable:
            return Endpoint(first, np.inf, 0.0), _why(first)
        self.tolerances = tolerances = replace(tolerances, origin=first.upper_value)
        if gamma is not None:
            return continuation.minimise(evaluator, first, self.leader, tolerances, fixed_gamma=True)[0], None
        both = lambda: continuation.minimise_from_both(evaluator, first, self.leader, tolerances, begun)  # noqa: E731
        end = self._within_limits(2, first, both)
        if end.evaluation.optimistic or self.model.soft.constraints or runs_away(evaluator, end.evaluation):
            return end, None
        exact = self._followed(np.asarray(end.evaluation.x))
        return (end if exact is None or not self.stationary(exact) else exact), None


def _why(failed: Evaluation) -> tuple[Status, str]:
    """Why there is no penalised problem to descend."""
    code = int(failed.penalised.code)
    if code == InnerCode.UNBOUNDED:
        return Status.UNBOUNDED, (
            "The penalised problem falls without limit however large gamma is: the leader's objective does, over "
            "the follower's best answers."
        )
    if code == InnerCode.INFEASIBLE:
        return Status.INFEASIBLE, "The penalised problem has no feasible point."
    return Status.STALLED, "The cone solver finds no answer to the penalised problem."
