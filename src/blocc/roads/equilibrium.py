"""User equilibrium on paths: shortest paths priced in, flow shifted between the paths of each pair, warm starts.

An iteration finds the cheapest path of every pair, adds those that are new, and settles the paths known so far: sweeps
of Newton steps pair by pair at first, Newton steps of all paths together (by conjugate gradients) near the end. The
relative gap is measured with the cheapest paths of the whole network at the volumes that are returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.rounding import EXACT
from blocc.networks.columns import Columns, cheapest_columns
from blocc.networks.shortest_paths import Streets, shortest_trees
from blocc.roads.link_costs import LinkCosts, evaluate
from blocc.roads.path_shifts import answers, bases, distinct, excess_of, shorten, spread, sweep

#: From so many pairs on assignments take most of the time of every search.
MANY_PAIRS = 2000
#: Sweeps of one iteration.
SWEEPS = 12
#: Below this relative gap all paths are moved together.
TOGETHER = 3e-3
#: Conjugate gradients of one Newton step, and after how many rounds of them paths are dropped that it would empty.
MOST_PRODUCTS, ROUNDS = 80, 4
#: A cheaper path is a new one when it saves more than this, relatively: less is rounding.
NOTHING = 3e-15
#: Nor is it worth a path when it saves less than this part of the relative gap.
NEGLECTED = 0.05
#: Differences of values along paths of less than this part of them are rounding.
ROUNDING = 1e-14


class PathFlows(NamedTuple):
    """Paths in use and how many drivers take each; where one assignment ends, and the next may begin."""

    columns: Columns
    flow: Float[NDArray, "paths"]


class Equilibrium(NamedTuple):
    """Where an assignment ended."""

    volume: Float[NDArray, "links"]
    cost: Float[NDArray, "links"]  #: of each link at these volumes
    path_cost: Float[NDArray, "pairs"]  #: the cheapest path of each pair at these costs
    relative_gap: float  #: what drivers pay above their cheapest paths, relative to all they pay
    excess: float  #: the same, absolute
    iterations: int
    paths: PathFlows
    gaps: tuple[float, ...]  #: relative gap of every iteration


class Pairs(NamedTuple):
    """Origin-destination pairs, in the order of their origins."""

    row: Int[NDArray, "pairs"]  #: which origin of the streets
    destination: Int[NDArray, "pairs"]
    demand: Float[NDArray, "pairs"]


def assign_paths(
    streets: Streets,
    pairs: Pairs,
    costs: LinkCosts,
    *,
    gap: float,
    warm: PathFlows | None = None,
    most_iterations: int = 300,
    stop: Callable[[int, float], bool] = lambda iteration, gap: False,
) -> Equilibrium:
    """Flows at which no driver has a cheaper path, up to a relative gap.

    :param warm: the end of an assignment of the same pairs at other costs or other demands
    :param stop: called with the number of every iteration and its gap; True ends the assignment with what it has
    """
    n_links = len(streets.tail)
    columns, flow = _start(streets, pairs, costs) if warm is None else _adapted(warm, pairs)
    volume, cost, slope = (np.empty(n_links) for _ in range(3))
    room = np.empty(2 * n_links + 2, dtype=np.int64)
    gaps: list[float] = []
    best_gap, stale = np.inf, 0
    while True:
        volume = columns.loads(flow)
        evaluate(costs, volume, cost, slope)
        trees = shortest_trees(streets, cost)
        cheapest = trees.cost[pairs.row, pairs.destination]
        paid = columns.costs(cost)
        total, excess = excess_of(columns.of_market, columns.first, columns.links, flow, cost, cheapest)
        relative = max(excess, 0.0) / total if total > 0.0 else 0.0
        gaps.append(relative)
        stopped = stop(len(gaps) - 1, relative)
        stale = 0 if relative < 0.7 * best_gap else stale + 1
        best_gap = min(best_gap, relative)
        if relative <= gap or stopped or len(gaps) > most_iterations or (stale >= 20 and best_gap < EXACT):
            return Equilibrium(
                volume, cost, cheapest, relative, max(excess, 0.0), len(gaps) - 1, PathFlows(columns, flow), tuple(gaps)
            )
        which = np.flatnonzero(cheapest < columns.least(paid) * (1.0 - max(NOTHING, NEGLECTED * relative)))
        if len(which):
            new = cheapest_columns(streets, trees, pairs.row, pairs.destination, which)
            columns, order = columns.joined(new)
            flow = np.concatenate((flow, np.zeros(len(new))))[order]
        flow = np.ascontiguousarray(flow)
        _settle(columns, flow, costs, volume, cost, slope, room, relative, excess)
        keep = flow > 0.0
        if not keep.all():
            columns, flow = columns.take(np.flatnonzero(keep)), flow[keep]


def _settle(
    columns: Columns,
    flow: Float[NDArray, "paths"],
    costs: LinkCosts,
    volume: Float[NDArray, "links"],
    cost: Float[NDArray, "links"],
    slope: Float[NDArray, "links"],
    room: Int[NDArray, "entries"],
    relative: float,
    excess: float,
) -> None:
    """Move flow between the paths known so far; changes ``flow`` and the figures of the links in place."""
    table = columns.of_market, columns.first, columns.links
    target = 0.02 * excess
    left = sweep(*table, flow, costs, volume, cost, slope, room, target, SWEEPS if relative > TOGETHER else 3)
    if relative > TOGETHER:
        return
    for _ in range(4):
        if left <= target:
            return
        moves = moves_of(columns, flow)
        shift = np.zeros(len(flow))
        weight = np.sqrt(moves.easing(slope) * _movable(columns, flow, moves))
        shift[moves.path] = answers(
            *moves.table, weight, flow[moves.path], slope, cost, ROUNDS, MOST_PRODUCTS // ROUNDS, 1e-3, 0.0
        )
        shorten(columns.of_market, moves.base, flow, shift)
        change = columns.loads(shift)
        downhill = float(change @ cost)
        step = 1.0
        while downhill < 0.0 and step > 1e-3:
            trial = np.maximum(volume + step * change, 0.0)
            if float(change @ costs.at(trial)) <= 0.1 * abs(downhill):
                np.maximum(flow + step * shift, 0.0, out=flow)
                volume[:] = trial
                evaluate(costs, volume, cost, slope)
                break
            step *= 0.5
        left = sweep(*table, flow, costs, volume, cost, slope, room, target, 2)


class Moves(NamedTuple):
    """Flow that may move between each pair's base path and its other paths in use."""

    base: Int[NDArray, "pairs"]  #: -1 where there is one path only
    path: Int[NDArray, "moves"]
    begin: Int[NDArray, "moves_and_one"]
    middle: Int[NDArray, "moves"]
    links: Int[NDArray, "entries"]

    @property
    def table(self) -> tuple[NDArray, NDArray, NDArray]:
        """What only one of the two paths has."""
        return self.begin, self.middle, self.links

    def easing(self, slope: Float[NDArray, "links"]) -> Float[NDArray, "moves"]:
        """How much flow makes up for one unit of cost, for each by itself; 0 where costs do not answer."""
        stiffness = np.add.reduceat(slope[self.links], self.begin[:-1]) if len(self.path) else np.zeros(0)
        return np.divide(1.0, stiffness, out=np.zeros_like(stiffness), where=stiffness > 0.0)


