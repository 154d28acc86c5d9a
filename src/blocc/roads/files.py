"""Road networks out of files: TNTP, GMNS, the JSON format of this package, and Sioux Falls by its name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from blocc._lib.files import parse_json
from blocc.errors import OptionError, ProblemError
from blocc.networks.readers.formats import located
from blocc.networks.readers.omx import read_demand_matrix
from blocc.networks.readers.raw import RawNetwork, read_text
from blocc.networks.readers.tntp import read_tntp
from blocc.roads.gmns import read_gmns
from blocc.roads.network import RoadNetwork

BUILT_IN = {"sioux-falls": "sioux_falls.json"}
FORMAT, VERSION = "blocc-roads", 1


def read_road_network(
    source: str | Path,
    *,
    demand_omx: str | Path | None = None,
    matrix: str | None = None,
    mapping: str | None = None,
    default_bpr: tuple[float, float] | None = None,
    drop_unreachable: bool = False,
) -> RoadNetwork:
    """Read a road network: "sioux-falls", ``NAME_net.tntp`` with its trips beside it, a GMNS folder, or ``.json``.

    Of a TNTP file capacity, length, free flow time, b, power and toll are used, and ``<FIRST THRU NODE>``; speed and
    link type are not. Tolls count as they stand in the file, in units of time. What a GMNS folder is used for, and in
    which units, :mod:`blocc.roads.gmns` says. What was assumed is in the network's ``assumptions``.

    :param demand_omx: take the trips from this OMX file instead; ``matrix`` and ``mapping`` say which of its arrays
    :param default_bpr: b and power of links that have none, with a note, instead of an error; (0.15, 4) is usual
    :param drop_unreachable: leave out trips that no path can serve, with a note, instead of an error
    """
    demand = read_demand_matrix(demand_omx, matrix, mapping)
    more: dict[str, Any] = {"default_bpr": default_bpr, "drop_unreachable": drop_unreachable}
    kind, path = located(source, BUILT_IN, "road network")
    if kind in ("built-in", "json"):
        if demand is not None:
            raise OptionError("demand_omx replaces the trips of TNTP and GMNS files, not those of a .json file")
        own = files("blocc.roads").joinpath("data", BUILT_IN.get(str(path), ""))
        return _from_json(read_text(path) if kind == "json" else own.read_text("utf-8"), path.name, more)
    raw = _tntp(path) if kind == "tntp" else read_gmns(path)
    if demand is not None:
        raw.set_demand(demand, keep_zero=False)
    if raw.markets is None:
        raise ProblemError(f"{path.name}: no trips; expected {raw.demand_expected}, or an OMX file (demand_omx)")
    return RoadNetwork.from_tables(
        raw.nodes, raw.links, raw.markets, name=raw.name, assumptions=raw.assumptions, **more
    )


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


def _tntp(path: Path) -> RawNetwork:
    raw = read_tntp(path)
    raw.links = [{**row, "free_flow_time": row.get("time")} for row in raw.links]
    # What the other application leaves unused is used here.
    notes = [note for note in raw.assumptions if not note.startswith("Not used: capacity")]
    notes = [note.replace("a link costs its time alone", "a link costs its time and its toll") for note in notes]
    raw.assumptions = [*notes, f"Not used: speed and link type of {path.name}."]
    return raw


def _from_json(text: str, source: str, more: dict[str, Any]) -> RoadNetwork:
    document = parse_json(text, source, ProblemError)
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
        **more,
    )
