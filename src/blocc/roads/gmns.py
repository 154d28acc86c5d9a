"""Road networks out of GMNS folders: what of ``link.csv`` makes a travel time, in which units; how zones are joined.

- Free flow time, in minutes: ``VDF_fftt1`` (or ``VDF_fftt``, ``free_flow_time``, ``fftt``); where there is none, length
  over ``free_speed``, times 60, with the units of ``config.csv`` (``long_length`` and ``speed``) where it names them.
- Capacity of all lanes: ``VDF_cap1`` (or ``VDF_cap``); where there is none, ``capacity``, which the specification
  counts for one hour and one lane, times ``lanes``.
- b is ``VDF_alpha1`` (or ``VDF_alpha``, ``bpr_a``, ``alpha``, ``b``), power ``VDF_beta1`` (or ``VDF_beta``, ``bpr_b``,
  ``beta``, ``power``). The toll, ``VDF_toll1`` (or ``VDF_toll``, ``toll``), counts as minutes.

A zone is the node of type centroid that has its ``zone_id``, or the only node that has it. A zone of several nodes gets
a centroid, with connectors that take no time to all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from blocc._lib.rounding import TINY
from blocc.errors import ProblemError
from blocc.networks.checked_rows import (
    FALSE,
    LARGEST,
    PLACE,
    Table,
    finite,
    identifier,
    is_blank,
    raise_if_any,
)
from blocc.networks.model import NodeId
from blocc.networks.readers.gmns import read_config, read_demand, read_streets
from blocc.networks.readers.raw import RawNetwork, Row

LINK = {
    "from": ("from_node_id",),
    "to": ("to_node_id",),
    "time": ("vdf_fftt1", "vdf_fftt", "free_flow_time", "fftt"),
    "total_capacity": ("vdf_cap1", "vdf_cap"),
    "b": ("vdf_alpha1", "vdf_alpha", "bpr_a", "alpha", "b"),
    "power": ("vdf_beta1", "vdf_beta", "bpr_b", "beta", "power"),
    "toll": ("vdf_toll1", "vdf_toll", "toll"),
    **{
        name: (name,)
        for name in ("link_id", "length", "free_speed", "capacity", "lanes", "directed", "geometry", "geometry_id")
    },
}
#: Kilometres in a unit of length, and kilometres an hour in a unit of speed.
KILOMETRES = {
    **dict.fromkeys(("km", "kilometer", "kilometers", "kilometre", "kilometres"), 1.0),
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), 1e-3),
    **dict.fromkeys(("mi", "mile", "miles"), 1.609344),
    **dict.fromkeys(("ft", "foot", "feet"), 0.3048e-3),
}
SPEEDS = {
    **dict.fromkeys(("kph", "km/h", "kmh", "kmph"), 1.0),
    **dict.fromkeys(("mph", "mi/h", "mile/h", "miles/h"), 1.609344),
    **dict.fromkeys(("m/s", "mps"), 3.6),
}


def read_gmns(folder: Path) -> RawNetwork:
    """The raw network of a folder: its links have free_flow_time, capacity and what else of BPR the file has."""
    raw = read_streets(folder, LINK)
    _join_zones(raw)
    read_demand(folder, raw)
    minutes, unit_note = _minutes(read_config(folder))
    table = Table("links", raw.links)
    rows = _named_back([_link(table, row, minutes) for row in range(len(raw.links))])
    raise_if_any(raw.name, (table,))
    raw.assumptions += _sentences(raw.links, unit_note)
    raw.links = rows
    return raw


def _link(table: Table, row: int, minutes: float) -> Row:
    """A link with its free flow time and the capacity of all its lanes."""
    record = dict(table.data[row])
    if is_blank(record.get("time")) and not is_blank(record.get("length")) and not is_blank(record.get("free_speed")):
        length, speed = table.number(row, "length", least=0.0), table.number(row, "free_speed")
        if speed <= 0.0:
            table.complain(row, "free_speed", "must be above 0")
        record["free_flow_time"] = minutes * length / max(speed, TINY)
    elif is_blank(record.get("time")):
        table.complain(row, "time", "is missing: give VDF_fftt1, or length and free_speed")
    else:
        record["free_flow_time"] = record["time"]
    if not is_blank(record.get("total_capacity")):
        record["capacity"] = record["total_capacity"]
    elif is_blank(record.get("capacity")):
        table.complain(row, "capacity", "is missing: give it (for one lane), or VDF_cap1 (for all)")
    else:
        lanes = 1.0 if is_blank(record.get("lanes")) else table.number(row, "lanes", least=0.0)
        record["capacity"] = table.number(row, "capacity", least=0.0) * lanes
    return record


def _named_back(rows: list[Row]) -> list[Row]:
    """Names of their own for the ways back of links that are not directed, which a file names once."""
    first: dict[NodeId, Row] = {}
    named = []
    for row in rows:
        key = identifier(row.get("link_id"))
        other = None if key is None else first.setdefault(key, row)
        is_back = other is not None and (other["from"], other["to"]) == (row["to"], row["from"])
        named.append({**row, "link_id": f"{key} back"} if is_back else row)
    return named


def _minutes(config: Mapping[str, str]) -> tuple[float, str]:
    """Minutes that a unit of length takes at a unit of speed, and in which units that is."""
    length, speed = (config.get(name, "").strip().lower() for name in ("long_length", "speed"))
    if not length and not speed:
        return 60.0, "minutes if speeds are in that unit of length per hour, since config.csv names no units"
    if length and length not in KILOMETRES:
        raise ProblemError(f"config.csv: long_length {length!r:.40} must be one of {', '.join(KILOMETRES)}")
    if speed and speed not in SPEEDS:
        raise ProblemError(f"config.csv: speed {speed!r:.40} must be one of {', '.join(SPEEDS)}")
    if not length:
        length = "mi" if SPEEDS[speed] == SPEEDS["mph"] else "km"
    elif not speed:
        speed = "mph" if length in ("mi", "mile", "miles", "ft", "foot", "feet") else "km/h"
    return 60.0 * KILOMETRES[length] / SPEEDS[speed], f"minutes, with lengths in {length} and speeds in {speed}"


def _sentences(links: Sequence[Row], unit_note: str) -> list[str]:
    """Which figures make times and capacities, and of how many links."""
    own = [row for row in links if not row.get("is_connector")]
    by_speed = sum(is_blank(row.get("time")) for row in own)
    by_lanes = sum(is_blank(row.get("total_capacity")) for row in own)
    no_lanes = sum(is_blank(row.get("total_capacity")) and is_blank(row.get("lanes")) for row in own)
    tolled = sum((finite(row.get("toll")) or 0.0) > 0.0 for row in own)
    lines = []
    if by_speed < len(own):
        lines.append(f"Free flow times of {len(own) - by_speed} links are taken as minutes.")
    if by_speed:
        lines.append(f"Free flow times of {by_speed} links are 60 * length / free_speed: {unit_note}.")
    if by_lanes < len(own):
        lines.append(f"Capacities of {len(own) - by_lanes} links (VDF_cap) are taken as those of all lanes together.")
    if by_lanes:
        alone = f"; {no_lanes} links that name no lanes have one" if no_lanes else ""
        lines.append(f"Capacities of {by_lanes} links are capacity * lanes, for one hour{alone}.")
    if tolled:
        lines.append(f"Tolls of {tolled} links are taken as minutes, as they stand.")
    return [*lines, "Trips are taken to be of the period that capacities are of; nothing was converted."]


def _join_zones(raw: RawNetwork) -> None:
    """A node for each zone: the one there is, or a centroid with connectors."""
    members: dict[NodeId, list[Row]] = {}
    for row in raw.nodes:
        if (zone := identifier(row.get("zone_id"))) is not None and identifier(row.get("id")) is not None:
            members.setdefault(zone, []).append(row)
    if not members:
        return
    zones: dict[NodeId, NodeId] = {}
    nodes, links = list(raw.nodes), list(raw.links)
    joined = 0
    for zone, rows in members.items():
        centroids = [row for row in rows if str(row.get("through", "")).strip().lower() in FALSE]
        if centroids or len(rows) == 1:
            zones[zone] = identifier((centroids or rows)[0]["id"])  # type: ignore[assignment]
            continue
        joined += 1
        zones[zone] = centroid = f"zone {zone}"
        axes = [axis for axis in ("x", "y", "lon", "lat") if axis in rows[0]]
        middle = {axis: float(np.mean([finite(row[axis]) or 0.0 for row in rows])) for axis in axes}
        nodes.append({"id": centroid, **middle, "through": "false", PLACE: f"node.csv zone {zone}"})
        for row in rows:
            links += [_connector(centroid, row["id"], zone), _connector(row["id"], centroid, zone)]
    raw.zones, raw.nodes, raw.links = zones, nodes, links
    if joined:
        raw.assumptions.append(
            f"Invented: centroids of {joined} zones that have several nodes, with connectors that take no time."
        )


def _connector(start: NodeId, end: NodeId, zone: NodeId) -> Row:
    figures = {"time": 0.0, "total_capacity": LARGEST, "b": 0.0, "power": 1.0, "is_connector": True}
    return {"from": start, "to": end, "link_id": f"{start} > {end}", **figures, PLACE: f"node.csv zone {zone}"}
