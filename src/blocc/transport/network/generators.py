"""Networks made to measure: grids of any size, scaled like Seville, and networks with the shape of cities."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from blocc.errors import OptionError
from blocc.kit.arguments import check_whole
from blocc.networks.cities import city_of, diagonals_of, neighbours, shortest_times
from blocc.transport.network.network import LINK_COLUMNS, MARKET_COLUMNS, TransportNetwork

#: Ratios of the Seville network: mean time of a link, cost over time, mean demand of a market, and the line through its
#: revenues over the times of the shortest paths.
TIME = 0.8
COST_PER_TIME = 1.095
DEMAND = 2.65
REVENUE_FLAT = 0.8
REVENUE_PER_TIME = 0.8

#: A grid gets one diagonal, both ways, for so many of its links: 10 by 10 then has 360 + 40 links.
LINKS_FOR_A_DIAGONAL = 18


def grid_network(
    rows: int,
    columns: int,
    *,
    seed: int = 0,
    name: str | None = None,
    diagonals: int | None = None,
    links: int | None = None,
    demand: float = DEMAND,
    cost_per_time: float = COST_PER_TIME,
    revenue_flat: float = REVENUE_FLAT,
    revenue_per_time: float = REVENUE_PER_TIME,
) -> TransportNetwork:
    """A grid with links both ways between neighbours, some diagonals, and a market for every ordered pair of nodes.

    ``diagonals`` counts cells crossed by a link in both directions; ``links`` asks for that many links in all instead.
    By default 10 by 10 nodes have 400 links. ``demand`` is the mean of a market; it falls with the distance as in a
    gravity model. Times follow slightly disturbed lengths, costs are in proportion to them. Revenue is flat and in
    proportion to the time of the shortest path, with a wide spread, so that some markets are worth serving and others
    are not; the existing network takes 1 to 1.6 times as long as the shortest path.
    """
    rates = {"cost_per_time": cost_per_time, "revenue_flat": revenue_flat, "revenue_per_time": revenue_per_time}
    _check_grid(rows, columns, demand=demand, **rates)
    random = np.random.default_rng(seed)
    straight = neighbours(rows, columns)
    crossed = diagonals_of(rows, columns, _diagonal_count(rows, columns, len(straight), diagonals, links), random)
    places = np.array([(column, row) for row in range(rows) for column in range(columns)], dtype=float)
    places += random.uniform(-0.15, 0.15, places.shape)
    edges = straight + crossed
    starts, ends = np.array(edges).T
    lengths = np.linalg.norm(places[starts] - places[ends], axis=1)
    times = np.round(TIME * lengths * random.uniform(0.9, 1.1, len(edges)), 6)
    both = [(i, j, float(time)) for (i, j), time in zip(edges, times, strict=True)]
    both = sorted(both + [(j, i, time) for i, j, time in both])
    shortest = shortest_times(rows * columns, both)
    size = random.uniform(0.5, 1.5, rows * columns)
    gravity = np.outer(size, size) * np.exp(-shortest / shortest.mean())
    np.fill_diagonal(gravity, 0.0)
    pairs = np.argwhere(~np.eye(rows * columns, dtype=bool))
    weights = gravity[pairs[:, 0], pairs[:, 1]]
    shortest = shortest[pairs[:, 0], pairs[:, 1]]
    revenue = (revenue_flat + revenue_per_time * shortest) * random.uniform(0.1, 1.9, len(pairs))
    alternative = shortest * random.uniform(1.0, 1.6, len(pairs))
    markets = zip(*(pairs.T + 1), weights * (demand / weights.mean()), revenue, alternative, strict=True)
    return TransportNetwork.from_tables(
        _rows(("id", "x", "y"), zip(itertools.count(1), *places.T)),
        _rows(("from", "to", *LINK_COLUMNS), ((i + 1, j + 1, time, cost_per_time * time) for i, j, time in both)),
        _rows(("origin", "destination", *MARKET_COLUMNS), markets),
        name=name or f"grid {rows} x {columns}",
        notes=f"Generated: a grid of {rows} x {columns} nodes with {len(crossed)} diagonals, seed {seed}.",
    )


def city_network(
    zones: int,
    junctions: int,
    links: int,
    *,
    markets: int | None = None,
    seed: int = 0,
    name: str | None = None,
    trip_time: float = 4.0,
    demand: float = DEMAND,
) -> TransportNetwork:
    """A street network with zones, as cities publish theirs.

    Every zone has a centroid, which paths do not pass, and a connector both ways to the nearest junction. The streets
    are a tree both ways, and beyond it single directions of other streets and of diagonals, until there are ``links``
    in all. Demand falls with the distance from the centre and between the zones; ``markets`` keeps the largest ones
    only. Times are scaled such that the mean trip takes ``trip_time``; costs, revenues and alternative times follow
    them as in :func:`grid_network`.
    """
    city = city_of(zones, junctions, links, pairs=markets, seed=seed, trip_time=trip_time, demand=demand)
    revenue = (REVENUE_FLAT + REVENUE_PER_TIME * city.trip_time) * city.random.uniform(0.1, 1.9, len(city.demand))
    alternative = city.trip_time * city.random.uniform(1.0, 1.6, len(city.demand))
    markets_of = zip(city.origin + 1, city.destination + 1, city.demand, revenue, alternative, strict=True)
    nodes = _rows(("id", "x", "y"), zip(itertools.count(1), *city.coordinates.T))
    return TransportNetwork.from_tables(
        [row | {"through": row["id"] > zones} for row in nodes],
        _rows(
            ("from", "to", *LINK_COLUMNS),
            zip(city.tail + 1, city.head + 1, city.time, COST_PER_TIME * city.time, strict=True),
        ),
        _rows(("origin", "destination", *MARKET_COLUMNS), markets_of),
        name=name or f"city of {zones} zones",
        notes=f"Generated: {zones} zones, {junctions} junctions, {links} links, seed {seed}.",
    )


def _check_grid(rows: Any, columns: Any, **figures: Any) -> None:
    check_whole("rows", rows, 1)
    check_whole("columns", columns, 1)
    if rows * columns < 2:
        raise OptionError(f"rows and columns must make at least 2 nodes, got {rows} by {columns}")
    for option, value in figures.items():
        if not 0 <= value < np.inf:
            raise OptionError(f"{option} must be a finite number not below 0, got {value!r}")


def _rows(columns: tuple[str, ...], figures: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Rows with six decimals: a written file stays readable."""
    return [{name: round(float(cell), 6) for name, cell in zip(columns, row, strict=True)} for row in figures]


def _diagonal_count(rows: int, columns: int, edges: int, diagonals: int | None, links: int | None) -> int:
    """How many cells get a diagonal; at most all."""
    cells = (rows - 1) * (columns - 1)
    if diagonals is not None and links is not None:
        raise OptionError("give either diagonals or links, not both")
    if links is not None:
        extra = links - 2 * edges
        if extra < 0 or extra % 2 or extra // 2 > cells:
            raise OptionError(
                f"links must be an even number from {2 * edges} to {2 * (edges + cells)} for this grid, got {links!r}"
            )
        return extra // 2
    if diagonals is None:
        return min(cells, round(2 * edges / LINKS_FOR_A_DIAGONAL))
    check_whole("diagonals", diagonals, 0, cells)
    return diagonals
