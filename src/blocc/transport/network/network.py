"""A transport network: nodes, candidate links and markets, checked when it is built.

Units: times are disutilities of one passenger (a time multiplied by its value); demand, flow and capacity share one
passenger unit; cost is per unit of capacity, revenue per passenger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from blocc._lib.arrays import Bool, Float, Int, NDArray
from blocc._lib.files import shown
from blocc._lib.rounding import ROUNDED
from blocc._lib.tables import table_rows
from blocc.errors import ProblemError
from blocc.networks.checked_rows import Table, identifier, raise_if_any
from blocc.networks.line_geometry import Line, line_of
from blocc.networks.model import NO_UNITS, OPTIONAL_LINK_COLUMNS, Network, NodeId, Units
from blocc.networks.paths import opposite_links

LINK_COLUMNS = ("time", "cost")
MARKET_COLUMNS = ("demand", "revenue", "alternative_time")


def _empty() -> NDArray:
    return np.zeros(0)


class Sizes(NamedTuple):
    """How large the full formulation is: one flow for each market and link, one share for each market."""

    variables: int  #: of both levels: capacities, flows and shares
    constraints: int  #: flow conservation at each node for each market, and one capacity row for each link
    nonzeros: int  #: of the constraints' matrix


@dataclass(frozen=True, eq=False)
class TransportNetwork(Network):
    """Nodes with coordinates, candidate links with time and cost, markets with demand, revenue and alternative time.

    Build one with :meth:`from_tables`, which checks every row, or read a file with
    :func:`blocc.transport.read_network`. Links and markets keep the order of their tables.
    """

    name: str
    nodes: tuple[NodeId, ...]
    coordinates: Float[NDArray, "nodes 2"]  #: (nodes, 2): x and y, or longitude and latitude where ``geographic``
    tail: Int[NDArray, "links"]  #: index of the node where each link begins
    head: Int[NDArray, "links"]  #: index of the node where each link ends
    time: Float[NDArray, "links"]
    cost: Float[NDArray, "links"]
    origin: Int[NDArray, "markets"]  #: index of the node where each market begins
    destination: Int[NDArray, "markets"]
    demand: Float[NDArray, "markets"]
    revenue: Float[NDArray, "markets"]
    alternative_time: Float[NDArray, "markets"]  #: of the existing network
    geographic: bool = False
    labels: tuple[str, ...] = ()  #: names of the nodes for people; empty: their ids
    start_range: tuple[float, float] | None = None  #: random starts draw each capacity uniformly from here
    notes: str = ""
    # Of what follows, an empty value stands for the usual one.
    through: Bool[NDArray, "nodes"] = field(
        default_factory=_empty
    )  #: False: paths begin and end there, but do not pass
    length: Float[NDArray, "links"] = field(default_factory=_empty)  #: NaN where it is not known
    existing_capacity: Float[NDArray, "links"] = field(default_factory=_empty)  #: what a link has today
    min_capacity: Float[NDArray, "links"] = field(default_factory=_empty)  #: the least a design may give a link
    max_capacity: Float[NDArray, "links"] = field(default_factory=_empty)  #: the most; 0 forbids a link
    link_ids: tuple[NodeId, ...] = ()  #: names of the links, which tell parallel ones apart; empty: 1, 2, ...
    zone_ids: tuple[NodeId | None, ...] = ()  #: zones of the nodes; empty: there are none
    geometry: tuple[Line | None, ...] = ()  #: the line of each link; empty or None: straight from node to node
    crs: str = ""  #: coordinate reference system, such as EPSG:25832; empty where nobody said
    units: Units = NO_UNITS
    #: What was filled in, multiplied, dropped, invented or left unused while the network was read: sentences.
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        usual: dict[str, Any] = {name: np.full(self.n_links, value) for name, value in OPTIONAL_LINK_COLUMNS.items()}
        usual |= {"through": np.ones(self.n_nodes, dtype=bool), "link_ids": tuple(range(1, self.n_links + 1))}
        usual |= {"zone_ids": (None,) * self.n_nodes, "geometry": (None,) * self.n_links}
        for name, value in usual.items():
            if not len(getattr(self, name)):
                object.__setattr__(self, name, value)

    @classmethod
    def from_tables(
        cls,
        nodes: Iterable[Mapping[str, Any]],
        links: Iterable[Mapping[str, Any]],
        markets: Iterable[Mapping[str, Any]],
        *,
        name: str = "network",
        start_range: Sequence[Any] | None = None,
        notes: str = "",
        crs: str = "",
        units: Units = NO_UNITS,
        assumptions: Sequence[str] = (),
        drop_unreachable: bool = False,
    ) -> TransportNetwork:
        """Build a network out of rows, and name every row that is wrong.

        A node has ``id`` and either ``x`` and ``y`` or ``lon`` and ``lat`` (perhaps also ``name``, ``zone_id`` and
        ``through``); a link ``from``, ``to``, ``time`` and ``cost`` (perhaps also ``link_id``, ``length``,
        ``geometry``, ``existing_capacity``, ``min_capacity`` and ``max_capacity``); a market ``origin``,
        ``destination``, ``demand``, ``revenue`` and ``alternative_time``.
        """
        node_table, link_table, market_table = Table("nodes", nodes), Table("links", links), Table("markets", markets)
        geographic = any("lon" in row or "lat" in row for row in node_table.data)
        ids = node_table.identifiers("id")
        places = node_table.numbers(("lon", "lat") if geographic else ("x", "y"))
        if geographic:
            node_table.between("lat", places[:, 1], -90.0, 90.0)
            node_table.between("lon", places[:, 0], -360.0, 360.0)
        index = {identifier: position for position, identifier in enumerate(ids)}
        ends = [link_table.references(column, index) for column in ("from", "to")]
        pairs = [market_table.references(column, index) for column in ("origin", "destination")]
        link_table.distinct(("from", "to"), *ends, both="a link from a node to itself", told_apart_by="link_id")
        market_table.distinct(("origin", "destination"), *pairs, both="a market from a node to itself")
        link_numbers = link_table.numbers(LINK_COLUMNS, least=0.0)
        more = {name: link_table.optional(name, usual, 0.0) for name, usual in OPTIONAL_LINK_COLUMNS.items()}
        for row in np.flatnonzero(more["min_capacity"] > more["max_capacity"]):
            link_table.complain(int(row), "min_capacity", f"is above max_capacity {more['max_capacity'][row]:g}")
        for row in np.flatnonzero(more["existing_capacity"] > more["max_capacity"]):
            link_table.complain(int(row), "existing_capacity", f"is above max_capacity {more['max_capacity'][row]:g}")
        link_table.named_once("link_id", *ends)
        through = node_table.switches("through", True)
        geometry = link_table.values(
            "geometry", line_of, 'is not a line: give points [[x, y], ...] or "LINESTRING (...)"'
        )
        market_numbers = market_table.numbers(MARKET_COLUMNS, least=0.0)
        for table, least in ((node_table, 2), (link_table, 1), (market_table, 1)):
            table.at_least(least)
        raise_if_any(name, (node_table, link_table, market_table))
        network = cls(
            name=name,
            nodes=tuple(ids),
            coordinates=places,
            **dict(zip(("tail", "head", *LINK_COLUMNS), (*ends, *link_numbers.T), strict=True)),
            **dict(zip(("origin", "destination", *MARKET_COLUMNS), (*pairs, *market_numbers.T), strict=True)),
            geographic=geographic,
            labels=tuple(str(row.get("name") or key) for key, row in zip(ids, node_table.data, strict=True)),
            start_range=_range(start_range),
            notes=notes,
            through=through,
            link_ids=_names(row.get("link_id") for row in link_table.data),
            zone_ids=tuple(identifier(row.get("zone_id")) for row in node_table.data),
            geometry=tuple(geometry),
            crs=crs,
            units=units,
            assumptions=tuple(assumptions),
            **more,
        )
        unreachable = np.isinf(network.free_flow_times)
        if drop_unreachable and unreachable.any() and not unreachable.all():
            return network._without(unreachable)
        around = "" if through.all() else " (paths do not pass nodes that are not through)"
        for row in np.flatnonzero(unreachable):
            what = f"cannot be reached from the origin over the candidate links{around}"
            market_table.complain(int(row), "destination", what)
        raise_if_any(name, (market_table,))
        return network

    def _without(self, unreachable: Bool[NDArray, "markets"]) -> TransportNetwork:
        columns = ("origin", "destination", *MARKET_COLUMNS)
        kept = {column: getattr(self, column)[~unreachable] for column in columns}
        count, demand = int(unreachable.sum()), float(self.demand[unreachable].sum())
        note = f"Dropped: {count} markets with demand {demand:.6g}, which no path over the candidate links serves."
        return replace(self, **kept, assumptions=(*self.assumptions, note))

    # --- sizes --------------------------------------------------------------------------------------------------
    @property
    def n_markets(self) -> int:
        """Number of origin-destination markets."""
        return len(self.demand)

    @property
    def sizes(self) -> Sizes:
        """Variables, constraints and nonzeros of the full formulation, as the paper counts them."""
        a, k, s = self.n_links, self.n_markets, self.n_nodes
        flow = 2 * a * k + 2 * k  # each flow leaves one node and enters another; a share stands at both ends
        capacity = a * k + a
        return Sizes(a * k + k + a, s * k + a, flow + capacity)

    # --- derived figures ----------------------------------------------------------------------------------------
    @cached_property
    def free_flow_times(self) -> Float[NDArray, "markets"]:
        """Cheapest time of each market over all candidate links, infinite where there is no path."""
        return self.path_costs(self.time)

    def path_costs(
        self, costs: Float[NDArray, "links"], open_links: Bool[NDArray, "links"] | None = None
    ) -> Float[NDArray, "markets"]:
        """Cheapest cost of each market when passing link a costs ``costs[a]``; infinite where there is no path.

        Paths do not pass nodes that are not ``through``.
        """
        return self.cheapest(costs, open_links)

    @cached_property
    def reverse(self) -> Int[NDArray, "links"]:
        """Index of the link in the opposite direction, -1 where there is none."""
        return opposite_links(self.tail, self.head, self.link_ids)

    def random_starts(self, count: int, seed: int = 0) -> Float[NDArray, "starts links"]:
        """Capacities to start from, one row each, uniform on ``start_range`` (or on a range like the demand's)."""
        low, high = self.start_range or self.usual_range
        return np.random.default_rng(seed).uniform(low, high, (count, self.n_links))

    @property
    def usual_range(self) -> tuple[float, float]:
        """Half to twice the flow of a link if everyone travelled and took a path of average length."""
        mean_path = float(np.average(self.free_flow_times, weights=self.demand + np.finfo(float).tiny))
        flow = float(self.demand.sum()) * max(1.0, mean_path / max(float(self.time.mean()), ROUNDED)) / self.n_links
        return 0.5 * flow, 2.0 * flow

    # --- tables again -------------------------------------------------------------------------------------------
    def node_rows(self) -> list[dict[str, Any]]:
        """The nodes as rows that :meth:`from_tables` reads."""
        keys = ("lon", "lat") if self.geographic else ("x", "y")
        rows = []
        for node, (key, place) in enumerate(zip(self.nodes, self.coordinates.tolist(), strict=True)):
            row = {"id": key, **dict(zip(keys, place, strict=True))}
            more = {"name": self.labels[node], "zone_id": self.zone_ids[node], "through": bool(self.through[node])}
            usual = {"name": str(key), "zone_id": None, "through": True}
            rows.append(row | {name: value for name, value in more.items() if value != usual[name]})
        return rows

    def link_rows(self, **figures: Float[NDArray, "links"]) -> list[dict[str, Any]]:
        """The links as rows that :meth:`from_tables` reads; or with other figures of theirs."""
        found = figures or {name: getattr(self, name) for name in LINK_COLUMNS}
        rows = table_rows({"from": self.ends("tail"), "to": self.ends("head")} | found)
        return rows if figures else [{**row, **more} for row, more in zip(rows, self._link_extras(), strict=True)]

    def _link_extras(self) -> list[dict[str, Any]]:
        """What the optional columns of links hold, where it is not the usual."""
        extras: list[dict[str, Any]] = [{} for _ in range(self.n_links)]
        if self.link_ids != tuple(range(1, self.n_links + 1)):
            extras = [{"link_id": name} for name in self.link_ids]
        for column, usual in OPTIONAL_LINK_COLUMNS.items():
            for row, value in zip(extras, getattr(self, column).tolist(), strict=True):
                if value != usual and not np.isnan(value):
                    row[column] = value
        for row, line in zip(extras, self.geometry, strict=True):
            if line is not None:
                row["geometry"] = line.tolist()
        return extras

    def market_rows(self, **figures: Float[NDArray, "markets"]) -> list[dict[str, Any]]:
        """The markets as rows that :meth:`from_tables` reads; or with other figures of theirs."""
        found = figures or {name: getattr(self, name) for name in MARKET_COLUMNS}
        return table_rows({"origin": self.ends("origin"), "destination": self.ends("destination")} | found)

    def check_text(self) -> None:
        """Raise where a text holds half a character, which JSON can name and no file and no terminal takes."""
        try:
            words = (self.nodes, self.labels, self.link_ids, self.zone_ids, self.assumptions, self.units, [self.crs])
            "\n".join([self.name, self.notes, *(str(word) for some in words for word in some)]).encode()
        except UnicodeEncodeError:
            raise ProblemError(f"network {self.name!r}: a name or a note holds half a surrogate pair") from None

    def __repr__(self) -> str:
        return (
            f"TransportNetwork({self.name!r}: {self.n_nodes} nodes, {self.n_links} candidate links, "
            f"{self.n_markets} markets, demand {self.demand.sum():.6g})"
        )


def _names(values: Iterable[Any]) -> tuple[NodeId, ...]:
    """The names that rows give; where one has none, its number."""
    found = [identifier(value) for value in values]
    return tuple(number if name is None else name for number, name in enumerate(found, 1))


def _range(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    try:
        if isinstance(value, str):  # "15" would pass for the numbers 1 and 5
            raise TypeError
        low, high = (float(number) for number in value)
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(
            f"start_range must be two numbers, the least and the largest capacity, got {shown(value)}"
        ) from None
    if not 0 <= low <= high < np.inf:
        raise ProblemError(f"start_range must be finite with 0 <= low <= high, got {shown(value)}")
    return low, high
