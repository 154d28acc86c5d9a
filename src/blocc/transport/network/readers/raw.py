"""What a reader hands over: rows as the file has them, each with its place, and without what the file leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from blocc.transport.network.checked_rows import Table, finite, identifier, raise_if_any
from blocc.transport.network.network import NodeId

Row = Mapping[str, Any]


class Demand(NamedTuple):
    """Rows of origin, destination and demand (perhaps also revenue and alternative_time)."""

    rows: Sequence[Row]
    notes: tuple[str, ...] = ()


@dataclass
class RawNetwork:
    """Rows that :func:`~blocc.transport.network.readers.rules.complete` makes a network of.

    Links may lack ``cost``, and ``time`` where they have ``length`` and ``free_speed``; markets may lack ``revenue``
    and ``alternative_time``.
    """

    name: str
    nodes: Sequence[Row]
    links: Sequence[Row]
    markets: Sequence[Row] | None  #: None: the file says nothing about demand
    zones: Mapping[NodeId, NodeId] | None = None  #: node of each zone; None: demand names nodes
    zones_from: str = "the nodes"  #: the file that has the zones
    start_range: Any = None
    notes: list[str] = field(default_factory=list)
    demand_expected: str = "a table of markets"  #: where the demand would have been found

    def set_demand(self, demand: Demand, *, keep_zero: bool) -> None:
        """Take these markets: zones become nodes; trips within a node, and perhaps pairs without any, are dropped.

        Revenue and alternative time of a pair that the network already had stay as they were.
        """
        rows = demand.rows if self.zones is None else self._at_nodes(demand)
        known = {_pair(row): row for row in self.markets or ()}
        kept: list[Row] = []
        within, count = 0.0, 0
        for row in rows:
            amount = finite(row.get("demand"))
            origin, destination = _pair(row)
            if amount is not None and amount >= 0 and origin is not None and origin == destination:
                within, count = within + amount, count + 1
            elif amount != 0 or keep_zero:
                kept.append({**known.get((origin, destination), {}), **row})
        self.markets = kept
        self.notes.extend(demand.notes)
        if within:
            rows_are = "1 row holds" if count == 1 else f"{count} rows hold"
            self.notes.append(f"Dropped: demand {within:.6g} within a node ({rows_are} it).")

    def _at_nodes(self, demand: Demand) -> list[Row]:
        zones = self.zones or {}
        table = Table("markets", demand.rows)
        moved: list[Row] = []
        for position, row in enumerate(demand.rows):
            ends: dict[str, NodeId | None] = {}
            for column in ("origin", "destination"):
                zone = identifier(row.get(column))
                ends[column] = None if zone is None else zones.get(zone)
                if ends[column] is None:
                    table.complain(position, column, f"is not a zone: no row of {self.zones_from} has this zone_id")
            moved.append({**row, **ends})
        raise_if_any(self.name, (table,))
        return moved


def _pair(row: Row) -> tuple[NodeId | None, NodeId | None]:
    return identifier(row.get("origin")), identifier(row.get("destination"))
