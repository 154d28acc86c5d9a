"""Bushes: for every origin the links of all nearly cheapest paths.

At a small temperature passengers take paths that cost next to nothing more than the cheapest one. The links of those
paths form a bush: a cheapest tree, and few links beside it. Sums over all paths are then one pass forwards and one
backwards, however many paths there are, and nobody has to list them.

Costs near the base prices of the bushes are told in units of the temperature. Reduced costs are differences of large
numbers, and are rounded once, when the bushes are made; afterwards nothing is lost at any temperature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.transport.travellers.kernels import cuts, in_threads, kernel
from blocc.transport.travellers.path_loading import Market
from blocc.transport.travellers.shortest_paths import PARTS, Streets, settle

#: Links on which paths cost so many temperatures more carry nobody.
_REACH = 45.0


class Bushes(NamedTuple):
    """The bushes of all origins at some prices, the nodes of each in the order of their cost."""

    temperature: float
    reached: Int[NDArray, "origins"]  #: how many nodes
    order: Int[NDArray, "origins nodes"]
    distance: Float[NDArray, "origins nodes"]  #: cost of each node's cheapest path
    first: Int[NDArray, "origins nodes_and_one"]  #: where the links into each node of the order begin
    tail: Int[NDArray, "origins links"]  #: place in the order where each of them begins
    link: Int[NDArray, "origins links"]
    excess: Float[NDArray, "origins links"]  #: its reduced cost, in units of the temperature


class BushLoad(NamedTuple):
    """What the travellers do."""

    value: float  #: their least cost
    flow: Float[NDArray, "links"]
    share: Float[NDArray, "origins nodes"]


def grow_bushes(streets: Streets, costs: Float[NDArray, "links"], temperature: float) -> Bushes:
    """The bushes when passing link a costs ``costs[a]``, infinite where it is closed."""
    origins, nodes, links = len(streets.origin), len(streets.through), len(costs)
    bushes = Bushes(
        temperature,
        np.zeros(origins, dtype=np.int64),
        np.empty((origins, nodes), dtype=np.int32),
        np.empty((origins, nodes)),
        np.empty((origins, nodes + 1), dtype=np.int32),
        np.empty((origins, links), dtype=np.int32),
        np.empty((origins, links), dtype=np.int32),
        np.empty((origins, links)),
    )
    bounds = cuts(origins, PARTS)

    def part(i: int) -> None:
        _grow(bounds[i], bounds[i + 1], costs, temperature, streets, bushes[1:])

    in_threads(part, len(bounds) - 1)
    return bushes


def load_bushes(bushes: Bushes, change: Float[NDArray, "links"], market: Market) -> BushLoad:
    """Load the bushes at their base prices plus ``change``, which is told in units of the temperature."""
    share = np.zeros(market.demand.shape)
    bounds = cuts(len(share), PARTS)
    flow = np.zeros((len(bounds) - 1, len(change)))

    def part(i: int) -> float:
        return _load_part(bounds[i], bounds[i + 1], bushes.temperature, bushes[1:], change, market, share, flow[i])

    gain = sum(in_threads(part, len(bounds) - 1))
    everyone = float(np.sum(market.demand * (market.alternative - 1.0)))
    return BushLoad(everyone - gain, flow.sum(axis=0), share)


def flow_by_origin(
    bushes: Bushes, change: Float[NDArray, "links"], market: Market
) -> tuple[Float[NDArray, "origins links"], Float[NDArray, "origins nodes"]]:
    """Flows of each origin on links, and the shares of its markets."""
    share, flow = np.zeros(market.demand.shape), np.zeros((len(market.demand), len(change)))

    def part(i: int) -> None:
        _load_part(i, i + 1, bushes.temperature, bushes[1:], change, market, share, flow[i])

    in_threads(part, len(flow))
    return flow, share


# --- compiled ------------------------------------------------------------------------------------------------------
@kernel
def _grow(begin, end, costs, temperature, streets, bushes):  # type: ignore[no-untyped-def]
    counts, orders, distances, firsts, tails, links, excesses = bushes
    n_nodes, n_links = len(streets.through), len(streets.head)
    order, keys, items = np.empty(n_nodes, np.int64), np.empty(n_links + 1), np.empty(n_links + 1, np.int64)
    last, rank = np.empty(n_nodes, np.int32), np.empty(n_nodes, np.int64)
    for row in range(begin, end):
        origin, distance = streets.origin[row], distances[row]
        count = settle(origin, costs, streets, distance, last, order, keys, items)
        rank[:] = n_nodes
        for i in range(count):
            rank[order[i]] = i
            orders[row, i] = order[i]
        counts[row], firsts[row, 0], size = count, 0, 0
        for i in range(count):
            node = order[i]
            firsts[row, i] = size
            if i == 0:
                continue
            for place in range(streets.entering_first[node], streets.entering_first[node + 1]):
                a = streets.entering[place]
                tail = streets.tail[a]
                if rank[tail] >= i or not (streets.through[tail] or tail == origin):
                    continue
                excess = (distance[tail] + costs[a] - distance[node]) / temperature
                if excess <= _REACH:
                    tails[row, size], links[row, size], excesses[row, size] = rank[tail], a, excess
                    size += 1
        firsts[row, count] = size


@kernel
def _load_part(begin, end, temperature, bushes, change, market, share, flow):  # type: ignore[no-untyped-def]
    """Fill rows of ``share``, add to ``flow``, and return what travellers gain."""
    n_nodes, n_links = bushes[1].shape[1], len(change)
    reach, pull, weight = np.empty(n_nodes), np.empty(n_nodes), np.empty(n_links)
    elastic = np.empty(n_nodes)
    gain = 0.0
    for row in range(begin, end):
        gain += choose(row, temperature, bushes, change, market, share, weight, reach, pull, elastic)
        count, first, tail, link = bushes[0][row], bushes[3][row], bushes[4][row], bushes[5][row]
        for i in range(count - 1, 0, -1):
            if pull[i] > 0.0:
                for j in range(first[i], first[i + 1]):
                    passing = weight[j] * pull[i]
                    pull[tail[j]] += passing
                    flow[link[j]] += reach[tail[j]] * passing
    return gain


@kernel
def choose(row, temperature, bushes, change, market, share, weight, reach, pull, elastic):  # type: ignore[no-untyped-def]
    """Forwards over one bush: sums over paths to each node, and what its markets do at their ends."""
    counts, orders, distances, firsts, tails, links, excesses = bushes
    count, first, tail, link, excess = counts[row], firsts[row], tails[row], links[row], excesses[row]
    reach[0], gain = 1.0, 0.0
    pull[:count] = 0.0
    elastic[:count] = 0.0
    for i in range(1, count):
        total = 0.0
        for j in range(first[i], first[i + 1]):
            weight[j] = np.exp(-excess[j] - change[link[j]])
            total += weight[j] * reach[tail[j]]
        reach[i] = total
        node = orders[row, i]
        people = market.demand[row, node]
        if people > 0.0:
            better = market.alternative[row, node] - (distances[row, node] - temperature * np.log(total))
            small = np.exp(-abs(better))
            taken = (1.0 if better > 0.0 else small) / (1.0 + small)
            share[row, node] = taken
            gain += people * (max(better, 0.0) + np.log1p(small))
            pull[i] = people * taken / total
            elastic[i] = people * small / (1.0 + small) ** 2 / total
    return gain
