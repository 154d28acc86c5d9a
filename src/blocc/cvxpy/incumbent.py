"""The best point that a run has seen, by the judge's own values: no end of a run is worse.

A given start is the first of them. What a descent evaluates on its way counts as well: where answers jump, the points
that it leaves behind may be better than its end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc.cvxpy.judge import Exact
from blocc.cvxpy.model import Vector

#: Violation of the leader's constraints, relative to the size of x, up to which they hold; and up to which they hold
#: as well as solvers can meet them: a point that violates them more gains by that.
ADMISSIBLE, MET = 1e-6, 1e-8
#: What values are off by, relative to their size, if the follower's value is off by a cone solver's usual 1e-8: answers
#: then differ from the best one by the square root of that.
BLUNT = 1e-4
ROUNDED = 1e-13  #: the same at answers to the last digit: some hundred roundings


class Judged(NamedTuple):
    """A point with the follower's answer that counts there."""

    x: Vector
    here: Exact
    spread: float | None  #: how much worse the leader fares with other answers of the follower that are as good

    @property
    def size(self) -> float:
        """The size of x, which the leader's constraints are measured by."""
        return max(1.0, float(np.max(np.abs(self.x), initial=0.0)))

    @property
    def is_admissible(self) -> bool:
        """Whether the leader's constraints hold."""
        return self.here.violation <= ADMISSIBLE * self.size

    def gains(self, other: Judged) -> float:
        """By how much this point is better: infinite if only this one is admissible, 0 if it is not better."""
        if not self.is_admissible:
            closer = not other.is_admissible and self.here.violation < other.here.violation
            return np.inf if closer else 0.0
        if not other.is_admissible:
            return np.inf
        if self.here.violation > max(other.here.violation, MET * self.size):
            return 0.0
        gain = other.here.upper - self.here.upper
        sharp = self.here.sharp and other.here.sharp
        return gain if gain > (ROUNDED if sharp else BLUNT) * (1.0 + abs(other.here.upper)) else 0.0


def best_of(first: Judged, *others: Judged | None) -> Judged:
    """The best of some points; the first of those that are equal up to rounding."""
    best = first
    for one in others:
        if one is not None and one.gains(best) > 0.0:
            best = one
    return best
