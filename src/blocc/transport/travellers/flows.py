"""Which market travels on which link: flows of single markets out of flows that are known only for each origin.

Time and capacity see no more than the sum over the destinations of one origin, so the lower level is solved in those
sums. The markets' own flows are then any decomposition of them; here the proportional one, in which the passengers who
pass a node have come over its incoming links in the same proportions, wherever they are going.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csc_array, csr_array, eye_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from blocc._lib.arrays import Float, Int, NDArray
from blocc.errors import ProblemError
from blocc.transport.network.network import TransportNetwork

#: A link that brings less than this part of what enters a node carries rounding, not passengers.
_NOISE = 1e-11


def market_flows(network: TransportNetwork, origin_flow: ArrayLike, share: ArrayLike) -> csr_array:
    """Link flows of each market, as fractions of its demand: a sparse array of shape (markets, links).

    ``origin_flow`` holds passengers, one row for each origin of ``network.by_origin`` and one column for each link;
    ``share`` the part of each market that travels on the new network. The answer is nonnegative, without cycles, and
    conserves flow market by market; multiplied by the demands and summed over the markets of one origin it gives
    ``origin_flow`` back, less the cycles in it. A market whose destination no flow reaches gets none.
    """
    origins, row = network.by_origin
    flow, part = np.asarray(origin_flow, dtype=float), np.asarray(share, dtype=float)
    if flow.shape != (len(origins), network.n_links):
        raise ProblemError(f"origin_flow must have shape {(len(origins), network.n_links)}, got {flow.shape}")
    if part.shape != (network.n_markets,):
        raise ProblemError(f"share must have shape {(network.n_markets,)}, got {part.shape}")
    if not (np.isfinite(flow).all() and np.isfinite(part).all()):
        raise ProblemError("origin_flow and share must be finite")
    pieces = [
        _one_origin(network, int(origin), np.flatnonzero(row == position), flow[position], part)
        for position, origin in enumerate(origins)
    ]
    markets, links, values = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return coo_array((values, (markets, links)), shape=(network.n_markets, network.n_links)).tocsr()


def travel_times(
    network: TransportNetwork, market_flow: csr_array | NDArray, share: ArrayLike
) -> Float[NDArray, "markets"]:
    """Mean time of each market's passengers, without prices; NaN where nobody travels."""
    part = np.asarray(share, dtype=float)
    travelled = np.asarray(market_flow @ network.time, dtype=float)
    has_passengers = (part > 0) & (np.asarray(market_flow.sum(axis=1)).ravel() > 0)
    return np.where(has_passengers, travelled / np.where(has_passengers, part, 1.0), np.nan)


class Way(NamedTuple):
    """One way of a market's passengers."""

    part: float  #: of the market's demand
    links: list[int]  #: from the origin to the destination


def market_ways(network: TransportNetwork, market_flow: csr_array, market: int, least: float = 1e-3) -> list[Way]:
    """One market's flow of :func:`market_flows`, taken apart into ways: the widest first, then the widest of the rest.

    What is left when a way would carry less than ``least`` of those who travel is left out.
    """
    row = market_flow[[market]].tocoo()
    links, left = row.coords[1].tolist(), row.data.astype(float)
    rest = dict(zip(links, left.tolist(), strict=True))
    origin, destination = int(network.origin[market]), int(network.destination[market])
    leaving: dict[int, list[int]] = {}
    for link in links:
        leaving.setdefault(int(network.tail[link]), []).append(link)
    smallest = least * sum(rest[link] for link in leaving.get(origin, ()))
    ways: list[Way] = []
    while (way := _widest(network, leaving, rest, origin, destination)).part > smallest:
        ways.append(way)
        for link in way.links:
            rest[link] -= way.part
    return ways


