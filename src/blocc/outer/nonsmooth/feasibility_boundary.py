"""Descent of F_gamma along the boundary of the follower's feasibility: quasi-Newton steps over linear cuts.

Where the lower level becomes infeasible, X ends before its bounds do. Every point met beyond such a boundary gives a
cut, the linear model of the follower's smallest violation there (:mod:`blocc.inner.elastic`), and SciPy's SLSQP
descends inside all cuts so far, just before the boundary: on it the follower has no room, and its multipliers have
no bound. The violation need not be convex in x, so that a cut may be wrong elsewhere: one that would shut off the
best point known is moved back to it, and those that hold the descent at its end are taken anew from right behind that
point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from blocc._lib.arrays import AnyArray
from blocc.outer.evaluator import Evaluator
from blocc.outer.nonsmooth.gradient_sampling import SMALLEST_RADIUS, set_normals, shortest_combination
from blocc.outer.smooth import first_step_units
from blocc.outer.tolerances import Endpoint, Stage, better, measure, runs_away
from blocc.penalty import Evaluation

#: How far from a boundary the descent keeps, relative to the size of x: at first, and where the value falls steeply.
_MARGIN, _SMALLEST_MARGIN = 1e-8, 1e-12

#: So many cuts in one stage; a boundary that needs more is left to gradient sampling.
_MOST_CUTS = 40

#: SLSQP solves dense least-squares problems in x: beyond this it no longer pays.
LARGEST_DIMENSION = 300


class _Cut(NamedTuple):
    """The half space ``normal @ x <= level``; the normal has length 1."""

    normal: np.ndarray
    level: float


class _Beyond(Exception):
    """Unwinds SciPy's loop at a point where the follower has no answer."""

    def __init__(self, x: AnyArray) -> None:
        super().__init__()
        self.x = x


class _Done(Exception):
    """Unwinds SciPy's loop: stationary, or running away."""


def minimise(evaluator: Evaluator, first: Evaluation, stage: Stage) -> Endpoint:
    """Descend from ``first`` until stationary against the bounds of X and the boundaries, or nothing moves."""
    return _Descent(evaluator, first, stage).run()


