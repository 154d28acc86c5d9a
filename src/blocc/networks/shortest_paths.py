"""Cheapest paths from every origin, by Dijkstra's algorithm in compiled code, several origins at once.

Links of infinite cost are closed. Nodes that paths do not pass are left by those alone who begin there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Bool, Float, Int, NDArray
from blocc.networks.kernels import in_threads, kernel, shares
from blocc.networks.model import Network

#: Origins are dealt out in so many parts, whatever the number of threads: sums are then the same on every machine.
PARTS = 32
#: Costs are summed along an earlier order so many times, and nodes change places so many times for each of them, before
#: they are found anew instead.
_MOST_PASSES, _MOST_MOVES = 6, 8


class Streets(NamedTuple):
    """The links of a network, ordered by where they begin and by where they end."""

    tail: Int[NDArray, "links"]
    head: Int[NDArray, "links"]
    leaving_first: Int[NDArray, "nodes_and_one"]  #: where the links that leave each node begin in ``leaving``
    leaving: Int[NDArray, "links"]
    entering_first: Int[NDArray, "nodes_and_one"]
    entering: Int[NDArray, "links"]
    through: Bool[NDArray, "nodes"]
    origin: Int[NDArray, "origins"]


def streets_of(network: Network) -> Streets:
    """The network's links for compiled code."""
    return streets_from(network.tail, network.head, network.through, network.by_origin[0])


def streets_from(
    tail: Int[NDArray, "links"],
    head: Int[NDArray, "links"],
    through: Bool[NDArray, "nodes"],
    origins: Int[NDArray, "origins"],
) -> Streets:
    """Links for compiled code, out of plain arrays."""
    tail, head = (np.ascontiguousarray(ends, dtype=np.int64) for ends in (tail, head))
    leaving, entering = (_by_node(ends, len(through)) for ends in (tail, head))
    return Streets(tail, head, *leaving, *entering, np.ascontiguousarray(through), origins.astype(np.int64))


def _by_node(node: Int[NDArray, "links"], n_nodes: int) -> tuple[Int[NDArray, "bounds"], Int[NDArray, "links"]]:
    first = np.concatenate(([0], np.cumsum(np.bincount(node, minlength=n_nodes))))
    return first, np.argsort(node, kind="stable")


def unknown_orders(streets: Streets) -> Int[NDArray, "origins nodes"]:
    """Room for the order of the nodes by their cost, which nobody knows yet."""
    return np.full((len(streets.origin), len(streets.through)), -1, dtype=np.int32)


class Trees(NamedTuple):
    """Cheapest paths from every origin to every node."""

    cost: Float[NDArray, "origins nodes"]  #: infinite where there is no path
    link: Int[NDArray, "origins nodes"]  #: the last link of the path, -1 where there is none


def shortest_trees(streets: Streets, costs: Float[NDArray, "links"]) -> Trees:
    """Cheapest paths when passing link a costs ``costs[a]``, which is not negative."""
    shape = (len(streets.origin), len(streets.through))
    trees = Trees(np.empty(shape), np.empty(shape, dtype=np.int32))
    bounds = shares(shape[0], shape[0] * (shape[1] + len(costs)))

    def part(i: int) -> None:
        rows = slice(bounds[i], bounds[i + 1])
        _trees(streets.origin[rows], costs, streets, trees.cost[rows], trees.link[rows])

    in_threads(part, len(bounds) - 1)
    return trees


@kernel
def _trees(origins, costs, streets, distance, link):  # type: ignore[no-untyped-def]
    n_nodes, n_links = len(streets.through), len(streets.head)
    order, keys, items = np.empty(n_nodes, np.int64), np.empty(n_links + 1), np.empty(n_links + 1, np.int64)
    for row in range(len(origins)):
        settle(origins[row], costs, streets, distance[row], link[row], order, keys, items)


