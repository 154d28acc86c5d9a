"""Branch and bound over the follower's complementarity: of each pair (price, slack) one is zero.

A node fixes the member that is zero for some pairs, by bounds of the linear program; no large constant is needed, so
none has to be guessed. At a leaf every pair is decided, and the follower's optimality conditions hold exactly.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.global_search.relaxation import Relaxation

_OPEN, _NO_PRICE, _NO_SLACK = 0, 1, 2
_ROUNDS = 6  #: of tangents at a node
_LEAF_ROUNDS = 80  #: where everything else is decided
#: Pairs both of whose members exceed this (relative to 1) are not complementary.
_TOUCHING = 1e-6


@dataclass
class Search:
    """The state of a search: the best point, and what is proven."""

    relaxation: Relaxation
    gap_tolerance: float
    stopped: Callable[[], bool]
    best: float = np.inf
    point: Float[NDArray, " columns"] | None = None
    closed: float = np.inf  #: the least bound of all nodes that were given up without a better point
    unbounded: bool = False
    finished: bool = False
    nodes: int = 0
    waiting: list[tuple[float, int, NDArray]] = field(default_factory=list)

    @property
    def bound(self) -> float:
        """No feasible point has a value below this."""
        if self.unbounded:
            return -np.inf
        return min(self.best, self.closed, *(bound for bound, _, _ in self.waiting[:1]))

    @property
    def allowed(self) -> float:
        """The gap at which a node need not be looked into."""
        return self.gap_tolerance * max(1.0, abs(self.best)) if np.isfinite(self.best) else 0.0

    def run(self) -> None:
        """Search until nothing is left, or ``stopped`` says so."""
        relaxation, numbers = self.relaxation, count()
        state = np.zeros(relaxation.n_rows, dtype=np.int8)
        # A row without y has no price in the follower's conditions.
        state[~relaxation.constraints.rows[:, relaxation.constraints.n_x :].any(axis=1)] = _NO_PRICE
        heapq.heappush(self.waiting, (-np.inf, next(numbers), state))
        while self.waiting and not self.unbounded:
            bound, _, state = heapq.heappop(self.waiting)
            while True:
                if self.stopped():
                    heapq.heappush(self.waiting, (bound, next(numbers), state))
                    return
                children = self._look(bound, state)
                if children is None:
                    break
                bound, state, other = children
                heapq.heappush(self.waiting, (bound, next(numbers), other))
        self.finished = True

    def _limits(self, state: Int[NDArray, "m"]) -> tuple[NDArray, NDArray]:
        """Bounds of the columns at a node."""
        high = self.relaxation.high.copy()
        high[self.relaxation.prices][state == _NO_PRICE] = 0.0
        high[self.relaxation.slacks][state == _NO_SLACK] = 0.0
        return self.relaxation.low, high

    def _look(self, bound: float, state: NDArray) -> tuple[float, NDArray, NDArray] | None:
        """Solve one node; its bound and two children, the more promising first, or None where it is done."""
        if bound >= self.best - self.allowed:
            self.closed = min(self.closed, bound)
            return None
        self.nodes += 1
        low, high = self._limits(state)
        leaf = bool((state != _OPEN).all())
        found = self.relaxation.tighten(low, high, self.best - self.allowed, _LEAF_ROUNDS if leaf else _ROUNDS)
        if found.status == "infeasible":
            return None
        if found.status == "optimal":
            bound = max(bound, found.value)
            if bound >= self.best - self.allowed:
                self.closed = min(self.closed, bound)
                return None
        unbounded = found.status == "unbounded"
        if leaf:
            if unbounded and self.relaxation.falls_for_ever(low, high):
                self.unbounded = True
            elif found.status == "optimal":
                self._offer(found.point, low, high)
            self.closed = min(self.closed, bound)
            return None
        point = self.relaxation.near(low, high).point if unbounded else found.point
        return self._branch(bound, state, point)

    def _branch(self, bound: float, state: NDArray, point: NDArray) -> tuple[float, NDArray, NDArray] | None:
        """Try the leaf that a point suggests, and split the pair that is furthest from complementary."""
        undecided = np.flatnonzero(state == _OPEN)
        if not len(point):  # the program failed: any pair will do
            worst, keep_slack = undecided[0], True
        else:
            price, slack = point[self.relaxation.prices], point[self.relaxation.slacks]
            smaller = np.minimum(price, slack)[undecided]
            if smaller.max() <= _TOUCHING or self.nodes == 1 or self.nodes % 10 == 0:
                suggested = np.where(price <= slack, _NO_PRICE, _NO_SLACK)
                self.try_pattern(np.where(state == _OPEN, suggested, state))
                if self.unbounded:
                    return None
                if bound >= self.best - self.allowed:
                    self.closed = min(self.closed, bound)
                    return None
            worst = undecided[int(np.argmax(price[undecided] * slack[undecided] + smaller))]
            keep_slack = bool(price[worst] <= slack[worst])
        first, second = state.copy(), state.copy()
        first[worst] = _NO_PRICE if keep_slack else _NO_SLACK
        second[worst] = _NO_SLACK if keep_slack else _NO_PRICE
        return bound, first, second

    def try_pattern(self, state: Int[NDArray, "m"]) -> None:
        """Solve the leaf where of each pair the given member is zero, and keep its point where that is better."""
        low, high = self._limits(state)
        found = self.relaxation.tighten(low, high, np.inf, _LEAF_ROUNDS)
        if found.status == "optimal":
            self._offer(found.point, low, high)
        elif found.status == "unbounded":
            self.unbounded = self.relaxation.falls_for_ever(low, high)

    def try_around(self, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> None:
        """Solve the leaf of the rows that hold y at x."""
        c = self.relaxation.constraints
        slack = c.right - c.rows @ np.concatenate([x, y])
        size = 1.0 + np.abs(c.right) + np.abs(c.rows) @ np.abs(np.concatenate([x, y]))
        self.try_pattern(np.where(slack <= 1e-6 * size, _NO_SLACK, _NO_PRICE))

    def _offer(self, point: NDArray, low: NDArray, high: NDArray) -> None:
        point = self.relaxation.polished(point, low, high)
        value = self.relaxation.value(point)
        if value < self.best:
            self.best, self.point = value, point
