"""Branch and bound over boxes of few leader's variables, with the follower's exact answer at their midpoints.

A box has a proven bound where a Lipschitz constant of x -> f(x, y(x)) is given, or where the leader's problem without
the follower's objective is convex and recognised. Where neither is at hand, boxes are split in the order of an
estimated constant, and nothing is proven.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import TINY
from blocc.global_search.relaxation import Relaxation
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Stop
from blocc.penalty import no_upper_multipliers
from blocc.run.conclude import lower_residual

#: Boxes that are looked at where no Lipschitz constant leads to an end.
MOST_BOXES = 400
_GAMMA = 100.0
_ACCURACY = 1e-10
#: The steepest slope seen is taken this many times for an estimate.
_SAFETY = 2.0
#: Where all values are alike, rounding must not decide: a slope that changes the value by this share of it across X.
_LEAST_SLOPE = 1e-6
_NARROW = 1e-9  #: boxes are not split below this share of X
_NARROW_UNPROVEN = 1e-4  #: nor below this one where other boxes cannot be ruled out anyway
_ADMISSIBLE = 1e-6
_ACCURATE = 1e-6  #: relative residual of the follower's answers
_ROUNDS = 10  #: of tangents in a box


class Answered(NamedTuple):
    """The leader's value at one x."""

    x: Float[NDArray, "n_x"]
    y: Float[NDArray, "n_y"]
    value: float
    violation: float  #: largest positive part of the leader's own constraints

    @property
    def admissible(self) -> bool:
        """Whether the leader's own constraints hold."""
        return self.violation <= _ADMISSIBLE


class Part(NamedTuple):
    """One box that may hold a better point."""

    low: Float[NDArray, "n_x"]
    high: Float[NDArray, "n_x"]
    at: Answered | None  #: at its midpoint; None where the follower has no answer there
    proven: float  #: no point of it has a value below this
    estimated: float  #: the same by the slopes seen so far

    @property
    def radius(self) -> float:
        """Half the diagonal."""
        return 0.5 * float(np.linalg.norm(self.high - self.low))


@dataclass
class BoxSearch:
    """The state of a search over boxes."""

    evaluator: Evaluator
    low: Float[NDArray, "n_x"]
    high: Float[NDArray, "n_x"]
    gap_tolerance: float
    stopped: Callable[[], bool]
    lipschitz: float | None = None
    relaxation: Relaxation | None = None  #: without the follower's objective
    best: Answered | None = None
    closed: float = np.inf
    finished: bool = False
    nodes: int = 0
    contradiction: str = ""  #: two points that the given Lipschitz constant does not allow
    slope: float = 0.0  #: the steepest seen, of the value
    slope_violation: float = 0.0  #: and of the violation
    waiting: list[tuple[float, int, Part]] = field(default_factory=list)  #: what is looked at first comes first

    @property
    def proves(self) -> bool:
        """Whether there is anything that bounds are made of."""
        return not self.contradiction and (self.lipschitz is not None or self.relaxation is not None)

    @property
    def value(self) -> float:
        """The best value so far."""
        return np.inf if self.best is None else self.best.value

    @property
    def bound(self) -> float:
        """No x has a value below this, as far as that is proven."""
        return min(self.value, self.closed, *(part.proven for _, _, part in self.waiting))

    def offer(self, x: NDArray, y: NDArray, value: float) -> None:
        """A point that is known to be feasible."""
        if value < self.value:
            self.best = Answered(x, y, value, 0.0)

    def run(self) -> None:
        """Split boxes until the gap is closed, or the clock, ``stopped`` or the number of boxes says so."""
        with suppress(Stop):  # the evaluator looks at the clock too
            self._split()

    def _split(self) -> None:
        numbers = count()
        self._push(numbers, Part(self.low, self.high, self._ask(0.5 * (self.low + self.high)), -np.inf, -np.inf))
        while self.waiting and not self.contradiction:
            if self.stopped() or (self.lipschitz is None and self.nodes >= MOST_BOXES):
                return
            part = heapq.heappop(self.waiting)[2]
            self.nodes += 1
            allowed = self.gap_tolerance * max(1.0, abs(self.value)) if self.best is not None else 0.0
            width = (part.high - part.low) / np.maximum(self.high - self.low, TINY)
            narrow = _NARROW if self.lipschitz is not None else _NARROW_UNPROVEN
            if part.proven >= self.value - allowed or width.max() < narrow:
                self.closed = min(self.closed, part.proven)
                continue
            side = int(width.argmax())
            middle = 0.5 * (part.low[side] + part.high[side])
            for half in (0, 1):
                low, high = part.low.copy(), part.high.copy()
                (high if half == 0 else low)[side] = middle
                at = self._ask(0.5 * (low + high))
                self._learn(at, part.at)
                self._push(numbers, Part(low, high, at, part.proven, part.estimated))
        self.finished = not self.contradiction

    def _ask(self, x: NDArray) -> Answered | None:
        """The follower's exact answer, and what the leader gets from it."""
        leader = no_upper_multipliers(self.evaluator.flat)
        found = self.evaluator(x, _GAMMA, leader, _ACCURACY)
        if not found.usable or lower_residual(found) > _ACCURATE:
            return None
        answered = Answered(x, np.asarray(found.answer), found.upper_value, found.violation)
        if answered.admissible:
            self.offer(x, answered.y, answered.value)
        return answered

    def _learn(self, one: Answered | None, other: Answered | None) -> None:
        """Slopes between two midpoints."""
        if one is not None and other is not None:
            distance = float(np.linalg.norm(one.x - other.x))
            rise = abs(one.value - other.value)
            self.slope = max(self.slope, rise / distance)
            rounding = _ACCURATE * (1.0 + abs(one.value))
            if self.lipschitz is not None and rise > self.lipschitz * distance + rounding:
                values = " and ".join(f"{found.value:.6g} at x = {np.array2string(found.x)}" for found in (other, one))
                self.contradiction = f"lipschitz={self.lipschitz:g} is too small: the leader's value is {values}"
            self.slope_violation = max(self.slope_violation, abs(one.violation - other.violation) / distance)

    def _push(self, numbers: count[int], part: Part) -> None:
        """Queue a box with its bounds, unless it holds no feasible point at all."""
        proven, estimated = part.proven, part.estimated
        if part.at is not None:
            least = _LEAST_SLOPE * max(1.0, abs(part.at.value)) / max(float(np.linalg.norm(self.high - self.low)), TINY)
            estimated = part.at.value - _SAFETY * max(self.slope, least) * part.radius
            if part.at.violation > _SAFETY * self.slope_violation * part.radius + _ADMISSIBLE:
                estimated = np.inf
            if self.lipschitz is not None:
                proven = max(proven, part.at.value - self.lipschitz * part.radius)
        if (r := self.relaxation) is not None:
            low, high = r.limits.low.copy(), r.limits.high.copy()
            low[: len(part.low)], high[: len(part.low)] = part.low, part.high
            found = r.tighten(r.limits._replace(low=low, high=high), self.value, _ROUNDS)
            proven = max(proven, r.proven(found))
            if proven == np.inf:
                return
        first = proven if self.lipschitz is not None else estimated
        heapq.heappush(self.waiting, (first, next(numbers), part._replace(proven=proven, estimated=estimated)))
