"""A road network: links with a BPR travel time, and trips between its nodes, checked when it is built.

    time of a link = free_flow_time (1 + b (volume / capacity)^power)

Drivers pay that time, and ``toll`` where a link has one. Times, tolls and costs share one unit of the leader's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from blocc._lib.arrays import Bool, Float, Int, NDArray
from blocc._lib.tables import table_rows
from blocc.errors import OptionError, ProblemError
from blocc.networks.checked_rows import Table, finite, identifier, is_blank, raise_if_any
from blocc.networks.model import Network, NodeId
from blocc.networks.shortest_paths import Streets, streets_from
from blocc.roads.equilibrium import Pairs
from blocc.roads.link_costs import LinkCosts, power_costs

LINK_COLUMNS = ("capacity", "free_flow_time", "b", "power")
#: Decimal digits of trips^power, capacity^power and their quotient; with more, times would overflow.
MOST_DIGITS = 250.0
#: Powers beyond this make travel times that no double can hold.
LARGEST_POWER = 50.0


@dataclass(frozen=True, eq=False)
class RoadNetwork(Network):
    """Nodes, links with capacity and BPR figures, and trips. Build one with :meth:`from_tables` or read a file with
    :func:`blocc.roads.read_road_network`. Links keep the order of their table.
    """

    name: str
    nodes: tuple[NodeId, ...]
    coordinates: Float[NDArray, "nodes 2"]
    tail: Int[NDArray, "links"]
    head: Int[NDArray, "links"]
    capacity: Float[NDArray, "links"]
    free_flow_time: Float[NDArray, "links"]
    b: Float[NDArray, "links"]
    power: Float[NDArray, "links"]
    toll: Float[NDArray, "links"]  #: paid on top of the time, in its unit
    length: Float[NDArray, "links"]  #: NaN where it is not known
    origin: Int[NDArray, "pairs"]  #: in the order of the origins
    destination: Int[NDArray, "pairs"]
    demand: Float[NDArray, "pairs"]  #: trips, all positive
    through: Bool[NDArray, "nodes"]  #: False: trips begin and end there, but do not pass
    link_ids: tuple[NodeId, ...]
    geographic: bool = False
    #: What was filled in, multiplied, dropped, invented or left unused while the network was read: sentences.
    assumptions: tuple[str, ...] = ()

    @classmethod
    def from_tables(
        cls,
        nodes: Iterable[Mapping[str, Any]],
        links: Iterable[Mapping[str, Any]],
        trips: Iterable[Mapping[str, Any]],
        *,
        name: str = "roads",
        assumptions: Sequence[str] = (),
        default_bpr: tuple[float, float] | None = None,
        drop_unreachable: bool = False,
    ) -> RoadNetwork:
        """Build a network out of rows, and name every row that is wrong.

        A node has ``id``, perhaps ``x`` and ``y`` or ``lon`` and ``lat``, and ``through``; a link ``from``, ``to``,
        ``capacity``, ``free_flow_time``, ``b`` and ``power``, perhaps ``toll``, ``length`` and ``link_id``; a row of
        trips ``origin``, ``destination`` and ``demand``; rows of one pair are added up, with a note.

        :param default_bpr: b and power of links that have none, with a note; None: such links are an error
        :param drop_unreachable: leave out trips between nodes that no path joins, with a note, instead of an error
        """
        link_data, filled = _with_default_bpr(links, default_bpr)
        node_table, link_table, trip_table = Table("nodes", nodes), Table("links", link_data), Table("trips", trips)
        geographic = any("lon" in row or "lat" in row for row in node_table.data)
        ids = node_table.identifiers("id")
        axes = ("lon", "lat") if geographic else ("x", "y")
        placed = all(axis in row for axis in axes for row in node_table.data)
        index = {key: position for position, key in enumerate(ids)}
        tail, head = (link_table.references(column, index) for column in ("from", "to"))
        origin, destination = (trip_table.references(column, index) for column in ("origin", "destination"))
        link_table.distinct(("from", "to"), tail, head, both="a link from a node to itself", told_apart_by="link_id")
        figures = {column: link_table.numbers((column,), least=0.0)[:, 0] for column in LINK_COLUMNS}
        given = link_table.values("link_id", identifier, "is not an id: it must be an integer or a text")
        names = tuple(n if key is None else key for n, key in enumerate(given, 1))
        demand = trip_table.numbers(("demand",), least=0.0)[:, 0]
        _check_links(link_table, figures, names, float(demand.sum()))
        for table, least in ((node_table, 2), (link_table, 1), (trip_table, 1)):
            table.at_least(least)
        tables = (node_table, link_table, trip_table)
        raise_if_any(name, tables)
        kept = (demand > 0.0) & (origin != destination)
        notes = [*assumptions, *filled, *_trip_sentences(origin, destination, demand, kept)]
        if not kept.any():
            raise ProblemError(f"network {name!r} has no trips between different nodes")
        network = cls(
            name=name,
            nodes=tuple(ids),
            coordinates=node_table.numbers(axes) if placed else np.zeros((0, 2)),
            tail=tail,
            head=head,
            **figures,
            toll=link_table.optional("toll", 0.0, least=0.0),
            length=link_table.optional("length", np.nan, least=0.0),
            origin=origin,
            destination=destination,
            demand=demand,
            through=node_table.switches("through", True),
            link_ids=names,
            geographic=geographic,
            assumptions=tuple(notes),
        )._with_trips(kept)
        raise_if_any(name, tables)
        return network._reachable(trip_table, np.flatnonzero(kept), drop_unreachable)

    def _with_trips(self, kept: Bool[NDArray, "pairs"]) -> RoadNetwork:
        """Only these pairs, in the order of their origins, each once."""
        code = self.origin[kept].astype(np.int64) * self.n_nodes + self.destination[kept]
        pairs, place = np.unique(code, return_inverse=True)
        demand = np.bincount(place, self.demand[kept], len(pairs))
        return replace(self, origin=pairs // self.n_nodes, destination=pairs % self.n_nodes, demand=demand)

    def _reachable(self, table: Table, rows: Int[NDArray, "pairs"], drop: bool) -> RoadNetwork:
        is_cut = np.isinf(self.free_costs)
        if not is_cut.any():
            return self
        if drop:
            lost = float(self.demand[is_cut].sum())
            note = f"Dropped: {lost:.6g} trips of {int(is_cut.sum())} pairs that no path joins."
            if is_cut.all():
                raise ProblemError(f"network {self.name!r}: no path joins any pair with trips")
            return replace(self._with_trips(~is_cut), assumptions=(*self.assumptions, note))
        cut = {(int(o), int(d)) for o, d in zip(self.origin[is_cut], self.destination[is_cut], strict=True)}
        index = {key: position for position, key in enumerate(self.nodes)}
        for row in rows.tolist():
            record = table.data[row]
            pair = tuple(
                index[key] for c in ("origin", "destination") if (key := identifier(record.get(c))) is not None
            )
            if pair in cut:
                table.complain(row, "destination", "cannot be reached from the origin (drop_unreachable leaves it out)")
        raise_if_any(self.name, (table,))
        raise AssertionError("unreachable pairs without a row")

    # --- sizes --------------------------------------------------------------------------------------------------
    @property
    def n_pairs(self) -> int:
        """Number of pairs with trips."""
        return len(self.demand)

    def __repr__(self) -> str:
        return (
            f"RoadNetwork({self.name!r}: {self.n_nodes} nodes, {self.n_links} links, {self.n_pairs} pairs, "
            f"{self.demand.sum():.6g} trips)"
        )

    # --- for the engine -------------------------------------------------------------------------------------------
    @cached_property
    def free_costs(self) -> Float[NDArray, "pairs"]:
        """Cheapest cost of each pair on empty roads; infinite where no path joins it."""
        return self.cheapest(self.free_flow_time + self.toll)

    @cached_property
    def least_time(self) -> float:
        """What all trips take together on empty roads: no assignment takes less, whatever is widened or tolled."""
        return float(self.demand @ self.cheapest(self.free_flow_time))

    @cached_property
    def streets(self) -> Streets:
        """The links for compiled code."""
        return streets_from(self.tail, self.head, self.through, self.by_origin[0])

    @cached_property
    def pairs(self) -> Pairs:
        """The trips for compiled code."""
        row = self.by_origin[1]
        return Pairs(row.astype(np.int64), self.destination.astype(np.int64), self.demand)

    # --- travel times ---------------------------------------------------------------------------------------------
    def travel_times(
        self, volume: Float[NDArray, "links"], capacity: Float[NDArray, "links"] | None = None
    ) -> Float[NDArray, "links"]:
        """The time of each link at these volumes, tolls not included."""
        return self.bpr(capacity).at(volume)

    def bpr(
        self, capacity: Float[NDArray, "links"] | None = None, factor: float | Float[NDArray, "links"] = 1.0
    ) -> LinkCosts:
        """The links' times as cost functions.

        :param capacity: in place of the present one
        :param factor: of the part that grows with the volume
        """
        room = self.capacity if capacity is None else capacity
        grows = self.b > 0.0
        coefficient = np.zeros(self.n_links)
        coefficient[grows] = (self.free_flow_time * self.b * factor)[grows] / room[grows] ** self.power[grows]
        return power_costs(self.free_flow_time, coefficient, self.power)

    def lost_trips(self, volume: Float[NDArray, "links"]) -> float:
        """The largest number of trips that these volumes lose or invent at a node, relative to all trips."""
        n = self.n_nodes
        # What enters a node less what leaves it, against what ends there less what begins there.
        inflow = np.bincount(self.head, volume, n) - np.bincount(self.tail, volume, n)
        ends = np.bincount(self.destination, self.demand, n) - np.bincount(self.origin, self.demand, n)
        return float(np.max(np.abs(inflow - ends), initial=0.0)) / float(self.demand.sum())

    # --- tables ---------------------------------------------------------------------------------------------------
    def scaled(self, *, demand: float = 1.0, capacity: float = 1.0, time: float = 1.0) -> RoadNetwork:
        """The same in other units: all trips, capacities and times (with tolls) multiplied, and a note for each."""
        factors = {"demand": demand, "capacity": capacity, "time": time}
        for name, factor in factors.items():
            if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0.0 < factor < np.inf:
                raise OptionError(f"{name} must be a positive number, got {factor!r}")
        words = {"demand": "all trips", "capacity": "all capacities", "time": "all times and tolls"}
        notes = [f"Multiplied: {words[name]} by {factor:g}." for name, factor in factors.items() if factor != 1.0]
        return replace(
            self,
            demand=demand * self.demand,
            capacity=capacity * self.capacity,
            free_flow_time=time * self.free_flow_time,
            toll=time * self.toll,
            assumptions=(*self.assumptions, *notes),
        )

    def node_rows(self) -> list[dict[str, Any]]:
        """The nodes as rows that :meth:`from_tables` reads."""
        columns: dict[str, Any] = {"id": list(self.nodes)}
        if len(self.coordinates):
            columns |= dict(zip(("lon", "lat") if self.geographic else ("x", "y"), self.coordinates.T, strict=True))
        return table_rows(columns if self.through.all() else columns | {"through": self.through})

    def trip_rows(self, **figures: NDArray) -> list[dict[str, Any]]:
        """The trips likewise, with further figures of their pairs."""
        ends = {name: self.ends(name) for name in ("origin", "destination")}
        return table_rows(ends | {"demand": self.demand} | figures)

    def link_rows(self, **figures: NDArray) -> list[dict[str, Any]]:
        """The links as rows that :meth:`from_tables` reads; or with other figures of theirs."""
        figures = figures or {name: getattr(self, name) for name in (*LINK_COLUMNS, "toll", "length")}
        ends = {"link_id": list(self.link_ids), "from": self.ends("tail"), "to": self.ends("head")}
        return table_rows(ends | figures)


def _with_default_bpr(
    links: Iterable[Mapping[str, Any]], default: tuple[float, float] | None
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Links with b and power filled in where they are missing and may be, and a sentence about it."""
    rows = list(links)
    if default is None:
        return rows, []
    values = [finite(value) for value in default] if isinstance(default, (tuple, list)) else []
    if len(values) != 2 or any(value is None or value < 0.0 for value in values):
        raise OptionError(f"default_bpr must be two numbers, b and power, not below 0, got {default!r}")
    lines = []
    for name, value in zip(("b", "power"), values, strict=True):
        blank = [is_blank(row.get(name)) for row in rows]
        rows = [{**row, name: value} if empty else row for row, empty in zip(rows, blank, strict=True)]
        if any(blank):
            lines.append(f"Filled in: {name} = {value:g} of {sum(blank)} links that have none.")
    return rows, lines


