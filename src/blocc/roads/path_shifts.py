"""Flow moved between the paths of each pair until their costs agree: compiled loops over columns.

A path's links are in ascending order, so that what two paths do not share is found by merging them. Links that both
share cancel in every difference of costs, which keeps its digits down to the last ones.
"""

from __future__ import annotations

import numpy as np

from blocc.roads.link_costs import cost_of, slope_of
from blocc.transport.travellers.kernels import kernel


@kernel
def excess_of(of_market, first, links, flow, cost, cheapest):  # type: ignore[no-untyped-def]
    """What all drivers pay, and how much of it is above the cheapest paths."""
    total, excess = 0.0, 0.0
    for market in range(len(of_market) - 1):
        for path in range(of_market[market], of_market[market + 1]):
            paid = 0.0
            for position in range(first[path], first[path + 1]):
                paid += cost[links[position]]
            total += flow[path] * paid
            excess += flow[path] * (paid - cheapest[market])
    return total, excess


@kernel
def only_one(links, begin, end, other_begin, other_end, room):  # type: ignore[no-untyped-def]
    """Links of the first path that the second has not (from the front of ``room``), and the reverse (from its end).

    Returns how many of each.
    """
    i, j, own, others, last = begin, other_begin, 0, 0, len(room) - 1
    while i < end or j < other_end:
        if j >= other_end or (i < end and links[i] < links[j]):
            room[own] = links[i]
            own += 1
            i += 1
        elif i >= end or links[j] < links[i]:
            room[last - others] = links[j]
            others += 1
            j += 1
        else:
            i += 1
            j += 1
    return own, others


@kernel
def sweep(of_market, first, links, flow, costs, volume, cost, slope, room, target, most):  # type: ignore[no-untyped-def]
    """Newton steps from every path towards the cheapest of its pair, pair after pair, link costs renewed at once.

    Ends when the excess cost met in one sweep is below ``target``, or after ``most`` sweeps; returns that excess.
    """
    last = len(room) - 1
    excess = 0.0
    for _ in range(most):
        excess = 0.0
        for market in range(len(of_market) - 1):
            begin, end = of_market[market], of_market[market + 1]
            if end - begin < 2:
                continue
            best, least = begin, np.inf
            for path in range(begin, end):
                paid = 0.0
                for position in range(first[path], first[path + 1]):
                    paid += cost[links[position]]
                if paid < least:
                    best, least = path, paid
            for path in range(begin, end):
                if path == best or flow[path] <= 0.0:
                    continue
                own, others = only_one(links, first[path], first[path + 1], first[best], first[best + 1], room)
                difference, stiffness = 0.0, 0.0
                for i in range(own):
                    difference += cost[room[i]]
                    stiffness += slope[room[i]]
                for i in range(others):
                    difference -= cost[room[last - i]]
                    stiffness += slope[room[last - i]]
                if difference <= 0.0:
                    continue
                excess += flow[path] * difference
                moved = flow[path]
                if stiffness * moved > difference:
                    moved = difference / stiffness
                # Costs that bend make a Newton step too long: it is shortened while the order of the two turns around.
                for _ in range(40):
                    after = 0.0
                    for i in range(own):
                        after += cost_of(costs, room[i], max(volume[room[i]] - moved, 0.0))
                    for i in range(others):
                        after -= cost_of(costs, room[last - i], volume[room[last - i]] + moved)
                    if after >= -0.5 * difference:
                        break
                    moved *= difference / (difference - after)
                if moved > (1.0 - 1e-14) * flow[path]:
                    moved = flow[path]
                flow[path] -= moved
                flow[best] += moved
                for i in range(own):
                    a = room[i]
                    volume[a] = max(volume[a] - moved, 0.0)
                    cost[a], slope[a] = cost_of(costs, a, volume[a]), slope_of(costs, a, volume[a])
                for i in range(others):
                    a = room[last - i]
                    volume[a] += moved
                    cost[a], slope[a] = cost_of(costs, a, volume[a]), slope_of(costs, a, volume[a])
        if excess <= target:
            break
    return excess


