"""The single-level problem without its complementarity, as linear programs for HiGHS.

Columns are x, y, the follower's prices (of inequalities and equalities), the slacks of its inequalities, and one height
for each square. Everything convex and quadratic is a sum of squares ``(v z)^2``, each below a height that tangents hold
up from below: a linear program with any set of tangents is a relaxation, so its value is a lower bound. Tangents are
added where the last solution fell below a parabola, and stay for all later programs.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from blocc._lib.arrays import Float, NDArray
from blocc.global_search.forms import Constraints, Follower, Quadratics, substituted

#: Feasibility tolerances of HiGHS, primal and dual: the sense in which bounds are proven.
PRECISION = 1e-9
#: A height may stay below its parabola by this, relative to the parabola.
_CLOSE = 1e-9
_FIRST_TANGENTS = (0.0, 1.0, -1.0, 10.0, -10.0, 100.0, -100.0, 1000.0, -1000.0)
#: Where a program is unbounded, a point within this distance shows which way it falls.
_FAR = 1e6


class Solved(NamedTuple):
    """The end of one linear program."""

    status: str  #: "optimal", "infeasible", "unbounded" or "failed"
    value: float
    point: Float[NDArray, " columns"]


class Relaxation:
    """The leader's problem with the follower's constraints and, where ``follower`` is given, its stationarity."""

    def __init__(self, constraints: Constraints, follower: Follower | None) -> None:
        c, n_x, n_y = constraints, constraints.n_x, constraints.n_y
        self.constraints, self.n = c, n_x + n_y
        self.n_rows, n_equal = len(c.right), len(c.equal)
        n_prices = 0 if follower is None else self.n_rows + n_equal
        objective, weight = substituted(c, follower)
        curved = c.leader_rows.curved
        self.squares, owner = _squares(objective, c.leader_rows.pick(np.flatnonzero(curved)))
        self.n_squares = len(owner)
        self.prices = slice(self.n, self.n + (0 if follower is None else self.n_rows))
        self.slacks = slice(self.n + n_prices, self.n + n_prices + self.n_rows)
        self.heights = slice(self.slacks.stop, self.slacks.stop + self.n_squares)
        self.columns = self.heights.stop
        self.constant = float(objective.constant[0])
        self.cost = np.zeros(self.columns)
        self.cost[: self.n] = objective.linear[0]
        self.cost[self.heights] = owner == 0
        self.low, self.high = np.full(self.columns, -np.inf), np.full(self.columns, np.inf)
        self.low[:n_x], self.high[:n_x] = c.x_low, c.x_high
        self.low[self.prices] = self.low[self.slacks] = self.low[self.heights] = 0.0
        equal = [self._wide(c.rows, c.right), self._wide(c.equalities, c.equal)]
        equal[0][0][:, self.slacks] = np.eye(self.n_rows)
        equal.append(self._wide(c.leader_equalities.linear, -c.leader_equalities.constant))
        if follower is not None:
            self.cost[self.n : self.n + n_prices] -= weight * np.concatenate([c.right, c.equal])
            stationary = self._wide(np.concatenate([follower.coupling, follower.hessian], axis=1), -follower.linear)
            stationary[0][:, self.n : self.n + n_prices] = np.concatenate([c.rows, c.equalities])[:, n_x:].T
            equal.append(stationary)
        self.equal, self.equal_right = (np.concatenate(parts) for parts in zip(*equal, strict=True))
        above = self._wide(c.leader_rows.linear, -c.leader_rows.constant)
        for position, row in enumerate(np.flatnonzero(curved)):
            above[0][row, self.heights] = owner == position + 1
        self.above, self.above_right = above
        self._tangents: list[tuple[int, float]] = []
        self._tangent_rows, self._tangent_right = np.zeros((0, self.columns)), np.zeros(0)
        self._add([(k, at) for k in range(self.n_squares) for at in _FIRST_TANGENTS])
        self.solved = 0  #: programs so far
        self.deadline = np.inf

    def _wide(self, rows: NDArray, right: NDArray) -> tuple[NDArray, NDArray]:
        """Rows over z as rows over all columns."""
        wide = np.zeros((len(rows), self.columns))
        wide[:, : self.n] = rows
        return wide, np.asarray(right)

    def _add(self, tangents: list[tuple[int, float]]) -> None:
        if not tangents:
            return
        rows, right = np.zeros((len(tangents), self.columns)), np.zeros(len(tangents))
        for row, (k, at) in enumerate(tangents):
            size = max(1.0, 2.0 * abs(at))
            rows[row, : self.n] = 2.0 * at / size * self.squares[k]
            rows[row, self.heights.start + k] = -1.0 / size
            right[row] = at * at / size
        self._tangents += tangents
        self._tangent_rows = np.concatenate([self._tangent_rows, rows])
        self._tangent_right = np.concatenate([self._tangent_right, right])

    def solve(self, low: NDArray, high: NDArray, cost: NDArray | None = None) -> Solved:
        """One linear program over the tangents so far."""
        self.solved += 1
        for presolve in (True, False):
            left = self.deadline - time.perf_counter()
            if left <= 0.0:
                break
            found = linprog(
                self.cost if cost is None else cost,
                A_ub=np.concatenate([self.above, self._tangent_rows]),
                b_ub=np.concatenate([self.above_right, self._tangent_right]),
                A_eq=self.equal,
                b_eq=self.equal_right,
                bounds=np.column_stack([low, high]),
                method="highs",
                options={
                    "presolve": presolve,
                    "primal_feasibility_tolerance": PRECISION,
                    "dual_feasibility_tolerance": PRECISION,
                    **({"time_limit": left} if np.isfinite(left) else {}),
                },
            )
            if found.status == 0:
                return Solved("optimal", float(found.fun) + self.constant, np.asarray(found.x))
            if found.status in (2, 3):
                return Solved({2: "infeasible", 3: "unbounded"}[found.status], np.nan, np.zeros(0))
        return Solved("failed", np.nan, np.zeros(0))

    def tighten(self, low: NDArray, high: NDArray, cutoff: float, rounds: int) -> Solved:
        """The same with tangents added where the solution falls below a parabola, as long as it is below ``cutoff``."""
        found = self.solve(low, high)
        for _ in range(rounds):
            if found.status == "unbounded" and self.n_squares:
                near = self.near(low, high)
                if near.status != "optimal" or not self._support(near.point):
                    return found
            elif found.status != "optimal" or found.value >= cutoff or not self._support(found.point):
                return found
            again = self.solve(low, high)
            if again.status == "failed":
                return found
            found = again
        return found

    def near(self, low: NDArray, high: NDArray) -> Solved:
        """A solution within a large box, where the program is unbounded."""
        high = np.where(np.arange(self.columns) < self.heights.start, np.minimum(high, _FAR), high)
        return self.solve(np.maximum(low, -_FAR), high)

    def _support(self, point: NDArray) -> bool:
        """Add tangents where heights are below their parabolas; whether there were any."""
        along = self.squares @ point[: self.n]
        below = along**2 - point[self.heights] > _CLOSE * np.maximum(1.0, along**2)
        known = {(k, round(at, 9)) for k, at in self._tangents}
        fresh = [(int(k), float(along[k])) for k in np.flatnonzero(below) if (int(k), round(along[k], 9)) not in known]
        self._add(fresh)
        return bool(fresh)

    def falls_for_ever(self, low: NDArray, high: NDArray) -> bool:
        """Whether a direction keeps every constraint for ever and the objective falls along it."""
        cost = self.cost.copy()
        cost[self.heights] = 0.0
        least = np.where(np.isfinite(low), 0.0, -1.0)
        most = np.where(np.isfinite(high), 0.0, 1.0)
        least[self.heights], most[self.heights] = 0.0, 0.0
        flat = np.zeros((self.n_squares, self.columns))
        flat[:, : self.n] = self.squares
        found = linprog(
            cost,
            A_ub=self.above,
            b_ub=np.zeros(len(self.above)),
            A_eq=np.concatenate([self.equal, flat]),
            b_eq=np.zeros(len(self.equal) + self.n_squares),
            bounds=np.column_stack([least, most]),
            method="highs",
        )
        return bool(found.status == 0 and found.fun < -1e-7 * max(1.0, float(np.abs(cost).max(initial=0.0))))

    def polished(self, point: NDArray, low: NDArray, high: NDArray) -> NDArray:
        """A nearby point with the least objective on the bounds and rows that hold ``point``, by one Newton step.

        Tangents find the least value to high accuracy, and the place of the least value to its square root only.
        """
        if not self.n_squares:
            return point
        free = np.ones(self.columns, dtype=bool)
        free[self.heights] = False
        size = 1.0 + np.abs(point)
        held = (point <= low + 1e-7 * size) | (point >= high - 1e-7 * size)
        flat_rows = ~self.above[:, self.heights].any(axis=1)
        tight = flat_rows & (self.above_right - self.above @ point <= 1e-7 * (1.0 + np.abs(self.above_right)))
        if not (self.cost[self.heights] > 0.0).all():
            return point  # a curved constraint has no place in this system
        bound = np.eye(self.columns)[held & free]
        rows = np.concatenate([self.equal, self.above[tight], bound])[:, free]
        hessian = np.zeros((self.columns, self.columns))
        hessian[: self.n, : self.n] = 2.0 * self.squares.T @ self.squares
        gradient = hessian @ point + np.where(free, self.cost, 0.0)
        count, width = len(rows), int(free.sum())
        matrix = np.zeros((width + count, width + count))
        matrix[:width, :width] = hessian[np.ix_(free, free)]
        matrix[width:, :width], matrix[:width, width:] = rows, rows.T
        step = np.linalg.lstsq(matrix, np.concatenate([-gradient[free], np.zeros(count)]), rcond=1e-12)[0]
        moved = point.copy()
        moved[free] += step[:width]
        slack = 1e-9 * (1.0 + np.abs(moved))
        inside = (moved >= low - slack)[free].all() and (moved <= high + slack)[free].all()
        kept = np.abs(self.equal @ moved - self.equal_right).max(initial=0.0) <= 1e-8
        under = (self.above @ moved - self.above_right)[flat_rows].max(initial=0.0) <= 1e-8
        moved[free] = np.clip(moved, low, high)[free]
        return moved if inside and kept and under and self.value(moved) <= self.value(point) + 1e-9 else point

    def value(self, point: NDArray) -> float:
        """The leader's objective at a point, by its own coefficients."""
        z, form = point[: self.n], self.constraints.objective
        return float(form.constant[0] + form.linear[0] @ z + 0.5 * z @ form.hessian[0] @ z)


def _squares(objective: Quadratics, rows: Quadratics) -> tuple[Float[NDArray, "k n"], NDArray]:
    """Vectors v with ``1/2 <z, hessian z> = sum of (v z)^2``, and whose each is: 0 the objective, i row i - 1."""
    vectors, owner = [np.zeros((0, objective.linear.shape[1]))], []
    for position, hessian in enumerate(np.concatenate([objective.hessian, rows.hessian])):
        if not hessian.any():
            continue
        diagonal = not (hessian - np.diag(np.diag(hessian))).any()
        values, basis = (np.diag(hessian), np.eye(len(hessian))) if diagonal else np.linalg.eigh(hessian)
        keep = values > 1e-12 * values.max()
        vectors.append(np.sqrt(0.5 * values[keep])[:, None] * basis[:, keep].T)
        owner += [position] * int(keep.sum())
    return np.concatenate(vectors), np.asarray(owner, dtype=int)
