"""What proves a design: residuals below, what a descent from the answer still gains above, and who travels where."""

from __future__ import annotations

import numpy as np

from blocc._lib.arrays import AnyArray, Float, NDArray
from blocc.result import Certificate
from blocc.transport.design.capacity_descent import Candidate, descend_built
from blocc.transport.design.design_result import Assignment
from blocc.transport.design.model import CapacityPenalty, DesignModel
from blocc.transport.design.search import Search
from blocc.transport.travellers.assignment import LowerLevel
from blocc.transport.travellers.flows import group_by_origin, market_flows, travel_times


def remaining_gain(search: Search, adopt: bool, small_gain: float) -> float:
    """What a quasi-Newton descent of F_gamma, begun at the answer, still gains; what it gains is adopted.

    It sees kinks and bounds that a gradient at one point does not. After a stop it is kept short.
    """
    model, limits, gamma = search.model, search.limits, search.gamma
    small = model.network.n_links <= 150
    iterations = (40 if adopt else 10) if small else 4  # on large networks every evaluation takes seconds
    gain = np.inf
    for _ in range(3 if adopt and small else 1):
        before = search.state.best
        value = float(model.capacities(before.capacity, gamma).value)
        gains = []
        for price in _budget_prices(search):
            start = Candidate(before.capacity, price)
            capacity, gain = descend_built(model, limits, start, gamma, iterations=iterations)
            inside = limits.cover(capacity)
            if price > 0.0 or not np.array_equal(inside, capacity):
                gain = value - float(model.capacities(inside, gamma).value)
            gains.append(gain)
            if adopt:
                search.keep(Candidate(inside, price))
        gain = max(0.0, *gains)
        if search.state.best is before or gain <= small_gain:
            break
    return gain


def _budget_prices(search: Search) -> list[float]:
    """Multipliers of the budget to test with: the one that led to the answer, and the one its prices suggest."""
    limits, answer, cost = search.limits, search.state.best, search.model.network.cost
    if float(cost @ answer.capacity) < 0.98 * limits.budget:
        return [0.0]
    found = search.model.capacities(answer.capacity, search.gamma)
    worth = search.gamma * (np.asarray(found.penalised.point.price) - np.asarray(found.follower.point.price))
    inside = (answer.capacity > 0) & (answer.capacity < 0.999 * limits.limit) & (cost > 0)
    suggested = float(np.median(worth[inside] / cost[inside])) - 1.0 if inside.any() else 0.0
    return [answer.budget_price, max(suggested, 0.0)]


def certify(
    model: DesignModel, capacity: Float[NDArray, "links"], found: CapacityPenalty, gain: float
) -> tuple[Certificate, float]:
    """Residuals from the problem's own functions, and the largest of them relative to the answer's size."""
    lower, size = model.lower_residuals(capacity, found.follower)
    certificate = Certificate(
        stationarity=float(lower.stationarity),
        feasibility=float(lower.feasibility),
        complementarity=float(lower.complementarity),
        penalty_gap=float(-found.utility - found.value),
        distance=found.distance,
        stationarity_x=gain,
    )
    largest = max(certificate.stationarity, certificate.feasibility, certificate.complementarity)
    return certificate, largest / (1.0 + size)


def assignment(
    model: DesignModel,
    side: LowerLevel,
    capacity: Float[NDArray, "links"],
    alternative: Float[AnyArray, "origins nodes"],
) -> Assignment:
    """A solution in the network's own order; a closed link has the price that travellers would pay for it."""
    network = model.network
    y, multipliers = model.unpacked(capacity, side, alternative)
    origins, _ = group_by_origin(network)
    split = len(origins) * network.n_links
    flow, share = np.asarray(y[:split]).reshape(len(origins), -1), np.asarray(y[split:])
    price = np.where(capacity > 0, np.asarray(multipliers.inequality), _first_unit_prices(model, side))
    share = np.where(network.demand > 0, share, 0.0)
    revenue = float(network.demand * network.revenue @ share)
    cost = float(network.cost @ capacity)
    return Assignment(
        flow=flow.sum(axis=0),
        price=price,
        share=share,
        path_cost=network.path_costs(network.time + price, capacity > 0),
        travel_time=travel_times(network, market_flows(network, flow, share), share),
        utility=revenue - cost,
        revenue=revenue,
        construction_cost=cost,
    )


def _first_unit_prices(model: DesignModel, side: LowerLevel) -> Float[NDArray, "links"]:
    """What travellers would pay for a first unit of each link, were it open; NaN where it leads to new places only."""
    graph = model.graph
    potential = np.asarray(side.point.potential)
    known = np.asarray(side.nodes) | (np.arange(potential.shape[1]) == np.asarray(graph.origin)[:, None])
    saved = potential[:, graph.head] - potential[:, graph.tail] - graph.time
    saved = np.where(known[:, graph.head] & known[:, graph.tail], np.maximum(saved, 0.0), -np.inf)
    most = saved.max(axis=0)
    return np.where(np.isfinite(most), most, np.nan)
