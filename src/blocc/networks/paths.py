"""Cheapest paths over the links of a network, and which links are the two directions of one street."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from blocc._lib.arrays import Bool, Float, Int, NDArray

#: A zero would mean "no link" to a sparse graph; the smallest positive number stands for it.
_NEXT_TO_NOTHING = float(np.finfo(float).tiny)
#: A path that costs less than this consists of such links alone.
_NOTHING = 1e-290


def cheapest_costs(
    tail: Int[NDArray, "links"],
    head: Int[NDArray, "links"],
    costs: Float[NDArray, "links"],
    through: Bool[NDArray, "nodes"],
    origins: Int[NDArray, "origins"],
) -> Float[NDArray, "origins nodes"]:
    """Cheapest cost from each origin to each node, infinite where there is no path; of parallel links the cheapest.

    Where ``through`` is False, paths begin and end but do not pass. Such a node is split: links that enter it lead to
    a place without an exit, and those who start there start at a copy.
    """
    copy = np.arange(len(through))
    copy[~through] = len(through) + np.arange(int((~through).sum()))
    size = int(copy.max(initial=-1)) + 1
    weights, start = np.maximum(costs, _NEXT_TO_NOTHING), copy[tail]
    # A sparse graph adds up entries at one place; of parallel links only the cheapest stays.
    order = np.lexsort((weights, head, start))
    first = np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(start[order]) != 0) | (np.diff(head[order]) != 0)
    kept = order[first]
    graph = csr_array((weights[kept], (start[kept], head[kept])), shape=(max(size, len(through)),) * 2)
    distance = np.asarray(dijkstra(graph, indices=copy[origins]))[:, : len(through)]
    return np.where(distance < _NOTHING, 0.0, distance)


def may_take(
    through: Bool[NDArray, "nodes"], tail: Int[NDArray, "links"], begin: Int[NDArray, "rows"]
) -> Bool[NDArray, "rows links"]:
    """Whether those who begin at a node may take a link: not out of another node that paths do not pass."""
    return through[tail] | (tail == begin[:, None])


def all_but(nodes: Int[NDArray, "rows"], n_nodes: int) -> Int[NDArray, "rows others"]:
    """For each of ``nodes`` a row with all other nodes in ascending order."""
    others = np.broadcast_to(np.arange(n_nodes - 1), (len(nodes), n_nodes - 1))
    return others + (others >= nodes[:, None])


def opposite_links(
    tail: Int[NDArray, "links"], head: Int[NDArray, "links"], names: tuple[object, ...]
) -> Int[NDArray, "links"]:
    """Index of the link in the opposite direction, -1 where there is none.

    Of parallel links, those of one name belong together; the others in the order of the table.
    """
    waiting: dict[tuple[int, int], list[int]] = {}
    for a, ends in enumerate(zip(tail.tolist(), head.tolist(), strict=True)):
        waiting.setdefault(ends, []).append(a)
    opposite = np.full(len(tail), -1)
    for same_name in (True, False):
        for (i, j), links in waiting.items():
            others = waiting.get((j, i), []) if i < j else []
            for a in list(links):
                partner = next((b for b in others if not same_name or names[a] == names[b]), None)
                if partner is not None:
                    opposite[a], opposite[partner] = partner, a
                    links.remove(a)
                    others.remove(partner)
    return opposite
