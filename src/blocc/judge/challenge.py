"""Is y the best response, and the one that the leader may hope for? A second solver, from other starts.

KKT conditions prove a response of a convex follower. Another well, or another response that costs the follower no more
and is worth more to the leader, is found by looking elsewhere: for small followers that costs milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc.flat_problem import FlatProblem
from blocc.judge.derivatives import local
from blocc.judge.lower_level import Reply, polish, reply
from blocc.judge.second_opinion import Below, SecondOpinion

#: A response is another one if it lies farther away than this, in sizes of y.
_APART = 1e-2


class Challenge(NamedTuple):
    """What a second solver found."""

    best: Below | None = None  #: its response; None if it was not asked or found none
    objection: str = ""


def cost_allowance(judged: Reply, best: Below, allowed: float) -> float:
    """By how much y may cost more than a second solver's answer, which may violate constraints a little."""
    scale = float(np.max(judged.slope, initial=1e-300))
    slack = best.violation * float(np.abs(judged.mu).sum() + np.abs(judged.nu).sum())
    return 10.0 * allowed * scale + slack + 1e-12 * abs(float(judged.local.lower))


def challenge(flat: FlatProblem, judged: Reply, allowed: float, least_gain: float) -> Challenge:
    """Ask a second solver; ``allowed`` is the ratio of the follower, ``least_gain`` what counts in f."""
    scale = float(np.max(judged.slope, initial=1e-300))
    second = SecondOpinion(flat, judged.y, judged.sizes.y, scale)
    best = second.best(judged.x) if second.small else None
    if best is None:
        return Challenge()
    cost = float(judged.local.lower)
    if cost - best.value > cost_allowance(judged, best, allowed):
        return Challenge(best, f"the follower does better elsewhere: lower is {best.value:.8g} there, {cost:.8g} at y")
    if not _apart(judged, best.y):
        return Challenge(best)
    preferred = second.preferred(judged.x, cost)
    first = None if preferred is None else reply(flat, judged.x, preferred.y, judged.sizes)
    other = None if first is None else polish(flat, first)
    if other is None or other.worst > allowed or not _apart(judged, other.y):
        return Challenge(best)
    found = local(flat, other.x, other.y)
    gain = float(judged.local.upper - found.upper)
    if gain > least_gain and float(found.lower) - cost <= cost_allowance(judged, best, allowed):
        return Challenge(
            best, f"another response, which costs the follower no more, is worth {gain:.3g} more to the leader"
        )
    return Challenge(best)


def _apart(judged: Reply, y: np.ndarray) -> bool:
    return bool(np.max(np.abs(y - judged.y) / judged.sizes.y, initial=0.0) > _APART)
