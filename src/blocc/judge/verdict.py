"""The verdict on an answer (x, y): what was found out about it, and what that adds up to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.rounding import TINY
from blocc.judge.challenge import Challenge
from blocc.judge.lower_level import LowerKKT
from blocc.judge.probe import Probed, Value
from blocc.judge.value_slope import Hypergradient

#: Rounding of a number.
_EPS = float(np.finfo(float).eps)


class Verdict(NamedTuple):
    """What was found out about (x, y)."""

    value: Value  #: the answer, with y polished where that was possible
    reply: LowerKKT | None  #: None if second derivatives are not to be had
    slope: Hypergradient | None  #: None if phi has no derivative that could be computed on every piece
    probed: Probed
    lower_optimal: bool  #: y is the follower's response
    admissible: bool  #: the leader's own constraints hold
    first_order: bool | None  #: x is stationary by the derivatives of phi; None if they say nothing
    unbounded: bool
    scale: float  #: the most that phi was seen to vary by over a distance of the size of x
    inconclusive: bool = False  #: without a derivative, and the feasible follower did not answer in some direction
    row_units: np.ndarray | None = None  #: what the rows of G change by with x
    residual: float = 0.0  #: of the follower, by its own measure, if second derivatives are not to be had
    challenge: Challenge = Challenge()  #: of a second solver of the lower level
    partly: Hypergradient | None = None  #: the derivative of phi on some of its pieces, where it jumps on the others
    jump: float | None = None  #: f at a point within the tolerance of x where the follower's response jumps
    blocked: bool = False  #: G blocks a way down that its derivatives allow, however near to x
    undetermined: str = ""  #: why y may lie far from the response although its residuals are small

    @property
    def unit(self) -> float:
        """What a difference of f is measured by: what phi varies by, and no less than what rounding leaves of f."""
        return max(self.scale, 1e3 * _EPS * abs(self.value.upper), TINY)

    @property
    def certified(self) -> bool:
        """Whether nothing speaks against the answer, and the derivative of phi for it."""
        return bool(self.holds and self.first_order)

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the answer."""
        stationary = self.first_order is not False and self.probed.better is None and not self.unbounded
        objected = self.inconclusive or self.unsettled or self.challenge.objection
        return bool(self.lower_optimal and self.admissible and stationary and not objected)

    @property
    def unsettled(self) -> str:
        """Why neither derivatives nor values around x tell whether it is a minimum; empty where they do."""
        slope = self.slope or self.partly
        if slope is not None and not slope.decided:
            return "many pieces of f(x, y(x)) meet at x, and whether their curvatures make it a minimum is not decided"
        return (
            "f(x, y(x)) falls where the derivatives of the leader's constraint allow it, and the constraint does "
            "not hold there, however near to x: its derivatives vanish, and do not tell where it holds"
            if self.blocked
            else ""
        )

    @property
    def undecided(self) -> str:
        """Along how many directions second derivatives do not tell whether x is a minimum, in words."""
        slope = self.slope or self.partly
        null = [way.direction / slope.sizes for way in slope.ways if way.null] if slope is not None else []
        count = int(np.linalg.matrix_rank(np.array(null))) - len(self.probed.flat) if null else 0
        if count <= 0:
            return ""
        where = "1 direction" if count == 1 else f"{count} directions"
        return f"f(x, y(x)) has no curvature along {where} at x: that it is a minimum there rests on values alone."

    def objection(self) -> str:
        """What speaks against the answer, in words."""
        r = self.reply
        if not self.lower_optimal:
            residuals = f"relative residual {self.residual:.1e}"
            if r is not None:
                residuals = (
                    f"relative residuals {r.stationarity:.1e} (stationarity) and {r.feasibility:.1e} (feasibility)"
                )
            return f"y is not shown to be the follower's answer: {self.undetermined or residuals}"
        if not self.admissible:
            return f"the leader's constraint is violated by {self.value.violation:.1e} of its size"
        if self.unbounded:
            return "the leader's objective keeps falling along a ray"
        if self.probed.better is not None:
            return f"f(x, y(x)) is lower by {self.probed.gain:.3g} right next to x"
        if self.first_order is False and self.slope is not None:
            return f"the derivative of f(x, y(x)) is {np.max(np.abs(self.slope.left)):.1e}"
        if self.unsettled:
            return self.unsettled
        if self.inconclusive:
            return "values of f(x, y(x)) around x, which alone can tell, could not be found accurately"
        return self.challenge.objection
