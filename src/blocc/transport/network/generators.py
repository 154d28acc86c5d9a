"""Networks made to measure: grids of any size scaled like the Seville network, and small random ones for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from blocc.errors import OptionError
from blocc.transport.network.network import TransportNetwork

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
    _whole("rows", rows, 1)
    _whole("columns", columns, 1)
    if rows * columns < 2:
        raise OptionError(f"rows and columns must make at least 2 nodes, got {rows} by {columns}")
    for option, value in (
        ("demand", demand),
        ("cost_per_time", cost_per_time),
        ("revenue_flat", revenue_flat),
        ("revenue_per_time", revenue_per_time),
    ):
        if not 0 <= value < np.inf:
            raise OptionError(f"{option} must be a finite number not below 0, got {value!r}")
    random = np.random.default_rng(seed)
    straight = _neighbours(rows, columns)
    crossed = _diagonals(rows, columns, _diagonal_count(rows, columns, len(straight), diagonals, links), random)
    places = np.array([(column, row) for row in range(rows) for column in range(columns)], dtype=float)
    places += random.uniform(-0.15, 0.15, places.shape)
    edges = straight + crossed
    lengths = np.array([np.linalg.norm(places[i] - places[j]) for i, j in edges])
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
    return _network(
        name or f"grid {rows} x {columns}",
        places,
        ((i, j, time, cost_per_time * time) for i, j, time in both),
        zip(
            pairs.tolist(),
            weights * (demand / weights.mean()),
            revenue,
            shortest * random.uniform(1.0, 1.6, len(pairs)),
            strict=True,
        ),
        f"Generated: a grid of {rows} x {columns} nodes with {len(crossed)} diagonals, seed {seed}.",
    )


def random_network(n_nodes: int, extra_links: int = 0, seed: int = 0, markets: int | None = None) -> TransportNetwork:
    """A strongly connected network without structure: a random cycle through all nodes, and random further links.

    There are ``markets`` random markets, by default three for each node (or all pairs, where that is less).
    """
    _whole("n_nodes", n_nodes, 2)
    pairs = [(i, j) for i in range(n_nodes) for j in range(n_nodes) if i != j]
    _whole("extra_links", extra_links, 0, len(pairs) - n_nodes)
    count = min(3 * n_nodes, len(pairs)) if markets is None else markets
    _whole("markets", count, 1, len(pairs))
    random = np.random.default_rng(seed)
    order = random.permutation(n_nodes).tolist()
    cycle = list(zip(order, order[1:] + order[:1], strict=True))
    others = sorted(set(pairs) - set(cycle))
    edges = cycle + [others[k] for k in random.choice(len(others), extra_links, replace=False)] if others else cycle
    times = random.uniform(0.2, 1.8, len(edges))
    links = [(i, j, float(time)) for (i, j), time in zip(edges, times, strict=True)]
    chosen = [pairs[k] for k in np.sort(random.choice(len(pairs), count, replace=False))]
    shortest = _shortest(n_nodes, links)
    time = np.array([shortest[pair] for pair in chosen])
    costs = COST_PER_TIME * times * random.uniform(0.7, 1.3, len(edges))
    return _network(
        f"random {n_nodes} nodes",
        random.uniform(0.0, 10.0, (n_nodes, 2)),
        ((i, j, t, cost) for (i, j, t), cost in zip(links, costs, strict=True)),
        zip(
            chosen,
            random.uniform(0.5, 2 * DEMAND, count),
            (REVENUE_FLAT + REVENUE_PER_TIME * time) * random.uniform(0.1, 3.0, count),
            time * random.uniform(0.7, 1.8, count),
            strict=True,
        ),
        f"Generated: a random cycle and {extra_links} further links, seed {seed}.",
    )


def _network(
    name: str,
    places: np.ndarray,
    links: Iterable[tuple[int, int, float, float]],
    markets: Iterable[tuple[Any, float, float, float]],
    notes: str,
) -> TransportNetwork:
    """Rows with six decimals (a written file stays readable), and nodes numbered from 1."""

    def rounded(value: float) -> float:
        return round(float(value), 6)

    return TransportNetwork.from_tables(
        [{"id": k + 1, "x": rounded(x), "y": rounded(y)} for k, (x, y) in enumerate(places)],
        [{"from": i + 1, "to": j + 1, "time": rounded(t), "cost": rounded(cost)} for i, j, t, cost in links],
        [
            {
                "origin": o + 1,
                "destination": d + 1,
                "demand": rounded(demand),
                "revenue": rounded(revenue),
                "alternative_time": rounded(alternative),
            }
            for (o, d), demand, revenue, alternative in markets
        ],
        name=name,
        notes=notes,
    )


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


def _shortest(n_nodes: int, links: list[tuple[int, int, float]]) -> np.ndarray:
    """Time of the shortest path between all nodes."""
    tail, head, time = zip(*links, strict=True)
    return np.asarray(dijkstra(csr_array((time, (tail, head)), shape=(n_nodes, n_nodes))))


def _whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    ok = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not ok or value < least or (most is not None and value > most):
        bound = f"at least {least}" if most is None else f"from {least} to {most}"
        raise OptionError(f"{name} must be a whole number {bound}, got {value!r}")
