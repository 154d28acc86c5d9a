"""Road networks made to measure: streets, trips and capacities with the shape and the congestion of cities."""

from __future__ import annotations

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.errors import OptionError
from blocc.networks.cities import City, city_of
from blocc.networks.columns import cheapest_columns
from blocc.networks.shortest_paths import shortest_trees, streets_of
from blocc.roads.network import RoadNetwork

#: Capacities are built after the mean load of so many draws of what drivers think of the times of links.
DRAWS = 8


def city_roads(
    zones: int,
    junctions: int,
    links: int,
    *,
    pairs: int | None = None,
    seed: int = 0,
    name: str | None = None,
    congestion: float = 1.0,
) -> RoadNetwork:
    """The streets and trips of :func:`blocc.transport.city_network`, with capacities and BPR times.

    Roads were built where drivers would go: the capacity of a link is the mean load of drivers who misjudge empty
    roads, times a random factor around one, and at least a tenth of the mean link's. Connectors never fill.

    :param congestion: of all demand, relative to the loads that capacities were built for
    """
    if not 0.0 < congestion < np.inf:
        raise OptionError(f"congestion must be a positive number, got {congestion!r}")
    city = city_of(zones, junctions, links, pairs=pairs, seed=seed, trip_time=20.0, demand=10.0).rounded()
    random = np.random.default_rng([seed, 1])
    load = _mean_load(city, random)
    is_street = city.through[city.tail] & city.through[city.head]
    capacity = np.maximum(load, 0.1 * load[is_street].mean()) * random.uniform(0.6, 1.4, city.n_links)
    ids = city.nodes
    node_rows = [
        {"id": key, "x": float(x), "y": float(y), "through": bool(through)}
        for key, (x, y), through in zip(ids, city.coordinates, city.through, strict=True)
    ]
    link_rows = [
        {
            "from": ids[i],
            "to": ids[j],
            "capacity": room,
            "free_flow_time": time,
            "b": 0.15 if street else 0.0,
            "power": 4,
        }
        for i, j, room, time, street in zip(
            city.tail, city.head, capacity.tolist(), city.time.tolist(), is_street.tolist(), strict=True
        )
    ]
    trip_rows = [
        {"origin": ids[o], "destination": ids[d], "demand": congestion * trips}
        for o, d, trips in zip(city.origin, city.destination, city.demand.tolist(), strict=True)
    ]
    notes = f"Generated: {zones} zones, {junctions} junctions, {links} links, seed {seed}, congestion {congestion:g}."
    return RoadNetwork.from_tables(node_rows, link_rows, trip_rows, name=name or city.name, assumptions=[notes])


def _mean_load(city: City, random: np.random.Generator) -> Float[NDArray, "links"]:
    """Volumes when everyone takes the path that seems cheapest, over several draws of what seems so."""
    streets, (_, row) = streets_of(city), city.by_origin
    load = np.zeros(city.n_links)
    for _ in range(DRAWS):
        trees = shortest_trees(streets, city.time * random.uniform(0.6, 1.6, city.n_links))
        columns = cheapest_columns(streets, trees, row, city.destination, np.arange(len(row)))
        load += columns.loads(city.demand) / DRAWS
    return load
