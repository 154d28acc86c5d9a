"""Folders of CSV files in the manner of GMNS, the General Modeling Network Specification.

``node.csv`` (node_id, x_coord, y_coord; optional name and zone_id), ``link.csv`` (from_node_id, to_node_id; a time, or
length and free_speed; optional cost and directed), ``demand.csv`` (origin, destination, volume; optional revenue and
alternative_time) and, optional, ``config.csv`` (dataset_name, crs). Other columns are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from blocc._lib.tables import csv_bytes
from blocc.transport.network.checked_rows import PLACE, identifier
from blocc.transport.network.network import NodeId, TransportNetwork
from blocc.transport.network.readers.raw import Complaints, Demand, RawNetwork, Row, read_csv

NODE = {"id": ("node_id",), "x": ("x_coord",), "y": ("y_coord",), "name": ("name",), "zone": ("zone_id",)}
LINK = {
    "from": ("from_node_id",),
    "to": ("to_node_id",),
    "time": ("time", "vdf_fftt", "free_flow_time", "fftt"),
    "length": ("length",),
    "free_speed": ("free_speed",),
    "cost": ("cost",),
    "directed": ("directed",),
}
MARKET = {
    "origin": ("o_zone_id", "origin"),
    "destination": ("d_zone_id", "destination"),
    "demand": ("volume", "demand"),
    "revenue": ("revenue",),
    "alternative_time": ("alternative_time",),
}
CONFIG = {name: (name,) for name in ("dataset_name", "crs", "start_low", "start_high", "notes")}
GEOGRAPHIC = ("epsg:4326", "4326", "wgs84", "wgs 84", "ogc:crs84", "crs84")
BOTH_WAYS = ("0", "false", "no", "f", "n")
ONE_WAY = ("", "1", "true", "yes", "t", "y")


def read_folder(folder: Path) -> RawNetwork:
    """The raw network that the CSV files of a folder describe."""
    node = read_csv(folder / "node.csv", NODE, ("id", "x", "y"))
    link = read_csv(folder / "link.csv", LINK, ("from", "to"))
    config = _config(folder)
    name = config.get("dataset_name") or folder.resolve().name or "network"
    zones, zone_notes = _zones(node)
    geographic = config.get("crs", "").lower() in GEOGRAPHIC
    names = {"x": "lon", "y": "lat"} if geographic else {}
    starts = (config.get("start_low", ""), config.get("start_high", ""))
    raw = RawNetwork(
        name=name,
        nodes=[{names.get(key, key): value for key, value in row.items() if key != "zone"} for row in node],
        links=_links(link, name),
        markets=None,
        zones=zones,
        zones_from="node.csv",
        start_range=starts if any(starts) else None,
        notes=[note for note in (config.get("notes"), *zone_notes) if note],
        demand_expected=f"demand.csv in {folder}",
    )
    if (folder / "demand.csv").is_file():
        demand = read_csv(folder / "demand.csv", MARKET, ("origin", "destination", "demand"))
        raw.set_demand(Demand(demand), keep_zero=True)
    return raw


def render(network: TransportNetwork) -> dict[str, bytes]:
    """The contents of the files that :func:`read_folder` reads, by name."""
    axes = ("lon", "lat") if network.geographic else ("x", "y")
    headings = {"node_id": "id", "name": "name", "x_coord": axes[0], "y_coord": axes[1]}
    nodes = _renamed(network.node_rows(), headings)
    numbered = [{"number": number, "directed": 1, **row} for number, row in enumerate(network.link_rows(), 1)]
    headings = {"link_id": "number", "from_node_id": "from", "to_node_id": "to"}
    links = _renamed(numbered, headings | {name: name for name in ("directed", "time", "cost")})
    headings = {"o_zone_id": "origin", "d_zone_id": "destination", "volume": "demand"}
    markets = _renamed(network.market_rows(), headings | {name: name for name in ("revenue", "alternative_time")})
    low, high = network.start_range or ("", "")
    crs = "EPSG:4326" if network.geographic else ""
    config = {"dataset_name": network.name, "crs": crs, "start_low": low, "start_high": high, "notes": network.notes}
    tables: dict[str, list[Row]] = {"node.csv": nodes, "link.csv": links, "demand.csv": markets, "config.csv": [config]}
    return {name: csv_bytes(rows, guarded=False) for name, rows in tables.items()}


def _renamed(rows: Iterable[Row], headings: Mapping[str, str]) -> list[Row]:
    """Rows under other headings; what a row lacks stays empty."""
    return [{heading: row.get(name, "") for heading, name in headings.items()} for row in rows]


def _config(folder: Path) -> Mapping[str, str]:
    """The one row of config.csv; empty where the folder has none."""
    path = folder / "config.csv"
    rows = read_csv(path, CONFIG, ()) if path.is_file() else []
    return rows[0] if rows else {}


def _links(records: list[dict[str, str]], name: str) -> list[Row]:
    """One row for each direction."""
    complaints = Complaints(name)
    rows: list[Row] = []
    for record in records:
        row = {key: value for key, value in record.items() if key != "directed"}
        rows.append(row)
        place = row[PLACE]
        directed = record.get("directed", "").lower().removesuffix(".0")
        if directed in BOTH_WAYS:
            back = f"{place} (the way back: directed is {record['directed']})"
            rows.append({**row, "from": row["to"], "to": row["from"], PLACE: back})
        elif directed not in ONE_WAY:
            complaints.add(place, f"directed {record['directed']!r} must be 1 or true (one way), or 0 or false (both)")
    complaints.raise_if_any()
    return rows


def _zones(nodes: Iterable[Mapping[str, str]]) -> tuple[dict[NodeId, NodeId] | None, tuple[str, ...]]:
    """The first node of each zone; None where no node names one."""
    zones: dict[NodeId, NodeId] = {}
    shared: set[NodeId] = set()
    for row in nodes:
        zone, node = identifier(row.get("zone")), identifier(row["id"])
        if zone is None or node is None:
            continue
        if zone in zones and zones[zone] != node:
            shared.add(zone)
        zones.setdefault(zone, node)
    if not zones:
        return None, ()
    note = f"{len(shared)} zones have several nodes in node.csv; the first of them takes the zone's demand."
    return zones, (note,) if shared else ()
