"""Flow moved between the paths of each pair until their costs agree: compiled loops over columns.

A path's links are in ascending order, so that what two paths do not share is found by merging them. Links that both
share cancel in every difference of costs, which keeps its digits down to the last ones.
"""

from __future__ import annotations

import numpy as np

from blocc.networks.kernels import kernel
from blocc.roads.link_costs import cost_of, slope_of


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
                # Costs that bend make a Newton step too long: it is shortened while the order of the two turns around,
                # and lengthened again where a chord makes too little of it.
                low, high = 0.0, 0.0
                for _ in range(40):
                    after = 0.0
                    for i in range(own):
                        after += cost_of(costs, room[i], max(volume[room[i]] - moved, 0.0))
                    for i in range(others):
                        after -= cost_of(costs, room[last - i], volume[room[last - i]] + moved)
                    if after < -0.5 * difference:
                        high = moved
                    elif after > 0.5 * difference and high > 2.0 * moved:
                        low = moved
                    else:
                        break
                    if low > 0.0 and high <= 2.0 * low:
                        moved = low
                        break
                    moved = np.sqrt(low * high) if low > 0.0 else moved * difference / (difference - after)
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
def distinct(of_market, first, links, flow, base, path, begin, middle, found):  # type: ignore[no-untyped-def]
    """What each path in use does not share with its pair's base path, for all paths that flow may move to or from.

    ``found`` gets the links of one path after the other: its own from ``begin``, those of the base from ``middle``.
    Returns how many paths and how many entries there are.
    """
    count, size = 0, 0
    begin[0] = 0
    for market in range(len(base)):
        where = base[market]
        if where < 0:
            continue
        for other in range(of_market[market], of_market[market + 1]):
            if other == where or flow[other] <= 0.0:
                continue
            reach = first[other + 1] - first[other] + first[where + 1] - first[where]
            room = found[size : size + reach]
            own, others = only_one(links, first[other], first[other + 1], first[where], first[where + 1], room)
            room[own : own + others] = room[reach - others :].copy()
            path[count], middle[count] = other, size + own
            size += own + others
            count += 1
            begin[count] = size
    return count, size


@kernel
def spread(begin, middle, links, shift, found):  # type: ignore[no-untyped-def]
    """Change of the links' volumes when ``shift`` moves from the base paths to the others."""
    found[:] = 0.0
    for i in range(len(middle)):
        for position in range(begin[i], middle[i]):
            found[links[position]] += shift[i]
        for position in range(middle[i], begin[i + 1]):
            found[links[position]] -= shift[i]


@kernel
def gather(begin, middle, links, values, found):  # type: ignore[no-untyped-def]
    """Sum of the links' values along each path, less that along its base path; the transpose of `spread`."""
    for i in range(len(middle)):
        along = 0.0
        for position in range(begin[i], middle[i]):
            along += values[links[position]]
        for position in range(middle[i], begin[i + 1]):
            along -= values[links[position]]
        found[i] = along


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
def answers(begin, middle, links, weight, least, slope, values, rounds, most, accuracy, rounding):  # type: ignore[no-untyped-def]
    """Shifts between the paths in use that answer to changes ``values`` of the links' costs.

    With A the links' changes of volume for shifts from the base paths, they solve (A' slope A) shifts = -A' values, by
    conjugate gradients with ``weight`` as preconditioner. What is needed on links is spread over paths in proportion to
    it, because there are more paths than links. After every round of ``most`` products shifts below ``-least`` are set
    to that and stay there, and what they leave undone is spread over the others.

    It ends, too, where what is left undone is less than the part ``rounding`` of the values along the paths. Where
    paths are tied that may be all there is, and an answer to rounding would grow without limit: there are more paths
    than links, so that shifts which change nothing have no resistance.
    """
    n_paths, wanted = len(middle), 0.0
    weight, residual, product, shift = weight.copy(), np.zeros(n_paths), np.zeros(n_paths), np.zeros(n_paths)
    change = np.empty(len(slope))
    for turn in range(rounds):
        spread(begin, middle, links, shift, change)
        gather(begin, middle, links, -values - slope * change, residual)
        ahead = weight * residual
        energy = np.dot(residual, ahead)
        if turn == 0:
            wanted = accuracy**2 * energy
            if rounding > 0.0:
                floor = 0.0
                for i in range(n_paths):
                    size = 0.0
                    for position in range(begin[i], begin[i + 1]):
                        size += abs(values[links[position]])
                    floor += weight[i] * (rounding * size) ** 2
                wanted = max(wanted, floor)
        for _ in range(most):
            if energy <= wanted:
                break
            spread(begin, middle, links, ahead, change)
            change *= slope
            gather(begin, middle, links, change, product)
            curvature = np.dot(ahead, product)
            if curvature <= 0.0:
                break
            length, renewed = energy / curvature, 0.0
            for i in range(n_paths):
                shift[i] += length * ahead[i]
                residual[i] -= length * product[i]
                renewed += residual[i] * weight[i] * residual[i]
            for i in range(n_paths):
                ahead[i] = weight[i] * residual[i] + (renewed / energy) * ahead[i]
            energy = renewed
        is_within = True
        for i in range(n_paths):
            if shift[i] < -least[i]:
                shift[i], weight[i], is_within = -least[i], 0.0, False
        if is_within:
            break
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
