"""Designs that were never computed: plausible, consistent with themselves, and made in milliseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from blocc.result import Certificate, History, HistoryRow, Status
from blocc.transport.design.design_result import Assignment, Design, Start, WhatIf
from blocc.transport.network.network import TransportNetwork


def small_network(labels: tuple[str, ...] = ("North", "Centre", "South", "East"), **changes: Any) -> TransportNetwork:
    """Four nodes with names on a plane, ten links, six markets."""
    places = [(0.0, 2.0), (0.0, 1.0), (0.2, 0.0), (1.5, 1.0)]
    nodes = [{"id": n + 1, "x": x, "y": y, "name": labels[n]} for n, (x, y) in enumerate(places)]
    pairs = [(1, 2), (2, 1), (2, 3), (3, 2), (2, 4), (4, 2), (3, 4), (4, 3), (1, 4), (4, 1)]
    links = [{"from": i, "to": j, "time": 1.0 + 0.1 * i, "cost": 0.2 + 0.05 * j} for i, j in pairs]
    trips = [(1, 3, 8.0), (3, 1, 7.0), (1, 4, 5.0), (4, 1, 4.0), (2, 4, 3.0), (4, 3, 2.0)]
    markets = [
        {"origin": o, "destination": d, "demand": demand, "revenue": 3.0, "alternative_time": 4.0}
        for o, d, demand in trips
    ]
    return TransportNetwork.from_tables(nodes, links, markets, **{"name": "Four stations", **changes})


def one_market(demand: float = 5.0) -> TransportNetwork:
    """Two nodes, one link, one market."""
    return TransportNetwork.from_tables(
        [{"id": "a", "x": 0, "y": 0}, {"id": "b", "x": 1, "y": 0}],
        [{"from": "a", "to": "b", "time": 1.0, "cost": 0.5}],
        [{"origin": "a", "destination": "b", "demand": demand, "revenue": 2.0, "alternative_time": 2.0}],
        name="one market",
    )


def geographic_network() -> TransportNetwork:
    """Three nodes with longitudes and latitudes far from the equator."""
    nodes = [{"id": k, "lon": 10.0 + 0.1 * k, "lat": 60.0 + 0.02 * k * k, "name": f"Stop {k}"} for k in range(3)]
    links = [{"from": i, "to": j, "time": 1.0, "cost": 0.2} for i in range(3) for j in range(3) if abs(i - j) == 1]
    markets = [
        {"origin": o, "destination": d, "demand": 3.0, "revenue": 2.0, "alternative_time": 3.0}
        for o, d in ((0, 2), (2, 0), (0, 1))
    ]
    return TransportNetwork.from_tables(nodes, links, markets, name="Fjord")


def large_network(side: int = 10) -> TransportNetwork:
    """A grid with streets both ways and a market for every ordered pair: side 10 has 360 links, 9,900 markets."""
    rng = np.random.default_rng(0)
    place = [(i + 0.25 * rng.normal(), j + 0.25 * rng.normal()) for i in range(side) for j in range(side)]
    nodes = [{"id": k, "x": x, "y": y, "name": f"Station number {k}"} for k, (x, y) in enumerate(place)]
    links = []
    for i in range(side):
        for j in range(side):
            for di, dj in ((0, 1), (1, 0), (1, 1)) if (i + j) % 4 == 0 else ((0, 1), (1, 0)):
                if i + di < side and j + dj < side:
                    a, b = i * side + j, (i + di) * side + j + dj
                    links += [
                        {"from": a, "to": b, "time": 1.0, "cost": 0.3},
                        {"from": b, "to": a, "time": 1.0, "cost": 0.3},
                    ]
    markets = [
        {"origin": a, "destination": b, "demand": float(rng.gamma(2.0)), "revenue": 3.0, "alternative_time": 8.0}
        for a in range(side**2)
        for b in range(side**2)
        if a != b
    ]
    return TransportNetwork.from_tables(nodes, links, markets, name=f"Grid of {side} by {side}")


def read_rows(path: Path) -> TransportNetwork:
    """A network file with rows of nodes, links and markets."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return TransportNetwork.from_tables(
        document["nodes"], document["links"], document["markets"], name=document["name"]
    )


