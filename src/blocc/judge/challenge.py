"""Is y the best response, and the one that the leader may hope for? A second solver, from other starts.

KKT conditions prove a response of a convex follower. Another well, or another response that costs the follower no more
and is worth more to the leader, is found by looking elsewhere: for small followers that costs milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.rounding import EXACT, ROUNDED, TINY
from blocc.flat_problem import FlatProblem
from blocc.judge.lower_level import LowerKKT, preferred, reply
from blocc.judge.responses import FEASIBLE
from blocc.judge.second_opinion import Below, SecondOpinion
from blocc.local.derivatives import local

#: A response is another one if it lies farther away than this, in sizes of y.
_APART = 1e-2
_MANY = "The follower has many best responses, over which f is not convex: y is the best of them that was found."


class Challenge(NamedTuple):
    """What a second solver found."""

    best: Below | None = None  #: its response; None if it was not asked or found none
    objection: str = ""
    remark: str = ""  #: what the answer rests on
    snapped: np.ndarray | None = None  #: beside a tie: the x at which y is the better response by what is allowed

    @property
    def final(self) -> bool:
        """Whether no other x changes what speaks against the answer: which responses there are."""
        return bool(self.objection) and self.snapped is None


def cost_allowance(judged: LowerKKT, best: Below, allowed: float) -> float:
    """By how much y may cost more than a second solver's answer, which may violate constraints a little."""
    scale = float(np.max(judged.slope, initial=TINY))
    slack = best.violation * float(np.abs(judged.mu).sum() + np.abs(judged.nu).sum())
    return 10.0 * allowed * scale + slack + ROUNDED * abs(float(judged.local.lower))


def challenge(flat: FlatProblem, judged: LowerKKT, allowed: float, least_gain: float) -> Challenge:
    """Ask a second solver; ``allowed`` is the ratio of the follower, ``least_gain`` what counts in f."""
    scale = float(np.max(judged.slope, initial=TINY))
    second = SecondOpinion(flat, judged.y, judged.sizes.y, scale)
    best = second.best(judged.x) if second.small else None
    if best is None:
        return Challenge()
    cost = float(judged.local.lower)
    if cost - best.value > cost_allowance(judged, best, allowed):
        return Challenge(best, f"the follower does better elsewhere: lower is {best.value:.8g} there, {cost:.8g} at y")
    rounding = cost_allowance(judged, best, FEASIBLE)
    if _apart(judged, best.y) and cost - best.value > rounding:
        return _beside_tie(flat, judged, best, cost - best.value, allowed * scale)
    second_reply = reply(flat, judged.x, best.y, judged.sizes) if _apart(judged, best.y) else None
    others = [judged if second_reply is None else second_reply, preferred(flat, judged)]
    others.append(None if second_reply is None else preferred(flat, second_reply))
    many = [one for one in others if one is not None and one is not judged and one.worst <= allowed]
    other = min(many, key=lambda one: (_violated(one) > FEASIBLE, float(one.local.upper)), default=None)
    if other is None:
        return Challenge(best)
    gain = float(judged.local.upper - other.local.upper)
    if _violated(other) > max(_violated(judged), FEASIBLE):  # G is part of what the leader wants
        return Challenge(best)
    if gain > least_gain and float(other.local.lower) - cost <= rounding:
        return Challenge(best, f"another response costs the follower no more, and the leader {gain:.3g} less")
    return Challenge(best, remark=_MANY if _concave(flat, judged) else "")


def _beside_tie(flat: FlatProblem, judged: LowerKKT, best: Below, excess: float, margin: float) -> Challenge:
    """x lies beyond a tie by less than the tolerance: the follower does otherwise, if only just."""
    found = local(flat, judged.x, best.y)
    objection = (
        f"the response jumps within the tolerance of x: f is {float(judged.local.upper):.8g} at y, and "
        f"{float(found.upper):.8g} at the response that costs the follower {excess:.1e} less"
    )
    normal = (judged.local.lower_gradient - found.lower_gradient)[: flat.n_x] * judged.sizes.x
    length = float(normal @ normal)
    step = -(excess + margin) / length * judged.sizes.x * normal if length > 0.0 else None
    return Challenge(best, objection, snapped=None if step is None else judged.x + step)


def _concave(flat: FlatProblem, judged: LowerKKT) -> bool:
    """Whether f bends down in y, so that its best value among many responses is no convex program."""
    units = judged.sizes.y
    hessian = units[:, None] * judged.local.upper_hessian[flat.n_x :, flat.n_x :] * units
    values = np.linalg.eigvalsh(hessian)
    return bool(values[0] < -EXACT * max(values[-1], -values[0]))


def _violated(one: LowerKKT) -> float:
    return float(np.max(one.local.upper_inequality, initial=0.0))


def _apart(judged: LowerKKT, y: np.ndarray) -> bool:
    return bool(np.max(np.abs(y - judged.y) / judged.sizes.y, initial=0.0) > _APART)