class _Descent:
    def __init__(self, evaluator: Evaluator, first: Evaluation, stage: Stage) -> None:
        self.evaluator, self.stage, self.best = evaluator, stage, first
        self.gamma = float(first.gamma)
        self.size = 1.0 + float(np.max(np.abs(first.x), initial=0.0))
        self.cuts: list[_Cut] = []
        self.margin = _MARGIN * self.size
        self.iterations = 0

    def run(self) -> Endpoint:
        """SLSQP again and again, with one cut more or one less, until it comes to an end of its own."""
        for _ in range(_MOST_CUTS):
            try:
                self._quasi_newton()
            except _Beyond as met:
                if not self._cut_off(met.x):
                    break
                continue
            except _Done:
                pass
            held = self._slope(self.best) <= self.stage.tolerance
            if not self._renew() or not held:
                break
        self._approach()
        limited = self.iterations >= self.stage.max_iterations
        if not self._active(self.best.x):  # it only passed by a boundary
            return Endpoint(self.best, measure(self.evaluator, self.best), 0.0, True, limited)
        slope = max(self._slope(self.best), self._unreached())
        return Endpoint(self.best, slope, SMALLEST_RADIUS * self.size, True, limited)

    def _unreached(self) -> float:
        """What the margin before the boundary may cost; where it is small, so is this."""
        gain = self._steepness() * self.margin
        return gain if gain > self.stage.tolerance else 0.0

    def _approach(self) -> None:
        """Closer to the boundary, as long as that pays: the value may fall like a root there."""
        while self._active(self.best.x) and self.margin > _SMALLEST_MARGIN * self.size:
            if self._steepness() * self.margin <= 0.01 * self.stage.tolerance:
                return
            before, kept = self.best, self.cuts
            closer = 0.9 * self.margin
            held = self._active(self.best.x)
            self.cuts = [
                _Cut(cut.normal, cut.level + closer) if any(cut is other for other in held) else cut for cut in kept
            ]
            try:
                self._quasi_newton()
            except _Beyond:
                self.cuts = kept
            except _Done:
                pass
            if self.best is before:
                self.cuts = kept
                return
            self.margin -= closer

    def _quasi_newton(self) -> None:
        """One run of SLSQP from the best point inside the present cuts."""
        evaluator, stage = self.evaluator, self.stage
        unit, height = first_step_units(self.best)
        low, high = evaluator.flat.x_set.bounds_flat()
        seen: dict[bytes, Evaluation] = {self.best.x.tobytes(): self.best}

        def evaluate(z: np.ndarray) -> Evaluation:
            x = np.clip(unit * z, low, high)
            found = seen.get(x.tobytes())
            if found is None:
                found = evaluator(x, self.gamma, stage.leader, stage.inner_tolerance)
                if not found.usable:
                    raise _Beyond(x)
                seen[x.tobytes()] = found
                if better(found, self.best, self._slope):
                    self.best = found
            return found

        def value_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
            found = evaluate(z)
            return float(found.value) / height, unit / height * np.asarray(found.gradient, dtype=np.float64)

        def note(z: np.ndarray) -> None:
            self.iterations += 1
            slope = self._slope(self.best)
            evaluator.monitor.record(self.best, slope, evaluator.evaluations)
            if (slope <= stage.tolerance and not self._loose()) or runs_away(evaluator, self.best):
                raise _Done

        if self._slope(self.best) <= stage.tolerance and not self._loose():
            return
        normals = np.reshape([cut.normal for cut in self.cuts], (-1, self.best.x.size))
        levels = np.array([cut.level for cut in self.cuts]) / unit
        room = {"type": "ineq", "fun": lambda z: levels - normals @ z, "jac": lambda z: -normals}
        scipy.optimize.minimize(
            value_and_gradient,
            np.array(self.best.x, dtype=np.float64) / unit,
            jac=True,
            method="SLSQP",
            bounds=list(zip(low / unit, high / unit, strict=True)),
            constraints=[room] if self.cuts else [],
            callback=note,
            options={"ftol": 1e-16, "maxiter": max(1, stage.max_iterations - self.iterations)},
        )

    def _slope(self, evaluation: Evaluation) -> float:
        """Length of the gradient after what bounds and boundaries within the radius can take of it."""
        radius = SMALLEST_RADIUS * self.size
        boundaries = [cut.normal for cut in self._active(evaluation.x)]
        normals = [*set_normals(self.evaluator, evaluation.x, radius), *boundaries]
        rows = np.reshape(normals, (-1, evaluation.x.size))
        return float(np.max(np.abs(shortest_combination(np.asarray(evaluation.gradient)[None], rows)), initial=0.0))

    def _loose(self) -> bool:
        """Whether a cut that counts for the slope is not reached yet, and reaching it would pay."""
        gaps = [cut.level - float(cut.normal @ self.best.x) for cut in self._active(self.best.x)]
        return max(gaps, default=0.0) * self._steepness() > 0.01 * self.stage.tolerance

    def _steepness(self) -> float:
        """Largest entry of the gradient at the best point."""
        return float(np.max(np.abs(self.best.gradient), initial=0.0))

    def _active(self, x: AnyArray) -> list[_Cut]:
        return [cut for cut in self.cuts if cut.normal @ x >= cut.level - SMALLEST_RADIUS * self.size]

    def _cut_off(self, x: AnyArray) -> bool:
        """Add the cut of a point beyond the boundary; False where none can be had that leaves the best point inside."""
        boundary = self.evaluator.boundary(x)
        if boundary is None:
            return False
        position = float(boundary.normal @ x)
        level = max(position - boundary.depth - self.margin, float(boundary.normal @ self.best.x))
        if level >= position:
            return False
        self.cuts.append(_Cut(boundary.normal, level))
        return True

    def _renew(self) -> bool:
        """Take the cuts that hold the best point anew from just behind it; whether that leaves it less than held.

        A cut knows the boundary where it was met. Here it may be bent, or there may be none.
        """
        held = self._active(self.best.x)
        self.cuts = [cut for cut in self.cuts if not any(cut is other for other in held)]
        for cut in held:
            self._cut_off(self.best.x + SMALLEST_RADIUS * self.size * cut.normal)
        return self._slope(self.best) > self.stage.tolerance
