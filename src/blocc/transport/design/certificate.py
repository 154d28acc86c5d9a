"""What proves a design: residuals below, what a descent from the answer still gains above, and who travels where."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocc.result import Certificate
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.design_result import Assignment
from blocc.transport.design.limited import Limited, descend_built
from blocc.transport.design.model import DesignModel, Penalty
from blocc.transport.design.search import Search
from blocc.transport.travellers.assignment import LowerLevel
from blocc.transport.travellers.flows import group_by_origin, market_flows, travel_times


def probe(search: Search, adopt: bool, small_gain: float) -> float:
    """What a quasi-Newton descent of F_gamma, begun at the answer, still gains; what it gains is ours too.

    It sees kinks and bounds that a gradient at one point does not. After a stop it is kept short.
    """
    model, limits, gamma = search.model, search.limits, search.gamma
    small = model.network.n_links <= 150
    iterations = (40 if adopt else 10) if small else 4  # on large networks every evaluation takes seconds
    gain = np.inf
    for _ in range(3 if adopt and small else 1):
        before = search.best
        value = float(model.capacities(before.capacity, gamma).value)
        gains = []
        for price in _budget_prices(model, limits, gamma, before):
            start = Limited(before.capacity, price)
            capacity, gain = descend_built(model, limits, start, gamma, _nobody, iterations=iterations)
            inside = limits.cover(capacity)
            if price > 0.0 or not np.array_equal(inside, capacity):
                gain = value - float(model.capacities(inside, gamma).value)
            gains.append(gain)
            if adopt:
                search.keep(Limited(inside, price))
        gain = max(0.0, *gains)
        if search.best is before or gain <= small_gain:
            break
    return gain


def _nobody(capacity: np.ndarray, gamma: float, found: Penalty) -> None:
    """Look on and do nothing."""


def _budget_prices(model: DesignModel, limits: CapacitySet, gamma: float, answer: Limited) -> list[float]:
    """Multipliers of the budget to probe with: the one that led to the answer, and the one its prices suggest."""
    cost = model.network.cost
    if float(cost @ answer.capacity) < 0.98 * limits.budget:
        return [0.0]
    found = model.capacities(answer.capacity, gamma)
    worth = gamma * (np.asarray(found.penalised.point.price) - np.asarray(found.follower.point.price))
    inside = (answer.capacity > 0) & (answer.capacity < 0.999 * limits.limit) & (cost > 0)
    suggested = float(np.median(worth[inside] / cost[inside])) - 1.0 if inside.any() else 0.0
    return [answer.budget_price, max(suggested, 0.0)]


def certify(model: DesignModel, capacity: np.ndarray, found: Penalty, gain: float) -> tuple[Certificate, float]:
    """Residuals from the problem's own functions, and the largest of them relative to the answer's size."""
    lower, size = model.lower_residuals(capacity, found.follower)
    apart = np.asarray(found.penalised.point.share) - np.asarray(found.follower.point.share)
    certificate = Certificate(
        stationarity=float(lower.stationarity),
        feasibility=float(lower.feasibility),
        complementarity=float(lower.complementarity),
        penalty_gap=float(-found.utility - found.value),
        distance=float(np.linalg.norm(apart)),
        stationarity_x=gain,
    )
    largest = max(certificate.stationarity, certificate.feasibility, certificate.complementarity)
    return certificate, largest / (1.0 + size)


def assignment(model: DesignModel, side: LowerLevel, capacity: np.ndarray, alternative: Any) -> Assignment:
    """A solution in the network's own order; a closed link has the price that travellers would pay for it."""
    network = model.network
    y, multipliers = model.unpacked(capacity, side, alternative)
    origins, _ = group_by_origin(network)
    split = len(origins) * network.n_links
    flow, share = np.asarray(y[:split]).reshape(len(origins), -1), np.asarray(y[split:])
    price = np.where(capacity > 0, np.asarray(multipliers.inequality), _wanted(model, side))
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


def _wanted(model: DesignModel, side: LowerLevel) -> np.ndarray:
    """What travellers would pay for a first unit of each link, were it open; NaN where it leads to new places only."""
    graph = model.graph
    potential = np.asarray(side.point.potential)
    known = np.asarray(side.nodes) | (np.arange(potential.shape[1]) == np.asarray(graph.origin)[:, None])
    saved = potential[:, graph.head] - potential[:, graph.tail] - graph.time
    saved = np.where(known[:, graph.head] & known[:, graph.tail], np.maximum(saved, 0.0), -np.inf)
    most = saved.max(axis=0)
    return np.where(np.isfinite(most), most, np.nan)
