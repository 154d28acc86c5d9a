"""The single-level problem without its complementarity, as linear programs for HiGHS.

Columns are x, y, the follower's prices (of inequalities and equalities), the slacks of its inequalities, and one for
each square. Everything quadratic is a sum of squares ``(v z)^2`` and of negative ones. A square is held up by tangents,
a negative one lies below its chord over an interval: a linear program with any tangents, and with chords of any
intervals, is a relaxation over those intervals, so its value is a lower bound there. Tangents are added where the last
solution fell below a parabola, and stay for all later programs.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import scipy

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import PLACED, ROUNDED
from blocc.global_search.answer_row import answer_row, row_bounds
from blocc.global_search.forms import (
    ROUNDING,
    Constraints,
    Follower,
    NotRecognised,
    Quadratics,
    least_curvature,
    named_term,
    power_of_two,
    substituted,
)
from blocc.global_search.safe_bounds import Program, safe_bound

#: Feasibility tolerances of HiGHS, primal and dual.
PRECISION = 1e-9
#: A height may stay below its parabola by this, relative to the parabola.
_CLOSE = 1e-9
#: By so much may a curved constraint of the leader be violated, relative to its terms.
_ADMISSIBLE = 1e-7
#: Slopes of the follower whose terms are all below this, relative to the largest of all, are in their own units.
_SMALL = 1e-3
_FIRST_TANGENTS = (0.0, 1.0, -1.0, 10.0, -10.0, 100.0, -100.0, 1000.0, -1000.0)
#: Where a program is unbounded, a point within this distance shows which way it falls.
_FAR = 1e6


class Limits(NamedTuple):
    """Where a program looks: bounds of the columns, and intervals of the negative squares."""

    low: Float[NDArray, " columns"]
    high: Float[NDArray, " columns"]
    left: Float[NDArray, " concave"]
    right: Float[NDArray, " concave"]


class Solved(NamedTuple):
    """The end of one linear program."""

    status: str  #: "optimal", "infeasible", "unbounded" or "failed"
    value: float
    point: Float[NDArray, " columns"]
    program: Program | None = None
    multipliers: tuple[NDArray, NDArray] | None = None  #: of inequalities and equalities, as the solver has them


class Relaxation:
    """The leader's problem with the follower's constraints and, where ``follower`` is given, its stationarity."""

    def __init__(self, constraints: Constraints, follower: Follower | None) -> None:
        c, n_x = constraints, constraints.n_x
        self.constraints, self.follower, self.n = c, follower, n_x + c.n_y
        self.n_rows, n_equal = len(c.right), len(c.equal)
        n_prices = 0 if follower is None else self.n_rows + n_equal
        exchanged = None if follower is None else substituted(c, follower)
        objective = c.objective if exchanged is None else exchanged.objective
        self.leader = c.leader_rows.in_units()
        curved = np.flatnonzero(self.leader.curved)
        self.squares, owner = _squares(objective, self.leader.pick(curved), 1.0)
        self.concave, concave_owner = _squares(objective, self.leader.pick(curved), -1.0)
        self.prices = slice(self.n, self.n + (0 if follower is None else self.n_rows))
        self.slacks = slice(self.n + n_prices, self.n + n_prices + self.n_rows)
        self.heights = slice(self.slacks.stop, self.slacks.stop + len(owner))
        self.roofs = slice(self.heights.stop, self.heights.stop + len(concave_owner))
        self.columns = self.roofs.stop
        self.constant = float(objective.constant[0])
        self.cost = np.zeros(self.columns)
        self.cost[: self.n] = objective.linear[0]
        self.cost[self.heights], self.cost[self.roofs] = owner == 0, -1.0 * (concave_owner == 0)
        low, high = np.full(self.columns, -np.inf), np.full(self.columns, np.inf)
        low[:n_x], high[:n_x] = c.x_low, c.x_high
        low[self.prices] = low[self.slacks] = low[self.heights] = 0.0
        equal = [self._wide(c.rows, c.right), self._wide(c.equalities, c.equal)]
        equal[0][0][:, self.slacks] = np.eye(self.n_rows)
        equal.append(self._wide(c.leader_equalities.linear, -c.leader_equalities.constant))
        if follower is not None and exchanged is not None:
            rows, price, slope = np.concatenate([c.rows, c.equalities])[:, n_x:], *_units(c, follower)
            priced = exchanged.row_weights * c.right, exchanged.equality_weights * c.equal
            self.cost[self.n : self.n + n_prices] -= price * np.concatenate(priced)
            terms = np.concatenate([follower.coupling, follower.hessian], axis=1)
            stationary = self._wide(terms / slope[:, None], -follower.linear / slope)
            stationary[0][:, self.n : self.n + n_prices] = (price[:, None] * rows).T / slope[:, None]
            equal.append(stationary)
        self.equal, self.equal_right = (np.concatenate(parts) for parts in zip(*equal, strict=True))
        self.above, self.above_right = self._wide(self.leader.linear, -self.leader.constant)
        for position, row in enumerate(curved):
            self.above[row, self.heights] = owner == position + 1
            self.above[row, self.roofs] = -1.0 * (concave_owner == position + 1)
        if follower is not None and len(concave_owner) and (bounding := answer_row(c, follower)) is not None:
            wide, right = self._wide(np.append(np.zeros(n_x), bounding[0])[None], np.full(1, bounding[1]))
            self.above = np.concatenate([self.above, wide])
            self.above_right = np.concatenate([self.above_right, right])
        self._tangents: list[tuple[int, float]] = []
        self._tangent_rows, self._tangent_right = np.zeros((0, self.columns)), np.zeros(0)
        self._add([(k, at) for k in range(len(owner)) for at in _FIRST_TANGENTS])
        self.solved = 0  #: programs so far
        self.deadline = np.inf
        self._ends = self._known_ends(low, high)
        self.limits = self._first_limits(low, high)

    def _wide(self, rows: NDArray, right: NDArray) -> tuple[NDArray, NDArray]:
        """Rows over z as rows over all columns."""
        wide = np.zeros((len(rows), self.columns))
        wide[:, : self.n] = rows
        return wide, np.asarray(right)

    def _known_ends(self, low: NDArray, high: NDArray) -> tuple[NDArray, NDArray]:
        """Bounds of the columns that follow from those of x and y; of the prices nothing is known.

        Points of the problem itself keep them, with each height and roof on its parabola.
        """
        c, (y_low, y_high) = self.constraints, row_bounds(self.constraints)
        low, high = low.copy(), high.copy()
        low[c.n_x : self.n], high[c.n_x : self.n] = np.nextafter(y_low, -np.inf), np.nextafter(y_high, np.inf)
        first, last = low[: self.n], high[: self.n]
        if np.isfinite(first).all() and np.isfinite(last).all():
            middle, half = 0.5 * first + 0.5 * last, 0.5 * last - 0.5 * first
            above = lambda rows: (rows @ middle, np.abs(rows) @ half)  # noqa: E731
            centre, reach = above(c.rows)
            high[self.slacks] = c.right - centre + reach
            for vectors, columns in ((self.squares, self.heights), (self.concave, self.roofs)):
                centre, reach = above(vectors)
                low[columns], high[columns] = 0.0, (np.abs(centre) + reach) ** 2
            # Rounding of these sums is far below their size.
            high[self.slacks.start :] += PRECISION * (1.0 + np.abs(high[self.slacks.start :]))
        return low, high

    def _first_limits(self, low: NDArray, high: NDArray) -> Limits:
        """The limits of the whole problem; the intervals of negative squares come from linear programs."""
        unknown = np.full(len(self.concave), np.inf)
        limits = Limits(low, high, -unknown, unknown)
        ends = np.zeros((2, len(self.concave)))
        for k, vector in enumerate(self.concave):
            for end, sign in enumerate((1.0, -1.0)):
                cost = np.zeros(self.columns)
                cost[: self.n] = sign * vector
                found = self.solve(limits, cost)
                if found.status == "infeasible":
                    return limits._replace(left=ends[0], right=ends[1])  # nothing to be searched
                if found.status != "optimal":
                    c = self.constraints
                    curved = [form for form in (c.objective, c.leader_rows) if self._bends_down(form)]
                    row = next(r for r, h in enumerate(curved[0].hessian) if least_curvature(h) < 0.0)
                    name = "upper" if curved[0] is c.objective else "upper_inequality"
                    term = named_term(curved[0], row, c.n_x)
                    raise NotRecognised(f"{name} is not convex: it has {term}, and the variables in it have no bounds")
                proven = self.proven(found)
                ends[end, k] = sign * ((proven if np.isfinite(proven) else found.value) - self.constant)
        room = PRECISION * (1.0 + np.abs(ends))
        return limits._replace(left=ends[0] - room[0], right=ends[1] + room[1])

    @staticmethod
    def _bends_down(form: Quadratics) -> bool:
        return any(least_curvature(hessian) < 0.0 for hessian in form.hessian)

    def _add(self, tangents: list[tuple[int, float]]) -> None:
        if not tangents:
            return
        rows, right = np.zeros((len(tangents), self.columns)), np.zeros(len(tangents))
        for row, (k, at) in enumerate(tangents):
            size = float(np.exp2(np.ceil(np.log2(max(1.0, 2.0 * abs(at))))))  # so that division rounds nothing
            rows[row, : self.n] = 2.0 * at / size * self.squares[k]
            rows[row, self.heights.start + k] = -1.0 / size
            right[row] = at * at / size
        self._tangents += tangents
        self._tangent_rows = np.concatenate([self._tangent_rows, rows])
        self._tangent_right = np.concatenate([self._tangent_right, right])

    def _chords(self, limits: Limits) -> tuple[NDArray, NDArray]:
        """Rows that keep negative squares below their chords, and their arguments in their intervals."""
        known = np.flatnonzero(np.isfinite(limits.left))
        left, right = limits.left[known], limits.right[known]
        along = self._wide(self.concave[known], right)[0]
        chord = -(left + right)[:, None] * along
        chord[np.arange(len(known)), self.roofs.start + known] = 1.0
        return np.concatenate([chord, along, -along]), np.concatenate([-left * right, right, -left])

    def solve(self, limits: Limits, cost: NDArray | None = None) -> Solved:
        """One linear program over the tangents so far."""
        self.solved += 1
        chords, chords_right = self._chords(limits)
        program = Program(
            self.cost if cost is None else cost,
            np.concatenate([self.above, self._tangent_rows, chords]),
            np.concatenate([self.above_right, self._tangent_right, chords_right]),
            self.equal,
            self.equal_right,
            limits.low,
            limits.high,
        )
        for presolve in (True, False):
            found = self._minimised(program, presolve)
            if found is None:
                break
            if found.status == 0:
                given = found.ineqlin.marginals, found.eqlin.marginals
                return Solved("optimal", float(found.fun) + self.constant, np.asarray(found.x), program, given)
            if found.status in (2, 3):
                return Solved({2: "infeasible", 3: "unbounded"}[found.status], np.nan, np.zeros(0), program)
        return Solved("failed", np.nan, np.zeros(0))

    def _minimised(self, program: Program, presolve: bool = True) -> Any:
        """What HiGHS says; None where no time is left."""
        seconds = self.deadline - time.perf_counter()
        if seconds <= 0.0:
            return None
        return scipy.optimize.linprog(
            *program[:5],
            bounds=np.column_stack(program[5:]),
            method="highs",
            options={
                "presolve": presolve,
                "primal_feasibility_tolerance": PRECISION,
                "dual_feasibility_tolerance": PRECISION,
                **({"time_limit": seconds} if np.isfinite(seconds) else {}),
            },
        )

    def proven(self, found: Solved) -> float:
        """What the end of a program proves in exact arithmetic: no feasible point has a value below this."""
        if found.program is None or found.status not in ("optimal", "infeasible"):
            return -np.inf
        low, high = np.maximum(found.program.low, self._ends[0]), np.minimum(found.program.high, self._ends[1])
        program = found.program._replace(low=low, high=high)
        if (low > high).any():
            return np.inf
        if found.multipliers is not None:
            return float(np.nextafter(safe_bound(program, *found.multipliers) + self.constant, -np.inf))
        # Infeasible: the multipliers of the least violation bound 0 from below by more than 0.
        p, height = found.program, np.ones((len(program.above), 1))
        both, tall = np.concatenate([p.equal, -p.equal]), np.ones((2 * len(p.equal), 1))
        elastic = Program(
            np.append(np.zeros(self.columns), 1.0),
            np.block([[p.above, -height], [both, -tall]]),
            np.concatenate([p.above_right, p.equal_right, -p.equal_right]),
            np.zeros((0, self.columns + 1)),
            np.zeros(0),
            np.append(p.low, 0.0),
            np.append(p.high, np.inf),
        )
        self.solved += 1
        least = self._minimised(elastic)
        if least is None or least.status != 0:
            return -np.inf
        above, more, less = np.split(least.ineqlin.marginals, [len(p.above), len(p.above) + len(p.equal)])
        nothing = program._replace(cost=np.zeros(self.columns))
        return np.inf if safe_bound(nothing, above, more - less) > 0.0 else -np.inf

    def tighten(self, limits: Limits, cutoff: float, rounds: int) -> Solved:
        """The same with tangents added where the solution falls below a parabola, as long as it is below ``cutoff``."""
        found = self.solve(limits)
        for _ in range(rounds):
            if found.status == "unbounded" and len(self.squares):
                near = self.near(limits)
                if near.status != "optimal" or not self._support(near.point):
                    return found
            elif found.status != "optimal" or found.value >= cutoff or not self._support(found.point):
                return found
            again = self.solve(limits)
            if again.status == "failed":
                return found
            found = again
        return found

    def near(self, limits: Limits) -> Solved:
        """A solution within a large box, where the program is unbounded."""
        boxed = np.arange(self.columns) < self.heights.start
        high = np.where(boxed, np.minimum(limits.high, _FAR), limits.high)
        low = np.where(boxed, np.maximum(limits.low, -_FAR), limits.low)
        return self.solve(limits._replace(low=low, high=high))

    def _support(self, point: NDArray) -> bool:
        """Add tangents where heights are below their parabolas; whether there were any."""
        along = self.squares @ point[: self.n]
        below = along**2 - point[self.heights] > _CLOSE * np.maximum(1.0, along**2)
        known = {(k, round(at, 9)) for k, at in self._tangents}
        fresh = [(int(k), float(along[k])) for k in np.flatnonzero(below) if (int(k), round(along[k], 9)) not in known]
        self._add(fresh)
        return bool(fresh)

    def above_parabola(self, point: NDArray) -> tuple[NDArray, NDArray]:
        """For each negative square: its argument at a point, and by how much its roof there exceeds the parabola."""
        along = self.concave @ point[: self.n]
        return along, np.maximum(point[self.roofs] - along**2, 0.0)

    def unbounded_along(self, limits: Limits) -> bool:
        """Whether a direction keeps every constraint for ever and the objective falls along it."""
        cost = self.cost.copy()
        cost[self.heights.start :] = 0.0
        least = np.where(np.isfinite(limits.low), 0.0, -1.0)
        most = np.where(np.isfinite(limits.high), 0.0, 1.0)
        least[self.heights.start :] = most[self.heights.start :] = 0.0
        straight = self._wide(np.concatenate([self.squares, self.concave]), np.zeros(0))[0]
        found = scipy.optimize.linprog(
            cost,
            A_ub=self.above,
            b_ub=np.zeros(len(self.above)),
            A_eq=np.concatenate([self.equal, straight]),
            b_eq=np.zeros(len(self.equal) + len(straight)),
            bounds=np.column_stack([least, most]),
            method="highs",
        )
        return bool(found.status == 0 and found.fun < -PLACED * max(1.0, float(np.abs(cost).max(initial=0.0))))

    def value(self, point: NDArray) -> float:
        """The leader's objective at a point, by its own coefficients."""
        z, form = point[: self.n], self.constraints.objective
        return float(form.constant[0] + form.linear[0] @ z + 0.5 * z @ form.hessian[0] @ z)

    def residual(self, point: NDArray) -> float:
        """By how much a point misses the follower's optimality conditions, whose largest coefficients are 1."""
        missed = np.abs(self.equal @ point - self.equal_right) / (1.0 + np.abs(self.equal) @ np.abs(point))
        both = np.minimum(point[self.prices], point[self.slacks])
        outside = np.maximum(self.limits.low - point, point - self.limits.high)[: self.heights.start]
        return float(max(missed.max(initial=0.0), both.max(initial=0.0), outside.max(initial=0.0)))

    def admissible(self, point: NDArray) -> bool:
        """Whether the leader's constraints beyond the bounds of x hold at a point."""
        z, form = point[: self.n], self.leader
        bent = 0.5 * np.einsum("i,rij,j->r", z, form.hessian, z)
        size = 1.0 + np.abs(form.constant) + np.abs(form.linear) @ np.abs(z) + np.abs(bent)
        return bool((form.constant + form.linear @ z + bent <= _ADMISSIBLE * size).all())


