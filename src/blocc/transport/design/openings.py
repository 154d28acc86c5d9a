"""Paths that could be opened: for markets that would pay for links which are not built.

A descent of the capacities moves links that are built. One link alone often earns nothing where a whole path would,
from its first unit on, and no derivative at a single link shows that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse.csgraph import csgraph_from_dense, dijkstra
from scipy.special import expit

from blocc._lib.arrays import Float, Int, NDArray
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.model import DesignModel
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.assignment import LowerLevel

#: Capacities that a path is tried with, relative to the mean of what is built, or of what is wanted.
_SIZES = (0.02, 0.2, 1.0)
#: Paths that are proposed, at most.
_MOST = 6


class _Opening(NamedTuple):
    promise: float
    capacity: Float[NDArray, "links"]


def openings(
    model: DesignModel, limits: CapacitySet, capacity: Float[NDArray, "links"], follower: LowerLevel
) -> list[Float[NDArray, "links"]]:
    """Capacities with one path more, within the limits, the most promising first.

    :param follower: the travellers' answer to ``capacity``
    """
    network = model.network
    _, row = network.by_origin
    share = np.asarray(follower.point.share)[row, network.destination]
    room = np.maximum(capacity - np.asarray(follower.point.flow).sum(axis=0), 0.0)
    built = capacity[capacity > 0.0]
    mean = float(np.mean(built) if len(built) else np.mean(network.demand))
    left = limits.allowance - float(limits.cost @ capacity) if limits.has_budget else np.inf
    wanted = network.demand > 0.0
    better = network.alternative_time
    found: dict[tuple[int, ...], _Opening] = {}
    for weight in (np.where(room > 0.0, 0.0, limits.cost), network.time):
        for market, path in _paths(network, weight, limits.limit > 0.0):
            if not wanted[market] or not np.any(capacity[path] <= 0.0):
                continue
            price = float(limits.cost[path].sum())
            coming = network.demand[market] * (expit(better[market] - network.time[path].sum()) - share[market])
            for size in _SIZES:
                unit = min(size * mean, max(coming, 0.0), left / price if price > 0.0 else np.inf)
                more = np.maximum(unit - room[path], 0.0)
                promise = float(network.revenue[market] * unit - limits.cost[path] @ more)
                if promise > found.get(tuple(path), _Opening(0.0, capacity)).promise:
                    wider = capacity.copy()
                    wider[path] += more
                    found[tuple(path)] = _Opening(promise, limits.cover(wider))
    best = sorted(found.values(), key=lambda opening: -opening.promise)
    allowed = limits.allowance * (1.0 + 1e-12) if limits.has_budget else np.inf
    return [each.capacity for each in best if float(limits.cost @ each.capacity) <= allowed][:_MOST]


def _paths(
    network: TransportNetwork, weight: Float[NDArray, "links"], able: NDArray
) -> list[tuple[int, Int[NDArray, "path"]]]:
    """Every market's path of the least weight over links that may be built, and that path's links."""
    size, links = network.n_nodes, np.flatnonzero(able)
    links = links[np.argsort(-weight[links], kind="stable")]  # of parallel links the lightest comes last, and stays
    of_pair = np.full((size, size), -1)
    of_pair[network.tail[links], network.head[links]] = links
    table = np.full((size, size), np.inf)
    has_link = of_pair >= 0
    table[has_link] = weight[of_pair[has_link]] + 1e-9 * (1.0 + float(np.mean(weight)))
    found = []
    for origin in np.unique(network.origin):
        own = np.where(network.through[:, None] | (np.arange(size) == origin)[:, None], table, np.inf)
        _, before = dijkstra(csgraph_from_dense(own, null_value=np.inf), indices=origin, return_predecessors=True)
        for market in np.flatnonzero(network.origin == origin):
            node, path = int(network.destination[market]), []
            while before[node] >= 0:
                path.append(of_pair[before[node], node])
                node = int(before[node])
            if path:
                found.append((int(market), np.array(path[::-1])))
    return found
