"""One decision far away, all others as they are: what no descent finds, because the way there leads over a hill.

Paths come into use one after the other, so that a link may be worth widening by a third of its capacity and not by a
little. Each candidate that gets something is tried with nothing, and each that gets nothing with a part of its unit. A
move that pays is kept, and the next one is tried from there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.roads.descents import Budget, within
from blocc.roads.equilibrium import MANY_PAIRS
from blocc.roads.leader import Leader

#: What is tried where there is nothing, in units of the decision; and what counts as nothing.
_TRIED, _NOTHING = 0.3, 1e-6
#: Assignments are made to this relative gap first, and exactly where that promises a gain.
_ROUGH_GAP = 1e-8
#: Most rounds over all candidates, and most candidates.
_ROUNDS, _MOST = 3, 300


def try_far_moves(
    leader: Leader, budget: Budget | None, tolerance: float, descend: Callable[[Float[NDArray, "n"]], None]
) -> None:
    """Move while that pays; ``descend`` then goes on from the best answer."""
    question = leader.question
    units, n = question.units, len(question.lower)
    if not question.is_about_links or question.network.n_pairs >= MANY_PAIRS or n > _MOST:
        return  # every move takes an assignment
    for _ in range(_ROUNDS):
        assert leader.best is not None
        before = leader.best.value
        least = tolerance * question.size(before)
        for k in range(n):
            moved = leader.best.x.copy()
            has_some = moved[k] - question.lower[k] > _NOTHING * units[k]
            moved[k] = question.lower[k] if has_some else min(question.upper[k], question.lower[k] + _TRIED * units[k])
            x = within(moved, question, budget)
            if np.array_equal(x, leader.best.x):
                continue
            rough = leader.value_at(x, _ROUGH_GAP).value
            leader.evaluations += 1
            leader.on_step(np.inf, x, rough)
            if rough < leader.best.value - least:
                leader.exact(x, sloped=False)
        if leader.best.value >= before - least:
            return
        descend(leader.best.x)
