"""Folders of CSV files in the manner of GMNS, the General Modeling Network Specification.

``node.csv`` (node_id, x_coord, y_coord; optional name, zone_id, node_type and through), ``link.csv`` (from_node_id,
to_node_id; a time, or length and free_speed; optional link_id, cost, directed, geometry or geometry_id, and the
capacities of ``TransportNetwork``), ``demand.csv`` (origin, destination, volume; optional revenue and alternative_time)
and, optional, ``geometry.csv`` (geometry_id, geometry) and ``config.csv`` (dataset_name, crs, long_length, currency).

Paths do not pass a node whose ``through`` is false or, where it says nothing, whose ``node_type`` is centroid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from blocc.errors import ProblemError
from blocc.networks.checked_rows import FALSE, PLACE, TRUE, finite, identifier, is_blank
from blocc.networks.line_geometry import GEOGRAPHIC, line_of
from blocc.networks.model import OPTIONAL_LINK_COLUMNS, NodeId, Units
from blocc.networks.readers.raw import Complaints, Demand, RawNetwork, Row, not_used, read_csv

NODE = {"id": ("node_id",), "x": ("x_coord",), "y": ("y_coord",)}
NODE |= {name: (name,) for name in ("name", "zone_id", "node_type", "through")}
LINK = {
    "from": ("from_node_id",),
    "to": ("to_node_id",),
    "time": ("time", "vdf_fftt", "free_flow_time", "fftt"),
    **{name: (name,) for name in ("link_id", "free_speed", "cost", "directed", "geometry", "geometry_id")},
    **{name: (name,) for name in OPTIONAL_LINK_COLUMNS},
}
MARKET = {
    "origin": ("o_zone_id", "origin"),
    "destination": ("d_zone_id", "destination"),
    "demand": ("volume", "demand"),
    "revenue": ("revenue",),
    "alternative_time": ("alternative_time",),
}
#: The last six are not of the specification.
CONFIG = {
    name: (name,)
    for name in (
        *("dataset_name", "crs", "long_length", "speed", "currency"),
        *("start_low", "start_high", "time_unit", "time_factor", "notes", "assumptions"),
    )
}
PER_HOUR = ("kph", "km/h", "kmh", "kmph", "mph", "mi/h", "mile/h", "miles/h")
GEOMETRY = {"geometry_id": ("geometry_id",), "geometry": ("geometry",)}


def read_folder(folder: Path) -> RawNetwork:
    """The raw network that the CSV files of a folder describe."""
    raw = read_streets(folder, LINK)
    raw.zones, notes = _zones(raw.nodes)
    raw.assumptions.extend(notes)
    read_demand(folder, raw)
    return raw


def read_streets(folder: Path, link_columns: Mapping[str, tuple[str, ...]]) -> RawNetwork:
    """The same without the demand, and without a node for each zone.

    :param link_columns: what of ``link.csv`` is read, under which headings
    """
    node = read_csv(folder / "node.csv", NODE, ("id", "x", "y"))
    link = read_csv(folder / "link.csv", link_columns, ("from", "to"))
    config = read_config(folder)
    name = config.get("dataset_name") or folder.resolve().name or "network"
    names = {"x": "lon", "y": "lat"} if config.get("crs", "").lower() in GEOGRAPHIC else {}
    starts = (config.get("start_low", ""), config.get("start_high", ""))
    lines, line_notes = _lines(folder, link.rows)
    assumptions = [line for line in config.get("assumptions", "").splitlines() if line]
    assumptions += [*not_used(node.unused, "node.csv"), *not_used(link.unused, "link.csv"), *line_notes]
    return RawNetwork(
        name=name,
        nodes=[{names.get(key, key): value for key, value in _node(row).items()} for row in node.rows],
        links=_links(link.rows, lines, name),
        markets=None,
        zones_from="node.csv",
        start_range=starts if any(starts) else None,
        notes=config.get("notes", ""),
        assumptions=assumptions,
        crs=config.get("crs", ""),
        says_coordinates=bool(config.get("crs")),
        units=_units(config, all(is_blank(row.get("time")) for row in link.rows)),
        demand_expected=f"demand.csv in {folder}",
    )


def read_demand(folder: Path, raw: RawNetwork) -> None:
    """Give a network the demand of its folder, where that has any."""
    if (folder / "demand.csv").is_file():
        demand = read_csv(folder / "demand.csv", MARKET, ("origin", "destination", "demand"))
        raw.set_demand(Demand(demand.rows, tuple(not_used(demand.unused, "demand.csv"))), keep_zero=True)


def _node(row: Mapping[str, str]) -> Row:
    """A node without its type, which only says whether paths pass it."""
    through = row.get("through", "")
    if is_blank(through) and row.get("node_type", "").lower() == "centroid":
        through = "false"
    return {**{key: value for key, value in row.items() if key != "node_type"}, "through": through}


def _lines(folder: Path, links: Iterable[Mapping[str, str]]) -> tuple[dict[str, Any], list[str]]:
    """Lines by their text and by their id, and a note about texts that are no lines."""
    path = folder / "geometry.csv"
    rows = read_csv(path, GEOMETRY, ("geometry_id", "geometry")).rows if path.is_file() else []
    texts = {row["geometry_id"]: row["geometry"] for row in rows}
    for row in links:
        if text := row.get("geometry", ""):
            texts[text] = text
    lines = {key: line_of(text) for key, text in texts.items()}
    wrong = sum(line is None for line in lines.values())
    note = f"Not used: the geometry of {wrong} links, which is not a LINESTRING; they are drawn straight."
    return lines, [note] if wrong else []


def read_config(folder: Path) -> Mapping[str, str]:
    """The one row of config.csv; empty where the folder has none."""
    path = folder / "config.csv"
    rows = read_csv(path, CONFIG, ()).rows if path.is_file() else []
    return rows[0] if rows else {}


def _units(config: Mapping[str, str], is_by_speed: bool) -> Units:
    """The units that a folder names; where all times are lengths over speeds, the speed tells that of time."""
    factor = finite(config.get("time_factor") or 1.0) or 0.0
    if factor <= 0:
        raise ProblemError(f"config.csv: time_factor must be a number above 0, got {config['time_factor']!r:.60}")
    times = config.get("time_unit", "") or ("h" if is_by_speed and config.get("speed", "").lower() in PER_HOUR else "")
    return Units(times, factor, config.get("long_length", ""), config.get("currency", ""))


def _links(records: list[dict[str, str]], lines: Mapping[str, Any], name: str) -> list[Row]:
    """One row for each direction."""
    complaints = Complaints(name)
    rows: list[Row] = []
    for record in records:
        row: dict[str, Any] = {key: value for key, value in record.items() if key not in ("directed", "geometry_id")}
        line = lines.get(record.get("geometry") or record.get("geometry_id", ""))
        rows.append({**row, "geometry": line})
        place = row[PLACE]
        directed = record.get("directed", "").lower().removesuffix(".0")
        if directed in FALSE:
            back = {"from": row["to"], "to": row["from"], "geometry": None if line is None else line[::-1]}
            rows.append({**row, **back, PLACE: f"{place} (the way back: directed is {record['directed']})"})
        elif directed and directed not in TRUE:
            complaints.add(place, f"directed {record['directed']!r} must be 1 or true (one way), or 0 or false (both)")
    complaints.raise_if_any()
    return rows


def _zones(nodes: Iterable[Row]) -> tuple[dict[NodeId, NodeId] | None, tuple[str, ...]]:
    """The first node of each zone; None where no node names one."""
    zones: dict[NodeId, NodeId] = {}
    shared: set[NodeId] = set()
    for row in nodes:
        zone, node = identifier(row.get("zone_id")), identifier(row["id"])
        if zone is None or node is None:
            continue
        if zone in zones and zones[zone] != node:
            shared.add(zone)
        zones.setdefault(zone, node)
    if not zones:
        return None, ()
    note = f"Demand of {len(shared)} zones with several nodes in node.csv: the first node takes it."
    return zones, (note,) if shared else ()
