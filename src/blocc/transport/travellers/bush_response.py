"""How flows answer to the prices of links: Newton's matrix of the travellers on bushes.

Where several links of a bush enter a node, passengers choose among the ways that lead there. With u_b which part of
the passengers over link b has come over every other link, and itself, such a node contributes

    (passengers / temperature - who might stay at home) sum over pairs b, c of their parts, (u_b - u_c) (u_b - u_c)'

so that links which all ways share do not appear. What is left is how markets as a whole answer, along their ways.
"""

from __future__ import annotations

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.networks.kernels import in_threads, kernel, shares
from blocc.transport.travellers.bushes import Bushes, choose
from blocc.transport.travellers.path_loading import Market

#: Links that bring less than this part of what passes a node, times the temperature, and carry less than this part of
#: their capacity for an origin, are left out. Passengers who choose count for the inverse of the temperature here.
_LITTLE = 1e-3, 1e-8
#: The work at each node and link is so many times that of a loading.
_TIMES = 4
#: Every thread has a matrix of its own, and those are added up: more than a few would gain nothing.
_MOST_WORK = 300_000


def response(
    bushes: Bushes,
    change: Float[NDArray, "links"],
    market: Market,
    capacity: Float[NDArray, "links"],
    position: Int[NDArray, "links"],
) -> Float[NDArray, "open_links open_links"]:
    """Lower triangle of the Hessian of the travellers' cost in the prices, negated.

    :param change: what is added to the base prices of the bushes, in units of the temperature
    :param position: row of each link, negative where it is closed
    """
    size = int(position.max(initial=-1)) + 1
    work = len(market.demand) * (market.demand.shape[1] + len(change))
    bounds = shares(len(market.demand), min(_TIMES * work, _MOST_WORK), at_once=2)
    parts = [np.zeros((size, size)) for _ in range(len(bounds) - 1)]

    def part(i: int) -> None:
        begin, end = bounds[i], bounds[i + 1]
        _respond(begin, end, bushes.temperature, bushes[1:], change, market, capacity, position, parts[i])

    in_threads(part, len(parts))
    for other in parts[1:]:
        parts[0] += other
    return parts[0]


# --- compiled ------------------------------------------------------------------------------------------------------
@kernel
def _respond(begin, end, temperature, bushes, change, market, capacity, position, matrix):  # type: ignore[no-untyped-def]
    n_nodes, n_links, n_open = bushes[1].shape[1], len(change), len(matrix)
    reach, pull, weight, elastic = np.empty(n_nodes), np.empty(n_nodes), np.empty(n_links), np.empty(n_nodes)
    share = np.zeros(market.demand.shape)
    # For each node of the order, which part of those who come there has come over which link.
    begins, where, part = np.empty(n_nodes + 1, np.int64), np.empty(64 * n_nodes, np.int32), np.empty(64 * n_nodes)
    scratch = np.full(n_open, -1, np.int32), np.empty(n_open, np.int32), np.empty(n_open)
    for row in range(begin, end):
        choose(row, temperature, bushes, change, market, share, weight, reach, pull, elastic)
        _sources(row, temperature, bushes, reach, pull, elastic, weight, capacity)
        bush = bushes[3][row], bushes[4][row], bushes[5][row], weight
        begins[0] = begins[1] = 0
        for i in range(1, bushes[0][row]):
            begins[i + 1] = begins[i]
            if pull[i] <= 0.0:
                continue
            if begins[i] + n_open > len(where):
                where, part = _wider(where, n_open), _wider(part, n_open)
            ways = begins, where, part
            if _pass(i, bush, reach, elastic, ways, scratch, position, matrix) > 1:
                factor = reach[i] * (pull[i] / temperature - elastic[i])
                _choices(i, bush, reach, factor, ways, scratch, position, matrix)


@kernel
def _wider(values, least):  # type: ignore[no-untyped-def]
    found = np.empty(2 * len(values) + least, values.dtype)
    found[: len(values)] = values
    return found


