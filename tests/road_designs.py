"""Road networks for tests: a small one with its designs, and random ones in any units."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from blocc.roads import RoadDesign, RoadNetwork, expand_network

#: Options of a design of :func:`small_roads` that takes a fraction of a second.
OPTIONS: dict[str, Any] = {"candidates": [2, "b>c"], "cost": [0.3, 0.5], "exponent": 2.0, "starts": 1}


def small_roads(*, names: tuple[str, ...] = ("a", "b", "c", "d"), places: bool = True) -> RoadNetwork:
    """Four nodes on a square, two congested ways and a bridge between them."""
    a, b, c, d = names
    links = [(a, b, 4.0), (a, c, 6.0), (b, c, 5.0), (b, d, 6.0), (c, d, 4.0)]
    rows: list[dict[str, Any]] = [
        {"from": i, "to": j, "capacity": capacity, "free_flow_time": 1.0 + 0.2 * k, "b": 0.5, "power": 4}
        for k, (i, j, capacity) in enumerate(links)
    ]
    rows[2]["link_id"] = "b>c"
    where = [{"x": 0.0, "y": 0.0}, {"x": 1.0, "y": 1.0}, {"x": 1.0, "y": 0.0}, {"x": 2.0, "y": 1.0}]
    nodes = [{"id": name, **(place if places else {})} for name, place in zip(names, where, strict=True)]
    trips = [{"origin": a, "destination": d, "demand": 9.0}, {"origin": b, "destination": d, "demand": 2.0}]
    return RoadNetwork.from_tables(nodes, rows, trips, name="square", assumptions=["Made up."])


@cache
def small_design() -> RoadDesign:
    """A design of it, computed once."""
    return expand_network(small_roads(), **OPTIONS)


def random_roads(seed: int, time_unit: float = 1.0, trip_unit: float = 1.0) -> RoadNetwork:
    """A ring with chords, some doubled; some links take no time, some always the same, some have tolls."""
    random = np.random.default_rng(seed)
    size = int(random.integers(3, 7))
    ends = [(i, (i + 1) % size) for i in range(size)]
    for _ in range(int(random.integers(2, 7))):
        i, j = (int(k) for k in random.choice(size, 2, replace=False))
        ends += [(i, j)] * (1 + int(random.random() < 0.3))
    links: list[dict[str, Any]] = [
        {
            "from": i,
            "to": j,
            "link_id": k,
            "capacity": random.uniform(1.0, 10.0) * trip_unit,
            "free_flow_time": random.uniform(0.5, 5.0) * time_unit * (random.random() > 0.2),
            "b": random.choice([0.0, 0.15, 1.0, 5.0]),
            "power": random.choice([1.0, 1.5, 2.0, 4.0, 6.0, 8.0]),
            "toll": random.uniform(0.0, 3.0) * time_unit * (random.random() < 0.25),
        }
        for k, (i, j) in enumerate(ends)
    ]
    pairs = {tuple(int(k) for k in random.choice(size, 2, replace=False)) for _ in range(int(random.integers(1, 5)))}
    trips = [{"origin": i, "destination": j, "demand": random.uniform(0.5, 15.0) * trip_unit} for i, j in sorted(pairs)]
    return RoadNetwork.from_tables([{"id": i} for i in range(size)], links, trips)


def all_paths(network: RoadNetwork) -> list[list[list[int]]]:
    """The links of every path without a loop, for each pair."""

    def beyond(node: int, end: int, seen: tuple[int, ...]) -> list[list[int]]:
        if node == end:
            return [[]]
        if len(seen) > 1 and not network.through[node]:
            return []
        ways = [(a, int(network.head[a])) for a in np.flatnonzero(network.tail == node).tolist()]
        return [[a, *rest] for a, head in ways if head not in seen for rest in beyond(head, end, (*seen, head))]

    ends = zip(network.origin.tolist(), network.destination.tolist(), strict=True)
    return [beyond(origin, end, (origin,)) for origin, end in ends]