def fake_design(
    network: TransportNetwork | None = None,
    *,
    build: bool = True,
    fewest: float = 0.0,
    status: Status = Status.CONVERGED,
    iterations: int = 60,
    seed: int = 0,
    **changes: Any,
) -> Design:
    """A design whose figures agree with each other: everyone takes the fastest open path, capacities fit the flows.

    ``build=False`` builds nothing; links that would carry less than ``fewest`` stay unbuilt.
    """
    network = network or small_network()
    rng = np.random.default_rng(seed)
    opened = np.full(network.n_links, build)
    flow, share, time, apart = _travel(network, opened)
    for _ in range(3):
        opened = opened & (flow > fewest)
        flow, share, time, apart = _travel(network, opened)
    used = np.where(rng.random(network.n_links) < 0.6, 1.0, rng.uniform(0.35, 1.0, network.n_links))
    opened = opened & (flow > 0)
    capacity = np.where(opened, flow / used, 0.0)
    price = np.where(opened & (used == 1.0), rng.gamma(1.0, 0.4, network.n_links), 0.0)
    path_cost = network.path_costs(network.time + price, opened) if opened.any() else np.full(network.n_markets, np.inf)
    revenue = float(np.sum(network.demand * share * network.revenue))
    cost = float(capacity @ network.cost)
    follower = Assignment(flow, price, share, path_cost, time, revenue - cost, revenue, cost, apart)
    penalised = follower._replace(utility=follower.utility + 0.02, revenue=revenue + 0.02)
    values: dict[str, Any] = {
        "network": network,
        "capacity": capacity,
        "follower": follower,
        "penalised": penalised,
        "gamma": 64.0,
        "status": status,
        "message": "The capacities are stationary for F_gamma, and the flows are the travellers' exact answer.",
        "certificate": Certificate(2e-9, 3e-10, 1e-9, 4e-6, 2e-5, 6e-6, radius=1e-4),
        "history": fake_history(iterations, follower.utility),
        "what_if": tuple(
            WhatIf(g, follower.utility - 2.0 / g, follower.utility + 5.0 / g, 0.4 / g, int(opened.sum()), 0.3)
            for g in (1.0, 4.0, 16.0, 64.0)
        ),
        "starts": tuple(
            Start(follower.utility - 0.7 * k, status if k == 0 else Status.STALLED, int(opened.sum()), 40 + k, 1.2)
            for k in range(4)
        ),
        "seconds": {"compile": 2.5, "run": 6.1},
        "settings": {"tolerance": 1e-5, "gamma": "auto", "seed": seed, "starts": 4},
        "versions": {"blocc": "0.1.0", "numpy": np.__version__},
    }
    return Design(**{**values, **changes})


def fake_history(iterations: int, utility: float) -> History:
    """Utility that climbs to its end, with gamma fourfold after every fifteen iterations."""
    rows = []
    for k in range(iterations):
        gamma = 4.0 ** min(k // 15, 8)
        exact = utility - (abs(utility) + 1.0) * 0.8 ** (k + 1) - 0.3 / gamma
        hidden = 6.0 / gamma * (0.5 + 0.5 * 0.8 ** (k % 15))
        rows.append(
            HistoryRow(0.1 * k, gamma, -exact, -exact - hidden, 5.0, -exact, 0.8**k, 1e-10, 0.5 / gamma, 0.1, 2 * k)
        )
    return History(rows)


def _travel(network: TransportNetwork, opened: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, csr_array]:
    """Flow of links, share and time of markets, and flow of each, when everyone takes the fastest open path."""
    flow, share = np.zeros(network.n_links), np.zeros(network.n_markets)
    time = np.full(network.n_markets, np.nan)
    used, entries = np.flatnonzero(opened), ([], [], [])
    shape = (network.n_markets, network.n_links)
    if not used.size:
        return flow, share, time, csr_array(shape)
    ends = (network.tail[used], network.head[used])
    graph = csr_array((network.time[used], ends), shape=(network.n_nodes,) * 2)
    distance, before = dijkstra(graph, return_predecessors=True)
    link = {(int(network.tail[a]), int(network.head[a])): int(a) for a in used}
    for k in range(network.n_markets):
        o, d = int(network.origin[k]), int(network.destination[k])
        if not np.isfinite(distance[o, d]) or network.demand[k] == 0:
            continue
        time[k] = distance[o, d]
        share[k] = 1.0 / (1.0 + np.exp(time[k] - network.alternative_time[k]))
        while d != o:
            a = link[int(before[o, d]), d]
            flow[a] += network.demand[k] * share[k]
            for column, entry in zip(entries, (k, a, share[k]), strict=True):
                column.append(entry)
            d = int(before[o, d])
    return flow, share, time, csr_array((entries[2], entries[:2]), shape=shape)