@kernel
def _sources(row, temperature, bushes, reach, pull, elastic, weight, capacity):  # type: ignore[no-untyped-def]
    """Leave out links that carry next to nothing, and sum what the markets draw, backwards over one bush."""
    count, first, tail, link = bushes[0][row], bushes[3][row], bushes[4][row], bushes[5][row]
    whole = pull[:count].copy()
    for i in range(count - 1, 0, -1):
        for j in range(first[i], first[i + 1]):
            passing, brought = weight[j] * whole[i], reach[tail[j]]
            whole[tail[j]] += passing
            is_little = weight[j] * brought < _LITTLE[0] * temperature * reach[i]
            if passing <= 0.0 or (is_little and passing * brought < _LITTLE[1] * capacity[link[j]]):
                weight[j] = 0.0
    for i in range(1, count):
        before, total = reach[i], 0.0
        for j in range(first[i], first[i + 1]):
            total += weight[j] * reach[tail[j]]
        reach[i] = total
        if total > 0.0:
            pull[i] *= before / total
            elastic[i] *= before / total
    for i in range(count - 1, 0, -1):
        for j in range(first[i], first[i + 1]):
            pull[tail[j]] += weight[j] * pull[i]
            elastic[tail[j]] += weight[j] * elastic[i]


@kernel
def _gather(way, a, times, used, ways, scratch):  # type: ignore[no-untyped-def]
    """Add, so many times, the links by which passengers come to a node, and one more; returns how many there are."""
    (begins, where, part), (place, union, values) = ways, scratch
    for k in range(begins[way], begins[way + 1] + 1):
        is_before = k < begins[way + 1]
        b = where[k] if is_before else a
        if place[b] < 0:
            place[b], union[used], values[used] = used, b, 0.0
            used += 1
        values[place[b]] += times * (part[k] if is_before else 1.0)
    return used


@kernel
def _pass(i, bush, reach, elastic, ways, scratch, position, matrix):  # type: ignore[no-untyped-def]
    """Passengers over the links into one node, with what they have passed before; returns how many links there are."""
    (first, tail, link, weight), (begins, where, part), (place, union, values) = bush, ways, scratch
    entering, used = 0, 0
    for j in range(first[i], first[i + 1]):
        if weight[j] > 0.0:
            entering += 1
            a, brought = position[link[j]], weight[j] * reach[tail[j]]
            used = _gather(tail[j], a, brought / reach[i], used, ways, scratch)
            answering = elastic[i] * brought
            matrix[a, a] += answering
            for k in range(begins[tail[j]], begins[tail[j] + 1]):
                matrix[max(a, where[k]), min(a, where[k])] += answering * part[k]
    for k in range(used):
        where[begins[i] + k], part[begins[i] + k] = union[k], values[k]
        place[union[k]] = -1
    begins[i + 1] = begins[i] + used
    return entering


@kernel
def _choices(i, bush, reach, factor, ways, scratch, position, matrix):  # type: ignore[no-untyped-def]
    """How passengers choose among the links into one node."""
    (first, tail, link, weight), (place, union, values) = bush, scratch
    for j in range(first[i], first[i + 1]):
        for other in range(first[i], j):
            both = weight[j] * reach[tail[j]] / reach[i] * (weight[other] * reach[tail[other]] / reach[i])
            if both <= 0.0:
                continue
            used = _gather(tail[j], position[link[j]], 1.0, 0, ways, scratch)
            used = _gather(tail[other], position[link[other]], -1.0, used, ways, scratch)
            count = 0
            for k in range(used):
                place[union[k]] = -1
                if values[k] != 0.0:
                    union[count], values[count] = union[k], values[k]
                    count += 1
            for m in range(count):
                scaled = factor * both * values[m]
                for n in range(m + 1):
                    matrix[max(union[m], union[n]), min(union[m], union[n])] += scaled * values[n]