@kernel
def settle(origin, costs, streets, distance, link, order, keys, items):  # type: ignore[no-untyped-def]
    """Dijkstra's algorithm from one origin; ``order`` gets the nodes by distance, and their number is returned.

    ``keys`` and ``items`` are room for a binary heap of one entry for each link and one more.
    """
    distance[:] = np.inf
    link[:] = -1
    distance[origin] = 0.0
    keys[0], items[0] = 0.0, origin
    size, count = 1, 0
    while size > 0:
        nearest, node = keys[0], items[0]
        size -= 1
        _sift_down(keys, items, size)
        if nearest > distance[node]:
            continue
        order[count] = node
        count += 1
        if node != origin and not streets.through[node]:
            continue
        for position in range(streets.leaving_first[node], streets.leaving_first[node + 1]):
            a = streets.leaving[position]
            reached, far = nearest + costs[a], streets.head[a]
            if reached < distance[far]:
                distance[far], link[far] = reached, a
                _sift_up(keys, items, size, reached, far)
                size += 1
    return count


@kernel
def heap_room(n_nodes, n_links):  # type: ignore[no-untyped-def]
    """Room for Dijkstra's algorithm: last links, an order of the nodes, and a heap."""
    heap = np.empty(n_links + 1), np.empty(n_links + 1, np.int64)
    return np.empty(n_nodes, np.int32), np.empty(n_nodes, np.int64), heap[0], heap[1]


@kernel
def settle_near(origin, costs, streets, distance, nodes, room):  # type: ignore[no-untyped-def]
    """Cheapest costs from one origin; ``nodes`` are in their order at other costs, or unknown, and then in theirs.

    Returns how many are reached; the others come last.
    """
    if nodes[0] != origin or not settle_again(origin, costs, streets, distance, nodes):
        link, order, keys, items = room
        count = settle(origin, costs, streets, distance, link, order, keys, items)
        nodes[:count] = order[:count]
        for node in range(len(nodes)):
            if distance[node] == np.inf:
                nodes[count] = node
                count += 1
        sort_nodes(distance, nodes, len(nodes))
    count = len(nodes)
    while distance[nodes[count - 1]] == np.inf:
        count -= 1
    return count


@kernel
def settle_again(origin, costs, streets, distance, nodes):  # type: ignore[no-untyped-def]
    """Cheapest costs where ``nodes`` were in their order at other costs; False where that takes too long.

    All nodes are in the order, and are so again: by distance, those of equal distance by their number. Sums are made
    from the origin on, so that distances are those of Dijkstra's algorithm to the last bit.
    """
    distance[:] = np.inf
    distance[origin] = 0.0
    for attempt in range(_MOST_PASSES):
        is_settled = attempt > 0
        for node in nodes[1:]:
            least = distance[node]
            for position in range(streets.entering_first[node], streets.entering_first[node + 1]):
                a = streets.entering[position]
                tail = streets.tail[a]
                reached = distance[tail] + costs[a]
                if reached < least and (streets.through[tail] or tail == origin):
                    least = reached
            if least < distance[node]:
                distance[node], is_settled = least, False
        if is_settled:
            return True
        if not sort_nodes(distance, nodes, _MOST_MOVES):
            return False
    return False


@kernel
def sort_nodes(distance, nodes, most):  # type: ignore[no-untyped-def]
    """Sort nodes that are nearly sorted, all but the first; False after more than so many moves for each of them."""
    left = most * len(nodes)
    for i in range(2, len(nodes)):
        node, place = nodes[i], i
        while place > 1:
            before = nodes[place - 1]
            if distance[before] < distance[node] or (distance[before] == distance[node] and before < node):
                break
            nodes[place] = before
            place -= 1
        nodes[place] = node
        left -= i - place
        if left < 0:
            return False
    return True


@kernel
def _sift_down(keys, items, size):  # type: ignore[no-untyped-def]
    """Move the last entry of a heap, at ``size``, to its place after the first was taken away."""
    key, item = keys[size], items[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place], items[place] = keys[child], items[child]
        place = child
    keys[place], items[place] = key, item


@kernel
def _sift_up(keys, items, size, key, item):  # type: ignore[no-untyped-def]
    """Put an entry into a heap of so many."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if keys[parent] <= key:
            break
        keys[place], items[place] = keys[parent], items[parent]
        place = parent
    keys[place], items[place] = key, item
