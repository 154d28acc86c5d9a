"""Sizes that can be built: the best neighbour, among them, of an answer that knows no sizes.

The search begins at the sizes below and nearest to the answer, and moves one link by one size, or two links at once, as
long as that is better. Every decision that is tried is assigned exactly, from the paths of the one before, and keeps to
the budget. A bound for all capacities holds for those that can be built, so the gap is proven as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.files import shown
from blocc._lib.rounding import EXACT, ROUNDED
from blocc.errors import OptionError
from blocc.networks.model import NodeId
from blocc.roads.descents import Budget
from blocc.roads.leader import Leader, Reached
from blocc.roads.question import Question

#: Neighbours tried around one decision, the most promising first.
MOST_NEIGHBOURS = 500
#: Links that are widened, and others that are narrowed, in moves of two.
MOST_TOGETHER = 30
#: Multiples of one size.
MOST_SIZES = 10_000


# --- which sizes ---------------------------------------------------------------------------------------------------
def size_lists(given: Any, names: Sequence[NodeId]) -> list[float | Float[NDArray, "sizes"]]:
    """For each candidate its sizes, with 0 among them, or the one whose multiples they are."""
    if isinstance(given, Mapping):
        odd = [name for name in given if name not in names] + [name for name in names if name not in given]
        if odd:
            raise OptionError(f"sizes must name every candidate and nothing else; look at {odd[0]!r}")
        return [sizes_of_link(given[name]) for name in names]
    return [sizes_of_link(given)] * len(names)


def sizes_of_link(given: Any) -> float | Float[NDArray, "sizes"]:
    """What can be built on one link, 0 included, or the size whose multiples can be."""
    try:
        values = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        values = np.zeros((0, 0))
    is_one = values.ndim == 0
    if values.ndim > 1 or not values.size or not np.isfinite(values).all() or (values < 0.0).any():
        raise OptionError(f"sizes must be a list of numbers, or one whose multiples are meant; got {shown(given)}")
    if (is_one and values == 0.0) or isinstance(given, bool):
        raise OptionError(f"sizes must not be multiples of {given!r}")
    return float(values) if is_one else np.unique(np.append(values, 0.0))


def size_table(
    lists: Sequence[float | Float[NDArray, "sizes"]], upper: Float[NDArray, "n"]
) -> Float[NDArray, "n sizes"]:
    """The sizes of each candidate up to its most, ascending, one row each; infinite where a row has fewer."""
    rows = []
    for size, most in zip(lists, upper, strict=True):
        if isinstance(size, float):
            count = np.floor(most / size * (1.0 + 1e-12))
            if count > MOST_SIZES:
                raise OptionError(f"sizes: more than {MOST_SIZES} multiples of {size:g}; give max_expansion")
            rows.append(size * np.arange(count + 1.0))
        else:
            rows.append(size[size <= most * (1.0 + ROUNDED)])
    table = np.full((len(rows), max(map(len, rows))), np.inf)
    for row, values in enumerate(rows):
        table[row, : len(values)] = values
    return table


# --- which decision ------------------------------------------------------------------------------------------------
def round_to_sizes(leader: Leader, x: Float[NDArray, "n"], budget: Budget | None) -> Reached:
    """The best decision among the sizes that is found from x; also ``leader.best``."""
    sizes = leader.question.sizes
    assert sizes is not None
    leader.best = None
    tried: set[bytes] = set()

    def is_better(place: Int[NDArray, "n"]) -> bool:
        """Whether a decision, not tried so far, is the best yet."""
        tried.add(place.tobytes())
        best = leader.best
        leader.exact(_at(sizes, place), sloped=False)
        return leader.best is not best

    below = places_below(leader.question, x)
    nearest = _nearest(sizes, x, below)
    here = below
    is_better(here)
    if nearest.tobytes() not in tried and _affordable(budget, _at(sizes, nearest)) and is_better(nearest):
        here = nearest
    while True:
        assert leader.best is not None
        leader.best = leader.with_slope(leader.best)
        for place in _neighbours(leader.question, leader.best, here, budget):
            if place.tobytes() not in tried and is_better(place):
                here = place
                break
        else:
            return leader.best


def gain_of_neighbours(leader: Leader, here: Reached, budget: Budget | None) -> float:
    """What the best neighbour of a decision among the sizes gains; 0 where none does."""
    sizes = leader.question.sizes
    assert sizes is not None
    around = _neighbours(leader.question, here, places_below(leader.question, here.x), budget)
    return max(
        0.0, here.value - min((leader.exact(_at(sizes, place), sloped=False).value for place in around), default=np.inf)
    )


def places_below(question: Question, x: Float[NDArray, "n"]) -> Int[NDArray, "n"]:
    """For each candidate the place of its largest size that is not above x: within every budget that x is within."""
    assert question.sizes is not None
    return np.maximum((question.sizes <= x[:, None] * (1.0 + EXACT)).sum(axis=1) - 1, 0)


def sizes_below(question: Question, x: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
    """Those sizes."""
    assert question.sizes is not None
    return _at(question.sizes, places_below(question, x))


def _at(sizes: Float[NDArray, "n sizes"], place: Int[NDArray, "n"]) -> Float[NDArray, "n"]:
    return sizes[np.arange(len(place)), place]


def _nearest(sizes: Float[NDArray, "n sizes"], x: Float[NDArray, "n"], below: Int[NDArray, "n"]) -> Int[NDArray, "n"]:
    above = np.minimum(below + 1, np.isfinite(sizes).sum(axis=1) - 1)
    return np.where(_at(sizes, above) - x < x - _at(sizes, below), above, below)


def _affordable(budget: Budget | None, x: Float[NDArray, "n"]) -> bool:
    return budget is None or budget.over(x) <= ROUNDED


def _neighbours(
    question: Question, here: Reached, place: Int[NDArray, "n"], budget: Budget | None
) -> Iterator[Int[NDArray, "n"]]:
    """Decisions that differ by one size of one link or of two, the most promising first.

    What a move promises is the time that the slopes here predict, with what its construction really costs. Of two links
    only the most promising are moved together.
    """
    sizes = question.sizes
    assert sizes is not None
    most = np.isfinite(sizes).sum(axis=1) - 1
    own, rate = question.own(here.x)
    single = []
    for link, step in product(range(len(place)), (1, -1)):
        if 0 <= place[link] + step <= most[link]:
            x = here.x.copy()
            x[link] = sizes[link, place[link] + step]
            change = question.own(x)[0] - own + (here.slope - rate)[link] * (x - here.x)[link]
            single.append((float(change), link, step))
    single.sort()
    few = [move for sign in (1, -1) for move in [one for one in single if one[2] == sign][:MOST_TOGETHER]]
    moves: list[tuple[float, tuple[tuple[int, int], ...]]] = [(one[0], (one[1:],)) for one in single]
    moves += [(a[0] + b[0], (a[1:], b[1:])) for a, b in combinations(few, 2) if a[1] != b[1]]
    for _, steps in sorted(moves)[:MOST_NEIGHBOURS]:
        ahead = place.copy()
        for link, step in steps:
            ahead[link] += step
        if _affordable(budget, _at(sizes, ahead)):
            yield ahead
