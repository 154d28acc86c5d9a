"""What proves a design: residuals below, what a descent from the answer still gains above, and who travels where."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.csgraph import csgraph_from_dense, dijkstra
from scipy.special import expit, xlogy

from blocc._lib.arrays import AnyArray, Float, Int, NDArray
from blocc._lib.rounding import KEPT, PLACED, TINY
from blocc.outer.monitor import Monitor
from blocc.result import Certificate
from blocc.transport.design.capacity_descent import Descended, descend_built, worth_of_money
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.design_result import Assignment
from blocc.transport.design.model import CapacityPenalty, DesignModel
from blocc.transport.design.search import Search
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.assignment import LowerLevel
from blocc.transport.travellers.flows import market_flows, travel_times

#: Links that are not built whose price is measured, at most.
MOST_MEASURED = 10
#: Rounds of descents and of paths that are opened, at most.
_MOST_ROUNDS = 8


class Remaining(NamedTuple):
    """What a descent from the answer still gains."""

    gain: float
    warm: Any  #: of an evaluation nearby


def remaining_gain(search: Search, adopt: bool, small_gain: float) -> Remaining:
    """What a quasi-Newton descent of F_gamma, begun at the answer, still gains; what it gains is adopted.

    It sees kinks and bounds that a gradient at one point does not. Money that is left although it would earn more than
    itself is spent on what is built, and counts as a gain too; so does a path of links that are not built, on networks
    of up to 150 links.

    :raises Stop: where the run is to end
    """
    model, limits, gamma = search.model, search.limits, search.gamma
    small = model.network.n_links <= 150
    iterations = (40 if adopt else 10) if small else 1  # on large networks every evaluation takes seconds
    gain, warm = np.inf, None

    def look_up(*_: Any) -> None:
        search.monitor.check_time()

    for _ in range(_MOST_ROUNDS if adopt and small else 1):
        before, found = search.state.best, search.answer()
        stop = search.monitor.is_over
        ways = [descend_built(model, limits, before, gamma, look_up, iterations=iterations, known=found, stop=stop)]
        if limits.has_budget and worth_of_money(limits, before, found) > 0.0:
            spent = limits.spend(before)
            look_up()
            ahead = search.judge(spent, found.warm)
            look_up()
            ways.append(Descended(spent, float(found.value - ahead.value), ahead.warm))
        for trial in openings(model, limits, before, found.follower) if small else ():
            look_up()
            ahead = search.judge(trial, found.warm)
            if ahead.error < PLACED:
                ways.append(Descended(trial, float(found.value - ahead.value), ahead.warm))
        look_up()
        for way in ways if adopt else ():
            if way.gain > 0.0:
                search.keep(way.capacity, way.warm)
        gain, warm = max(0.0, *(way.gain for way in ways)), ways[0].warm
        if search.state.best is before or gain <= small_gain:
            break
    return Remaining(gain, warm)


def certify(
    model: DesignModel, capacity: Float[NDArray, "links"], found: CapacityPenalty, gain: float
) -> tuple[Certificate, float]:
    """Residuals from the problem's own functions, and the largest of them relative to the answer's size."""
    lower, size = model.lower_residuals(capacity, found.follower)
    is_known = found.penalised.error < KEPT  # not always where a run was stopped
    certificate = Certificate(
        stationarity=float(lower.stationarity),
        feasibility=float(lower.feasibility),
        complementarity=float(lower.complementarity),
        penalty_gap=float(-found.utility - found.value) if is_known else np.nan,
        distance=found.distance if is_known else np.nan,
        stationarity_x=gain,
    )
    largest = max(certificate.stationarity, certificate.feasibility, certificate.complementarity)
    return certificate, largest / (1.0 + size)


def assignment(
    model: DesignModel,
    side: LowerLevel,
    capacity: Float[NDArray, "links"],
    alternative: Float[AnyArray, "origins nodes"],
    existing: Float[NDArray, "links"],
) -> Assignment:
    """A solution in the network's own order; a link that is not built has no price."""
    network = model.network
    y, multipliers = model.unpacked(capacity, side, alternative)
    origins, _ = network.by_origin
    split = len(origins) * network.n_links
    flow, share = np.asarray(y[:split]).reshape(len(origins), -1), np.asarray(y[split:])
    price = np.where(capacity > 0, np.asarray(multipliers.inequality), np.nan)
    share = np.where(network.demand > 0, share, 0.0)
    revenue = float(network.demand * network.revenue @ share)
    cost = float(network.cost @ (capacity - existing))
    by_market = market_flows(network, flow, share)
    return Assignment(
        flow=flow.sum(axis=0),
        price=price,
        share=share,
        path_cost=network.path_costs(network.time + price, capacity > 0),
        travel_time=travel_times(network, by_market, share),
        utility=revenue - cost,
        revenue=revenue,
        construction_cost=cost,
        market_flow=by_market,
    )


