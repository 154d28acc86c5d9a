"""The columns of a design's tables: what each holds, and in which unit."""

from __future__ import annotations

from typing import Any, NamedTuple

from blocc.transport.network.network import Units


class Column(NamedTuple):
    """One column; units may name ``{length}`` and ``{money}``, which a network knows."""

    unit: str
    meaning: str


_PASSENGERS, _DISUTILITY = "passengers per period", "disutility"

LINKS = {
    "link_id": Column("", "name of the link; its number in the table where the files have none"),
    "from": Column("", "node where it begins"),
    "to": Column("", "node where it ends"),
    "length": Column("{length}", "as given; empty where it is not known"),
    "capacity": Column(_PASSENGERS, "of the design, with what exists; 0: not built"),
    "existing_capacity": Column(_PASSENGERS, "what it has today"),
    "new_capacity": Column(_PASSENGERS, "what the design adds, and pays for"),
    "flow": Column(_PASSENGERS, "passengers on it"),
    "price": Column(_DISUTILITY, "what one more unit of capacity would save the travellers"),
    "utilisation": Column("", "flow over capacity; empty where nothing is built"),
    "time": Column(_DISUTILITY, "as given"),
    "cost": Column("{money} per unit of capacity", "as given"),
}
MARKETS = {
    "origin": Column("", "node where it begins"),
    "destination": Column("", "node where it ends"),
    "origin_zone": Column("", "zone of the origin; empty where there is none"),
    "destination_zone": Column("", "zone of the destination; empty where there is none"),
    "demand": Column(_PASSENGERS, "as given"),
    "share": Column("", "part of the demand that travels on the new network"),
    "served": Column(_PASSENGERS, "passengers on the new network"),
    "time": Column(_DISUTILITY, "mean of those passengers, without prices; empty where nobody travels"),
    "alternative_time": Column(_DISUTILITY, "on the existing network, as given"),
    "path_cost": Column(_DISUTILITY, "cheapest time with prices; empty where there is no path"),
    "time_saved": Column(f"passengers x {_DISUTILITY}", "by all of its passengers, against the existing network"),
    "consumer_surplus": Column(f"passengers x {_DISUTILITY}", "demand x ln(1 + exp(alternative_time - path_cost))"),
    "revenue": Column("{money}", "what all of its passengers pay"),
    "revenue_per_passenger": Column("{money} per passenger", "as given"),
}
LINK_FIELDS, MARKET_FIELDS = tuple(LINKS), tuple(MARKETS)


def unit_of(column: Column, units: Units) -> str:
    """The unit of a column in a network whose units may have names."""
    return column.unit.format(length=units.length or "as in the files", money=units.money or "money")


def column_rows(units: Units) -> list[dict[str, Any]]:
    """Every column of ``links.csv`` and ``markets.csv`` as rows of a table."""
    return [
        {"file": file, "column": name, "unit": unit_of(column, units), "meaning": column.meaning}
        for file, columns in (("links.csv", LINKS), ("markets.csv", MARKETS))
        for name, column in columns.items()
    ]
