"""Networks made to measure: grids of any size, scaled like Seville, and networks with the shape of cities."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra, minimum_spanning_tree

from blocc._lib.arrays import Float, Int, NDArray
from blocc.errors import OptionError
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

Pair = tuple[int, int]


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
    straight = _neighbours(rows, columns)
    crossed = _diagonals(rows, columns, _diagonal_count(rows, columns, len(straight), diagonals, links), random)
    places = np.array([(column, row) for row in range(rows) for column in range(columns)], dtype=float)
    places += random.uniform(-0.15, 0.15, places.shape)
    edges = straight + crossed
    starts, ends = np.array(edges).T
    lengths = np.linalg.norm(places[starts] - places[ends], axis=1)
    times = np.round(TIME * lengths * random.uniform(0.9, 1.1, len(edges)), 6)
    both = [(i, j, float(time)) for (i, j), time in zip(edges, times, strict=True)]
    both = sorted(both + [(j, i, time) for i, j, time in both])
    shortest = _shortest(rows * columns, both)
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
    _whole("zones", zones, 2)
    _whole("junctions", junctions, max(4, zones))
    random = np.random.default_rng(seed)
    columns = int(np.ceil(np.sqrt(junctions)))
    places = np.stack(np.divmod(np.arange(junctions), columns)[::-1], axis=1).astype(float)
    places += random.uniform(-0.2, 0.2, places.shape)
    streets = _streets(junctions, columns, links - 2 * zones, random)
    centroids = places[random.choice(junctions, zones, replace=False)] + random.uniform(-0.3, 0.3, (zones, 2))
    nearest = zones + np.argmin(((centroids[:, None] - places[None]) ** 2).sum(axis=-1), axis=1)
    tail = np.concatenate((zones + streets[:, 0], np.arange(zones), nearest))
    head = np.concatenate((zones + streets[:, 1], nearest, np.arange(zones)))
    everywhere = np.concatenate((centroids, places))
    times = np.linalg.norm(everywhere[tail] - everywhere[head], axis=1) * random.uniform(0.8, 1.3, len(tail))
    # A zone has one connector, so no path passes a centroid that does not begin or end there.
    shortest = _shortest(zones + junctions, list(zip(tail, head, times, strict=True)))[:zones, :zones]
    centrality = np.exp(-np.linalg.norm(centroids - places.mean(axis=0), axis=1) / columns)
    size = random.uniform(0.5, 1.5, zones) * centrality
    gravity = np.outer(size, size) * np.exp(-shortest / shortest.mean())
    pairs = np.argwhere(~np.eye(zones, dtype=bool))
    weights = gravity[pairs[:, 0], pairs[:, 1]]
    if markets is not None:
        _whole("markets", markets, 1, len(pairs))
        largest = np.sort(np.argsort(-weights, kind="stable")[:markets])
        pairs, weights = pairs[largest], weights[largest]
    trips = shortest[pairs[:, 0], pairs[:, 1]]
    scale = trip_time / float(np.average(trips, weights=weights))
    times, trips = scale * times, scale * trips
    revenue = (REVENUE_FLAT + REVENUE_PER_TIME * trips) * random.uniform(0.1, 1.9, len(pairs))
    alternative = trips * random.uniform(1.0, 1.6, len(pairs))
    nodes = _rows(("id", "x", "y"), zip(itertools.count(1), *everywhere.T))
    return TransportNetwork.from_tables(
        [row | {"through": row["id"] > zones} for row in nodes],
        _rows(("from", "to", *LINK_COLUMNS), zip(tail + 1, head + 1, times, COST_PER_TIME * times, strict=True)),
        _rows(
            ("origin", "destination", *MARKET_COLUMNS),
            zip(*(pairs.T + 1), weights * (demand / weights.mean()), revenue, alternative, strict=True),
        ),
        name=name or f"city of {zones} zones",
        notes=f"Generated: {zones} zones, {junctions} junctions, {links} links, seed {seed}.",
    )


def _streets(junctions: int, columns: int, links: int, random: np.random.Generator) -> Int[NDArray, "links 2"]:
    """So many directed links between junctions on a grid, the first of which are a tree in both directions."""
    rows = -(-junctions // columns)
    known = [(i, j) for i, j in _neighbours(rows, columns) if j < junctions]
    crossing = _diagonals(rows, columns, (rows - 1) * (columns - 1), random)
    diagonals = [pair for pair in crossing if max(pair) < junctions]
    lengths = csr_array((random.uniform(1.0, 2.0, len(known)), tuple(np.array(known).T)), shape=(junctions, junctions))
    tree = [(int(i), int(j)) for i, j in np.argwhere(minimum_spanning_tree(lengths).toarray())]
    _whole("links less connectors", links, 2 * len(tree), 2 * (len(known) + len(diagonals)))
    chosen = tree + [(j, i) for i, j in tree]
    taken = set(chosen)
    for pairs in (known, diagonals):
        single = [pair for i, j in pairs for pair in ((i, j), (j, i)) if pair not in taken]
        chosen += [single[k] for k in random.permutation(len(single))]
    return np.array(chosen[:links])


def _check_grid(rows: Any, columns: Any, **figures: Any) -> None:
    _whole("rows", rows, 1)
    _whole("columns", columns, 1)
    if rows * columns < 2:
        raise OptionError(f"rows and columns must make at least 2 nodes, got {rows} by {columns}")
    for option, value in figures.items():
        if not 0 <= value < np.inf:
            raise OptionError(f"{option} must be a finite number not below 0, got {value!r}")


def _rows(columns: tuple[str, ...], figures: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Rows with six decimals: a written file stays readable."""
    return [{name: round(float(cell), 6) for name, cell in zip(columns, row, strict=True)} for row in figures]


def _neighbours(rows: int, columns: int) -> list[Pair]:
    """Pairs of neighbours, each once."""
    node = np.arange(rows * columns).reshape(rows, columns)
    across = np.stack((node[:, :-1].ravel(), node[:, 1:].ravel()), axis=1)
    down = np.stack((node[:-1].ravel(), node[1:].ravel()), axis=1)
    return [(int(i), int(j)) for i, j in np.concatenate((across, down))]


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
    _whole("diagonals", diagonals, 0, cells)
    return diagonals


def _diagonals(rows: int, columns: int, count: int, random: np.random.Generator) -> list[Pair]:
    """One of the two diagonals of randomly chosen cells, so that no two links cross."""
    cells = (rows - 1) * (columns - 1)
    pairs = []
    for cell in np.sort(random.choice(cells, count, replace=False)) if count else ():
        row, column = divmod(int(cell), columns - 1)
        corner = row * columns + column
        falling = (corner, corner + columns + 1)
        rising = (corner + 1, corner + columns)
        pairs.append(falling if random.random() < 0.5 else rising)
    return pairs


def _shortest(n_nodes: int, links: list[tuple[int, int, float]]) -> Float[NDArray, "nodes nodes"]:
    """Time of the shortest path between all nodes."""
    tail, head, time = zip(*links, strict=True)
    return np.asarray(dijkstra(csr_array((time, (tail, head)), shape=(n_nodes, n_nodes))))


def _whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    ok = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not ok or value < least or (most is not None and value > most):
        bound = f"at least {least}" if most is None else f"from {least} to {most}"
        raise OptionError(f"{name} must be a whole number {bound}, got {value!r}")
