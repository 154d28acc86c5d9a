"""Close or reopen links where that raises the utility: the moves that no gradient shows.

A design that the descent in prices has reached is a local answer. Closing a link, or opening one that is closed, and
descending again from there may lead to a better one. Moves are first ranked by one evaluation each, and only the most
promising are tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocc.transport.design.prices import Descent, Function, Watch, descend

#: Smaller gains (relative to the value) are not worth a move.
GAIN = 1e-6


@dataclass(frozen=True)
class Polished:
    """A polished design: where it stands, which links may carry passengers, and how many moves were made."""

    descent: Descent
    is_open: np.ndarray
    closed: int
    reopened: int
    evaluations: int


def polish(
    function: Function,
    start: Descent,
    is_open: np.ndarray,
    *,
    gamma: float,
    temperature: float,
    ceiling: float,
    threshold: float,
    tries: int,
    rounds: int = 100,
    group: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    watch: Watch | None = None,
) -> Polished:
    """Move while it pays: at most ``rounds`` accepted moves, ``tries`` failures in a row before giving up.

    Links with equal ``group`` are closed and reopened together; links that are not ``allowed`` stay closed.
    """
    group = np.arange(len(is_open)) if group is None else group
    allowed = np.ones(len(is_open), dtype=bool) if allowed is None else allowed
    best, evaluations, counts = start, 0, [0, 0]
    for _ in range(rounds):
        scale = GAIN * (1.0 + abs(best.value))
        moves = []
        for leader in np.unique(group[allowed]):
            links = (group == leader) & allowed
            closing = bool((best.capacity[links] > threshold).any())
            changed, prices = is_open.copy(), best.prices.copy()
            changed[links] = not closing
            if not closing:
                prices[links] = 0.0  # as attractive as it can be: the descent then finds what it is worth
            moves.append((float(function(prices, gamma, changed, temperature).value), closing, changed, prices))
        evaluations += len(moves)
        moves.sort(key=lambda move: move[0])
        for _, closing, changed, prices in moves[:tries]:
            found = descend(function, prices, gamma, changed, temperature, ceiling, watch, group)
            evaluations += found.evaluations
            if found.value < best.value - scale:
                best, is_open = found, changed
                counts[0 if closing else 1] += 1
                break
        else:
            break
    return Polished(best, is_open, counts[0], counts[1], evaluations)
