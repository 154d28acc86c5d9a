"""The format of this package: one JSON document, one row on each line.

``{"format": "blocc-network", "version": 1, "name": ..., "units": ..., "start_range": [low, high], "notes": ...,
"crs": ..., "unit_names": {...}, "assumptions": [...], "nodes": [...], "links": [...], "markets": [...]}``; rows are
those of ``TransportNetwork.from_tables``.
"""

from __future__ import annotations

import json
from typing import Any

from blocc._lib.files import unique_keys
from blocc.errors import ProblemError
from blocc.networks.checked_rows import PLACE, finite
from blocc.networks.model import NO_UNITS, OPTIONAL_LINK_COLUMNS, Units
from blocc.networks.readers.raw import RawNetwork, not_used
from blocc.transport.network.network import LINK_COLUMNS, MARKET_COLUMNS, TransportNetwork

FORMAT = "blocc-network"
VERSION = 1
UNITS = (
    "time is the disutility of one passenger (a time multiplied by its value); demand, flow and capacity share one "
    "passenger unit; cost is per unit of capacity; revenue is per passenger"
)
#: What rows may hold; anything else is told to be left unused. Lengths and speeds are for rules.
KNOWN = {
    "nodes": ("id", "x", "y", "lon", "lat", "name", "zone_id", "through"),
    "links": ("from", "to", *LINK_COLUMNS, *OPTIONAL_LINK_COLUMNS, "link_id", "geometry", "free_speed"),
    "markets": ("origin", "destination", *MARKET_COLUMNS),
}
TABLES = tuple(KNOWN)
#: What the document itself may hold.
KEYS = ("format", "version", "name", "units", "start_range", "notes", "crs", "unit_names", "assumptions", *TABLES)


def parse(text: str, source: str) -> RawNetwork:
    """The raw network that a document describes; ``source`` is what errors call it."""
    try:
        document = json.loads(text, object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        raise ProblemError(f"{source} line {error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a key twice, endless digits or brackets
        raise ProblemError(f"{source}: not JSON that can be read: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ProblemError(f'{source} is not a network: it must be an object with "format": "{FORMAT}"')
    if document.get("version") != VERSION:
        raise ProblemError(
            f"{source} has version {document.get('version')!r} of the format; this blocc reads {VERSION}"
        )
    tables = {table: _rows(document, table, source) for table in TABLES}
    return RawNetwork(
        name=_text(document, "name", source, source),
        nodes=tables["nodes"],
        links=tables["links"],
        markets=tables["markets"],
        start_range=document.get("start_range"),
        notes=_text(document, "notes", "", source),
        assumptions=[*_texts(document, "assumptions", source), *_unused(document, tables, source)],
        crs=_text(document, "crs", "", source),
        says_coordinates=True,
        units=_units(document.get("unit_names", {}), source),
        demand_expected=f'"markets" in {source}',
    )


def render(network: TransportNetwork) -> bytes:
    """The document of a network, one row on each line so that differences can be read."""
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION, "name": network.name, "units": UNITS}
    if network.start_range is not None:
        head["start_range"] = list(network.start_range)
    named = {name: value for name, value in network.units._asdict().items() if value != getattr(NO_UNITS, name)}
    more = {"notes": network.notes, "crs": network.crs, "unit_names": named, "assumptions": list(network.assumptions)}
    head |= {key: value for key, value in more.items() if value}
    parts = [f"{_json(key)}: {_json(value)}" for key, value in head.items()]
    for table, rows in zip(TABLES, (network.node_rows(), network.link_rows(), network.market_rows()), strict=True):
        parts.append(f"{_json(table)}: [\n  " + ",\n  ".join(map(_json, rows)) + "\n]")
    text = "{\n" + ",\n".join(parts) + "\n}\n"
    return text.encode(errors="backslashreplace")  # half a surrogate pair, in the way that JSON writes it


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _rows(document: dict[str, Any], table: str, source: str) -> list[dict[str, Any]]:
    rows = document.get(table)
    if not isinstance(rows, list):
        found = "is missing" if rows is None else f"is {type(rows).__name__}"
        raise ProblemError(f'{source}: "{table}" {found}; it must be a list of objects')
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ProblemError(f"{source} {table} row {number}: must be an object with named figures, got {row!r:.60}")
    return [{**row, PLACE: f"{source} {table} row {number}"} for number, row in enumerate(rows, 1)]


def _text(document: dict[str, Any], key: str, default: str, source: str) -> str:
    value = document.get(key, default)
    if not isinstance(value, str):
        raise ProblemError(f'{source}: "{key}" must be a text, got {value!r:.60}')
    return value


def _unused(document: dict[str, Any], tables: dict[str, list[dict[str, Any]]], source: str) -> list[str]:
    """What the document and its rows hold that nothing reads."""
    sentences = not_used([key for key in document if key not in KEYS], source)
    for table, rows in tables.items():
        found = dict.fromkeys(key for row in rows for key in row if key not in (*KNOWN[table], PLACE))
        sentences += not_used(list(found), f"{table} in {source}")
    return sentences


def _texts(document: dict[str, Any], key: str, source: str) -> list[str]:
    value = document.get(key, [])
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise ProblemError(f'{source}: "{key}" must be a list of texts, got {value!r:.60}')
    return value


def _units(value: Any, source: str) -> Units:
    """The names of units, and the disutility of a unit of time."""
    known = isinstance(value, dict) and set(value) <= set(Units._fields)
    factor = finite(value.get("time_factor", 1.0)) if known else None
    texts = known and all(isinstance(text, str) for name, text in value.items() if name != "time_factor")
    if not texts or factor is None or factor <= 0:
        expected = ", ".join(Units._fields)
        raise ProblemError(f'{source}: "unit_names" must be an object with some of {expected}, got {value!r:.60}')
    return Units(**{**value, "time_factor": factor})
