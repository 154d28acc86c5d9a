"""The last digits: steps on f(x, y(x)) that keep f as it is and move y along its derivative.

    minimise over x in X   f(x, y0 + J (x - x0)) + (x - x0)'(B + r I)(x - x0) / 2

f is the leader's convex program, so kinks of hers (maxima, norms, constraints with a price on their violation) are no
obstacle: the step ends on them. B learns from differences of derivatives what the curvature of y(x) adds, and r
shortens the step until it gains what it promised. Where y(x) has a kink, a step that crossed it in vain leaves a cut.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, NDArray
from blocc.cvxpy.assembly import SortedRows, Triplets
from blocc.cvxpy.cone_program import ConeSizes, Numbers
from blocc.cvxpy.evaluator import ConicEvaluator, Linearised
from blocc.cvxpy.expressions import without_negative
from blocc.cvxpy.implicit import gathered
from blocc.cvxpy.model import Model, Vector
from blocc.cvxpy.solvers import solve
from blocc.outer.tolerances import Endpoint
from blocc.penalty import Evaluation, Leader

Matrix = Float[NDArray, "n_x n_x"]
#: Entries of x up to which J is computed.
LARGEST = 100
_TOLERANCE = 1e-11
#: Length of the first step, relative to the size of x.
_FIRST = 0.3
#: Share of what was promised that a step must gain, and that lets the next one be longer.
_ENOUGH, _GOOD = 0.1, 0.5
#: Values differ by so much for no reason, relative to their size.
_NOISE = 1e-11
_SHORTEST = 1e-10
#: How many times what is wanted a slope may be where there is no derivative to go on with.
_CLOSE = 10.0
#: Cuts that are kept, and two for every variable; how near they must be at the end; what is no curvature.
_MOST_CUTS, _NEAR, _STRANGE = 10, 1e-4, 1e2
#: By how much cuts are lowered, relative to the size of f: what answers beside a kink are off by, and curvature.
_LOWERED = 1e-6


class Cut(NamedTuple):
    """f(x, y(x)) to first order at another point: what a kink of y(x) has on its other side. In the leader's units."""

    x: Vector
    value: float
    gradient: Vector

    def at(self, x: Vector) -> float:
        """The value that it tells for x."""
        return self.value + float(self.gradient @ (x - self.x))


class Step(NamedTuple):
    """A step, and what it promises."""

    x: Vector
    gain: float
    slope: Vector  #: of f at the end of the step, by the model
    pull: Vector  #: derivative of f in the columns that the leader looks at, there
    prices: Vector  #: of the rows of the leader's program
    used: list[Cut]  #: cuts that hold the step

    @property
    def steepest(self) -> float:
        """The largest entry of the slope."""
        return float(np.max(np.abs(self.slope), initial=0.0))


def settle(
    evaluator: ConicEvaluator, first: Evaluation, leader: Leader, wanted: float, steps: int, *, nearer: bool = True
) -> Endpoint:
    """Descend f(x, y(x)) from an evaluation at an infinite gamma until its slope is ``wanted`` (in the run's units).

    :param nearer: whether cuts from far away that hold x are replaced by such from nearby
    """
    here = evaluator.linearised(np.asarray(first.x))
    if here is None:
        return Endpoint(first, np.inf, 0.0)
    return _Settling(evaluator, first, here, leader, wanted, nearer).run(steps)