def measured_prices(
    model: DesignModel,
    capacity: Float[NDArray, "links"],
    found: CapacityPenalty,
    gamma: float,
    warm: Any,
    monitor: Monitor,
) -> tuple[Float[NDArray, "links"], float]:
    """What travellers save, per unit, by a little capacity on links that are not built, and how much that is.

    The most promising links are measured, each by solving the lower level once more; the others have NaN. The slope at
    no capacity at all would not do: it holds for the few who would save most, and says nothing about a capacity that
    anyone would build.

    :param warm: of an evaluation nearby
    :raises Stop: where the run is to end
    """
    network = model.network
    built, measured = capacity[capacity > 0.0], np.full(network.n_links, np.nan)
    unit = 0.01 * float(np.mean(built) if len(built) else np.mean(network.demand))
    promise = np.where(capacity > 0.0, 0.0, _promise(model, found.follower, unit))
    count = MOST_MEASURED if network.n_links <= 150 else 3 if network.n_links <= 1000 else 0
    links = [link for link in np.argsort(-promise, kind="stable")[:count] if promise[link] > 0.0]
    with_unit = [np.where(np.arange(network.n_links) == link, unit, capacity) for link in links]
    answers = model.travellers_each(with_unit, gamma, warm, monitor.is_over)
    monitor.check_time()
    for link, ahead in zip(links, answers, strict=True):
        if float(ahead.error) < PLACED:
            measured[link] = max(0.0, (_value(found.follower) - _value(ahead)) / unit)
    return measured, unit


def _value(side: LowerLevel) -> float:
    return 0.5 * float(side.value + side.bound)


def _promise(model: DesignModel, side: LowerLevel, unit: float) -> Float[NDArray, "links"]:
    """What the first ``unit`` of each link may save, per unit: a rough figure, which ranks the links worth measuring.

    Those who pass its head today save the difference, whoever saves most first; a market that ends at its head and has
    no way yet gains one.
    """
    graph = model.graph
    potential, flow = np.asarray(side.point.potential), np.asarray(side.point.flow)
    known = np.asarray(side.nodes) | (np.arange(potential.shape[1]) == np.asarray(graph.origin)[:, None])
    saved = potential[:, graph.head] - potential[:, graph.tail] - graph.time
    saved = np.where(known[:, graph.head] & known[:, graph.tail], np.maximum(saved, 0.0), 0.0)
    through = np.zeros(potential.shape)
    np.add.at(through.T, graph.head, flow.T)
    passing = through[:, graph.head]
    order = np.argsort(-saved, axis=0)
    saved, passing = np.take_along_axis(saved, order, axis=0), np.take_along_axis(passing, order, axis=0)
    taken = np.clip(unit - (np.cumsum(passing, axis=0) - passing), 0.0, passing)
    demand, better = (
        graph.demand[:, graph.head],
        graph.alternative[:, graph.head] - potential[:, graph.tail] - graph.time,
    )
    share = np.minimum(unit / np.maximum(demand, TINY), expit(better))
    opened = demand * (better * share - xlogy(share, share) - xlogy(1.0 - share, 1.0 - share))
    opened = np.where(known[:, graph.tail] & ~known[:, graph.head], opened, 0.0)
    return (np.sum(saved * taken, axis=0) + np.max(opened, axis=0)) / unit


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
