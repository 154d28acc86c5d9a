"""A small road network and its designs, for the tests of files, pages and commands."""

from __future__ import annotations

from functools import cache
from typing import Any

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
