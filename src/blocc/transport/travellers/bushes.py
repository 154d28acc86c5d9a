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
from blocc.networks.kernels import cuts, in_threads, kernel, shares
from blocc.networks.shortest_paths import PARTS, Streets, heap_room, settle_near
from blocc.transport.travellers.path_loading import Market

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


def grow_bushes(
    streets: Streets, costs: Float[NDArray, "links"], temperature: float, orders: Int[NDArray, "origins nodes"]
) -> Bushes:
    """The bushes when passing link a costs ``costs[a]``, infinite where it is closed.

    :param orders: the nodes by their cost at other costs, or room for them; replaced by what it is now
    """
    origins, nodes, links = len(streets.origin), len(streets.through), len(costs)
    bushes = Bushes(
        temperature,
        np.zeros(origins, dtype=np.int64),
        orders,
        np.empty((origins, nodes)),
        np.empty((origins, nodes + 1), dtype=np.int32),
        np.empty((origins, links), dtype=np.int32),
        np.empty((origins, links), dtype=np.int32),
        np.empty((origins, links)),
    )
    bounds = shares(origins, origins * (nodes + links))

    def part(i: int) -> None:
        _grow(bounds[i], bounds[i + 1], costs, temperature, streets, bushes[1:])

    in_threads(part, len(bounds) - 1)
    return bushes._replace(order=orders.copy())


def load_bushes(bushes: Bushes, change: Float[NDArray, "links"], market: Market) -> BushLoad:
    """Load the bushes at their base prices plus ``change``, which is told in units of the temperature."""
    gain, flow, share = _loaded(bushes, change, market, PARTS)
    everyone = float(np.sum(market.demand * (market.alternative - 1.0)))
    return BushLoad(everyone - gain, flow.sum(axis=0), share)


def _loaded(
    bushes: Bushes, change: Float[NDArray, "links"], market: Market, parts: int
) -> tuple[float, Float[NDArray, "parts links"], Float[NDArray, "origins nodes"]]:
    """What travellers gain, the flow of each part of the origins, and their shares."""
    origins, nodes = market.demand.shape
    share, bounds = np.zeros((origins, nodes)), cuts(origins, parts)
    flow = np.zeros((len(bounds) - 1, len(change)))
    threads = shares(len(flow), origins * (nodes + len(change)))

    def part(i: int) -> float:
        own, mine = bounds[threads[i] : threads[i + 1] + 1], flow[threads[i] : threads[i + 1]]
        return _load_parts(own, bushes.temperature, bushes[1:], change, market, share, mine)

    return sum(in_threads(part, len(threads) - 1)), flow, share


def flow_by_origin(
    bushes: Bushes, change: Float[NDArray, "links"], market: Market
) -> tuple[Float[NDArray, "origins links"], Float[NDArray, "origins nodes"]]:
    """Flows of each origin on links, and the shares of its markets."""
    _, flow, share = _loaded(bushes, change, market, len(market.demand))
    return flow, share


# --- compiled ------------------------------------------------------------------------------------------------------
@kernel
def _grow(begin, end, costs, temperature, streets, bushes):  # type: ignore[no-untyped-def]
    counts, orders, distances, firsts, tails, links, excesses = bushes
    n_nodes, n_links = len(streets.through), len(streets.head)
    room, rank = heap_room(n_nodes, n_links), np.empty(n_nodes, np.int64)
    for row in range(begin, end):
        origin, distance, order = streets.origin[row], distances[row], orders[row]
        count = settle_near(origin, costs, streets, distance, order, room)
        rank[:] = n_nodes
        for i in range(count):
            rank[order[i]] = i
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
def _load_parts(bounds, temperature, bushes, change, market, share, flow):  # type: ignore[no-untyped-def]
    """Fill rows of ``share``, add to the flow of each part, and return what travellers gain."""
    n_nodes, n_links = bushes[1].shape[1], len(change)
    reach, pull, weight = np.empty(n_nodes), np.empty(n_nodes), np.empty(n_links)
    elastic = np.empty(n_nodes)
    gain = 0.0
    for part in range(len(flow)):
        for row in range(bounds[part], bounds[part + 1]):
            gain += choose(row, temperature, bushes, change, market, share, weight, reach, pull, elastic)
            count, first, tail, link = bushes[0][row], bushes[3][row], bushes[4][row], bushes[5][row]
            for i in range(count - 1, 0, -1):
                if pull[i] > 0.0:
                    for j in range(first[i], first[i + 1]):
                        passing = weight[j] * pull[i]
                        pull[tail[j]] += passing
                        flow[part, link[j]] += reach[tail[j]] * passing
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
