"""A design as rows: one for each link and one for each market, under the names that every file uses."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocc._lib.arrays import NDArray
from blocc.transport.design.design_result import Design

LINK_FIELDS = ("from", "to", "capacity", "flow", "price", "utilisation", "time", "cost")
MARKET_FIELDS = (
    *("origin", "destination", "demand", "share", "served"),
    *("time", "alternative_time", "path_cost", "revenue", "revenue_per_passenger"),
)


def link_rows(design: Design) -> list[dict[str, Any]]:
    """Every candidate link; capacity 0 means that it is not built."""
    network, follower = design.network, design.follower
    columns = (design.capacity, follower.flow, follower.price, design.utilisation, network.time, network.cost)
    ends = zip(network.tail, network.head, strict=True)
    return [
        dict(zip(LINK_FIELDS, (network.nodes[i], network.nodes[j], *figures), strict=True))
        for (i, j), figures in zip(ends, _rows(columns), strict=True)
    ]


def market_rows(design: Design) -> list[dict[str, Any]]:
    """Every market; ``time`` is that of its passengers, ``revenue`` what all of them pay."""
    network, follower = design.network, design.follower
    served = network.demand * follower.share
    columns = (
        network.demand,
        follower.share,
        served,
        follower.travel_time,
        network.alternative_time,
        follower.path_cost,
        served * network.revenue,
        network.revenue,
    )
    ends = zip(network.origin, network.destination, strict=True)
    return [
        dict(zip(MARKET_FIELDS, (network.nodes[o], network.nodes[d], *figures), strict=True))
        for (o, d), figures in zip(ends, _rows(columns), strict=True)
    ]


def totals(design: Design) -> dict[str, float]:
    """Demand of all markets, and the part of it that travels on the new network."""
    demand = design.network.demand
    return {"demand": float(demand.sum()), "served": float(np.nansum(demand * design.follower.share))}


def _rows(columns: tuple[NDArray, ...]) -> list[list[float]]:
    table: list[list[float]] = np.column_stack([np.asarray(column, dtype=float) for column in columns]).tolist()
    return table
