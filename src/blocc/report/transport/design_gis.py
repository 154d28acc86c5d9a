"""A design for a GIS: GeoJSON and GeoPackage, nodes as points and all candidate links as lines, with their figures.

A GeoPackage is an SQLite file with some tables of fixed names (OGC 12-128r19); geometries are well-known binary behind
a short header. Python's own sqlite3 writes it.
"""

from __future__ import annotations

import math
import re
import sqlite3
import struct
from collections.abc import Sequence
from typing import Any

from blocc._lib.files import plain
from blocc.report.transport.design_columns import LINK_FIELDS
from blocc.report.transport.design_series import link_rows
from blocc.transport.design.design_result import Design
from blocc.transport.network.network import TransportNetwork

_EPSG = re.compile(r"(?:epsg:|urn:ogc:def:crs:epsg::)?(\d{4,6})", flags=re.IGNORECASE)
_WGS84 = 4326
#: The table of reference systems knows two that are unknown: plane coordinates are -1, angles 0.
_UNKNOWN_PLANE = -1

_TABLES = """
CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT NOT NULL, srs_id INTEGER PRIMARY KEY, organization TEXT NOT NULL,
  organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL, description TEXT);
CREATE TABLE gpkg_contents (table_name TEXT PRIMARY KEY, data_type TEXT NOT NULL, identifier TEXT UNIQUE,
  description TEXT DEFAULT '', last_change DATETIME NOT NULL DEFAULT '2000-01-01T00:00:00.000Z', min_x DOUBLE,
  min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER REFERENCES gpkg_spatial_ref_sys(srs_id));
CREATE TABLE gpkg_geometry_columns (table_name TEXT NOT NULL, column_name TEXT NOT NULL,
  geometry_type_name TEXT NOT NULL, srs_id INTEGER NOT NULL REFERENCES gpkg_spatial_ref_sys(srs_id),
  z TINYINT NOT NULL, m TINYINT NOT NULL, PRIMARY KEY (table_name, column_name));
CREATE TABLE nodes (fid INTEGER PRIMARY KEY AUTOINCREMENT, geom POINT, id TEXT, name TEXT, zone_id TEXT);
CREATE TABLE assumptions (fid INTEGER PRIMARY KEY AUTOINCREMENT, sentence TEXT);
"""
_NAMES = ("link_id", "from", "to")  #: columns of links that hold words


def geojson(design: Design) -> dict[str, Any]:
    """The network as GeoJSON (RFC 7946).

    RFC 7946 knows longitude and latitude alone. A network on a plane keeps its own x and y, and says so in the
    top-level member ``"coordinates": "planar"``; its reference system, where it is known, stands in ``"crs"``, as in
    the format before. What was assumed is in ``"assumptions"``.
    """
    network = design.network
    features = [
        _feature("Point", place, {"kind": "node", **_node(network, node)})
        for node, place in enumerate(network.coordinates.tolist())
    ]
    for row, line in zip(link_rows(design), _lines(network), strict=True):
        features.append(_feature("LineString", line, {"kind": "link", **row}))
    about: dict[str, Any] = {} if network.geographic else {"coordinates": "planar"}
    if not network.geographic and network.crs:
        code = _epsg(network)
        name = f"urn:ogc:def:crs:EPSG::{code}" if code else network.crs
        about["crs"] = {"type": "name", "properties": {"name": name}}
    about |= {"assumptions": list(network.assumptions), "units": network.units._asdict()}
    return {"type": "FeatureCollection", "name": network.name, **about, "features": plain(features)}