class _Settling:
    """One descent."""

    def __init__(
        self,
        evaluator: ConicEvaluator,
        first: Evaluation,
        here: Linearised,
        leader: Leader,
        wanted: float,
        nearer: bool,
    ) -> None:
        self.nearer = nearer
        self.evaluator, self.model, self.leader = evaluator, evaluator.model, leader
        self.unit, self.wanted = evaluator.units.upper, wanted * evaluator.units.upper
        self.end, self.here = Endpoint(first, np.inf, 0.0), here
        self.size = 1.0 + float(np.max(np.abs(first.x), initial=0.0))
        steepest = self.unit * float(np.linalg.norm(first.gradient))
        self.usual = (steepest + self.unit) / self.size  #: size of a curvature
        self.short, self.least = steepest / (_FIRST * self.size), 1e-9 * self.usual
        self.learned, self.own = np.zeros((self.model.n_x, self.model.n_x)), self.model.own.bend()
        self.cuts: list[Cut] = []

    @property
    def x(self) -> Vector:
        return np.asarray(self.end.evaluation.x)

    @property
    def value(self) -> float:
        return self.unit * float(self.end.evaluation.value)

    def run(self, steps: int) -> Endpoint:
        """Step until nothing is left to gain, or steps lead nowhere."""
        for _ in range(steps):
            bend = self.own + without_negative(self.learned) + self.short * np.eye(self.model.n_x)
            step = _step(self.model, self._center(), self.here, bend, self.short, self.cuts)
            if step is None:
                break
            if step.steepest <= self.wanted:
                if not (self.nearer and self._drawn_nearer(step)):
                    return self._ended(step)
            elif float(np.max(np.abs(step.x - self.x), initial=0.0)) <= _SHORTEST * self.size:
                break
            elif not self._taken(step) and step.steepest <= _CLOSE * self.wanted:
                return self._ended(step)
        return self.end

    def _ended(self, step: Step) -> Endpoint:
        """The end, where the model has nothing left to gain."""
        radius = max(float(np.max(np.abs(one - self.x))) for one in [step.x, *(cut.x for cut in step.used)])
        return self.end._replace(stationarity=step.steepest / self.unit, radius=radius)

    def _center(self) -> Cut:
        return _cut(self.end.evaluation, self.unit)

    def _taken(self, step: Step) -> bool:
        """Move where the step gains what it promised, or learn what is there; False where f has no derivative."""
        noise = _NOISE * (self.unit + abs(self.value))
        found = self._evaluated(step.x)
        gained = self.value - self.unit * float(found.value) if found.usable else -np.inf
        there = self.evaluator.linearised(step.x) if gained >= _ENOUGH * step.gain - noise else None
        if there is None:
            if not (found.usable and self._learn(_cut(found, self.unit))):
                self.short *= 4.0
            return bool(found.usable)
        self.learned = self._bent(step, there)
        self.short = max(0.2 * self.short, self.least) if gained >= _GOOD * step.gain else 2.0 * self.short
        before = self._center()
        self.end, self.here = Endpoint(found, np.inf, 0.0), there
        known, self.cuts = [*self.cuts, before], []
        for one in known:
            self._learn(one)
        self.evaluator.monitor.record(found, step.steepest / self.unit, self.evaluator.evaluations)
        return True

    def _evaluated(self, x: Vector) -> Evaluation:
        return self.evaluator(x, np.inf, self.leader, _TOLERANCE)

    def _learn(self, cut: Cut) -> bool:
        """Keep a cut that does not contradict the value here, or lower one that hardly does."""
        above = max(cut.at(self.x) - self.value, 0.0)
        if above > _LOWERED * (self.unit + abs(self.value)):
            return False
        self.cuts = [*self.cuts[-_MOST_CUTS - 2 * self.model.n_x :], cut._replace(value=cut.value - above)]
        return True

    def _drawn_nearer(self, step: Step) -> bool:
        """Replace cuts from far away that hold the step by such from nearby; whether there are any."""
        drawn = False
        for one in step.used:
            if float(np.max(np.abs(one.x - self.x))) > _NEAR * self.size:
                found = self._evaluated(self.model.project_x(self.x + 0.01 * (one.x - self.x)))
                if found.usable:
                    drawn, self.cuts = True, [other for other in self.cuts if other is not one]
                    self._learn(_cut(found, self.unit))
        return drawn

    def _bent(self, step: Step, there: Linearised) -> Matrix:
        """Learn from a step (symmetric rank one): with f's derivatives held, what changes is the curvature of y(x)."""
        model, here = self.model, self.here
        moved, program = step.x - self.x, model.leader_program.program
        change = program.slope(there.columns, step.prices) - program.slope(here.columns, step.prices)
        found = model.slope_in_x(change, [None] * len(model.followers))
        found = found + (there.slopes - here.slopes).T @ step.pull + there.own_slope - here.own_slope
        found = found + there.slopes.T @ there.plain - here.slopes.T @ here.plain - self.own @ moved
        left = found - self.learned @ moved
        along, length = float(moved @ left), float(np.linalg.norm(moved))
        strange = float(np.linalg.norm(left)) > _STRANGE * self.usual * length  # a kink, not a curvature
        if strange or abs(along) <= 1e-8 * length * float(np.linalg.norm(left)):
            return self.learned
        return np.asarray(self.learned + np.outer(left, left) / along)


