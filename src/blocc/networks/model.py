"""What all networks are: nodes at places, links between them, pairs of nodes with demand, and units."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from blocc._lib.arrays import Bool, Float, Int, NDArray
from blocc.kit.gis import Layers
from blocc.networks.line_geometry import Line
from blocc.networks.paths import cheapest_costs

NodeId = int | str

#: Hours in the units of time that are known by name.
HOURS = {
    **dict.fromkeys(("h", "hour", "hours"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 1.0 / 60.0),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0 / 3600.0),
}
#: Columns of links that may be missing, with what stands there then.
OPTIONAL_LINK_COLUMNS = {
    "length": np.nan,
    "existing_capacity": 0.0,
    "min_capacity": 0.0,
    "max_capacity": np.inf,
}


class Units(NamedTuple):
    """What figures are counted in, for people; empty where nobody said."""

    time: str = ""  #: of the times in the files, before ``time_factor`` made disutilities of them
    time_factor: float = 1.0  #: the disutility of one such unit
    length: str = ""
    money: str = ""

    @property
    def hours(self) -> float:
        """Hours in one unit of disutility; NaN where the unit of time is not known."""
        return HOURS.get(self.time.strip().lower(), np.nan) / self.time_factor


NO_UNITS = Units()


class Network:
    """Nodes, links and pairs of nodes with demand; applications say what links and pairs have besides."""

    name: str
    nodes: tuple[NodeId, ...]
    coordinates: Float[NDArray, "nodes 2"]  #: x and y, or longitude and latitude where ``geographic``
    geographic: bool
    through: Bool[NDArray, "nodes"]  #: False: paths begin and end there, but do not pass
    tail: Int[NDArray, "links"]  #: index of the node where each link begins
    head: Int[NDArray, "links"]
    link_ids: tuple[NodeId, ...]  #: names of the links, which tell parallel ones apart
    origin: Int[NDArray, "pairs"]  #: index of the node where each pair begins
    destination: Int[NDArray, "pairs"]
    demand: Float[NDArray, "pairs"]
    crs: str = ""  #: coordinate reference system, such as EPSG:25832; empty where nobody said
    geometry: tuple[Line | None, ...] = ()  #: the line of each link; empty or None: straight from node to node
    units: Units | None = None
    assumptions: tuple[str, ...]  #: what was filled in, dropped, invented or left unused while it was read: sentences

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the nodes for people."""
        return tuple(map(str, self.nodes))

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def n_links(self) -> int:
        """Number of links."""
        return len(self.tail)

    def ends(self, name: str) -> list[NodeId]:
        """The nodes at ``tail``, ``head``, ``origin`` or ``destination`` by their names."""
        return [self.nodes[place] for place in getattr(self, name)]

    def layers(self, nodes: list[dict[str, Any]], links: list[dict[str, Any]]) -> Layers:
        """What a GIS is told, with figures of nodes and links."""
        places, lines = self.coordinates.tolist(), self.geometry or (None,) * self.n_links
        ends = zip(self.tail.tolist(), self.head.tolist(), lines, strict=True)
        return Layers(
            name=self.name,
            places=self.coordinates,
            geographic=self.geographic,
            crs=self.crs,
            nodes=nodes,
            links=links,
            lines=[[places[i], places[j]] if line is None else line.tolist() for i, j, line in ends],
            assumptions=self.assumptions,
            units={} if self.units is None else self.units._asdict(),
        )

    @cached_property
    def by_origin(self) -> tuple[Int[NDArray, "origins"], Int[NDArray, "pairs"]]:
        """The nodes where pairs begin, in ascending order, and for each pair the position of its own among them."""
        origins, row = np.unique(self.origin, return_inverse=True)
        return origins, row

    def cheapest(
        self, costs: Float[NDArray, "links"], open_links: Bool[NDArray, "links"] | None = None
    ) -> Float[NDArray, "pairs"]:
        """Cheapest cost of each pair when passing link a costs ``costs[a]``; infinite where there is no path."""
        used = np.arange(self.n_links) if open_links is None else np.flatnonzero(open_links)
        origins, row = self.by_origin
        distance = cheapest_costs(self.tail[used], self.head[used], costs[used], self.through, origins)
        return np.asarray(distance[row, self.destination])
