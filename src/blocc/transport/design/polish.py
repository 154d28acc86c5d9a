"""Close or reopen links where that raises the utility: the moves that no gradient shows.

A design that the descent in prices has reached is a local answer. Closing a link, or opening one that is closed, and
descending again from there may lead to a better one. Moves are first ranked by one evaluation each, and only the most
promising are tried.
"""

from __future__ import annotations

import numpy as np

from blocc._lib.arrays import Bool, NDArray
from blocc.transport.design.prices import Descent, PriceProblem, descend

#: Smaller gains (relative to the value) are not worth a move.
GAIN = 1e-6


def polish(
    problem: PriceProblem,
    start: Descent,
    is_open: Bool[NDArray, "links"],
    allowed: Bool[NDArray, "links"],
    *,
    threshold: float,
    max_failures: int,
    max_moves: int,
) -> tuple[Descent, Bool[NDArray, "links"]]:
    """Move while it pays; returns where that led and which links are open there.

    :param allowed: links that may be open; the others stay closed
    :param threshold: less flow than this on a link is none
    :param max_failures: so many moves in a row that gain nothing end the search
    """
    best, group = start, problem.group
    for _ in range(max_moves):
        moves = []
        for leader in np.unique(group[allowed]):
            links = (group == leader) & allowed
            closing = bool((best.capacity[links] > threshold).any())
            changed, prices = is_open.copy(), best.prices.copy()
            changed[links] = not closing
            if not closing:
                prices[links] = 0.0  # as attractive as it can be: the descent then finds what it is worth
            moves.append((float(problem.evaluate(prices, changed).value), changed, prices))
        moves.sort(key=lambda move: move[0])
        for _, changed, prices in moves[:max_failures]:
            found = descend(problem, prices, changed)
            if found.value < best.value - GAIN * (1.0 + abs(best.value)):
                best, is_open = found, changed
                break
        else:
            break
    return best, is_open
