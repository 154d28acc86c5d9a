"""A network for a GIS: GeoJSON and GeoPackage, nodes as points and links as lines, with their figures.

A GeoPackage is an SQLite file with some tables of fixed names (OGC 12-128r19); geometries are well-known binary behind
a short header. Python's own sqlite3 writes it.
"""

from __future__ import annotations

import math
import re
import sqlite3
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from blocc._lib.arrays import Float, NDArray
from blocc._lib.files import plain

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
CREATE TABLE assumptions (fid INTEGER PRIMARY KEY AUTOINCREMENT, sentence TEXT);
"""
_NAMES = ("link_id", "from", "to")  #: columns of links that hold words


class Layers(NamedTuple):
    """What a GIS is told about a network."""

    name: str
    places: Float[NDArray, "nodes 2"]
    geographic: bool  #: longitude and latitude; otherwise x and y on a plane
    crs: str  #: the reference system of a plane, where it is known
    nodes: list[dict[str, Any]]
    links: list[dict[str, Any]]
    lines: list[list[list[float]]]  #: the points of every link
    assumptions: tuple[str, ...]
    units: dict[str, str]


def geojson(layers: Layers) -> dict[str, Any]:
    """The network as GeoJSON (RFC 7946).

    RFC 7946 knows longitude and latitude alone. A network on a plane keeps its own x and y, and says so in the
    top-level member ``"coordinates": "planar"``; its reference system, where it is known, stands in ``"crs"``, as in
    the format before. What was assumed is in ``"assumptions"``.
    """
    features = [
        _feature("Point", place, {"kind": "node", **row})
        for row, place in zip(layers.nodes, layers.places.tolist(), strict=True)
    ]
    for row, line in zip(layers.links, layers.lines, strict=True):
        features.append(_feature("LineString", line, {"kind": "link", **row}))
    about: dict[str, Any] = {} if layers.geographic else {"coordinates": "planar"}
    if not layers.geographic and layers.crs:
        code = _epsg(layers.crs)
        name = f"urn:ogc:def:crs:EPSG::{code}" if code else layers.crs
        about["crs"] = {"type": "name", "properties": {"name": name}}
    about |= {"assumptions": list(layers.assumptions), "units": layers.units}
    return {"type": "FeatureCollection", "name": layers.name, **about, "features": plain(features)}


def geopackage_bytes(layers: Layers) -> bytes:
    """The content of a GeoPackage with the layers ``nodes`` and ``links`` and a table of assumptions."""
    code = _WGS84 if layers.geographic else _epsg(layers.crs) or _UNKNOWN_PLANE
    file = sqlite3.connect(":memory:")
    file.execute("PRAGMA application_id = 1196444487")  # "GPKG"
    file.execute("PRAGMA user_version = 10300")
    file.executescript(_TABLES)
    systems = [("Undefined plane", -1, "NONE", -1), ("Undefined angles", 0, "NONE", 0), ("WGS 84", 4326, "EPSG", 4326)]
    systems += [] if code in (-1, 0, _WGS84) else [(layers.crs, code, "EPSG", code)]
    rows: list[tuple[Any, ...]] = [(*system, _WGS84_TEXT if system[1] == _WGS84 else "undefined") for system in systems]
    file.executemany("INSERT INTO gpkg_spatial_ref_sys VALUES (?, ?, ?, ?, ?, NULL)", rows)
    box = [*layers.places.min(axis=0).tolist(), *layers.places.max(axis=0).tolist()]
    points = [[place] for place in layers.places.tolist()]
    _add_layer(file, "nodes", "POINT", layers.nodes, points, code, box, dict.fromkeys(layers.nodes[0], "TEXT"))
    kinds = {name: "TEXT" if name in _NAMES else "REAL" for name in layers.links[0]}
    _add_layer(file, "links", "LINESTRING", layers.links, layers.lines, code, box, kinds)
    about = "INSERT INTO gpkg_contents (table_name, data_type, identifier) VALUES (?, 'attributes', ?)"
    file.execute(about, ("assumptions", "assumptions"))
    file.executemany("INSERT INTO assumptions (sentence) VALUES (?)", [(_sql(line),) for line in layers.assumptions])
    file.commit()
    content = file.serialize()
    file.close()
    return content


def _add_layer(
    file: sqlite3.Connection,
    layer: str,
    geometry: str,
    rows: list[dict[str, Any]],
    shapes: Sequence[Sequence[Sequence[float]]],
    code: int,
    box: list[float],
    kinds: dict[str, str],
) -> None:
    words = ", ".join(f'"{name}" {kind}' for name, kind in kinds.items())
    file.execute(f"CREATE TABLE {layer} (fid INTEGER PRIMARY KEY AUTOINCREMENT, geom {geometry}, {words})")
    columns = "(table_name, data_type, identifier, min_x, min_y, max_x, max_y, srs_id)"
    file.execute(
        f"INSERT INTO gpkg_contents {columns} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (layer, "features", layer, *box, code)
    )
    file.execute("INSERT INTO gpkg_geometry_columns VALUES (?, 'geom', ?, ?, 0, 0)", (layer, geometry, code))
    records = [
        (_binary(shape, code), *(_sql(row[name], kind == "TEXT") for name, kind in kinds.items()))
        for row, shape in zip(rows, shapes, strict=True)
    ]
    marks, names = ", ".join("?" * (1 + len(kinds))), ", ".join(f'"{name}"' for name in ("geom", *kinds))
    file.executemany(f"INSERT INTO {layer} ({names}) VALUES ({marks})", records)


_WGS84_TEXT = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","4326"]]'
)


def _epsg(crs: str) -> int | None:
    found = _EPSG.fullmatch(crs.strip())
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
