"""Travellers on a network without capacities, spread over nearly cheapest paths: one origin after the other.

A path's weight is exp(-cost / temperature), relative to the cheapest path. The sums over all paths to a node solve a
linear system. In the order of the cheapest costs it is almost triangular: sweeps along that order (Gauss and Seidel)
solve it at once but for links that lead back. Memory is that of tables of origins and nodes.

Searches ask for the load at one vector of costs after the other. The order of the nodes hardly changes from one to the
next, and costs that are summed along the last one need few corrections: several times less work than finding them
anew. What is found does not depend on where that begins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.networks.kernels import cuts, in_threads, kernel, shares
from blocc.networks.shortest_paths import PARTS, Streets, heap_room, settle_near, unknown_orders

#: Links whose weight is less than the exponential of this carry nobody.
LOG_WEIGHT_FLOOR = -92.0
#: Sums over paths are exact to this, relatively, or as good as after so many sweeps.
_EXACT, _MOST_SWEEPS = 1e-13, 500


class Market(NamedTuple):
    """Figures of the markets at (origin, destination)."""

    demand: Float[NDArray, "origins nodes"]
    alternative: Float[NDArray, "origins nodes"]


class PathLoad(NamedTuple):
    """What the travellers do."""

    value: float  #: their least cost
    flow: Float[NDArray, "links"]  #: passengers on each link, the gradient of the value in the costs
    potential: Float[NDArray, "origins nodes"]  #: cost to each destination
    share: Float[NDArray, "origins nodes"]


def load_paths(
    streets: Streets,
    costs: Float[NDArray, "links"],
    market: Market,
    temperature: float,
    orders: Int[NDArray, "origins nodes"] | None = None,
) -> PathLoad:
    """Load the network when passing link a costs ``costs[a]``, infinite where it is closed.

    :param orders: the nodes by their cost at other costs; replaced by what it is now
    """
    shape = market.demand.shape
    potential, share = np.zeros(shape), np.zeros(shape)
    orders = unknown_orders(streets) if orders is None else orders
    bounds = cuts(shape[0], PARTS)
    flow = np.zeros((len(bounds) - 1, len(costs)))
    threads = shares(len(flow), shape[0] * (shape[1] + len(costs)))

    def part(i: int) -> float:
        own = bounds[threads[i] : threads[i + 1] + 1]
        answers = orders, potential, share, flow[threads[i] : threads[i + 1]]
        return _load(own, costs, temperature, market, streets, *answers)

    gain = sum(in_threads(part, len(threads) - 1))
    everyone = float(np.sum(market.demand * (market.alternative - 1.0)))
    return PathLoad(everyone - gain, flow.sum(axis=0), potential, share)


@kernel
def _load(bounds, costs, temperature, market, streets, orders, potential, share, flow):  # type: ignore[no-untyped-def]
    """Fill rows of ``potential`` and ``share``, the flow of each part, and return what travellers gain."""
    n_nodes, n_links = len(streets.through), len(streets.head)
    room = heap_room(n_nodes, n_links)
    distance, weight = np.empty(n_nodes), np.zeros(n_links)
    reach, source, pull = np.zeros(n_nodes), np.zeros(n_nodes), np.zeros(n_nodes)
    behind, ahead = _room(n_nodes, n_links), _room(n_nodes, n_links)
    gain = 0.0
    for part in range(len(flow)):
        for row in range(bounds[part], bounds[part + 1]):
            origin, nodes = streets.origin[row], orders[row]
            count = settle_near(origin, costs, streets, distance, nodes, room)
            _weigh(origin, costs, temperature, streets, distance, nodes, weight, behind, ahead)
            reach[:] = 0.0
            source[:] = 0.0
            reach[origin] = 1.0
            _sweep(nodes[:count], behind, source, reach, 1)
            for node in nodes[1:count]:
                if market.demand[row, node] == 0.0:
                    continue
                cost = distance[node] - temperature * np.log(reach[node])
                potential[row, node] = cost
                better = market.alternative[row, node] - cost
                small = np.exp(-abs(better))
                share[row, node] = (1.0 if better > 0.0 else small) / (1.0 + small)
                gain += market.demand[row, node] * (max(better, 0.0) + np.log1p(small))
                source[node] = market.demand[row, node] * share[row, node] / reach[node]
            pull[:] = 0.0
            _sweep(nodes[:count], ahead, source, pull, -1)
            for i in range(count):
                for j in range(ahead[0][i], ahead[0][i + 1]):
                    flow[part, ahead[3][j]] += reach[nodes[i]] * ahead[2][j] * pull[ahead[1][j]]
    return gain


@kernel
def _room(n_nodes, n_links):  # type: ignore[no-untyped-def]
    """Where the links of each node begin; the node at their other end, their weight, and which they are."""
    return np.zeros(n_nodes + 1, np.int64), np.empty(n_links, np.int64), np.empty(n_links), np.empty(n_links, np.int64)


@kernel
def _weigh(origin, costs, temperature, streets, distance, nodes, weight, behind, ahead):  # type: ignore[no-untyped-def]
    """The links that carry anybody, for each node in order: those that enter it, and those that leave it."""
    count = 0
    for i in range(len(nodes)):
        node = nodes[i]
        behind[0][i] = count
        for position in range(streets.entering_first[node], streets.entering_first[node + 1]):
            a = streets.entering[position]
            tail = streets.tail[a]
            weight[a] = 0.0
            less = (distance[node] - distance[tail] - costs[a]) / temperature  # not a number where nobody comes
            if less > LOG_WEIGHT_FLOOR and node != origin and (streets.through[tail] or tail == origin):
                weight[a] = np.exp(less)
                behind[1][count], behind[2][count] = tail, weight[a]
                count += 1
    behind[0][len(nodes)] = count
    count = 0
    for i in range(len(nodes)):
        ahead[0][i] = count
        for position in range(streets.leaving_first[nodes[i]], streets.leaving_first[nodes[i] + 1]):
            a = streets.leaving[position]
            if weight[a] > 0.0:
                ahead[1][count], ahead[2][count], ahead[3][count] = streets.head[a], weight[a], a
                count += 1
    ahead[0][len(nodes)] = count


@kernel
def _sweep(nodes, links, source, values, direction):  # type: ignore[no-untyped-def]
    """Solve ``values = source + (values at the far end of each link, times its weight)``, but for the first node."""
    first, far, weight, _ = links
    for _ in range(_MOST_SWEEPS):
        settled = True
        for step in range(1, len(nodes)):
            i = step if direction > 0 else len(nodes) - step
            new = source[nodes[i]]
            for j in range(first[i], first[i + 1]):
                new += weight[j] * values[far[j]]
            if abs(new - values[nodes[i]]) > _EXACT * new:
                settled = False
            values[nodes[i]] = new
        if settled:
            break