@kernel
def spread(of_market, first, links, base, shift, found):  # type: ignore[no-untyped-def]
    """Change of the links' volumes when ``shift`` moves from each pair's base path to its other paths."""
    found[:] = 0.0
    for market in range(len(base)):
        if base[market] < 0:
            continue
        total = 0.0
        for path in range(of_market[market], of_market[market + 1]):
            if path != base[market] and shift[path] != 0.0:
                total += shift[path]
                for position in range(first[path], first[path + 1]):
                    found[links[position]] += shift[path]
        for position in range(first[base[market]], first[base[market] + 1]):
            found[links[position]] -= total


@kernel
def gather(of_market, first, links, base, values, found):  # type: ignore[no-untyped-def]
    """Sum of the links' values along each path, less that along its pair's base path; the transpose of `spread`."""
    for market in range(len(base)):
        if base[market] < 0:
            continue
        usual = 0.0
        for position in range(first[base[market]], first[base[market] + 1]):
            usual += values[links[position]]
        for path in range(of_market[market], of_market[market + 1]):
            along = 0.0
            for position in range(first[path], first[path + 1]):
                along += values[links[position]]
            found[path] = 0.0 if path == base[market] else along - usual


@kernel
def bases(of_market, flow):  # type: ignore[no-untyped-def]
    """The path of each pair that gives and takes: the one with most flow; -1 where fewer than two are in use."""
    base = np.full(len(of_market) - 1, -1, np.int64)
    for market in range(len(base)):
        used, most = 0, 0.0
        for path in range(of_market[market], of_market[market + 1]):
            if flow[path] > 0.0:
                used += 1
                if flow[path] > most:
                    most, base[market] = flow[path], path
        if used < 2:
            base[market] = -1
    return base


@kernel
def answers(of_market, first, links, flow, base, slope, values, room, most, accuracy):  # type: ignore[no-untyped-def]
    """Shifts between the paths in use that answer to changes ``values`` of the links' costs.

    With A the links' changes of volume for shifts from the base paths, they solve (A' slope A) shifts = -A' values, by
    conjugate gradients with the diagonal as preconditioner.
    """
    n_paths = len(flow)
    weight = np.zeros(n_paths)
    for market in range(len(base)):
        where = base[market]
        if where < 0:
            continue
        for path in range(of_market[market], of_market[market + 1]):
            if path != where and flow[path] > 0.0:
                own, others = only_one(links, first[path], first[path + 1], first[where], first[where + 1], room)
                stiffness = 0.0
                for i in range(own):
                    stiffness += slope[room[i]]
                for i in range(others):
                    stiffness += slope[room[len(room) - 1 - i]]
                weight[path] = 1.0 / stiffness if stiffness > 0.0 else 0.0
    residual, shift, product = np.zeros(n_paths), np.zeros(n_paths), np.zeros(n_paths)
    gather(of_market, first, links, base, values, residual)
    for path in range(n_paths):
        residual[path] = -residual[path] if weight[path] > 0.0 else 0.0
    ahead = weight * residual
    energy = np.dot(residual, ahead)
    wanted = accuracy**2 * energy
    change = np.empty(len(slope))
    for _ in range(most):
        if energy <= wanted:
            break
        spread(of_market, first, links, base, ahead, change)
        change *= slope
        gather(of_market, first, links, base, change, product)
        for path in range(n_paths):
            if weight[path] == 0.0:
                product[path] = 0.0
        curvature = np.dot(ahead, product)
        if curvature <= 0.0:
            break
        length = energy / curvature
        shift += length * ahead
        residual -= length * product
        renewed = np.dot(residual, weight * residual)
        ahead = weight * residual + (renewed / energy) * ahead
        energy = renewed
    return shift


@kernel
def shorten(of_market, base, flow, shift):  # type: ignore[no-untyped-def]
    """Shorten the shifts of each pair so that no flow becomes negative, and book what the base path gives."""
    for market in range(len(base)):
        if base[market] < 0:
            continue
        total, share = 0.0, 1.0
        for path in range(of_market[market], of_market[market + 1]):
            total += shift[path]
            if share * shift[path] < -flow[path]:
                share = flow[path] / -shift[path]
        if share * total > flow[base[market]]:
            share = flow[base[market]] / total
        for path in range(of_market[market], of_market[market + 1]):
            shift[path] *= share
        shift[base[market]] = -share * total
