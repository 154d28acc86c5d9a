"""A transport network as a folder of GMNS files, which ``networks/readers/gmns.py`` reads again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from blocc._lib.tables import csv_bytes
from blocc.networks.line_geometry import line_of, line_text
from blocc.networks.model import OPTIONAL_LINK_COLUMNS, NodeId
from blocc.networks.readers.raw import Row
from blocc.transport.network.network import TransportNetwork


def render(network: TransportNetwork) -> dict[str, bytes]:
    """The contents of the files that :func:`read_folder` reads, by name."""
    axes = ("lon", "lat") if network.geographic else ("x", "y")
    zones = _zones_to_write(network)
    headings = {"node_id": "id", "name": "name", "x_coord": axes[0], "y_coord": axes[1]}
    headings |= {"zone_id": "zone_id"} if zones else {}
    nodes = _renamed(network.node_rows(), headings | ({} if network.through.all() else {"through": "through"}))
    rows = network.link_rows()
    for row, name in zip(rows, network.link_ids, strict=True):
        row |= {"link_id": name, "directed": 1}
        row |= {"geometry": line_text(line)} if (line := line_of(row.get("geometry"))) is not None else {}
    headings = {"link_id": "link_id", "from_node_id": "from", "to_node_id": "to"}
    headings |= {name: name for name in ("directed", "time", "cost")}
    headings |= {name: name for name in (*OPTIONAL_LINK_COLUMNS, "geometry") if any(name in row for row in rows)}
    links = _renamed(rows, headings)
    rows = network.market_rows()
    for row in rows:
        row |= {end: zones.get(row[end], row[end]) for end in ("origin", "destination")}
    headings = {"o_zone_id": "origin", "d_zone_id": "destination", "volume": "demand"}
    markets = _renamed(rows, headings | {name: name for name in ("revenue", "alternative_time")})
    tables = {"node.csv": nodes, "link.csv": links, "demand.csv": markets, "config.csv": [_config_row(network)]}
    return {name: csv_bytes(rows, guarded=False) for name, rows in tables.items()}


def _config_row(network: TransportNetwork) -> Row:
    low, high = network.start_range or ("", "")
    units = network.units
    crs = network.crs or ("EPSG:4326" if network.geographic else "")
    row: dict[str, Any] = {"dataset_name": network.name, "crs": crs, "start_low": low, "start_high": high}
    more: dict[str, Any] = {"long_length": units.length, "currency": units.money, "time_unit": units.time}
    more |= {"time_factor": units.time_factor if units.time_factor != 1.0 else ""}
    more |= {"assumptions": "\n".join(network.assumptions)}
    return {**row, "notes": network.notes, **{name: value for name, value in more.items() if value}}


def _zones_to_write(network: TransportNetwork) -> dict[NodeId, NodeId]:
    """The zone of each node, where demand can be told by zones: the first node of a zone takes its demand."""
    first: dict[NodeId, NodeId] = {}
    for node, zone in zip(network.nodes, network.zone_ids, strict=True):
        if zone is not None:
            first.setdefault(zone, node)
    ends = {network.nodes[i] for i in {*network.origin.tolist(), *network.destination.tolist()}}
    zones = {node: zone for zone, node in first.items()}
    return zones if ends <= zones.keys() else {}


def _renamed(rows: Iterable[Row], headings: Mapping[str, str]) -> list[Row]:
    """Rows under other headings; what a row lacks stays empty."""
    return [{heading: row.get(name, "") for heading, name in headings.items()} for row in rows]
