"""Networks with the shape of cities: streets on a grid with diagonals, zones with connectors, demand by distance."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra, minimum_spanning_tree

from blocc._lib.arrays import Bool, Float, Int, NDArray
from blocc.kit.arguments import check_whole
from blocc.networks.model import Network, NodeId

Pair = tuple[int, int]
_DECIMALS = 6  #: of figures in files, which stay readable


@dataclass(frozen=True, eq=False)
class City(Network):
    """Streets and trips; zones come first among the nodes."""

    name: str
    nodes: tuple[NodeId, ...]
    coordinates: Float[NDArray, "nodes 2"]
    through: Bool[NDArray, "nodes"]
    tail: Int[NDArray, "links"]
    head: Int[NDArray, "links"]
    time: Float[NDArray, "links"]
    origin: Int[NDArray, "pairs"]
    destination: Int[NDArray, "pairs"]
    demand: Float[NDArray, "pairs"]
    trip_time: Float[NDArray, "pairs"]  #: of the shortest path
    random: np.random.Generator  #: for what applications draw besides

    def rounded(self) -> City:
        """The same with the decimals that files have."""
        names = ("coordinates", "time", "demand")
        return replace(self, **{name: np.vectorize(_rounded)(getattr(self, name)) for name in names})


def city_of(
    zones: int, junctions: int, links: int, *, pairs: int | None, seed: int, trip_time: float, demand: float
) -> City:
    """A city; see :func:`blocc.transport.city_network`.

    :param pairs: keep so many with the largest demand; None: all
    :param trip_time: of the mean trip
    :param demand: of the mean pair
    """
    check_whole("zones", zones, 2)
    check_whole("junctions", junctions, max(4, zones))
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
    shortest = shortest_times(zones + junctions, list(zip(tail, head, times, strict=True)))[:zones, :zones]
    centrality = np.exp(-np.linalg.norm(centroids - places.mean(axis=0), axis=1) / columns)
    size = random.uniform(0.5, 1.5, zones) * centrality
    gravity = np.outer(size, size) * np.exp(-shortest / shortest.mean())
    ends = np.argwhere(~np.eye(zones, dtype=bool))
    weights = gravity[ends[:, 0], ends[:, 1]]
    if pairs is not None:
        check_whole("markets", pairs, 1, len(ends))
        largest = np.sort(np.argsort(-weights, kind="stable")[:pairs])
        ends, weights = ends[largest], weights[largest]
    trips = shortest[ends[:, 0], ends[:, 1]]
    scale = trip_time / float(np.average(trips, weights=weights))
    return City(
        name=f"city of {zones} zones",
        nodes=tuple(range(1, zones + junctions + 1)),
        coordinates=everywhere,
        through=np.arange(zones + junctions) >= zones,
        tail=tail,
        head=head,
        time=scale * times,
        origin=ends[:, 0],
        destination=ends[:, 1],
        demand=weights * (demand / weights.mean()),
        trip_time=scale * trips,
        random=random,
    )


def _rounded(value: float) -> float:
    return round(float(value), _DECIMALS)


def _streets(junctions: int, columns: int, links: int, random: np.random.Generator) -> Int[NDArray, "links 2"]:
    """So many directed links between junctions on a grid, the first of which are a tree in both directions."""
    rows = -(-junctions // columns)
    known = [(i, j) for i, j in neighbours(rows, columns) if j < junctions]
    crossing = diagonals_of(rows, columns, (rows - 1) * (columns - 1), random)
    diagonals = [pair for pair in crossing if max(pair) < junctions]
    lengths = csr_array((random.uniform(1.0, 2.0, len(known)), tuple(np.array(known).T)), shape=(junctions, junctions))
    tree = [(int(i), int(j)) for i, j in np.argwhere(minimum_spanning_tree(lengths).toarray())]
    check_whole("links less connectors", links, 2 * len(tree), 2 * (len(known) + len(diagonals)))
    chosen = tree + [(j, i) for i, j in tree]
    taken = set(chosen)
    for pairs in (known, diagonals):
        single = [pair for i, j in pairs for pair in ((i, j), (j, i)) if pair not in taken]
        chosen += [single[k] for k in random.permutation(len(single))]
    return np.array(chosen[:links])


def neighbours(rows: int, columns: int) -> list[Pair]:
    """Pairs of neighbours, each once."""
    node = np.arange(rows * columns).reshape(rows, columns)
    across = np.stack((node[:, :-1].ravel(), node[:, 1:].ravel()), axis=1)
    down = np.stack((node[:-1].ravel(), node[1:].ravel()), axis=1)
    return [(int(i), int(j)) for i, j in np.concatenate((across, down))]


def diagonals_of(rows: int, columns: int, count: int, random: np.random.Generator) -> list[Pair]:
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


def shortest_times(n_nodes: int, links: list[tuple[int, int, float]]) -> Float[NDArray, "nodes nodes"]:
    """Time of the shortest path between all nodes."""
    tail, head, time = zip(*links, strict=True)
    return np.asarray(dijkstra(csr_array((time, (tail, head)), shape=(n_nodes, n_nodes))))