def _trip_sentences(
    origin: Int[NDArray, "rows"],
    destination: Int[NDArray, "rows"],
    demand: Float[NDArray, "rows"],
    kept: Bool[NDArray, "rows"],
) -> list[str]:
    """What becomes of trips that begin where they end, and of pairs that have several rows."""
    lines = []
    if within := float(demand[origin == destination].sum()):
        lines.append(f"Dropped: {within:.6g} trips that begin and end at one node.")
    ends = np.stack((origin[kept], destination[kept]), axis=1)
    if again := len(ends) - len(np.unique(ends, axis=0)):
        lines.append(f"Added up: {again} rows of trips of a pair that has one before.")
    return lines


def _check_links(
    table: Table, figures: Mapping[str, Float[NDArray, "links"]], names: tuple[NodeId, ...], trips: float
) -> None:
    """Capacities that can be divided by, powers that can be taken, and a name for each."""
    capacity, power = figures["capacity"], figures["power"]
    grows = figures["b"] > 0.0
    grows[[row for row, _ in table.complaints if row >= 0]] = False  # figures that are none need no second complaint
    for row in np.flatnonzero((capacity <= 0.0) & grows):
        table.complain(int(row), "capacity", "must be positive where b is, since the time grows with volume / capacity")
    for row in np.flatnonzero(power > LARGEST_POWER):
        table.complain(int(row), "power", f"must not be above {LARGEST_POWER:g}")
    for row in np.flatnonzero(grows & (power < 1.0)):
        table.complain(int(row), "power", "must be at least 1 where b is positive")
    room, most = np.where(capacity > 0.0, capacity, 1.0), max(trips, 1.0)
    sizes = np.stack((np.abs(np.log10(room)), np.full(len(room), np.log10(most)), np.log10(most / room)))
    for row in np.flatnonzero(grows & (power <= LARGEST_POWER) & (power * sizes.max(axis=0) > MOST_DIGITS)):
        table.complain(int(row), "capacity", "and all trips, raised to this power, are more than a computer can hold")
    seen: dict[NodeId, int] = {}
    for position, name in enumerate(names):
        if name in seen:
            table.complain(position, "link_id", f"names {table.places[seen[name]]} too; {name!r} must name one link")
        seen.setdefault(name, position)
