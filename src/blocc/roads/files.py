"""Road networks out of files: TNTP, the JSON format of this package, and Sioux Falls by its name."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from blocc.errors import BloccError, OptionError, ProblemError
from blocc.roads.network import RoadNetwork
from blocc.transport.network.readers.raw import read_text
from blocc.transport.network.readers.tntp import SUFFIX, read_tntp

BUILT_IN = {"sioux-falls": "sioux_falls.json"}
FORMAT, VERSION = "blocc-roads", 1


def read_road_network(source: str | Path, *, drop_unreachable: bool = False) -> RoadNetwork:
    """Read a road network: "sioux-falls", a ``NAME_net.tntp`` file with its trips beside it, or a ``.json`` file.

    Of a TNTP file capacity, length, free flow time, b, power and toll are used, and ``<FIRST THRU NODE>``; speed and
    link type are not. Tolls count as they stand in the file, in units of time.

    :param drop_unreachable: leave out trips that no path can serve, with a note, instead of an error
    """
    if isinstance(source, str) and source in BUILT_IN:
        text = files("blocc.roads").joinpath("data", BUILT_IN[source]).read_text("utf-8")
        return _from_json(text, source, drop_unreachable)
    if not isinstance(source, (str, Path)):
        raise OptionError(f"source must be a built-in name or a path, got {type(source).__name__}")
    path = Path(source)
    if not path.is_file():
        known = ", ".join(BUILT_IN)
        raise BloccError(
            f"there is no road network {str(path)!r}; built in: {known}; otherwise a *{SUFFIX} or .json file"
        )
    if path.name.lower().endswith(SUFFIX):
        return _from_tntp(path, drop_unreachable)
    if path.suffix.lower() == ".json":
        return _from_json(read_text(path), path.name, drop_unreachable)
    raise BloccError(f"{path} is not a road network that blocc knows: it must be a *{SUFFIX} or a .json file")


def network_document(network: RoadNetwork) -> dict[str, Any]:
    """A network in the JSON format of this package, which :func:`read_road_network` reads."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": network.name,
        "assumptions": list(network.assumptions),
        "nodes": network.node_rows(),
        "links": network.link_rows(),
        "trips": network.trip_rows(),
    }


def _from_tntp(path: Path, drop_unreachable: bool) -> RoadNetwork:
    raw = read_tntp(path)
    if raw.markets is None:
        raise ProblemError(f"{path.name}: no trips; {raw.demand_expected} is missing")
    links = [{**row, "free_flow_time": row.get("time")} for row in raw.links]
    missing = [name for name in ("b", "power") if name not in links[0]]
    if missing:
        raise ProblemError(f"{path.name}: links have no {' and no '.join(missing)}, which their travel times need")
    # What the other application leaves unused is used here.
    notes = [note for note in raw.assumptions if not note.startswith("Not used: capacity")]
    notes.append(f"Not used: speed and link type of {path.name}.")
    return RoadNetwork.from_tables(
        raw.nodes, links, raw.markets, name=raw.name, assumptions=notes, drop_unreachable=drop_unreachable
    )


def _from_json(text: str, source: str, drop_unreachable: bool) -> RoadNetwork:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"{source}: not JSON that can be read: {error}") from None
    if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise ProblemError(f'{source} is not a road network: it needs "format": "{FORMAT}" and "version": {VERSION}')
    tables: dict[str, Any] = {}
    for table in ("nodes", "links", "trips"):
        rows = document.get(table)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ProblemError(f"{source}: {table!r} must be a list of objects")
        tables[table] = rows
    notes = document.get("assumptions", [])
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise ProblemError(f"{source}: 'assumptions' must be a list of texts")
    return RoadNetwork.from_tables(
        **tables,
        name=str(document.get("name", source)),
        assumptions=notes,
        drop_unreachable=drop_unreachable,
    )
