"""Where things lie: the lines of links, and whether coordinates are longitudes and latitudes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import KEPT
from blocc.networks.checked_rows import finite

#: Names of systems whose coordinates are longitude and latitude.
GEOGRAPHIC = (
    *("epsg:4326", "4326", "wgs84", "wgs 84", "ogc:crs84", "crs84", "urn:ogc:def:crs:ogc:1.3:crs84"),
    *("epsg:4258", "epsg:4269", "urn:ogc:def:crs:epsg::4326"),
)
_LINE = re.compile(r"\s*linestring\s*z?\s*\((.*)\)\s*", flags=re.IGNORECASE | re.DOTALL)

Line = Float[NDArray, "points 2"]


def line_of(value: Any) -> Line | None:
    """The points of a line: a list of points, or text such as "LINESTRING (0 0, 1 2)"; None where it is neither."""
    if isinstance(value, str):
        found = _LINE.fullmatch(value)
        if found is None:
            return None
        points: Iterable[Any] = (point.split() for point in found[1].split(","))
    elif isinstance(value, (list, tuple, np.ndarray)):
        points = value
    else:
        return None
    rows = []
    for point in points:
        if not isinstance(point, (list, tuple, np.ndarray)) or len(point) not in (2, 3):
            return None
        place = [finite(part) for part in point[:2]]
        if None in place:
            return None
        rows.append(place)
    return np.array(rows, dtype=float) if len(rows) >= 2 else None


def line_text(line: Line) -> str:
    """A line as WKT (well-known text)."""
    return "LINESTRING (" + ", ".join(f"{x!r} {y!r}" for x, y in line.tolist()) + ")"


def looks_geographic(coordinates: Float[NDArray, "nodes 2"]) -> bool:
    """Whether coordinates that nobody explains are longitudes and latitudes of one region.

    They lie within the bounds of such figures, have decimals, and are far from the origin, where plane coordinates of
    this size would begin.
    """
    if not len(coordinates) or not np.isfinite(coordinates).all():
        return False
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    inside = bool((np.abs(coordinates) <= (180.0, 90.0)).all())
    extent = float((high - low).max())
    far = float(np.hypot(*(0.5 * (low + high)))) > 3.0 * extent
    decimals = float(np.mean(np.abs(100.0 * coordinates - np.round(100.0 * coordinates)) > KEPT)) > 0.5
    return inside and far and decimals
