"""Descent of f(x, y(x)) itself, piece by piece (Luo, Pang and Ralph, 1996, chapter 6).

Within a piece f(x, y(x)) is smooth but for kinks of the leader's own, and a step keeps these (``model_step.py``); B
learns from differences of derivatives what the curvature of y(x) adds. A step is tried across the piece's boundaries
first: the followers answer for themselves there. Where that gains nothing, the rows that it crossed hold the next one,
so that it ends on the boundary. Where a piece has nothing left to gain, its neighbours at the rows that vanish are
asked; with none of them better x is stationary. Where f hardly falls at all and nothing is known to bend it, steps as
long as x's own size tell a plateau from a minimum.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from blocc._lib.arrays import NDArray
from blocc.cvxpy.evaluator import ConicEvaluator
from blocc.cvxpy.exact import ExactPoint, View, exact_point, view_of
from blocc.cvxpy.expressions import without_negative
from blocc.cvxpy.implicit import VANISHED, Pair, polished
from blocc.cvxpy.model import Vector
from blocc.cvxpy.model_step import Matrix, Step, step_from
from blocc.outer.tolerances import Endpoint
from blocc.penalty import Evaluation, UpperMultipliers

#: Length of the first step, as a share of the size of x.
_FIRST = 0.3
#: Share of what was promised that a step must gain (Armijo's rule), and that lets the next one be longer.
_ENOUGH, _GOOD = 0.1, 0.5
#: Values differ by so much for no reason, relative to their size: f at pairs whose equations hold to 1e-15.
_NOISE = 1e-13
_SHORTEST = 1e-10
#: Neighbours that are asked at most: all of six rows.
_MOST_NEIGHBOURS = 64
#: Steps into one of them, each held by the rows that the last one crossed.
_TRIES = 4
#: Steps that tell a plateau from a minimum, as shares of the size of x.
_FAR = (1e-2, 1e-1, 1.0)


class Descent:
    """One descent from an evaluation at an infinite gamma.

    :param wanted: what f may still fall by over the size of x, by its derivative, in the run's units
    """

    def __init__(self, evaluator: ConicEvaluator, leader: UpperMultipliers, wanted: float) -> None:
        self.evaluator, self.model, self.leader = evaluator, evaluator.model, leader
        self.unit = evaluator.units.upper
        self.wanted = wanted * self.unit

    def run(self, first: Evaluation, steps: int) -> Endpoint | None:
        """Step until nothing is left to gain, or steps lead nowhere; None where there is no piece to begin on."""
        n = self.model.n_x
        if not self._stand(first):
            return None
        self.sizes = self.model.x_set.sizes(np.asarray(first.x))
        steepest = float(np.max(np.abs(self.sizes * self.point.gradient), initial=0.0))
        self.usual = steepest + self.unit * _NOISE
        self.short, self.least = steepest / _FIRST, 1e-9 * self.usual
        self.learned, self.own = np.zeros((n, n)), self.model.own.bend()
        self.end = Endpoint(first, np.inf, 0.0)
        for _ in range(steps):
            step = self._step(self.view, self.held)
            if step is None or (self._length(step) <= _SHORTEST and self.short > 1e12 * self.usual):
                break
            if self._promises(step):
                self._taken(step)
            elif not (self._beside(step) or self._far()):
                radius = float(np.max(np.abs(step.x - self.point.x), initial=0.0))
                steepest = float(np.max(np.abs(step.slope), initial=0.0)) / self.unit
                return self.end._replace(stationarity=steepest, radius=radius)
        return self.end

    # --- where it stands --------------------------------------------------------------------------------------------
    def _stand(self, e: Evaluation) -> bool:
        """Take an evaluation as the point to go on from."""
        point = self.evaluator.point(np.asarray(e.x))
        view = None if point is None else view_of(self.model, point)
        if point is None or view is None:
            return False
        self.point, self.view, self.end = point, view, Endpoint(e, np.inf, 0.0)
        self.held = _vanished(view)
        return True

    @property
    def _scaled_identity(self) -> Matrix:
        return np.diag(1.0 / self.sizes**2)

    def _step(self, view: View, held: NDArray) -> Step | None:
        bend = without_negative(self.own + view.cross + self.learned)
        return step_from(self.model, self.point.x, view, bend, self.short * self._scaled_identity, held)

    def _steepest(self, step: Step) -> float:
        """By how much f may still fall over the size of x."""
        return float(np.max(np.abs(self.sizes * step.slope), initial=0.0))

    def _length(self, step: Step) -> float:
        return float(np.max(np.abs(step.x - self.point.x) / self.sizes, initial=0.0))

    def _promises(self, step: Step) -> bool:
        noise = _NOISE * (self.unit + abs(self.point.value))
        return step.gain > noise and (self._steepest(step) > self.wanted or step.gain > 0.1 * self.wanted)

    # --- steps ------------------------------------------------------------------------------------------------------
    def _evaluated(self, x: Vector, pairs: list[Pair] | None) -> Evaluation:
        """At x, on a piece where it is the truth there."""
        self.evaluator.proposed = pairs
        return self.evaluator(x, np.inf, self.leader, 1e-11)

    def _pairs(self, step: Step, point: ExactPoint, view: View) -> list[Pair]:
        """The followers' pairs at the end of a step, by the model."""
        found = []
        for pair, moves in zip(point.pairs, view.pairs, strict=True):
            change = moves @ step.change
            n = len(pair.z)
            found.append(Pair(pair.z + change[:n], pair.prices + change[n:], pair.free))
        return found

    def _gained(self, found: Evaluation) -> float:
        return self.point.value - self.unit * float(found.value) if found.usable else -np.inf

    def _taken(self, step: Step) -> bool:
        """Move where the step gains what it promised; otherwise hold the rows that it crossed, or shorten the next."""
        noise = _NOISE * (self.unit + abs(self.point.value))
        found = self._evaluated(step.x, self._pairs(step, self.point, self.view))
        gained = self._gained(found)
        before, view, held = self.point, self.view, self.held
        if gained >= max(_ENOUGH * step.gain, noise) and self._stand(found):
            self._moved(found, step, before, view, held)
            self.short = max(0.2 * self.short, self.least) if gained >= _GOOD * step.gain else 2.0 * self.short
            return True
        after = view.rows + view.slopes @ step.change
        crossed = np.setdiff1d(np.flatnonzero(after < -VANISHED), held)
        if 0 < len(crossed) <= self.model.n_x:  # more cannot vanish at once: kinks so dense that f looks smooth
            self.held = np.union1d(held, crossed)
            return True
        there = self.evaluator.point(step.x) if found.usable else None
        if there is not None and (beyond := view_of(self.model, there)) is not None:
            self._learn(step, view, beyond, held[:0])
        length = self._length(step)
        bent = 2.0 * max(step.gain - gained, 0.0) / max(length, _SHORTEST) ** 2 if np.isfinite(gained) else 0.0
        self.short = max(4.0 * self.short, min(bent, 1e3 * self.short), self.least)
        return False

    def _moved(self, found: Evaluation, step: Step, before: ExactPoint, view: View, held: NDArray) -> None:
        """Learn from a step that was taken, and keep the rows that held it where the piece is the same."""
        self.evaluator.monitor.record(found, self._steepest(step) / self.unit, self.evaluator.evaluations)
        changed = _changed(before, self.point)
        if changed == 0:
            self.held = np.union1d(held, self.held)
            self._learn(step, view, self.view, held)
        elif changed > self.model.n_x:
            self._learn(step, view, self.view, held[:0])

    def _learn(self, step: Step, view: View, there: View, held: NDArray) -> None:
        """A symmetric update of rank one: with f's derivatives held, what changes is the curvature of y(x).

        :param held: the rows that the step's multipliers are of, the same in both views: they are curved as well
        """
        if not (view.is_regular and there.is_regular):
            return
        model, moved = self.model, step.change[: self.model.n_x]
        program = model.leader_program.program
        change = program.slope(there.columns, step.prices) - program.slope(view.columns, step.prices)
        found = model.slope_in_x(change, [None] * len(model.followers)) + there.moves.T @ (view.mixed @ moved)
        found = found + (there.moves - view.moves).T @ step.pull + there.own_slope - view.own_slope
        found = found + there.moves.T @ there.plain - view.moves.T @ view.plain - (self.own + view.cross) @ moved
        found = found - (there.slopes[held] - view.slopes[held]).T @ step.forces[: len(held)]
        left = found - self.learned @ moved
        along = float(moved @ left)
        if abs(along) > 1e-8 * float(np.linalg.norm(moved)) * float(np.linalg.norm(left)):  # Nocedal and Wright, 6.26
            self.learned = self.learned + np.outer(left, left) / along

    # --- neighbours -------------------------------------------------------------------------------------------------
    def _beside(self, step: Step) -> bool:
        """Move to a neighbouring piece that has something to gain, if there is one."""
        names = [self.view.names[k] for k in np.flatnonzero(self.view.rows <= VANISHED)]
        names = [one for one in names if one[1] >= 0]
        sets = [one for count in range(1, len(names) + 1) for one in combinations(names, count)]
        for flipped in sets[: max(_MOST_NEIGHBOURS, len(names))]:
            point = self._neighbour(flipped)
            view = None if point is None else view_of(self.model, point)
            if point is None or view is None:
                continue
            if self._into(point, view):
                return True
        return False

    def _into(self, point: ExactPoint, view: View) -> bool:
        """Move into a piece at whose boundary x is, if that gains; the rows that a step crossed hold the next one."""
        held = _vanished(view)
        least = max(_NOISE * (self.unit + abs(self.point.value)), 1e-3 * self.wanted)
        for _ in range(_TRIES):
            step = self._step(view, held)
            if step is None or not self._promises(step):
                return False
            found = self._evaluated(step.x, self._pairs(step, point, view))
            if self._gained(found) > least and self._stand(found):
                self.evaluator.monitor.record(found, self._steepest(step) / self.unit, self.evaluator.evaluations)
                return True
            held = np.union1d(held, np.flatnonzero(view.rows + view.slopes @ step.change < -VANISHED))
        return False

    def _neighbour(self, flipped: tuple[tuple[int, int], ...]) -> ExactPoint | None:
        """The same x on the piece at which some rows have changed sides."""
        pairs = []
        thetas = self.model.follower_thetas(self.point.x)
        for index, (follower, theta, pair) in enumerate(
            zip(self.model.followers, thetas, self.point.pairs, strict=True)
        ):
            free = pair.free.copy()
            for owner, row in flipped:
                if owner == index:
                    free[row] = not free[row]
            program = follower.program
            found = polished(program.at(theta), program.cones, pair, free)
            if found is None:
                return None
            pairs.append(found)
        point = exact_point(self.model, self.point.x, pairs)
        return point if point is not None and point.is_true else None

    def _far(self) -> bool:
        """Where f falls, however little, and nothing bends it up within the size of x: go and see."""
        downhill = self.point.x - self.model.project_x(
            self.point.x - self.sizes * _unit(self.sizes * self.point.gradient)
        )
        length = float(np.max(np.abs(downhill) / self.sizes, initial=0.0))
        if length <= _SHORTEST:
            return False
        downhill = -downhill / length
        fall = -float(self.point.gradient @ downhill)
        bend = float(downhill @ (self.own + self.view.cross + self.learned) @ downhill)
        if not fall > 0.0 or fall <= bend * _FAR[0]:
            return False
        noise = _NOISE * (self.unit + abs(self.point.value))
        best, lowest = None, self.point.value - max(noise, 1e-3 * self.wanted)
        for share in _FAR:
            found = self._evaluated(self.model.project_x(self.point.x + share * downhill), None)
            if found.usable and self.unit * float(found.value) < lowest:
                best, lowest = found, self.unit * float(found.value)
        return best is not None and self._stand(best)


def _unit(vector: Vector) -> Vector:
    length = float(np.max(np.abs(vector), initial=0.0))
    return vector / length if length > 0.0 else vector


def _vanished(view: View) -> NDArray:
    """Rows that hold a step from the beginning."""
    return np.flatnonzero((view.rows <= VANISHED) | view.always)


def _changed(one: ExactPoint, other: ExactPoint) -> int:
    """How many linear rows have changed sides between two points."""
    return sum(int(np.sum(a.free != b.free)) for a, b in zip(one.pairs, other.pairs, strict=True))