def _widest(
    network: TransportNetwork, leaving: dict[int, list[int]], rest: dict[int, float], origin: int, destination: int
) -> Way:
    """The way whose narrowest link is widest (Dijkstra's search with minimum for sum); of width 0 where none is."""
    came: dict[int, int] = {}
    queue = [(-np.inf, origin, -1)]
    while queue:
        width, node, link = heappop(queue)
        if node in came:
            continue
        came[node] = link
        if node == destination:
            walked = []
            while node != origin:
                walked.append(came[node])
                node = int(network.tail[came[node]])
            return Way(-width, walked[::-1])
        for after in leaving.get(node, ()):
            if rest[after] > 0.0:
                heappush(queue, (max(width, -rest[after]), int(network.head[after]), after))
    return Way(0.0, [])


def _one_origin(
    network: TransportNetwork,
    origin: int,
    markets: Int[NDArray, "own_markets"],
    flow: Float[NDArray, "links"],
    share: Float[NDArray, "markets"],
) -> tuple[Int[NDArray, "entries"], Int[NDArray, "entries"], Float[NDArray, "entries"]]:
    """Market, link and value of the entries that one origin contributes."""
    tail, head, n = network.tail, network.head, network.n_nodes
    served = markets[share[markets] > 0]
    flow = np.maximum(flow, 0.0)
    flow = np.where(flow > _NOISE * np.bincount(head, flow, minlength=n)[head], flow, 0.0)
    flow = _only_between(network, flow, origin, network.destination[served])
    flow = _without_cycles(network, flow)
    flow = _only_between(network, flow, origin, network.destination[served])
    links = np.flatnonzero(flow)
    entering = np.bincount(head, flow, minlength=n)
    served = served[entering[network.destination[served]] > 0]
    # Passengers of each market at each node are found backwards from its destination: those at a node have come over
    # the incoming links in the links' proportions. Without cycles the matrix is triangular, up to the nodes' order.
    proportion = flow[links] / entering[head[links]]
    back = csc_array((proportion, (tail[links], head[links])), shape=(n, n))
    arriving = np.zeros((n, len(served)))
    arriving[network.destination[served], np.arange(len(served))] = share[served]
    passing = splu(csc_array(eye_array(n) - back)).solve(arriving) if len(served) else arriving
    values = np.maximum(passing[head[links]].T * proportion, 0.0)
    which, column = np.nonzero(values)
    return served[which], links[column], values[which, column]


def _only_between(
    network: TransportNetwork, flow: Float[NDArray, "links"], origin: int, destinations: Int[NDArray, "destinations"]
) -> Float[NDArray, "links"]:
    """The flow on links that lie on some way from the origin to a destination, 0 on the others."""
    tail, head, used = network.tail, network.head, flow > 0
    reached = np.zeros(network.n_nodes, dtype=bool)
    needed = np.zeros_like(reached)
    reached[origin], needed[destinations] = True, True
    for start, end, marked in ((tail, head, reached), (head, tail, needed)):
        count = -1
        while count != (count := int(marked.sum())):
            marked[end[used & marked[start]]] = True
    return np.where(used & reached[tail] & needed[head], flow, 0.0)


def _without_cycles(network: TransportNetwork, flow: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
    """Take out cycles one by one; each leaves with the smallest flow on it, so that one of its links is free after."""
    tail, head, n_nodes, flow = network.tail, network.head, network.n_nodes, flow.copy()
    while True:
        used = np.flatnonzero(flow)
        graph = csr_array((np.ones(len(used)), (tail[used], head[used])), shape=(n_nodes, n_nodes))
        component = connected_components(graph, connection="strong")[1]
        circular = used[component[tail[used]] == component[head[used]]]
        if not len(circular):
            return flow
        following = dict(zip(tail[circular].tolist(), circular.tolist(), strict=True))
        for start in {int(component[tail[a]]): int(tail[a]) for a in circular}.values():
            # Every node of a strong component has a link that stays in it: walking on comes back to some node.
            walked: dict[int, int] = {}
            node = start
            while node not in walked:
                walked[node] = following[node]
                node = int(head[following[node]])
            cycle = list(walked.values())[list(walked).index(node) :]
            least = flow[cycle].min()
            flow[cycle] -= least