def _cut(e: Evaluation, unit: float) -> Cut:
    return Cut(np.asarray(e.x), unit * float(e.value), unit * np.asarray(e.gradient))


def _step(model: Model, center: Cut, here: Linearised, bend: Matrix, short: float, cuts: list[Cut]) -> Step | None:
    x, program, moves = center.x, model.leader_program, here.slopes
    parts = program.parts(model.leader_theta(x), here.known, program.quantities(here.columns))
    numbers, paid = parts.numbers, len(program.payments)
    theirs, across, mine = program.curved(numbers)
    own = here.columns[program.own]
    entries, ones = program.program.constraint, np.append(here.columns, 1.0)
    direct = gathered(entries.rows, ones[entries.columns], entries.map, program.program.m)
    rows = parts.known @ moves
    rows[paid:] += model.leader_columns_in_x(direct).toarray()
    offset = parts.known @ here.known
    offset[:paid] = 0.0
    offset[paid:] += numbers.offset
    costs = program.program.slope(here.columns, np.zeros(program.program.m))
    flat = program.pull(parts, here.columns, np.zeros(len(offset))) - across.T @ own
    alone = model.slope_in_x(costs, [None] * len(model.followers)) + here.own_slope + moves.T @ here.plain
    linear = moves.T @ flat + alone
    square = moves.T @ (theirs @ moves) + bend
    above, places = model.x_set.described()  # columns of the set's program are measured from x
    own_at = len(above.linear) + np.arange(len(own))
    rise = len(above.linear) + len(own)  # a column: by how much cuts exceed the model of the center
    sorted_rows = SortedRows([model.x_set.program.cones, parts.cones, ConeSizes(0, 1 + len(cuts))])
    n, m = rise + 1, sum(sorted_rows.cones.kinds)
    quadratic, matrix, side, cost = Triplets(), Triplets(), np.zeros(m), np.zeros(n)
    for block, down, right in (
        (sp.csr_array(square), places, places),
        (sp.csr_array(across @ moves), own_at, places),
        (sp.csr_array((across @ moves).T), places, own_at),
        (mine, own_at, own_at),
    ):
        quadratic.add(block, down, right)
    matrix.add(above.matrix, sorted_rows.rows[0], np.arange(len(above.linear)))
    matrix.add(sp.csr_array(rows), sorted_rows.rows[1], places)
    matrix.add(parts.own, sorted_rows.rows[1], own_at)
    tilts = np.array([center.gradient - one.gradient for one in [center, *cuts]])
    matrix.add(sp.csr_array(tilts), sorted_rows.rows[2], places)
    matrix.add(sp.csr_array(np.ones((len(tilts), 1))), sorted_rows.rows[2], np.array([rise]))
    side[sorted_rows.rows[2]] = [center.value - one.at(x) for one in [center, *cuts]]
    base = np.zeros(len(above.linear))
    base[places] = x
    side[sorted_rows.rows[0]], side[sorted_rows.rows[1]] = above.offset + above.matrix @ base, offset
    cost[places], cost[own_at], cost[rise] = linear, numbers.linear[program.own] + across @ here.known, 1.0
    whole = Numbers(quadratic.matrix(n, n), cost, 0.0, matrix.matrix(m, n), side)
    found = solve(whole, sorted_rows.cones, _TOLERANCE, "clarabel")
    if not found.is_usable:
        return None
    move, prices = found.z[places], found.prices[sorted_rows.rows[1]]
    columns = program.columns(here.known + moves @ move, found.z[own_at])
    value = lambda at: float(numbers.linear @ at + 0.5 * at @ (numbers.quadratic @ at))  # noqa: E731
    curved = bend - short * np.eye(len(x))
    gain = value(here.columns) - value(columns) - float(alone @ move + 0.5 * move @ curved @ move + found.z[rise])
    held = found.prices[sorted_rows.rows[2]][1:]
    used = [one for one, price in zip(cuts, held, strict=True) if price > 1e-6]
    end = model.project_x(x + move)
    return Step(end, gain, bend @ move, program.pull(parts, columns, prices), prices[paid:], used)
