"""From a start to an end: f(x, y(x)) itself piece by piece, from the start and from where a small gamma leads.

Derivatives of f(x, y(x)) lead to the bottom of a valley, small gammas to a good one. Only where the followers have no
piece to begin on, F_gamma is followed to large gammas.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from blocc.cvxpy.descent import Descent
from blocc.cvxpy.evaluator import ConicEvaluator, Units
from blocc.cvxpy.exact import ExactPoint
from blocc.cvxpy.implicit import Pair
from blocc.cvxpy.model import Vector
from blocc.cvxpy.run_options import RunOptions
from blocc.inner.protocol import InnerCode
from blocc.outer import continuation
from blocc.outer.monitor import Stop, StopReason
from blocc.outer.tolerances import Endpoint, Tolerances, runs_away
from blocc.penalty import Evaluation, UpperMultipliers
from blocc.result import Status

_FINEST = 1e-11
#: Tolerance of the descent of F_gamma before the last digits are left to f(x, y(x)).
_LOOSE = 2e-2
#: Evaluations of such a descent at most, and for every variable; and where there is no other.
_VALLEY, _VALLEY_EACH, _ALONE = 20, 5, 100
#: Steps of a descent of f(x, y(x)).
_STEPS = 60
#: Violation of the leader's constraints at the follower's answer, relative to their size, that is corrected; how often.
_VIOLATED, _CORRECTIONS = 1e-8, 3
#: Of a violation of the leader's constraints, in the unit of her objective, at first.
_PRICE = 10.0
#: Share of the tolerance that the hypergradient is followed to: the judge's share of it, and a step more.
_AIM = 0.1

Trouble = tuple[Status, str] | None


class _End(NamedTuple):
    """Where a descent of f(x, y(x)) ended."""

    endpoint: Endpoint
    point: ExactPoint
    violation: float  #: of the leader's constraints


class Descents:
    """The descents of one run."""

    def __init__(self, evaluator: ConicEvaluator, options: RunOptions) -> None:
        self.evaluator, self.model, self.options = evaluator, evaluator.model, options
        self.leader = UpperMultipliers(np.zeros(0), np.asarray(10.0))
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
        if self.options.gamma != "auto":
            return self._penalised(x, float(self.options.gamma))
        ends = [self._settled(x)]
        if not again:
            self._set_price(_PRICE)
            first = continuation.first_gamma(self.evaluator, x, self.leader, self.tolerances)
            if first.usable:
                self.tolerances = replace(self.tolerances, origin=first.upper_value)
                loose = replace(self.tolerances, tolerance=max(_LOOSE, self.tolerances.tolerance))
                end = self._within_limits(_VALLEY + _VALLEY_EACH * self.model.n_x, first, loose)
                if runs_away(self.evaluator, end.evaluation):
                    return end, None
                ends.append(self._settled(np.asarray(end.evaluation.x)))
            elif ends[0] is None:
                return Endpoint(first, np.inf, 0.0), _why(first)
        best = min((one for one in ends if one is not None), key=self._merit, default=None)
        return self._penalised(x, None) if best is None else (best.endpoint, None)

    def _merit(self, end: _End) -> tuple[float, float]:
        """Violations that count first, then f."""
        counts = end.violation > self.tolerances.leader_allowance(end.endpoint.evaluation)
        return (end.violation if counts else 0.0), end.endpoint.evaluation.upper_value

    def _within_limits(self, evaluations: int, first: Evaluation, tolerances: Tolerances) -> Endpoint:
        """A descent of F_gamma; among kinks, where that would take thousands of evaluations, the best of some."""
        monitor = self.evaluator.monitor
        monitor.budget = monitor.spent + evaluations
        try:
            return continuation.minimise(self.evaluator, first, self.leader, tolerances, fixed_gamma=False)[0]
        except Stop as stop:
            if stop.reason is not StopReason.BUDGET:
                raise
            return Endpoint(monitor.best or first, np.inf, 0.0)
        finally:
            monitor.budget = np.inf

    # --- f(x, y(x)) itself ----------------------------------------------------------------------------------------
    def _settled(self, x: Vector) -> _End | None:
        """Where f(x, y(x)) leads to, with a price on violations of the leader's constraints that they are not worth."""
        self._set_price(_PRICE)
        end = self._followed(x)
        for _ in range(_CORRECTIONS if self.model.soft.constraints else 0):
            if end is None or end.violation <= _VIOLATED * max(1.0, float(np.max(np.abs(x), initial=0.0))):
                break
            self._set_price(10.0 * self._price)
            later = self._followed(end.point.x, end.point.pairs)
            end = end if later is None else later
        return end

    def _followed(self, x: Vector, pairs: list[Pair] | None = None) -> _End | None:
        """The same at one price; None where the followers have no piece to begin on."""
        self.evaluator.proposed = pairs
        first = self.evaluator(x, np.inf, self.leader, _FINEST)
        if not first.usable:
            return None
        descent = Descent(self.evaluator, self.leader, _AIM * self._varied * self.tolerances.tolerance)
        end = descent.run(first, min(_STEPS, self.options.max_iterations))
        return None if end is None else _End(end, descent.point, end.evaluation.violation)

    def stationary(self, end: Endpoint) -> bool:
        """Whether a descent of f(x, y(x)), or of F_gamma, came to its end."""
        if np.isinf(float(end.evaluation.gamma)):
            return bool(np.isfinite(end.stationarity))
        return self.tolerances.stationary(end)

    # --- the penalty function ---------------------------------------------------------------------------------------
    def _penalised(self, x: Vector, gamma: float | None) -> tuple[Endpoint, Trouble]:
        """F_gamma to its end: at the gamma that was given, or in stages."""
        self._set_price(_PRICE)
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
        return self._within_limits(_ALONE, first, tolerances), None


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