def _movable(columns: Columns, flow: Float[NDArray, "paths"], moves: Moves) -> Float[NDArray, "moves"]:
    """What each could move at most, roughly: little where either path has little."""
    own, others = flow[moves.path], flow[moves.base[columns.market[moves.path]]]
    return own * others / (own + others)


def moves_of(columns: Columns, flow: Float[NDArray, "paths"]) -> Moves:
    """Between which paths flow may move, and what these do not share."""
    base = bases(columns.of_market, flow)
    path, middle = np.empty(len(flow), dtype=np.int64), np.empty(len(flow), dtype=np.int64)
    begin = np.empty(len(flow) + 1, dtype=np.int64)
    lengths = np.diff(columns.first)
    moving = flow > 0.0
    moving[base[base >= 0]] = False
    of_base = np.where(base >= 0, lengths[base], 0)[columns.market]
    links = np.empty(int((lengths + of_base)[moving & (of_base > 0)].sum()), dtype=columns.links.dtype)
    table = columns.of_market, columns.first, columns.links
    count, size = distinct(*table, flow, base, path, begin, middle, links)
    return Moves(base, path[:count], begin[: count + 1], middle[:count], links[:size])


def _start(streets: Streets, pairs: Pairs, costs: LinkCosts) -> tuple[Columns, Float[NDArray, "paths"]]:
    """Everyone on the cheapest path of the empty network."""
    trees = shortest_trees(streets, costs.at(np.zeros(len(streets.tail))))
    columns = cheapest_columns(streets, trees, pairs.row, pairs.destination, np.arange(len(pairs.row)))
    return columns, pairs.demand.copy()


def _adapted(warm: PathFlows, pairs: Pairs) -> tuple[Columns, Float[NDArray, "paths"]]:
    """The same split of each pair's drivers over its paths, at the present demand."""
    columns, flow = warm
    carried = columns.totals(flow)
    factor = np.where(carried > 0.0, pairs.demand / np.where(carried > 0.0, carried, 1.0), 0.0)
    flow = flow * factor[columns.market]
    # A pair that had no demand has paths without flow; its first one takes all.
    empty = np.flatnonzero((carried <= 0.0) & (pairs.demand > 0.0))
    flow[columns.of_market[empty]] = pairs.demand[empty]
    return columns, flow


def cost_answer(
    found: Equilibrium, costs: LinkCosts, values: Float[NDArray, "links"]
) -> tuple[Float[NDArray, "links"], Float[NDArray, "pairs"]]:
    """How a sum ``values @ volume`` at an equilibrium answers to changes of the links' costs and of the demands.

    By the implicit function theorem, with the paths in use kept: what an equilibrium answers to a change of costs is
    symmetric, so that one system serves all links and all pairs at once.
    """
    columns, flow = found.paths
    cost, slope, to_costs = (np.empty_like(found.volume) for _ in range(3))
    evaluate(costs, found.volume, cost, slope)
    moves = moves_of(columns, flow)
    everywhere = np.full(len(moves.path), np.inf)
    shift = answers(*moves.table, moves.easing(slope), everywhere, slope, values, 1, 1000, 1e-10, ROUNDING)
    spread(*moves.table, shift, to_costs)
    along = columns.costs(values + slope * to_costs)
    chosen = np.where(moves.base >= 0, moves.base, columns.of_market[:-1])
    return to_costs, along[chosen]