def geopackage_bytes(design: Design) -> bytes:
    """The content of a GeoPackage with the layers ``nodes`` and ``links`` and a table of assumptions."""
    network = design.network
    code = _WGS84 if network.geographic else _epsg(network) or _UNKNOWN_PLANE
    places, lines = network.coordinates.tolist(), _lines(network)
    words = ", ".join(f'"{name}" {"TEXT" if name in _NAMES else "REAL"}' for name in LINK_FIELDS)
    file = sqlite3.connect(":memory:")
    file.execute("PRAGMA application_id = 1196444487")  # "GPKG"
    file.execute("PRAGMA user_version = 10300")
    file.executescript(_TABLES)
    file.execute(f"CREATE TABLE links (fid INTEGER PRIMARY KEY AUTOINCREMENT, geom LINESTRING, {words})")
    systems = [("Undefined plane", -1, "NONE", -1), ("Undefined angles", 0, "NONE", 0), ("WGS 84", 4326, "EPSG", 4326)]
    systems += [] if code in (-1, 0, _WGS84) else [(network.crs, code, "EPSG", code)]
    rows: list[tuple[Any, ...]] = [(*system, _WGS84_TEXT if system[1] == _WGS84 else "undefined") for system in systems]
    file.executemany("INSERT INTO gpkg_spatial_ref_sys VALUES (?, ?, ?, ?, ?, NULL)", rows)
    box = [*network.coordinates.min(axis=0).tolist(), *network.coordinates.max(axis=0).tolist()]
    for layer, kind in (("nodes", "POINT"), ("links", "LINESTRING")):
        contents = (layer, "features", layer, *box, code)
        columns = "(table_name, data_type, identifier, min_x, min_y, max_x, max_y, srs_id)"
        file.execute(f"INSERT INTO gpkg_contents {columns} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", contents)
        file.execute("INSERT INTO gpkg_geometry_columns VALUES (?, 'geom', ?, ?, 0, 0)", (layer, kind, code))
    about = "INSERT INTO gpkg_contents (table_name, data_type, identifier) VALUES (?, 'attributes', ?)"
    file.execute(about, ("assumptions", "assumptions"))
    file.executemany("INSERT INTO assumptions (sentence) VALUES (?)", [(_sql(line),) for line in network.assumptions])
    nodes = [
        (_binary([place], code), *(_sql(value) for value in _node(network, node).values()))
        for node, place in enumerate(places)
    ]
    file.executemany("INSERT INTO nodes (geom, id, name, zone_id) VALUES (?, ?, ?, ?)", nodes)
    links = [
        (_binary(line, code), *(_sql(row[name], name in _NAMES) for name in LINK_FIELDS))
        for row, line in zip(link_rows(design), lines, strict=True)
    ]
    marks = ", ".join("?" * (1 + len(LINK_FIELDS)))
    columns = ", ".join(f'"{name}"' for name in ("geom", *LINK_FIELDS))
    file.executemany(f"INSERT INTO links ({columns}) VALUES ({marks})", links)
    file.commit()
    content = file.serialize()
    file.close()
    return content


_WGS84_TEXT = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","4326"]]'
)


def _node(network: TransportNetwork, node: int) -> dict[str, Any]:
    return {"id": network.nodes[node], "name": network.labels[node], "zone_id": network.zone_ids[node]}


def _lines(network: TransportNetwork) -> list[list[list[float]]]:
    """The points of every link, straight from node to node where its line is not known."""
    places = network.coordinates.tolist()
    ends = zip(network.tail.tolist(), network.head.tolist(), network.geometry, strict=True)
    return [[places[i], places[j]] if line is None else line.tolist() for i, j, line in ends]


def _epsg(network: TransportNetwork) -> int | None:
    found = _EPSG.fullmatch(network.crs.strip())
    return int(found[1]) if found else None


def _feature(kind: str, coordinates: Any, properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}


def _binary(points: Sequence[Sequence[float]], code: int) -> bytes:
    """A geometry of a GeoPackage: magic, version, flags (little endian, no envelope), system; then a point or line."""
    header = struct.pack("<2sBBi", b"GP", 0, 1, code)
    if len(points) == 1:
        return header + struct.pack("<BIdd", 1, 1, *points[0])
    return header + struct.pack("<BII", 1, 2, len(points)) + b"".join(struct.pack("<dd", *point) for point in points)


def _sql(value: Any, as_text: bool = True) -> Any:
    """A value for SQLite: texts without half characters, and nothing where a number is not finite."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return str(value).encode(errors="replace").decode() if as_text else value
