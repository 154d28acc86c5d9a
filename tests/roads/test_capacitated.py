"""Hard limits: links that cost nothing, and a linear program that says what is feasible."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from blocc.result import Status
from blocc.roads import RoadNetwork, assign, second_best_tolls
from blocc.roads.capacitated import refuted
from road_designs import random_roads


def connector() -> RoadNetwork:
    """Two routes and a bridge behind a connector that takes no time."""
    links = [
        (1, 3, 10, 0, 0, 0),
        (1, 4, 10, 2, 0.15, 4),
        (3, 4, 5, 1, 0.15, 4),
        (4, 2, 10, 1, 0.15, 4),
        (3, 2, 10, 3, 0.15, 4),
    ]
    names = ("from", "to", "capacity", "free_flow_time", "b", "power")
    return RoadNetwork.from_tables(
        [{"id": i} for i in (1, 2, 3, 4)],
        [dict(zip(names, link, strict=True)) for link in links],
        [{"origin": 1, "destination": 2, "demand": 12.0}],
    )


def least_factor(network: RoadNetwork, limit: np.ndarray) -> float:
    """By a linear program over flows of every origin: the least multiple of the limits that can be kept."""
    origins, unit = np.unique(network.origin), float(network.demand.max())
    links = np.arange(network.n_links)
    incidence = np.zeros((network.n_nodes, network.n_links))
    np.add.at(incidence, (network.head, links), 1.0)
    np.add.at(incidence, (network.tail, links), -1.0)
    wanted = np.zeros((len(origins), network.n_nodes))
    rows = np.searchsorted(origins, network.origin)
    np.add.at(wanted, (rows, network.destination), network.demand / unit)
    np.add.at(wanted, (rows, network.origin), -network.demand / unit)
    balance = np.kron(np.eye(len(origins)), incidence)
    finite = np.isfinite(limit)
    volume = np.tile(np.eye(network.n_links), len(origins))[finite]
    found = linprog(
        np.append(np.zeros(balance.shape[1]), 1.0),
        A_ub=np.column_stack((volume, -limit[finite] / unit)),
        b_ub=np.zeros(int(finite.sum())),
        A_eq=np.column_stack((balance, np.zeros(len(balance)))),
        b_eq=wanted.ravel(),
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("factor", [0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0, 2.0])
def test_a_connector_without_time_has_queues(factor: float) -> None:
    network = connector()
    limit = factor * network.capacity
    found = assign(network, limit=limit)
    assert found.success, found.message
    assert (found.flow <= limit * (1.0 + 1e-8)).all()
    assert (found.waiting[found.flow < limit * (1.0 - 1e-6)] < 1e-6).all()
    cost = found.time + found.waiting
    routes = [[0, 4], [0, 2, 3], [1, 3]]  # with links 4, 2 and 1 each to itself
    used = [route for route in routes if found.flow[route].min() > 1e-6]
    cheapest = min(cost[route].sum() for route in routes)
    assert all(cost[route].sum() == pytest.approx(cheapest, rel=1e-8) for route in used)


def test_limits_below_the_demand_are_proven_impossible() -> None:
    network = connector()
    found = assign(network, limit=0.599 * network.capacity)
    assert found.status is Status.INFEASIBLE
    assert "proven" in found.message
    # All trips leave over links 0 and 1, which let 11.98 of 12 pass; the weights of a cut prove it, others do not.
    limit = 0.599 * network.capacity
    assert refuted(network.streets, network.pairs, limit, np.array([1.0, 1.0, 0.0, 0.0, 0.0]))
    assert not refuted(network.streets, network.pairs, limit, np.array([1.0, 0.0, 0.0, 0.0, 0.0]))
    assert not refuted(network.streets, network.pairs, limit, np.zeros(5))
    assert not refuted(network.streets, network.pairs, 0.6 * network.capacity, np.array([1.0, 1.0, 0.0, 0.0, 0.0]))


@pytest.mark.parametrize("units", [(1.0, 1.0), (1e-4, 1e5), (1e5, 1e-4)])
def test_limits_can_be_kept_exactly_where_a_linear_program_says_so(units: tuple[float, float]) -> None:
    told = set()
    for seed in range(25):
        network = random_roads(seed, *units)
        random = np.random.default_rng(1000 + seed)
        free, count = assign(network), network.n_links
        limit = np.where(random.random(count) < 0.5, np.inf, free.flow * random.uniform(0.6, 1.1, count))
        limit = np.maximum(limit, 0.05 * network.demand.sum())
        factor = least_factor(network, limit)
        tight = [limit * factor * near for near in (1.0 - 1e-4, 1.0 + 1e-4)] if factor > 1e-3 else []
        for index, most in enumerate((limit, *tight)):
            can = factor <= 1.0 if index == 0 else index == 2
            found = assign(network, limit=most)
            assert found.status is (Status.CONVERGED if can else Status.INFEASIBLE), (seed, index, found.message)
            if can:
                assert (found.flow <= most * (1.0 + 1e-6)).all()
            told.add((index, can))
    assert told == {(0, True), (0, False), (1, False), (2, True)}


def test_new_tolls_come_on_top_of_the_network_s_own() -> None:
    ends = {"from": "a", "to": "b", "capacity": 4.0, "b": 0.5, "power": 4.0}
    rows = [{**ends, "link_id": 0, "free_flow_time": 1.0}, {**ends, "link_id": 1, "free_flow_time": 2.0}]
    trips = [{"origin": "a", "destination": "b", "demand": 9.0}]

    def town(*own: float) -> RoadNetwork:
        links = [{**row, "toll": toll} for row, toll in zip(rows, own, strict=True)]
        return RoadNetwork.from_tables([{"id": "a"}, {"id": "b"}], links, trips)

    optimum = assign(town(0.0, 0.0), principle="system optimum").total_travel_time
    both = second_best_tolls(town(0.5, 0.25), starts=1)
    assert both.objective == pytest.approx(optimum, rel=1e-7)
    assert (both.toll >= [0.5, 0.25]).all()
    high = second_best_tolls(town(0.0, 500.0), candidates=[1], max_toll=1.0, starts=1)
    assert 500.0 <= high.toll[1] <= 501.0
    assert high.toll[0] == 0.0
    assert high.gap is not None
    assert high.gap > 0.01