def _units(c: Constraints, follower: Follower) -> tuple[Float[NDArray, " prices"], Float[NDArray, "n_y"]]:
    """Units of the prices, and of the follower's slopes: where a slope has small terms alone, these are what counts."""
    terms = np.concatenate([follower.coupling, follower.hessian, follower.linear[:, None]], axis=1)
    size = np.abs(terms).max(axis=1, initial=0.0)
    slope = power_of_two(np.where((size > 0.0) & (size < _SMALL), size, 1.0))
    rows = np.concatenate([c.rows, c.equalities])[:, c.n_x :]
    price = np.where(rows != 0.0, slope, 0.0).max(axis=1, initial=0.0)
    return np.where(price > 0.0, price, 1.0), slope


def _squares(objective: Quadratics, rows: Quadratics, sign: float) -> tuple[Float[NDArray, "k n"], NDArray]:
    """Vectors v such that the squares (v z)^2 sum up to the part of ``1/2 <z, hessian z>`` that has this sign.

    Also whose each is: 0 the objective, i row i - 1.
    """
    vectors, owner = [np.zeros((0, objective.linear.shape[1]))], []
    for position, hessian in enumerate(np.concatenate([objective.hessian, rows.hessian])):
        if not hessian.any():
            continue
        diagonal = not (hessian - np.diag(np.diag(hessian))).any()
        values, basis = (np.diag(hessian), np.eye(len(hessian))) if diagonal else np.linalg.eigh(hessian)
        keep = sign * values > (ROUNDED if sign > 0.0 else ROUNDING) * np.abs(values).max()
        vectors.append(np.sqrt(0.5 * np.abs(values[keep]))[:, None] * basis[:, keep].T)
        owner += [position] * int(keep.sum())
    return np.concatenate(vectors), np.asarray(owner, dtype=int)
