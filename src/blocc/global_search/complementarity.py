"""Branch and bound over the follower's complementarity: of each pair (price, slack) one is zero.

A node fixes the member that is zero for some pairs, by bounds of the linear program; no large constant is needed, so
none has to be guessed. Where every pair is decided, the follower's optimality conditions hold exactly. Where the
leader's functions bend downwards, nodes also divide the intervals over which chords stand for parabolas.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.rounding import KEPT
from blocc.global_search.exact_points import settled
from blocc.global_search.polish import polished
from blocc.global_search.relaxation import Limits, Relaxation, Solved
from blocc.global_search.reply import reply_at

_OPEN, _NO_PRICE, _NO_SLACK = 0, 1, 2
_ROUNDS = 6  #: of tangents at a node
_LEAF_ROUNDS = 80  #: where all pairs are decided
#: Pairs both of whose members exceed this are not complementary.
_TOUCHING = 1e-6
#: Nodes between two trials of the leaf that a point suggests.
_TRIALS = 10
#: Intervals are not divided below this share of the first ones.
_NARROW = 1e-9


class Node(NamedTuple):
    """A part of the problem."""

    state: Int[NDArray, "m"]  #: what is decided about each pair
    left: Float[NDArray, " concave"]  #: ends of the intervals of negative squares
    right: Float[NDArray, " concave"]
    proven: float = -np.inf  #: no feasible point of it has a value below this, in exact arithmetic


@dataclass
class Search:
    """The state of a search: the best point, and what is proven."""

    relaxation: Relaxation
    gap_tolerance: float
    stopped: Callable[[], bool]
    best: float = np.inf
    point: Float[NDArray, " columns"] | None = None
    rough: Float[NDArray, " columns"] | None = None  #: a point that keeps the rows up to the solver's tolerance alone
    closed: float = np.inf  #: the least that is proven of all nodes that were given up without a better point
    unbounded: bool = False
    finished: bool = False
    nodes: int = 0
    waiting: list[tuple[float, int, Node]] = field(default_factory=list)

    @property
    def bound(self) -> float:
        """No feasible point has a value below this."""
        if self.unbounded:
            return -np.inf
        return min(self.best, self.closed, *(node.proven for _, _, node in self.waiting))

    @property
    def cutoff(self) -> float:
        """A node with this bound need not be looked into; what is proven of it may be a little less."""
        return self.best - 0.5 * self.gap_tolerance * max(1.0, abs(self.best)) if np.isfinite(self.best) else np.inf

    def run(self) -> None:
        """Search until nothing is left, or ``stopped`` says so."""
        r, numbers = self.relaxation, count()
        # A row without y has no price in the follower's conditions.
        state = np.where(r.constraints.rows[:, r.constraints.n_x :].any(axis=1), _OPEN, _NO_PRICE)
        heapq.heappush(self.waiting, (-np.inf, next(numbers), Node(state, r.limits.left, r.limits.right)))
        while self.waiting and not self.unbounded:
            bound, _, node = heapq.heappop(self.waiting)
            while True:  # down to a leaf, and then to the most promising node
                if self.stopped():
                    heapq.heappush(self.waiting, (bound, next(numbers), node))
                    return
                children = self._look(bound, node)
                if children is None:
                    break
                bound, node, other = children
                heapq.heappush(self.waiting, (bound, next(numbers), other))
        self.finished = not self.unbounded

    def _limits(self, node: Node) -> Limits:
        r = self.relaxation
        high = r.limits.high.copy()
        high[r.prices][node.state == _NO_PRICE] = 0.0
        high[r.slacks][node.state == _NO_SLACK] = 0.0
        return Limits(r.limits.low, high, node.left, node.right)

    def _look(self, bound: float, node: Node) -> tuple[float, Node, Node] | None:
        """Solve one node; its bound and two children, the more promising first, or None where it is done."""
        if self._give_up(bound, node):
            return None
        self.nodes += 1
        limits, decided = self._limits(node), bool((node.state != _OPEN).all())
        found = self.relaxation.tighten(limits, self.cutoff, _LEAF_ROUNDS if decided else _ROUNDS)
        node = node._replace(proven=max(node.proven, self.relaxation.proven(found)))
        if found.status == "infeasible":
            self.closed = min(self.closed, node.proven)
            return None
        bound = max(bound, found.value) if found.status == "optimal" else bound
        if self._give_up(bound, node):
            return None
        point = self.relaxation.near(limits).point if found.status == "unbounded" else found.point
        if not decided:
            return self._decide(bound, node, point)
        self._keep(found, limits)
        if self.unbounded:
            return None
        return None if self._give_up(bound, node) else self._divide(bound, node, point)

    def _give_up(self, bound: float, node: Node) -> bool:
        """Whether a node with this bound is closed; what is proven of it is then noted."""
        if bound < self.cutoff:
            return False
        self.closed = min(self.closed, node.proven)
        return True

    def _decide(self, bound: float, node: Node, point: NDArray) -> tuple[float, Node, Node] | None:
        """Try the leaf that a point suggests, and split the pair that is furthest from complementary."""
        undecided = np.flatnonzero(node.state == _OPEN)
        if not len(point):  # the program failed: any pair will do
            worst, keep_slack = undecided[0], True
        else:
            price, slack = point[self.relaxation.prices], point[self.relaxation.slacks]
            smaller = np.minimum(price, slack)[undecided]
            if smaller.max() <= _TOUCHING or self.nodes % _TRIALS == 1:
                suggested = np.where(price <= slack, _NO_PRICE, _NO_SLACK)
                self.try_leaf(node._replace(state=np.where(node.state == _OPEN, suggested, node.state)))
                if self.nodes % _TRIALS == 1 and not self.unbounded:
                    self.try_at(point[: self.relaxation.constraints.n_x])
                if self.unbounded or self._give_up(bound, node):
                    return None
            worst = undecided[int(np.argmax(price[undecided] * slack[undecided] + smaller))]
            keep_slack = bool(price[worst] <= slack[worst])
        first, second = node.state.copy(), node.state.copy()
        first[worst] = _NO_PRICE if keep_slack else _NO_SLACK
        second[worst] = _NO_SLACK if keep_slack else _NO_PRICE
        return bound, node._replace(state=first), node._replace(state=second)

    def _divide(self, bound: float, node: Node, point: NDArray) -> tuple[float, Node, Node] | None:
        """Split the interval of the negative square whose chord is furthest from its parabola."""
        if len(self.relaxation.concave) and len(point):
            along, excess = self.relaxation.above_parabola(point)
            k = int(excess.argmax())
            width, whole = node.right[k] - node.left[k], self.relaxation.limits
            if excess[k] > 0.0 and width > _NARROW * (whole.right[k] - whole.left[k]):
                # Next to the point, but never so close to an end that one half is hardly smaller.
                at = float(np.clip(along[k], node.left[k] + 0.2 * width, node.right[k] - 0.2 * width))
                left, right = node.left.copy(), node.right.copy()
                left[k], right[k] = at, at
                below, above = node._replace(right=right), node._replace(left=left)
                return (bound, below, above) if along[k] <= at else (bound, above, below)
        self.closed = min(self.closed, node.proven)
        return None

    def try_leaf(self, node: Node) -> None:
        """Solve the leaf where of each pair the given member is zero, and keep its point where that is better."""
        limits = self._limits(node)
        self._keep(self.relaxation.tighten(limits, np.inf, _LEAF_ROUNDS), limits)

    def try_at(self, x: Float[NDArray, "n_x"]) -> None:
        """Solve the leaf of the follower's answer at x."""
        assert self.relaxation.follower is not None
        y = reply_at(self.relaxation.constraints, self.relaxation.follower, x)
        if y is not None:
            self.try_around(x, y)

    def try_around(self, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> None:
        """Solve the leaf of the rows that hold y at x."""
        r, z = self.relaxation, np.concatenate([x, y])
        c = r.constraints
        size = 1.0 + np.abs(c.right) + np.abs(c.rows) @ np.abs(z)
        state = np.where(c.right - c.rows @ z <= KEPT * size, _NO_SLACK, _NO_PRICE)
        self.try_leaf(Node(state, r.limits.left, r.limits.right))

    def _keep(self, found: Solved, limits: Limits) -> None:
        """The point of a leaf where it is better than the best; and whether it has none, falling for ever."""
        if found.status == "unbounded":
            near = self.relaxation.near(limits)
            starts = near.status == "optimal" and self.relaxation.admissible(near.point)
            self.unbounded = starts and self.relaxation.unbounded_along(limits)
        if found.status != "optimal":
            return
        point = polished(self.relaxation, found.point, limits)
        if self.relaxation.value(point) >= self.best or not self.relaxation.admissible(point):
            return
        exact = settled(self.relaxation, point, limits)
        if exact is None:
            self.rough = point
        elif self.relaxation.value(exact) < self.best:
            self.best, self.point = self.relaxation.value(exact), exact
